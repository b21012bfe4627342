"""Node pools become nodes of the local cluster, for every cloud.

One local node stands for one node of the system pool and one of the first GPU pool: it carries both pools' labels (the
GPU pool's where both set one), no taint, and the GPU pool's cards. All other nodes that the pools ask for are simulated
ones with the machine's shape, labels, taints and allocatable. What should be there is computed from the account each
time, under a lock per account, and only what differs is changed: a kill -9 in the middle costs a second call.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from isthmus import catalog
from isthmus.localcluster import driver, kwok, resource_slices
from isthmus.localcluster.runtime import LocalCluster, LocalClusterConfig, LocalNode
from isthmus.simulation import local
from isthmus.simulation.account import Account
from isthmus.specs import labels as names
from isthmus.specs.cluster import GpuCards, cards_of
from isthmus.specs.offer import Shape
from isthmus.specs.sharing import DeviceClaim, GpuSharing

if TYPE_CHECKING:
    from isthmus.kube import Cluster

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


@dataclass(frozen=True)
class Pool:
    """A node pool as the cloud holds it."""

    name: str
    machine: Shape
    region: str
    zones: tuple[str, ...]
    """Nodes are spread over these in turn."""
    size: int
    labels: Mapping[str, str]
    """The pool's and the cloud's own labels, without zone, region and instance type."""
    taints: tuple[Mapping[str, str], ...] = ()
    """As in a Node: key, value, effect."""
    node_name: Callable[[int, str], str] = lambda index, zone: f"node-{zone}-{index}"
    """Name of the n-th node, in a zone."""
    provider_id: Callable[[str, str], str] = lambda node, zone: ""
    """spec.providerID of a node, from its name and zone."""
    most: int = 0
    """Nodes that it may grow to."""
    spot: bool = False
    resource: tuple[str, str] = ("", "")
    """Type and key of the account's row that it is."""

    def zone_of(self, index: int) -> str:
        """The zone of the n-th node."""
        return self.zones[index % len(self.zones)]

    def node_labels(self, index: int) -> dict[str, str]:
        """Every label of the n-th node but those of Kubernetes itself."""
        place = {INSTANCE_TYPE: self.machine.instance_type, REGION: self.region, ZONE: self.zone_of(index)}
        return {**self.labels, **place}


@dataclass(frozen=True)
class Desired:
    """What a cluster should look like."""

    local_labels: Mapping[str, str]
    cards: GpuCards | None
    simulated: Mapping[str, Mapping[str, Any]]
    """Node manifests by name."""
    claimed: Mapping[str, GpuCards] = field(default_factory=dict)
    """Of these, the nodes whose cards pods claim, with the cards."""


def desired(pools: Sequence[Pool]) -> Desired:
    """What the pools of one cluster ask for, in the order they were made. Pure."""
    system = next((pool for pool in pools if pool.size and not pool.machine.gpu_count), None)
    gpu = next((pool for pool in pools if pool.size and pool.machine.gpu_count), None)
    local_labels: dict[str, str] = {names.LOCAL_NODE: "true"}
    for pool in (system, gpu):
        local_labels |= pool.node_labels(0) if pool else {}
    simulated: dict[str, Mapping[str, Any]] = {}
    claimed: dict[str, GpuCards] = {}
    for pool in pools:
        for index in range(1 if pool in (system, gpu) else 0, pool.size):
            node = _node(pool, index)
            simulated[node["metadata"]["name"]] = node
            if pool.machine.gpu_model and sharing_of(pool.labels).mode == "dra":
                cards = GpuCards(model=pool.machine.gpu_model, count=pool.machine.gpu_count)
                claimed[node["metadata"]["name"]] = cards
    local_cards = None
    if gpu:
        sharing = sharing_of(local_labels)
        local_cards = cards_of(gpu.machine.gpu_model or "", gpu.machine.gpu_count, sharing)
        if local_labels.pop(names.MIG_MANAGER, ""):  # the local node has a MIG manager of its own
            local_labels[names.MIG_STATE] = "success"
    return Desired(local_labels, local_cards, simulated, claimed)


def reconcile(account: Account, cluster_name: str, pools: Callable[[], Iterable[Pool]]) -> LocalCluster:
    """Bring a local cluster to what its pools ask for; safe to run at the same time from many threads and processes.

    Args:
        cluster_name: the local cluster's name (local.local_name).
        pools: reads the cluster's pools from the account; called under the account's lock.
    """
    with _lock(account):
        wanted = desired(tuple(pools()))
        backend = local.backend()
        config = LocalClusterConfig(nodes=(LocalNode(labels=dict(wanted.local_labels), cards=wanted.cards),))
        cluster = backend.runtime().create(cluster_name, config)
        held = backend.simulated_nodes(cluster)
        there = {name: node for name, node in held.items() if not is_grown(node)}
        backend.remove_nodes(cluster, sorted(there.keys() - wanted.simulated.keys()))
        changed = [dict(node) for name, node in wanted.simulated.items() if _differs(there.get(name), node)]
        backend.add_nodes(cluster, changed)
        publish(backend, cluster, wanted, {node["metadata"]["name"] for node in changed})
        return cluster


