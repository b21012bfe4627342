"""The pods of a workload's roles and the claims that they mount, the same for every kind of job."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from isthmus.kube import claims
from isthmus.specs import labels
from isthmus.specs.sharing import WorkloadClaim
from isthmus.specs.workload import Role, Volume, WorkloadSpec
from workloads.bindings import Binding

Object = dict[str, Any]

USER = 65532
"""Uid and group of workload containers: not root, and the number that images without a shell use for nobody."""

CONTAINER = "main"
"""The container's name where the kind's operator looks for none."""


@dataclass(frozen=True)
class Placing:
    """What the objects of one job have in common."""

    name: str
    """Of the job, and prefix of all that belongs to it."""
    namespace: str
    binding: Binding
    marks: Mapping[str, str]
    """Labels of every object."""
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Mapping[str, str] = field(default_factory=dict)


def template(spec: WorkloadSpec, role: str, placing: Placing) -> Object:
    """The template of a role's pods."""
    volumes = [volume for volume in spec.volumes if volume.role == role]
    metadata: Object = {"labels": {**placing.marks, **placing.pod_labels}}
    if placing.pod_annotations:
        metadata["annotations"] = dict(placing.pod_annotations)
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
        "containers": [_container(spec, role, volumes)],
    }
    if spec.roles[role].on_cards:
        # GPU nodes are always tainted: GKE does it by itself, we do it everywhere (case A13).
        pod["tolerations"] = [{"key": labels.GPU_TAINT, "operator": "Exists", "effect": "NoSchedule"}]
        selector = dict(placing.binding.node_labels) | ({labels.GPU_MODEL: spec.gpu.model} if spec.gpu else {})
        if selector:
            pod["nodeSelector"] = selector
    held = spec.claims_of(role)
    if held:
        pod["resourceClaims"] = [{"name": claim.name, **_source(claim, placing)} for claim in held]
    if volumes:
        pod["volumes"] = [
            {"name": volume.name, "persistentVolumeClaim": {"claimName": _claim_name(placing.name, volume)}}
            for volume in volumes
        ]
    return {"metadata": metadata, "spec": pod}


def claim(volume: Volume, placing: Placing) -> Object:
    """The claim of a volume."""
    spec: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": volume.size}}}
    if placing.binding.storage_class is not None:
        spec["storageClassName"] = placing.binding.storage_class
    metadata = {
        "name": _claim_name(placing.name, volume),
        "namespace": placing.namespace,
        "labels": dict(placing.marks),
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def cards(claim: WorkloadClaim, placing: Placing) -> Object:
    """A claim on cards: a template of which each pod gets its own, or the one that all share."""
    metadata: Object = {"name": _cards_name(claim, placing), "namespace": placing.namespace}
    if claim.scope == "pod":
        return claims.template(claim, {**metadata, "labels": dict(placing.marks)})
    if claim.scope == "run":
        return claims.shared(claim, {**metadata, "labels": dict(placing.marks)})
    return claims.shared(claim, {**metadata, "labels": {labels.MANAGED_BY: labels.OWNER}})  # of no run: it stays


def resources(role: Role) -> Object:
    """What a pod of a role asks for. No CPU limit: it would slow training down without giving anybody else more than the
    request already does."""
    amounts: Object = {"requests": {"cpu": role.cpu, "memory": role.memory}, "limits": {"memory": role.memory}}
    if role.gpus:
        amounts["limits"][role.resource] = str(role.gpus)
    if role.claims:
        amounts["claims"] = [{"name": claim} for claim in role.claims]
    return amounts


def environment(spec: WorkloadSpec, role: str) -> list[Object]:
    """The environment of a role's pods."""
    values = {"HOME": "/tmp", **spec.env, **spec.roles[role].env}  # the user has no home of its own in the image
    return [{"name": key, "value": value} for key, value in values.items()]


def command(spec: WorkloadSpec, role: str) -> list[str]:
    """What a role's pods run; empty where the operator has a command of its own for them."""
    own = spec.roles[role].command
    waits = spec.kind == "MPIJob" and role == "Worker"
    return list(own or (() if waits else spec.command))


def _container(spec: WorkloadSpec, role: str, volumes: list[Volume]) -> Object:
    runs = command(spec, role)
    container: Object = {
        "name": spec.form.container or CONTAINER,
        "image": spec.image,
        "imagePullPolicy": "IfNotPresent",
        **({"command": runs} if runs else {}),
        "env": environment(spec, role),
        "resources": resources(spec.roles[role]),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if volumes:
        container["volumeMounts"] = [{"name": volume.name, "mountPath": volume.mount_path} for volume in volumes]
    return container


def _claim_name(name: str, volume: Volume) -> str:
    return f"{name}-{volume.name}"


def _source(claim: WorkloadClaim, placing: Placing) -> Object:
    field = "resourceClaimTemplateName" if claim.scope == "pod" else "resourceClaimName"
    return {field: _cards_name(claim, placing)}


def _cards_name(claim: WorkloadClaim, placing: Placing) -> str:
    return claim.name if claim.scope == "namespace" else f"{placing.name}-{claim.name}"
