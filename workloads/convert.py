"""From Kubeflow's older jobs to Trainer v2: a TrainJob with a TrainingRuntime of its own (workloads/trainjob.py). Pure.

A PyTorchJob's pods are told RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, a TFJob's TF_CONFIG; an MPIJob's launcher has a
list of hosts and a key. The pods of the TrainJob get the same. What Trainer has no counterpart for (parameter servers, roles
that differ, elastic bounds, ...) is listed and nothing is converted: half a job would train something else.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from isthmus.specs.kinds import KINDS
from workloads import trainjob
from workloads.pods import Object

RETIRED = {"MXJob": "MXJob: its scheduler and servers are not workers, and no operator of today runs it"}
"""Kinds that no operator serves any more."""

CONVERTED = ("PyTorchJob", "TFJob", "MPIJob")

SSHD = ("/usr/sbin/sshd", "-De")
"""What the MPI operator starts in a worker that has no command of its own (mpi-operator v0.8.0)."""

SSH_FOLDER = "/root/.ssh"
"""Where it puts the keys by default."""

TRIES = 6
"""How often its launcher is tried again by default: as every Job of Kubernetes."""

_HIDDEN = [{"name": name, "value": ""} for name in ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")]
"""With these it hides a node's cards from the launcher."""


@dataclass(frozen=True)
class Converted:
    """What became of a job."""

    objects: tuple[Object, ...]
    """TrainingRuntime and TrainJob; empty if anything is missing."""
    missing: tuple[str, ...]
    """What Trainer has no counterpart for, a clause each."""


def to_train_job(job: Mapping[str, Any]) -> Converted:
    """Convert one job's manifest (without `workloads.manifest.problems`)."""
    missing = tuple(_missing(job))
    if missing:
        return Converted((), missing)
    metadata = {
        key: value for key, value in job["metadata"].items() if key in {"name", "namespace", "labels", "annotations"}
    }
    made = _mpi(job, metadata) if job["kind"] == "MPIJob" else _alike(job, metadata)
    policy = job["spec"].get("runPolicy") or {}
    for field in ("activeDeadlineSeconds", "suspend"):
        if policy.get(field) is not None:
            made[-1]["spec"][field] = policy[field]
    return Converted(tuple(made), ())


def _alike(job: Mapping[str, Any], metadata: Mapping[str, Any]) -> list[Object]:
    """A job whose pods are all alike: a PyTorchJob, or a TFJob of workers."""
    kind, spec = KINDS[job["kind"]], job["spec"]
    roles = spec[kind.replicas_field]
    nodes = sum(_count(entry) for entry in roles.values())
    first = next(iter(roles.values()))
    template = _bare(first)
    torch = kind.name == "PyTorchJob"
    tells = trainjob.torch_environment if torch else trainjob.tensorflow_environment
    for container in template["spec"]["containers"]:
        if container["name"] == kind.container:
            container["name"] = trainjob.NODE
            container["env"] = [*tells(nodes), *(container.get("env") or [])]
    backoff = (spec.get("runPolicy") or {}).get("backoffLimit")
    return trainjob.objects(
        metadata,
        [trainjob.replicated(trainjob.NODE, template, _restart(first), backoff)],
        policy={"numNodes": nodes, **({"torch": {}} if torch else {})},
        nodes=nodes,
        per_node=int(spec.get("nprocPerNode") or 1),
    )


def _mpi(job: Mapping[str, Any], metadata: Mapping[str, Any]) -> list[Object]:
    """An MPIJob: Trainer, too, makes the key and the list of hosts, and mounts them where a container has its name."""
    spec = job["spec"]
    launcher, worker = (spec["mpiReplicaSpecs"][role] for role in ("Launcher", "Worker"))
    slots = int(spec.get("slotsPerWorker") or 1)
    starts, waits = _bare(launcher), _bare(worker)
    first, sshd = starts["spec"]["containers"][0], waits["spec"]["containers"][0]
    first["name"] = sshd["name"] = trainjob.NODE
    first["env"] = [*(first.get("env") or []), *copy.deepcopy(_HIDDEN)]
    if not sshd.get("command") and not sshd.get("args"):
        sshd["command"] = list(SSHD)
    backoff = int((spec.get("runPolicy") or {}).get("backoffLimit", TRIES))
    begins = trainjob.replicated(trainjob.LAUNCHER, starts, _restart(launcher), backoff)
    if spec.get("launcherCreationPolicy") == "WaitForWorkersReady":
        begins["dependsOn"] = [{"name": trainjob.NODE, "status": "Ready"}]
    return trainjob.objects(
        metadata,
        [trainjob.replicated(trainjob.NODE, waits, _restart(worker), backoff, step=False), begins],
        # One node: what the policy says is the launcher's number, and the TrainJob's is that of the workers.
        policy={
            "numNodes": 1,
            "mpi": {
                "numProcPerNode": slots,
                "mpiImplementation": "OpenMPI",
                "sshAuthMountPath": spec.get("sshAuthMountPath") or SSH_FOLDER,
                "runLauncherAsNode": False,
            },
        },
        nodes=_count(worker),
        per_node=slots,
        success=trainjob.LAUNCHER,
    )