def is_grown(node: Mapping[str, Any]) -> bool:
    """Whether the autoscaler made a node (growth.py), and not the size that its pool was asked for."""
    return names.GROWN in (node["metadata"].get("labels") or {})


def publish(backend: local.Backend, cluster: LocalCluster, wanted: Desired, changed: set[str]) -> None:
    """ResourceSlices of simulated nodes whose cards pods claim; Kubernetes deletes them with their node."""
    if not wanted.claimed:
        return
    cuda = (driver.CUDA_VERSION // 1000, driver.CUDA_VERSION % 1000 // 10)
    held = backend.simulated_nodes(cluster)
    for name, cards in wanted.claimed.items():
        if name not in changed:
            continue
        identities = [f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{name}/{index}')}" for index in range(cards.count)]
        found = resource_slices.devices(catalog.load(), [cards], identities)
        slices = resource_slices.resource_slices(name, found, driver_version=driver.DRIVER_VERSION, cuda=cuda)
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": held[name]["metadata"].get("uid", "")}
        for item in slices:
            item["metadata"]["ownerReferences"] = [owner]
        backend.apply(cluster, slices)


def play(client: Cluster, name: str, cards: int) -> None:
    """What the programs of a simulated node do when its labels change: the MIG manager reports, the device plugin
    advertises. Does nothing to other nodes."""
    node = client.get("v1", "Node", name)
    labels = node["metadata"].get("labels") or {}
    if labels.get(names.SIMULATED_NODE) != "true":
        return
    if names.MIG_CONFIG in labels:
        client.patch("v1", "Node", name, {"metadata": {"labels": {names.MIG_STATE: "success"}}})
    offered = {key: str(value) for key, value in sharing_of(labels).advertised(cards).items()}
    held = (key for key in node["status"]["allocatable"] if key.startswith("nvidia.com/"))
    amounts: dict[str, str | None] = {**dict.fromkeys(held), **offered}
    client.patch("v1", "Node", name, {"status": {"allocatable": amounts, "capacity": amounts}}, subresource="status")


def allocatable(machine: Shape, sharing: GpuSharing) -> dict[str, str]:
    """What a node of this shape offers to pods, as quantities: the catalog's rule, and the device plugin's for cards."""
    offered = catalog.load().allocatable(machine.cloud, machine)
    cards = sharing.advertised(machine.gpu_count)
    return {
        "cpu": f"{offered['cpu_millicores']}m",
        "memory": f"{offered['memory_mib']}Mi",
        "ephemeral-storage": "95Gi",
        "pods": str(offered["pods"]),
        **{resource: str(count) for resource, count in cards.items()},
    }


def capacity(machine: Shape, sharing: GpuSharing) -> dict[str, str]:
    """What a node of this shape has, as quantities."""
    return {
        "cpu": str(machine.vcpus),
        "memory": f"{int(machine.memory_gib * 1024)}Mi",
        "ephemeral-storage": "100Gi",
        "pods": allocatable(machine, sharing)["pods"],
        **{resource: str(count) for resource, count in sharing.advertised(machine.gpu_count).items()},
    }


def sharing_of(labels: Mapping[str, str]) -> GpuSharing:
    """How a node's cards are shared, as far as the device plugin is concerned, by the labels that its operators read.
    Under DRA it has no part in them; then only the mode is known."""
    if labels.get(names.GPU_SHARING) == "dra":
        return CLAIMED
    return GpuSharing.from_config_name(labels.get(names.DEVICE_PLUGIN_CONFIG, ""))


CLAIMED = GpuSharing(mode="dra", claims=(DeviceClaim(name="any"),))
"""Cards that pods claim."""


def _node(pool: Pool, index: int) -> dict[str, Any]:
    zone, labels = pool.zone_of(index), pool.node_labels(index)
    name = pool.node_name(index, zone)
    sharing = sharing_of(labels)
    if names.MIG_CONFIG in labels:
        labels[names.MIG_STATE] = "success"
    node = kwok.simulated_node(
        name,
        allocatable(pool.machine, sharing),
        {**labels, names.SIMULATED_NODE: "true"},
        pool.taints,
        capacity=capacity(pool.machine, sharing),
    )
    provider_id = pool.provider_id(name, zone)
    if provider_id:
        node["spec"]["providerID"] = provider_id
    return node


def _differs(there: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> bool:
    """Whether a node must be written: it is not there, or lacks a label, a taint or an amount that it should have."""
    if there is None:
        return True
    has = there["metadata"].get("labels") or {}
    if any(has.get(key) != value for key, value in wanted["metadata"]["labels"].items()):
        return True
    ours = {_taint(taint) for taint in wanted["spec"]["taints"]}
    return not ours <= {_taint(taint) for taint in there["spec"].get("taints") or ()} or any(
        there["status"]["allocatable"].get(key) != value for key, value in wanted["status"]["allocatable"].items()
    )


def _taint(taint: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(taint["key"]), str(taint.get("value") or ""), str(taint["effect"])


@contextmanager
def _lock(account: Account) -> Iterator[None]:
    """One reconcile of an account at a time, also between processes. The kernel drops the lock of a killed one."""
    handle = os.open(account.path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
