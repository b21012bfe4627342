"""TrainJobs of Kubeflow Trainer v2 (v2.2.0 on JobSet v0.11.1): of a workload, and as users have them. Pure.

A TrainJob says little by itself: retries, restart policy, volumes and the pods' security are its runtime's. So a workload's
TrainJob, and one that was converted (workloads/convert.py), brings a TrainingRuntime of its own, which goes when it goes. A
user's manifest may name a runtime of the cluster instead (operators/trainer.py has one).

Pods get what a PyTorchJob's pods get, so that the same program runs as either. Nothing in a runtime names its job: hosts are
written with JOBSET_NAME, which Kubernetes puts in, so that a job can be run under another name.
"""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from isthmus.kube.objects import pod_requests, show
from isthmus.specs import labels
from isthmus.specs.workload import WorkloadSpec
from workloads import pods
from workloads.pods import Object, Placing

API = "trainer.kubeflow.org/v1alpha1"
KIND, RUNTIME = "TrainJob", "TrainingRuntime"
NODE, LAUNCHER = "node", "launcher"
"""Names of replicated jobs; the first is also that of the container that a program runs in (trainer, pkg/constants)."""

ROLE = "Node"
STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
"""Label of the replicated job that a TrainJob's `trainer` speaks of."""

MANAGER = "isthmus.dev/run"
"""Whose patch of a runtime ours is."""

PERMANENT = list(range(1, 128))
"""Exit codes that policy ExitCode does not try again."""

TORCH_PORT, TF_PORT = 23456, 2222
"""Of rank 0 and of each worker, as the training operator has them."""

GPUS = "nvidia.com/"

_RANK = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
_JOBSET = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}}
_NAMES: list[Object] = [{"name": "RANK", "valueFrom": _RANK}, {"name": "JOBSET_NAME", "valueFrom": _JOBSET}]

Problem = tuple[tuple[str, ...], str]


def of_workload(spec: WorkloadSpec, placing: Placing) -> list[Object]:
    """The runtime and the job of a workload of this kind."""
    role = spec.roles[ROLE]
    template = pods.template(spec, ROLE, placing)
    [container] = template["spec"]["containers"]
    container["env"] = [*torch_environment(role.replicas), *container["env"]]
    nodes = replicated(NODE, template, spec.restart_policy, spec.backoff_limit)
    metadata = {"name": placing.name, "namespace": placing.namespace, "labels": dict(placing.marks)}
    made = objects(metadata, [nodes], policy={"numNodes": role.replicas, "torch": {}}, nodes=role.replicas)
    if spec.active_deadline_seconds is not None:
        made[-1]["spec"]["activeDeadlineSeconds"] = spec.active_deadline_seconds
    return made


def objects(
    metadata: Mapping[str, Any],
    jobs: Sequence[Object],
    *,
    policy: Mapping[str, Any],
    nodes: int,
    per_node: int = 1,
    success: str | None = None,
) -> list[Object]:
    """A TrainingRuntime and its TrainJob.

    Args:
        jobs: what the runtime's JobSet has (`replicated`).
        policy: the runtime's mlPolicy.
        per_node: processes on each node.
        success: the replicated job that decides when all is done; None: all of them.
    """
    template: Object = {"replicatedJobs": list(jobs)}
    if success is not None:
        template["successPolicy"] = {"operator": "All", "targetReplicatedJobs": [success]}
    runtime = {
        "apiVersion": API,
        "kind": RUNTIME,
        "metadata": copy.deepcopy(dict(metadata)),
        "spec": {"mlPolicy": dict(policy), "template": {"spec": template}},
    }
    train: Object = {
        "apiVersion": API,
        "kind": KIND,
        "metadata": copy.deepcopy(dict(metadata)),
        "spec": {
            "runtimeRef": {"kind": RUNTIME, "name": metadata["name"]},
            "trainer": {"numNodes": nodes, "numProcPerNode": per_node},
        },
    }
    return [runtime, train]


def replicated(name: str, template: Object, restart: str, backoff: int | None, *, step: bool = True) -> Object:
    """One replicated job of a runtime.

    Args:
        template: of its pods.
        restart: OnFailure, Never or ExitCode.
        backoff: failures until it is given up; None: as the policy has it by itself.
        step: whether the TrainJob's `trainer` speaks of it.
    """
    template["spec"]["restartPolicy"] = "OnFailure" if restart == "OnFailure" else "Never"
    body: Object = {"template": template}
    if backoff is not None:
        body["backoffLimit"] = backoff
    elif restart == "Never":
        body["backoffLimit"] = 0  # a Job would try six times by default
    if restart == "ExitCode":
        codes = {"containerName": NODE, "operator": "In", "values": PERMANENT}
        body["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onExitCodes": codes}]}
    return {"name": name, "template": {**({"metadata": {"labels": dict(STEP)}} if step else {}), "spec": body}}


def torch_environment(nodes: int) -> list[Object]:
    """What the training operator tells the pods of a PyTorchJob."""
    return [
        *copy.deepcopy(_NAMES),
        {"name": "WORLD_SIZE", "value": str(nodes)},
        {"name": "MASTER_ADDR", "value": host(0)},
        {"name": "MASTER_PORT", "value": str(TORCH_PORT)},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
    ]


def tensorflow_environment(nodes: int) -> list[Object]:
    """What the training operator tells the workers of a TFJob."""
    workers = [f"{host(index)}:{TF_PORT}" for index in range(nodes)]
    config = json.dumps(
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}, "environment": "cloud"}
    )
    # Kubernetes puts the variable's value in; the index is the one thing in which the nodes differ.
    return [*copy.deepcopy(_NAMES), {"name": "TF_CONFIG", "value": config.replace('"index": 0', '"index": $(RANK)')}]