def _missing(job: Mapping[str, Any]) -> Iterator[str]:
    if job["kind"] not in CONVERTED:
        yield f"{job['kind']}: only {', '.join(CONVERTED)} have a counterpart here"
        return
    kind, spec = KINDS[job["kind"]], job["spec"]
    roles, policy = spec[kind.replicas_field], spec.get("runPolicy") or {}
    yield from _missing_mpi(spec, roles, policy) if kind.name == "MPIJob" else _missing_alike(job["kind"], spec, roles)
    if policy.get("ttlSecondsAfterFinished") is not None:
        yield "ttlSecondsAfterFinished: a TrainJob stays until it is deleted"
    if policy.get("cleanPodPolicy") == "All":
        yield "cleanPodPolicy All: pods of a TrainJob that have ended stay with it"
    if policy.get("schedulingPolicy"):
        yield "schedulingPolicy: a TrainJob's gang is a podGroupPolicy of its runtime"


def _missing_alike(kind: str, spec: Mapping[str, Any], roles: Mapping[str, Any]) -> Iterator[str]:
    for role in roles:
        if role in {"PS", "Evaluator", "Chief"} or (kind == "TFJob" and role == "Master"):
            yield f"role {role}: the nodes of a TrainJob are all alike"
    templates = {role: _bare(entry) for role, entry in roles.items()}
    first = next(iter(templates))
    for role, template in templates.items():
        for path in sorted(_differing(templates[first], template)):
            yield f"{path} of {role} and {first} differ: the nodes of a TrainJob are all alike"
    policies = {role: _restart(entry) for role, entry in roles.items()}
    if len(set(policies.values())) > 1:
        yield f"restartPolicy differs: {', '.join(f'{role} {value}' for role, value in policies.items())}"
    if "Always" in policies.values():
        yield "restartPolicy Always: the pods of a Job end"
    if spec.get("elasticPolicy"):
        yield "elasticPolicy: a TrainJob has a fixed number of nodes"
    if not str(spec.get("nprocPerNode") or 1).isdigit():
        yield f"nprocPerNode {spec['nprocPerNode']}: a TrainJob takes a number"
    if spec.get("successPolicy") != "AllWorkers" and kind == "TFJob":
        yield "successPolicy of worker 0: a TrainJob is done when all its nodes are"


def _missing_mpi(spec: Mapping[str, Any], roles: Mapping[str, Any], policy: Mapping[str, Any]) -> Iterator[str]:
    if "Worker" not in roles:
        yield "no Worker: a launcher alone has no nodes"
    if spec.get("mpiImplementation") not in (None, "OpenMPI"):
        yield f"mpiImplementation {spec['mpiImplementation']}: Trainer knows OpenMPI"
    if spec.get("runLauncherAsWorker"):
        yield "runLauncherAsWorker: the launcher of a TrainJob made here runs no rank"
    if policy.get("cleanPodPolicy") == "None":
        yield "cleanPodPolicy None: the workers of a TrainJob go when its launcher is done"


def _bare(entry: Mapping[str, Any]) -> Object:
    return copy.deepcopy(dict(entry.get("template") or {}))


def _restart(entry: Mapping[str, Any]) -> str:
    return str(entry.get("restartPolicy", "Never"))


def _differing(left: Any, right: Any, at: str = "template") -> Iterator[str]:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for name in {*left, *right}:
            yield from _differing(left.get(name), right.get(name), f"{at}.{name}")
    elif left != right:
        yield at


def _count(entry: Mapping[str, Any]) -> int:
    return int(entry.get("replicas", 1))
