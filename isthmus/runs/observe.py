"""What a job object and its pods say, as our words. Pure: what was read comes in as dicts.

The operators' conditions are kept as a history, so several are "True" at once in older jobs; the order here is that of
their own meaning: an end counts before all else (training-operator v1.9.3, pkg/util/status.go). Kubernetes' own Job says
Complete where Kubeflow's say Succeeded, and counts pods instead of saying Running.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any

from isthmus import catalog
from isthmus.kube import claims
from isthmus.kube.objects import quantity
from isthmus.runs.model import Node, Replica, State
from isthmus.specs import labels
from isthmus.specs.kinds import KINDS, REPLICA_INDEX_LABEL, REPLICA_TYPE_LABEL
from isthmus.specs.sharing import GpuSharing
from isthmus.specs.workload import WorkloadSpec

NVIDIA = "nvidia.com/"
"""What the resources of NVIDIA's device plugin start with."""

_MIG = re.compile(r"nvidia\.com/mig-(\d+g\.\d+gb)(?:\.shared)?")
"""A MIG instance as the device plugin names it under strategy mixed; its first number is its compute slices."""

COMPUTE_SLICES = 7
"""Of a card whose model is not known: all that have MIG but the A30 have seven (NVIDIA MIG User Guide)."""

GKE_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
GKE_PARTITION = "cloud.google.com/gke-gpu-partition-size"
"""Labels by which GKE says how a pool's cards are shared: it runs a device plugin of its own (GKE documentation)."""

CONTAINERS = frozenset(kind.container for kind in KINDS.values() if kind.container)
"""Containers that operators require and the training program runs in."""

ROLE_LABELS = (REPLICA_TYPE_LABEL, "training.kubeflow.org/job-role", "jobset.sigs.k8s.io/replicatedjob-name")
"""Labels of a pod that say its role, in lower case. The MPI operator has the second only; the training operator's second
says which pod it takes for the master. The third is JobSet's."""

INDEX_LABELS = (REPLICA_INDEX_LABEL, "batch.kubernetes.io/job-completion-index")
"""Labels of a pod that say which of its role it is."""

_ROLES = {role.lower(): role for kind in KINDS.values() for role in kind.roles}


def job_state(job: Mapping[str, Any]) -> tuple[State, str]:
    """State of a job by its conditions, with the operator's message where it ended."""
    conditions = {
        entry.get("type"): entry
        for entry in (job.get("status") or {}).get("conditions") or ()
        if entry.get("status") == "True"
    }
    if "Failed" in conditions:
        return State.FAILED, str(conditions["Failed"].get("message") or conditions["Failed"].get("reason") or "")
    if "Succeeded" in conditions or "Complete" in conditions:
        return State.SUCCEEDED, ""
    if "Restarting" in conditions:
        return State.RESTARTING, ""
    if "Running" in conditions:
        return State.RUNNING, ""
    return _by_counts(job.get("status") or {}), ""


def _by_counts(status: Mapping[str, Any]) -> State:
    """State of a job without conditions by how many of its pods are there; a TrainJob counts by its jobs."""
    counts = status.get("jobsStatus") or [status]
    if any(entry.get("ready") for entry in counts):
        return State.RUNNING
    again = any(entry.get("failed") and entry.get("active") for entry in counts)
    return State.RESTARTING if again else State.PENDING


def replica(pod: Mapping[str, Any], node: Node | None = None, claimed: Fraction = Fraction(0)) -> Replica:
    """One pod as we keep it; with its node, if that was seen, and what part of a card its claims give it."""
    role, rank = role_and_rank(pod)
    status = pod.get("status") or {}
    container = container_status(pod)
    state = container.get("state") or {}
    ended = state.get("terminated") or {}
    last = (container.get("lastState") or {}).get("terminated") or {}
    before = _failed_before(status)
    running = state.get("running") or {}
    share = card_share(pod, node) + claimed
    return Replica(
        uid=str(pod["metadata"]["uid"]),
        name=str(pod["metadata"]["name"]),
        role=role,
        rank=rank,
        phase=str(status.get("phase", "Pending")),
        node=str((pod.get("spec") or {}).get("nodeName", "")),
        exit_code=ended.get("exitCode", last.get("exitCode", before.get("exitCode"))),
        restarts=int(container.get("restartCount", 0)),
        reason=str(ended.get("reason") or status.get("reason") or before.get("message") or "").strip(),
        started=_earliest(ended.get("startedAt"), running.get("startedAt"), last.get("startedAt")),
        finished=_moment(ended.get("finishedAt")),
        card_parts=share.numerator,
        card_whole=share.denominator,
    )


