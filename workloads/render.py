"""From a workload to the manifests that every cloud gets: pure, so that it can be compared and tested without a cluster.

`load` reads a workload file, `render` turns it into a PyTorchJob with its volume claims. Nothing here knows a cloud:
the few names that differ come in as a `Binding`. It will not submit anything (isthmus.runs) nor check what a cluster has
room for (workloads/fit.py).
"""

from collections.abc import Mapping
from typing import Any

from isthmus.kube.objects import quantity
from isthmus.specs import labels
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.workload import Role, Volume, WorkloadSpec
from workloads.bindings import Binding
from workloads.load import load, samples

__all__ = ["config_map", "job_name", "load", "namespace", "render", "samples"]

Object = dict[str, Any]

CONTAINER = "pytorch"
"""The container name that the operator looks for (training-operator v1.9.3, pkg/apis/kubeflow.org/v1/pytorch_types.go)."""

USER = 65532
"""Uid and group of workload containers: not root, and the number that images without a shell use for nobody."""


def render(
    spec: WorkloadSpec,
    *,
    namespace: str,
    binding: Binding,
    run: str | None = None,
    pod_labels: Mapping[str, str] | None = None,
    pod_annotations: Mapping[str, str] | None = None,
) -> list[Object]:
    """The manifests of a workload: its volume claims, then the job.

    Args:
        run: id of the run; names and labels carry it. None: the workload as part of the platform, by its own name.
        pod_labels, pod_annotations: laid over those of every pod.

    Raises:
        InvalidSpec: the workload cannot be rendered as it is written (see `check`).
    """
    check(spec)
    name = job_name(spec, run)
    marks = {labels.MANAGED_BY: labels.OWNER, labels.WORKLOAD: spec.name} | ({labels.RUN: run} if run else {})
    metadata = {"name": name, "namespace": namespace, "labels": marks}
    policy: Object = {"cleanPodPolicy": spec.clean_pod_policy, "backoffLimit": spec.backoff_limit}
    if spec.active_deadline_seconds is not None:
        policy["activeDeadlineSeconds"] = spec.active_deadline_seconds
    extra = (dict(pod_labels or {}), dict(pod_annotations or {}))
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": spec.kind,
        "metadata": metadata,
        "spec": {
            "runPolicy": policy,
            "pytorchReplicaSpecs": {
                role: {
                    "replicas": spec.roles[role].replicas,
                    "restartPolicy": spec.restart_policy,
                    "template": _template(spec, role, name, binding, marks | extra[0], extra[1]),
                }
                for role in spec.roles
            },
        },
    }
    return [*(_claim(volume, name, namespace, marks, binding) for volume in spec.volumes), job]


def check(spec: WorkloadSpec) -> None:
    """What the model of a workload does not check because it takes more than one field or Kubernetes' own rules.

    Raises:
        InvalidSpec: naming the field.
    """
    remedy = "edit the workload file"
    for name, role in spec.roles.items():
        if name == "Master" and role.replicas != 1:
            raise InvalidSpec(
                f"roles.Master.replicas is {role.replicas}: a PyTorchJob has exactly 1",
                subject=spec.name,
                remedy=remedy,
            )
        for field, value in (("cpu", role.cpu), ("memory", role.memory)):
            if quantity(value) <= 0:
                raise InvalidSpec(f"roles.{name}.{field} must be more than 0", subject=spec.name, remedy=remedy)
    if not spec.command:
        raise InvalidSpec("command is empty", subject=spec.name, remedy=remedy)
    for volume in spec.volumes:
        quantity(volume.size)
        replicas = spec.roles[volume.role].replicas
        if replicas > 1:
            raise InvalidSpec(
                f"volume {volume.name} can be mounted on one node only, and role {volume.role} has {replicas} pods",
                subject=spec.name,
                remedy="give the volume to a role of one pod",
            )


def job_name(spec: WorkloadSpec, run: str | None) -> str:
    """Name of the job and prefix of all that belongs to it. At most 40 + 1 + 6 characters: with "-worker-9999" still a
    legal Service name (case A17)."""
    return f"{spec.name}-{run}" if run else spec.name


def namespace(name: str, account: str, annotations: Mapping[str, Any]) -> list[Object]:
    """The namespace of runs and the service account of their pods.

    Args:
        annotations: of the service account; values may be unknown yet (outputs of the engine).
    """
    marks = {labels.MANAGED_BY: labels.OWNER}
    identity: Object = {"name": account, "namespace": name, "labels": marks}
    if annotations:
        identity["annotations"] = dict(annotations)
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            # baseline and not restricted: the operator's own init container does not say that it gives up privileges.
            "metadata": {"name": name, "labels": {**marks, "pod-security.kubernetes.io/enforce": "baseline"}},
        },
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": identity, "automountServiceAccountToken": False},
    ]


def config_map(name: str, data: Mapping[str, str], namespace: str = labels.RUNS_NAMESPACE) -> Object:
    """A ConfigMap of ours."""
    metadata = {"name": name, "namespace": namespace, "labels": {labels.MANAGED_BY: labels.OWNER}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


def _template(
    spec: WorkloadSpec, role: str, name: str, binding: Binding, marks: Mapping[str, str], annotations: Mapping[str, str]
) -> Object:
    volumes = [volume for volume in spec.volumes if volume.role == role]
    metadata: Object = {"labels": dict(marks)}
    if annotations:
        metadata["annotations"] = dict(annotations)
    pod: Object = {
        "serviceAccountName": labels.RUNS_ACCOUNT,
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(spec, spec.roles[role], volumes)],
    }
    if spec.roles[role].gpus:
        # GPU nodes are always tainted: GKE does it by itself, we do it everywhere (case A13).
        pod["tolerations"] = [{"key": labels.GPU_TAINT, "operator": "Exists", "effect": "NoSchedule"}]
        selector = dict(binding.node_labels) | ({labels.GPU_MODEL: spec.gpu.model} if spec.gpu else {})
        if selector:
            pod["nodeSelector"] = selector
    if volumes:
        pod["volumes"] = [
            {"name": volume.name, "persistentVolumeClaim": {"claimName": _claim_name(name, volume)}}
            for volume in volumes
        ]
    return {"metadata": metadata, "spec": pod}


def _container(spec: WorkloadSpec, role: Role, volumes: list[Volume]) -> Object:
    environment = {"HOME": "/tmp", **spec.env}  # the user has no home of its own in the image
    # No CPU limit: it would slow training down without giving anybody else more than the request already does.
    resources: Object = {"requests": {"cpu": role.cpu, "memory": role.memory}, "limits": {"memory": role.memory}}
    if role.gpus:
        resources["limits"][labels.GPU_RESOURCE] = str(role.gpus)
    container: Object = {
        "name": CONTAINER,
        "image": spec.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(spec.command),
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "resources": resources,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if volumes:
        container["volumeMounts"] = [{"name": volume.name, "mountPath": volume.mount_path} for volume in volumes]
    return container


def _claim(volume: Volume, name: str, namespace: str, marks: Mapping[str, str], binding: Binding) -> Object:
    spec: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": volume.size}}}
    if binding.storage_class is not None:
        spec["storageClassName"] = binding.storage_class
    metadata = {"name": _claim_name(name, volume), "namespace": namespace, "labels": dict(marks)}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _claim_name(name: str, volume: Volume) -> str:
    return f"{name}-{volume.name}"
