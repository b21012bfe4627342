"""What a job object and its pods say, as our words. Pure: what was read comes in as dicts.

The operator's conditions are kept as a history, so several are "True" at once in older jobs; the order here is that of
its own meaning: an end counts before all else (training-operator v1.9.3, pkg/util/status.go).
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any

from isthmus import catalog
from isthmus.kube.objects import quantity
from isthmus.runs.model import Node, Replica, State
from isthmus.specs import labels
from isthmus.specs.sharing import GpuSharing

NVIDIA = "nvidia.com/"
"""What the resources of NVIDIA's device plugin start with."""

_MIG = re.compile(r"nvidia\.com/mig-(\d+g\.\d+gb)(?:\.shared)?")
"""A MIG instance as the device plugin names it under strategy mixed; its first number is its compute slices."""

GKE_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
GKE_PARTITION = "cloud.google.com/gke-gpu-partition-size"
"""Labels by which GKE says how a pool's cards are shared: it runs a device plugin of its own (GKE documentation)."""

CONTAINER = "pytorch"
"""The container that the operator requires and the training program runs in."""

ROLE_LABEL = "training.kubeflow.org/replica-type"
INDEX_LABEL = "training.kubeflow.org/replica-index"
"""Labels that the operator puts on pods (training-operator v1.9.3, pkg/apis/kubeflow.org/v1/common_types.go)."""


def job_state(job: Mapping[str, Any]) -> tuple[State, str]:
    """State of a job by its conditions, with the operator's message where it ended."""
    conditions = {
        entry.get("type"): entry
        for entry in (job.get("status") or {}).get("conditions") or ()
        if entry.get("status") == "True"
    }
    if "Failed" in conditions:
        return State.FAILED, str(conditions["Failed"].get("message") or conditions["Failed"].get("reason") or "")
    if "Succeeded" in conditions:
        return State.SUCCEEDED, ""
    if "Restarting" in conditions:
        return State.RESTARTING, ""
    if "Running" in conditions:
        return State.RUNNING, ""
    return State.PENDING, ""


def replica(pod: Mapping[str, Any], node: Node | None = None) -> Replica:
    """One pod as we keep it; with its node, if that was seen."""
    role, rank = role_and_rank(pod)
    status = pod.get("status") or {}
    container = container_status(pod)
    state = container.get("state") or {}
    ended = state.get("terminated") or {}
    last = (container.get("lastState") or {}).get("terminated") or {}
    running = state.get("running") or {}
    parts, whole = card_share(pod, node)
    return Replica(
        uid=str(pod["metadata"]["uid"]),
        name=str(pod["metadata"]["name"]),
        role=role,
        rank=rank,
        phase=str(status.get("phase", "Pending")),
        node=str((pod.get("spec") or {}).get("nodeName", "")),
        exit_code=ended.get("exitCode", last.get("exitCode")),
        restarts=int(container.get("restartCount", 0)),
        reason=str(ended.get("reason") or status.get("reason") or ""),
        started=_earliest(ended.get("startedAt"), running.get("startedAt"), last.get("startedAt")),
        finished=_moment(ended.get("finishedAt")),
        card_parts=parts,
        card_whole=whole,
    )


def node_of(node: Mapping[str, Any], *, seen: datetime) -> Node:
    """A Kubernetes node as we keep it."""
    metadata = node["metadata"]
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return Node(
        uid=str(metadata.get("uid", metadata["name"])),
        name=str(metadata["name"]),
        labels=dict(metadata.get("labels") or {}),
        advertised={name: int(quantity(count)) for name, count in allocatable.items() if name.startswith(NVIDIA)},
        created=_moment(metadata.get("creationTimestamp")) or seen,
        seen=seen,
    )