def _failed_before(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """How the init container ended that kept the training container from being started; empty if none did."""
    for entry in status.get("initContainerStatuses") or ():
        for state in (entry.get("state") or {}, entry.get("lastState") or {}):
            if (state.get("terminated") or {}).get("exitCode"):
                return dict(state["terminated"])
    return {}


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


def card_share(pod: Mapping[str, Any], node: Node | None) -> Fraction:
    """The fraction of a card that a pod asks the device plugin for, on that node.

    `nvidia.com/gpu` on a node that advertises each card r times, or serves r clients by MPS, is 1 of r; a MIG instance is
    its compute slices of the card's, and a time-slice of it that part of them.
    """
    marks = node.labels if node else {}
    shares = [
        _device_share(str(resource), int(quantity(count)), marks)
        for container in (pod.get("spec") or {}).get("containers") or ()
        for resource, count in ((container.get("resources") or {}).get("limits") or {}).items()
        if str(resource).startswith(NVIDIA)
    ]
    return sum(shares, Fraction(0))


def claimed_share(
    held: Iterable[Mapping[str, Any]], devices: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Fraction | None:
    """The fraction of a card that a pod has by its claims; None while one of them is allocated nothing.

    A device of a claim that n pods hold is 1 of n each.

    Args:
        held: the pod's ResourceClaims.
        devices: what nodes publish, by pool and name (isthmus.kube.claims.published).
    """
    total = Fraction(0)
    for claim in held:
        status = claim.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        if not results:
            return None
        each = [
            _published_share(devices.get((str(item["pool"]), str(item["device"])), {}))
            for item in results
            if item["driver"] == claims.DRIVER
        ]
        total += sum(each, Fraction(0)) / max(len(status.get("reservedFor") or ()), 1)
    return total


def asked_share(spec: WorkloadSpec, role: str, model: str | None) -> Fraction:
    """The fraction of a card that each pod of a role has by its claims, as the workload asks for it: where a pod ended,
    and its claim with it, before anybody looked. On a card of this model."""
    return sum(
        (
            claim.count * _profile_share(claim.profile, model) / (spec.holders(claim) if claim.scope != "pod" else 1)
            for claim in spec.claims_of(role)
        ),
        Fraction(0),
    )


def _device_share(resource: str, count: int, marks: Mapping[str, str]) -> Fraction:
    """So many devices of a resource as a fraction of a card, by how the node's labels say its cards are shared."""
    sharing = GpuSharing.from_config_name(marks.get(labels.DEVICE_PLUGIN_CONFIG, ""))
    takers = int(marks.get(GKE_CLIENTS, sharing.replicas * sharing.clients))
    named = _MIG.fullmatch(resource)
    profile = named[1] if named else marks.get(GKE_PARTITION)
    if profile is None and sharing.mode == "mig":
        profile = next(iter(sharing.layout))  # strategy single: all instances are of one profile
    return count * _profile_share(profile, marks.get(labels.GPU_MODEL)) / takers


def _published_share(device: Mapping[str, Any]) -> Fraction:
    """A published device as a fraction of its card; one that is published no more counts as a card."""
    return _profile_share(claims.attribute(device, "profile") or None, claims.attribute(device, "productName") or None)


def _profile_share(profile: str | None, model: str | None) -> Fraction:
    """A MIG profile's compute slices of its card's; a whole card for None. `model` may be any name of the card."""
    if profile is None:
        return Fraction(1)
    sizes = [item.compute_slices for item in catalog.load().mig_profiles(model)] if model else []
    return Fraction(int(profile.partition("g")[0]), max(sizes, default=COMPUTE_SLICES))


def role_and_rank(pod: Mapping[str, Any]) -> tuple[str, int]:
    """Role and rank of a pod: the rank is what the operator tells the program in RANK, else the index in its role."""
    marks = (pod.get("metadata") or {}).get("labels") or {}
    # A Job of Kubernetes' own knows no roles; ours have one.
    said = next((str(marks[label]) for label in ROLE_LABELS if label in marks), "worker")
    role = _ROLES.get(said.lower(), said.capitalize())
    name = container_name(pod)
    for container in (pod.get("spec") or {}).get("containers") or ():
        for entry in container.get("env") or ():
            if container.get("name") == name and entry.get("name") == "RANK" and str(entry.get("value", "")).isdigit():
                return role, int(entry["value"])
    index = next((str(marks[label]) for label in INDEX_LABELS if label in marks), "0")
    return role, int(index) if index.isdigit() else 0


def container_name(pod: Mapping[str, Any]) -> str:
    """The container that the training program runs in: the one that an operator requires, else the first."""
    names = [str(container.get("name")) for container in (pod.get("spec") or {}).get("containers") or ()]
    return next((name for name in names if name in CONTAINERS), names[0] if names else "")


def container_status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Status of the training container; empty before the kubelet has one."""
    name = container_name(pod)
    for entry in (pod.get("status") or {}).get("containerStatuses") or ():
        if entry.get("name") == name:
            return dict(entry)
    return {}


def failure(replicas: Iterable[Replica], message: str) -> str:
    """Why a run failed: the ranks that ended badly with their exit codes, and what only the operator knows.

    Args:
        replicas: of one rank the newest last; only that one counts.
        message: the operator's own.
    """
    newest = {(item.role, item.rank): item for item in replicas}
    bad = [item for item in newest.values() if item.exit_code not in (None, 0) or item.phase == "Failed"]
    if not bad or "deadline" in message:  # past its deadline the operator itself ends the pods
        return message
    return f"{message}: {_endings(bad)}" if "backoff limit" in message else _endings(bad)


def _endings(bad: list[Replica]) -> str:
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
