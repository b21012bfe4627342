"""What a workload asks of a cluster, in numbers, and how many equal nodes hold it. Pure.

The packing is the scheduler's question, not its answer: pods of one role are equal, so roles are placed one after the
other, the most demanding first, each on the first node with room (first fit decreasing). That never says fewer nodes
than are needed.
"""

from dataclasses import dataclass
from decimal import Decimal

from isthmus.specs.quantity import mebibytes, millicores
from isthmus.specs.workload import WorkloadSpec

DAEMONS_CPU_M = 250
DAEMONS_MEMORY_MIB = 256
"""What the network, proxy, logging and device plugin pods of every node take (assumed, the same on both clouds)."""


@dataclass(frozen=True, slots=True)
class PodDemand:
    """The pods of one role. Amounts are of one pod."""

    role: str
    count: int
    gpus: int
    cpu_m: int
    memory_mib: int

    def __str__(self) -> str:
        cards = f"{self.gpus} GPU, " if self.gpus else ""
        return f"{self.role}: {cards}{Decimal(self.cpu_m) / 1000:g} CPU, {self.memory_mib} MiB"


@dataclass(frozen=True, slots=True)
class Demand:
    """All pods of a workload, and what it keeps and sends."""

    pods: tuple[PodDemand, ...]
    """Most demanding first."""
    gpu_model: str | None
    cards_per_node: int | None
    hours: Decimal
    storage_gib: Decimal
    egress_gib: Decimal
    object_gib: Decimal = Decimal(0)

    @property
    def gpus(self) -> int:
        """Cards of all pods together; slices, where cards are shared."""
        return sum(pod.count * pod.gpus for pod in self.pods)

    @property
    def count(self) -> int:
        """Pods of all roles together."""
        return sum(pod.count for pod in self.pods)


@dataclass(frozen=True, slots=True)
class Room:
    """What one empty node has for pods, daemons already taken off."""

    gpus: int
    cpu_m: int
    memory_mib: int
    pods: int

    def holds(self, pod: PodDemand) -> int:
        """How many such pods fit."""
        limits = [self.pods, self.memory_mib // pod.memory_mib if pod.memory_mib else self.pods]
        if pod.cpu_m:
            limits.append(self.cpu_m // pod.cpu_m)
        if pod.gpus:
            limits.append(self.gpus // pod.gpus)
        return max(min(limits), 0)

    def minus(self, pod: PodDemand, count: int) -> "Room":
        """The room left after placing `count` such pods."""
        return Room(
            self.gpus - count * pod.gpus,
            self.cpu_m - count * pod.cpu_m,
            self.memory_mib - count * pod.memory_mib,
            self.pods - count,
        )


def demand_of(workload: WorkloadSpec) -> Demand:
    """The demand of a workload. Disk is the larger of `cost.storageGib` and the sum of its volumes.

    Raises:
        InvalidSpec: an amount that is no Kubernetes quantity.
    """
    pods = [
        PodDemand(name, role.replicas, _devices(workload, name), millicores(role.cpu), mebibytes(role.memory))
        for name, role in workload.roles.items()
    ]
    volumes = sum((Decimal(mebibytes(volume.size)) / 1024 for volume in workload.volumes), Decimal(0))
    cards = workload.gpu
    return Demand(
        pods=tuple(sorted(pods, key=lambda pod: (-pod.gpus, -pod.cpu_m, -pod.memory_mib, pod.role))),
        gpu_model=cards.model if cards else None,
        cards_per_node=cards.count if cards else None,
        hours=workload.cost.hours,
        storage_gib=max(workload.cost.storage_gib, volumes),
        egress_gib=workload.cost.egress_gib,
        object_gib=workload.cost.object_gib,
    )


def _devices(workload: WorkloadSpec, role: str) -> int:
    """Devices that a pod of a role asks for or claims. What part of a card each is, the options say (Options.share); a
    claim that pods share counts for each of them, so that an estimate is never too low."""
    return workload.roles[role].gpus + sum(claim.count for claim in workload.claims_of(role))


def cards_demand(model: str, count: int, sharers: int) -> Demand:
    """A demand for cards alone: for each card one pod with a core and a GiB, or as many pods as share it, with their part
    of both."""
    pod = PodDemand(
        "pod with a card" if sharers == 1 else "pod with a share", count * sharers, 1, 1000 // sharers, 1024 // sharers
    )
    return Demand((pod,), model, None, Decimal(1), Decimal(0), Decimal(0))


def room(allocatable: dict[str, int], gpus: int) -> Room:
    """The room of an empty node with this allocatable (Catalog.allocatable) and so many cards."""
    return Room(
        gpus,
        allocatable["cpu_millicores"] - DAEMONS_CPU_M,
        allocatable["memory_mib"] - DAEMONS_MEMORY_MIB,
        allocatable["pods"],
    )


def nodes_needed(demand: Demand, empty: Room) -> int | None:
    """How many equal nodes hold all pods; None if one of them does not fit on an empty node."""
    groups: list[tuple[Room, int]] = []
    for pod in demand.pods:
        per_empty = empty.holds(pod)
        if per_empty == 0:
            return None
        groups, left = _fill(groups, pod)
        whole, rest = divmod(left, per_empty)
        if whole:
            groups.append((empty.minus(pod, per_empty), whole))
        if rest:
            groups.append((empty.minus(pod, rest), 1))
    return sum(count for _, count in groups)


def _fill(groups: list[tuple[Room, int]], pod: PodDemand) -> tuple[list[tuple[Room, int]], int]:
    """Place pods on the nodes already there; returns the nodes as they are then and how many pods are left."""
    left = pod.count
    filled: list[tuple[Room, int]] = []
    for space, nodes in groups:
        fits = space.holds(pod)
        if fits == 0 or left == 0:
            filled.append((space, nodes))
            continue
        full = min(nodes, left // fits)
        if full:
            filled.append((space.minus(pod, fits), full))
            left -= full * fits
        if full < nodes and left:
            filled.append((space.minus(pod, left), 1))
            full, left = full + 1, 0
        if full < nodes:
            filled.append((space, nodes - full))
    return filled, left