def card_share(pod: Mapping[str, Any], node: Node | None) -> tuple[int, int]:
    """The fraction of a card that a pod holds: what its annotation says, else what it asks for on that node.

    `nvidia.com/gpu` on a node that advertises each card r times, or serves r clients by MPS, is 1 of r; a MIG instance is
    its compute slices of the card's, and a time-slice of it that part of them. A pod without cards holds 0 of 1. What a
    claim gives (DRA) only the annotation says.
    """
    said = ((pod.get("metadata") or {}).get("annotations") or {}).get(labels.CARD_SHARE)
    if said:
        parts, _, whole = str(said).partition("/")
        if parts.isdigit() and (whole or "1").isdigit() and int(whole or 1) > 0:
            return int(parts), int(whole or 1)
    marks = node.labels if node else {}
    shares = [
        _device_share(str(resource), int(quantity(count)), marks)
        for container in (pod.get("spec") or {}).get("containers") or ()
        for resource, count in ((container.get("resources") or {}).get("limits") or {}).items()
        if str(resource).startswith(NVIDIA)
    ]
    total = sum((Fraction(parts, whole) for parts, whole in shares), Fraction(0))
    return total.numerator, total.denominator


def _device_share(resource: str, count: int, marks: Mapping[str, str]) -> tuple[int, int]:
    """So many devices of a resource as a fraction of a card, by how the node's labels say its cards are shared."""
    sharing = GpuSharing.from_config_name(marks.get(labels.DEVICE_PLUGIN_CONFIG, ""))
    takers = int(marks.get(GKE_CLIENTS, sharing.replicas * sharing.clients))
    named = _MIG.fullmatch(resource)
    profile = named[1] if named else marks.get(GKE_PARTITION)
    if profile is None and sharing.mode == "mig":
        profile = next(iter(sharing.layout))  # strategy single: all instances are of one profile
    if profile is None:
        return count, takers
    model = marks.get(labels.GPU_MODEL)
    sizes = [item.compute_slices for item in catalog.load().mig_profiles(model)] if model else []
    return count * int(profile.partition("g")[0]), max(sizes, default=1) * takers


def role_and_rank(pod: Mapping[str, Any]) -> tuple[str, int]:
    """Role and rank of a pod: the rank is what the operator tells the program in RANK, else the index in its role."""
    marks = (pod.get("metadata") or {}).get("labels") or {}
    role = str(marks.get(ROLE_LABEL, "")).capitalize()
    for container in (pod.get("spec") or {}).get("containers") or ():
        for entry in container.get("env") or ():
            if (
                container.get("name") == CONTAINER
                and entry.get("name") == "RANK"
                and str(entry.get("value", "")).isdigit()
            ):
                return role, int(entry["value"])
    index = str(marks.get(INDEX_LABEL, "0"))
    return role, int(index) if index.isdigit() else 0


def container_status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Status of the training container; empty before the kubelet has one."""
    for entry in (pod.get("status") or {}).get("containerStatuses") or ():
        if entry.get("name") == CONTAINER:
            return dict(entry)
    return {}


def failure(replicas: Iterable[Replica], message: str) -> str:
    """Why a run failed: the ranks that ended badly with their exit codes, else the operator's own message."""
    bad = [item for item in replicas if item.exit_code not in (None, 0) or item.phase == "Failed"]
    if not bad:
        return message
    words = []
    for item in sorted(bad, key=lambda one: (one.finished is None, str(one.finished), one.rank))[:3]:
        code = "without an exit code" if item.exit_code is None else f"with exit code {item.exit_code}"
        why = f" ({item.reason})" if item.reason not in ("", "Error", "Completed") else ""
        words.append(f"{item.role} rank {item.rank} ended {code}{why}")
    more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
    return "; ".join(words) + more


def counts(replicas: Iterable[Replica]) -> dict[str, dict[str, int]]:
    """How many pods of each role are in each phase; a pod that was replaced by a newer one of its rank does not count."""
    newest: dict[tuple[str, int], Replica] = {}
    for item in replicas:
        newest[item.role, item.rank] = item
    table: dict[str, dict[str, int]] = {}
    for item in newest.values():
        phases = table.setdefault(item.role, {})
        phases[item.phase] = phases.get(item.phase, 0) + 1
    return table


def _earliest(*texts: Any) -> datetime | None:
    moments = [moment for text in texts if (moment := _moment(text)) is not None]
    return min(moments, default=None)


def _moment(text: Any) -> datetime | None:
    return datetime.fromisoformat(str(text)) if text else None
