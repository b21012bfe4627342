"""MXJob, which upstream has retired: read as users have it, and run as a TFJob whose roles do the same.

No operator serves MXJob any more (it left the training operator before v1.9), but a TFJob has what an MXNet job needs:
roles with a Service each, one of which decides when the job is done.

| MXJob | TFJob | why |
| --- | --- | --- |
| Scheduler | Chief | there is one; it ends when all workers have, and the job with it |
| Server | PS | never ends by itself; goes with cleanPodPolicy Running |
| Worker | Worker | |

The pods are told what the MX operator told them: DMLC_* and MX_CONFIG (training-operator v1.7, pkg/controller.v1/mxnet). Only
jobMode MXTrain is known. Pure.
"""

import copy
import json
from collections.abc import Mapping
from typing import Any

from workloads.pods import Object

ROLES = {"Scheduler": "Chief", "Server": "PS", "Worker": "Worker"}
CONTAINER, TFJOB_CONTAINER = "mxnet", "tensorflow"
PORT = 9091
"""Of every pod: the MX operator's default (mxjob-port)."""

INDEX = {"fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/replica-index']"}}

Problem = tuple[tuple[str, ...], str]


def is_mxjob(document: Mapping[str, Any]) -> bool:
    """Whether a document is an MXJob, of any version."""
    return document.get("kind") == "MXJob"


def problems(document: Mapping[str, Any]) -> list[Problem]:
    """What keeps it from being translated."""
    spec = document.get("spec") or {}
    roles = spec.get("mxReplicaSpecs")
    if not isinstance(roles, Mapping) or not roles:
        return [(("spec",), "spec.mxReplicaSpecs is missing: an MXJob has its roles there")]
    found: list[Problem] = []
    if spec.get("jobMode", "MXTrain") != "MXTrain":
        found.append((("spec", "jobMode"), f"spec.jobMode is {spec['jobMode']}: only MXTrain can be run"))
    for role in roles:
        if role not in ROLES:
            found.append((("spec", "mxReplicaSpecs", role), f"MXJob has no role {role!r}; known: {', '.join(ROLES)}"))
    if "Scheduler" not in roles:
        found.append((("spec", "mxReplicaSpecs"), "spec.mxReplicaSpecs.Scheduler is missing: the others look for it"))
    for role, entry in roles.items():
        pod = ((entry or {}).get("template") or {}).get("spec") or {}
        names = [container.get("name") for container in pod.get("containers") or ()]
        at = ("spec", "mxReplicaSpecs", str(role), "template")
        if not pod:
            found.append((at, f"{'.'.join(at)}.spec is missing"))
        elif CONTAINER not in names:
            found.append((at, f"{'.'.join(at)}.spec.containers: there must be one named {CONTAINER}"))
    return found


def to_tfjob(document: Mapping[str, Any], name: str) -> Object:
    """The TFJob that does the same.

    Args:
        name: of the job as it will be applied: pods are told each other's names.
    """
    spec = document["spec"]
    roles: Mapping[str, Any] = spec["mxReplicaSpecs"]
    policy = {"cleanPodPolicy": "Running", **(spec.get("runPolicy") or {})}
    replicas = {}
    for role, entry in roles.items():
        changed = copy.deepcopy(dict(entry))
        for container in changed["template"]["spec"]["containers"]:
            if container["name"] == CONTAINER:
                container["name"] = TFJOB_CONTAINER
                container["env"] = [*_environment(roles, role, name), *(container.get("env") or ())]
        replicas[ROLES[role]] = changed
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": copy.deepcopy(dict(document.get("metadata") or {})),
        "spec": {"runPolicy": policy, "tfReplicaSpecs": replicas},
    }


def _environment(roles: Mapping[str, Any], role: str, name: str) -> list[Object]:
    counts = {one: int(entry.get("replicas", 1)) for one, entry in roles.items()}
    cluster = {
        one.lower(): [{"url": f"{name}-{ROLES[one].lower()}-{index}", "port": PORT} for index in range(count)]
        for one, count in counts.items()
    }
    task = json.dumps({"cluster": cluster, "labels": {}, "task": {"type": role.lower(), "index": 0}})
    values = {
        "DMLC_PS_ROOT_URI": f"{name}-chief-0",
        "DMLC_PS_ROOT_PORT": str(PORT),
        "DMLC_NUM_SERVER": str(counts.get("Server", 0)),
        "DMLC_NUM_WORKER": str(counts.get("Worker", 0)),
        "DMLC_ROLE": role.lower(),
        "DMLC_USE_KUBERNETES": "1",
    }
    # Kubernetes puts the index into the text: it is the one thing in which the pods of a role differ.
    return [
        {"name": "MX_INDEX", "valueFrom": INDEX},
        {"name": "MX_CONFIG", "value": task.replace('"index": 0', '"index": $(MX_INDEX)')},
        *({"name": key, "value": value} for key, value in values.items()),
    ]