def host(index: int) -> str:
    """Name of a node as JobSet has it resolved, for the environment of its job's pods."""
    return f"$(JOBSET_NAME)-{NODE}-0-{index}.$(JOBSET_NAME)"


def problems(document: Mapping[str, Any], runtime: Mapping[str, Any] | None = None) -> Iterator[Problem]:
    """What keeps a user's TrainJob from being run; its runtime, if it brings one."""
    spec = document.get("spec")
    if not isinstance(spec, Mapping):
        yield ("spec",), "spec is missing"
        return
    reference = spec.get("runtimeRef")
    if not isinstance(reference, Mapping) or not reference.get("name"):
        yield ("spec", "runtimeRef"), "spec.runtimeRef.name is missing: a TrainJob is run by a runtime"
        return
    if not isinstance(spec.get("trainer") or {}, Mapping):
        yield ("spec", "trainer"), "spec.trainer has no fields"
    if runtime is None:
        return
    name = (runtime.get("metadata") or {}).get("name")
    if (reference.get("kind"), reference["name"]) != (RUNTIME, name):
        yield ("spec", "runtimeRef"), f"spec.runtimeRef does not name the TrainingRuntime {name} of the same file"
    if not _containers(runtime):
        yield ("spec", "runtimeRef"), f"TrainingRuntime {name} has no replicated job with a container named {NODE}"


def as_values(document: Mapping[str, Any], runtime: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The fields of the WorkloadSpec that a TrainJob without `problems` stands for. What is the runtime's, and the runtime
    the cluster's, is not known: then it counts as little."""
    metadata, spec = document.get("metadata") or {}, document["spec"]
    trainer = spec.get("trainer") or {}
    own = runtime or {}
    policy = (own.get("spec") or {}).get("mlPolicy") or {}
    container = {
        **next(iter(_containers(own)), {}),
        **{key: trainer[key] for key in ("image", "command", "args") if key in trainer},
    }
    if trainer.get("resourcesPerNode"):
        container["resources"] = trainer["resourcesPerNode"]
    asks = pod_requests({"containers": [container]})
    cards = [name for name in asks if name.startswith(GPUS)]
    role: Object = {
        "replicas": trainer.get("numNodes") or policy.get("numNodes") or 1,
        "cpu": show(asks["cpu"]) if asks.get("cpu") else "10m",
        "memory": show(asks["memory"]) if asks.get("memory") else "1Mi",
        **({"gpus": int(asks[cards[0]]), "resource": cards[0]} if cards else {}),
    }
    values: dict[str, Any] = {
        "apiVersion": "isthmus.dev/v1",
        "kind": KIND,
        "name": metadata.get("name") or str(metadata.get("generateName", "")).rstrip("-"),
        "image": container.get("image", ""),
        "command": [*(container.get("command") or ()), *(container.get("args") or ())],
        "roles": {ROLE: role},
        "manifest": dict(document),
        "runtime": dict(runtime) if runtime else None,
    }
    if spec.get("activeDeadlineSeconds") is not None:
        values["activeDeadlineSeconds"] = spec["activeDeadlineSeconds"]
    return values


def placed(document: Mapping[str, Any], runtime: Mapping[str, Any] | None, placing: Placing) -> list[Object]:
    """A user's TrainJob as it is applied for one run, after the runtime that it brings. The marks of its pods, and that they
    go on nodes with cards, come as a patch of the runtime."""
    job: Object = copy.deepcopy(dict(document))
    job.pop("status", None)
    given = job.get("metadata") or {}
    kept = {name: value for name, value in given.items() if name in {"labels", "annotations"}}
    kept["labels"] = {**(kept.get("labels") or {}), **placing.marks}
    job["metadata"] = {"name": placing.name, "namespace": placing.namespace, **kept}
    metadata: Object = {"labels": {**placing.marks, **placing.pod_labels}}
    if placing.pod_annotations:
        metadata["annotations"] = dict(placing.pod_annotations)
    toleration = {"key": labels.GPU_TAINT, "operator": "Exists", "effect": "NoSchedule"}
    pod = {"template": {"metadata": metadata, "spec": {"tolerations": [toleration]}}}
    patch = {"replicatedJobs": [{"name": NODE, "template": {"spec": pod}}]}
    others = [entry for entry in job["spec"].get("runtimePatches") or () if entry.get("manager") != MANAGER]
    job["spec"]["runtimePatches"] = [
        *others,
        {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": patch}}},
    ]
    if runtime is None:
        return [job]
    own: Object = copy.deepcopy(dict(runtime))
    own["metadata"] = {"name": placing.name, "namespace": placing.namespace, "labels": dict(placing.marks)}
    job["spec"]["runtimeRef"] = {"kind": RUNTIME, "name": placing.name}
    return [own, job]


def brings_runtime(item: Mapping[str, Any]) -> bool:
    """Whether an object is a TrainJob with a TrainingRuntime of its own, which must be there before it."""
    own = {"kind": RUNTIME, "name": item["metadata"]["name"]}
    return item["kind"] == KIND and bool(item["spec"]["runtimeRef"] == own)


def _containers(runtime: Mapping[str, Any]) -> list[Object]:
    """The containers of a runtime that a TrainJob's `trainer` speaks of."""
    template = (runtime.get("spec") or {}).get("template") or {}
    return [
        container
        for job in (template.get("spec") or {}).get("replicatedJobs") or ()
        for container in _pod(job).get("containers") or ()
        if container.get("name") == NODE
    ]


def _pod(job: Mapping[str, Any]) -> Mapping[str, Any]:
    outer = (job.get("template") or {}).get("spec") or {}
    inner: Mapping[str, Any] = (outer.get("template") or {}).get("spec") or {}
    return inner
