"""From a workload to the manifests that every cloud gets: pure, so that it can be compared and tested without a cluster.

`load` reads a workload file, `render` turns it into a job of its kind with its volume claims. Nothing here knows a cloud:
the few names that differ come in as a `Binding`. It will not submit anything (isthmus.runs) nor check what a cluster has
room for (workloads/fit.py).
"""

from collections.abc import Callable, Mapping
from typing import Any

from isthmus.kube.objects import quantity
from isthmus.specs import labels
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.workload import WorkloadSpec
from workloads import manifest, pods, trainjob
from workloads.bindings import Binding
from workloads.load import load, samples
from workloads.pods import Object, Placing

__all__ = ["config_map", "job_name", "load", "namespace", "render", "samples"]

SSH_FOLDER = "/home/trainer/.ssh"
"""Where the MPI operator puts the keys that launcher and workers share: below the home that /etc/passwd of an image for
MPIJobs has for uid 65532."""

SSH_PORT = 2222
"""Where sshd listens in such an image; a port below 1024 is not for everybody."""


def render(
    spec: WorkloadSpec,
    *,
    namespace: str,
    binding: Binding,
    run: str | None = None,
    pod_labels: Mapping[str, str] | None = None,
    pod_annotations: Mapping[str, str] | None = None,
) -> list[Object]:
    """The manifests of a workload: its claims on volumes and on cards, a TrainJob's runtime, then the job.

    Args:
        run: id of the run; names and labels carry it. None: the workload as part of the platform, by its own name.
        pod_labels, pod_annotations: laid over those of every pod.

    Raises:
        InvalidSpec: the workload cannot be rendered as it is written (see `check`).
    """
    check(spec)
    marks = {labels.MANAGED_BY: labels.OWNER, labels.WORKLOAD: spec.name} | ({labels.RUN: run} if run else {})
    placing = Placing(
        name=job_name(spec, run),
        namespace=namespace,
        binding=binding,
        marks=marks,
        pod_labels=pod_labels or {},
        pod_annotations=pod_annotations or {},
    )
    if spec.manifest is not None:
        return manifest.placed(spec.manifest, placing, spec.runtime)
    return [
        *(pods.claim(volume, placing) for volume in spec.volumes),
        *(pods.cards(claim, placing) for claim in spec.claims),
        *(trainjob.of_workload(spec, placing) if spec.kind == trainjob.KIND else [_one(spec, placing)]),
    ]


def check(spec: WorkloadSpec) -> None:
    """What the model of a workload does not check because it takes Kubernetes' own rules of amounts.

    Raises:
        InvalidSpec: naming the field.
    """
    remedy = "edit the workload file"
    for name, role in spec.roles.items():
        for field, value in (("cpu", role.cpu), ("memory", role.memory)):
            if quantity(value) <= 0:
                raise InvalidSpec(f"roles.{name}.{field} must be more than 0", subject=spec.name, remedy=remedy)
    if not spec.command and spec.manifest is None:  # whose image may have a command of its own
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


def _one(spec: WorkloadSpec, placing: Placing) -> Object:
    return {
        "apiVersion": spec.form.api_version,
        "kind": spec.kind,
        "metadata": {"name": placing.name, "namespace": placing.namespace, "labels": dict(placing.marks)},
        "spec": _BODIES.get(spec.kind, _replicated)(spec, placing),
    }


def _replicated(spec: WorkloadSpec, placing: Placing) -> Object:
    """A job whose operator makes the pods of each role: all of Kubeflow's."""
    policy: Object = {
        "cleanPodPolicy": spec.clean_pod_policy or spec.form.clean_pod_policy,
        "backoffLimit": spec.backoff_limit,
        **_limits(spec),
    }
    replicas: dict[str, Object] = {
        name: {
            "replicas": role.replicas,
            "restartPolicy": spec.restart_policy,
            "template": pods.template(spec, name, placing),
        }
        for name, role in spec.roles.items()
    }
    if spec.active_deadline_seconds is not None and spec.form.operator == "training-operator":
        # v1.9.3 looks at a job's deadline only when something else happens to the job (its timer goes to a queue that
        # nobody reads). A pod that the kubelet ends at the same deadline is such a thing.
        for replica in replicas.values():
            replica["template"]["spec"]["activeDeadlineSeconds"] = spec.active_deadline_seconds
    return {"runPolicy": policy, spec.form.replicas_field: replicas}


def _pytorch(spec: WorkloadSpec, placing: Placing) -> Object:
    body = _replicated(spec, placing)
    if spec.elastic is not None:
        body["elasticPolicy"] = {
            "rdzvBackend": "c10d",
            "minReplicas": spec.elastic.min_replicas,
            "maxReplicas": spec.elastic.max_replicas,
            "maxRestarts": spec.elastic.max_restarts,
        }
    return body


def _tensorflow(spec: WorkloadSpec, placing: Placing) -> Object:
    body = _replicated(spec, placing)
    if spec.success_policy is not None:
        body["successPolicy"] = {"Worker0": "", "AllWorkers": "AllWorkers"}[spec.success_policy]
    return body


def _mpi(spec: WorkloadSpec, placing: Placing) -> Object:
    body = _replicated(spec, placing)
    [worker] = body[spec.form.replicas_field]["Worker"]["template"]["spec"]["containers"]
    # A worker's name resolves once it is ready, and the launcher starts once all are: then none finds a closed port.
    worker["readinessProbe"] = {"tcpSocket": {"port": SSH_PORT}, "periodSeconds": 1}
    return {**body, "launcherCreationPolicy": "WaitForWorkersReady", "sshAuthMountPath": SSH_FOLDER}


def _job(spec: WorkloadSpec, placing: Placing) -> Object:
    [(name, role)] = spec.roles.items()
    pod = pods.template(spec, name, placing)
    pod["spec"]["restartPolicy"] = spec.restart_policy
    counts = {"completions": role.replicas, "parallelism": role.replicas, "completionMode": "Indexed"}
    return {**counts, "backoffLimit": spec.backoff_limit, **_limits(spec), "template": pod}


def _limits(spec: WorkloadSpec) -> Object:
    limits = {
        "activeDeadlineSeconds": spec.active_deadline_seconds,
        "ttlSecondsAfterFinished": spec.ttl_seconds,
    }
    return {name: value for name, value in limits.items() if value is not None}


_BODIES: Mapping[str, Callable[[WorkloadSpec, Placing], Object]] = {
    "PyTorchJob": _pytorch,
    "TFJob": _tensorflow,
    "MPIJob": _mpi,
    "Job": _job,
}
"""What goes into a job's spec, for kinds that have more than roles and policies."""
