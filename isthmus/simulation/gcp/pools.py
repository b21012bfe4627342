"""A cluster's node pools, read from the account as the nodes they stand for. Used by clusters and by node pools."""

from __future__ import annotations

import hashlib

from isthmus.simulation import nodes
from isthmus.simulation.account import DELETING, Account, Row
from isthmus.simulation.gcp import machines
from isthmus.simulation.gcp.base import region_of_location, zones_of
from isthmus.toolchain.values import Properties

POOL_TOKEN = "gcp:container/nodePool:NodePool"


def of_cluster(account: Account, cluster_id: str, name: str, place: str) -> list[nodes.Pool]:
    """The pools that a cluster has, or will have: those being deleted are left out.

    Args:
        place: the cluster's location.
    """
    region = region_of_location(place)
    return [_pool(account, row, region) for row in rows(account, cluster_id, name, place) if row.state != DELETING]


def rows(account: Account, cluster_id: str, name: str, place: str) -> list[Row]:
    """Rows of a cluster's pools, which may name it by its id or, beside a location, by its name."""
    return [
        row
        for row in account.rows(POOL_TOKEN)
        if row.inputs["cluster"] == cluster_id
        or (row.inputs["cluster"] == name and row.inputs.get("location", place) == place)
    ]


def group_name(account: Account, cluster: str, pool: str, urn: str) -> str:
    """Name of a pool's managed instance group without its ending, gke-CLUSTER-POOL-1a2b3c4d: the same in every run."""
    return f"gke-{cluster}-{pool}-{_digits(f'{account.name} {urn}', 8)}"


def _pool(account: Account, row: Row, region: str) -> nodes.Pool:
    inputs = row.inputs
    zones = tuple(inputs.get("nodeLocations") or row.outputs.get("nodeLocations") or zones_of(region)[:1])
    group = group_name(account, str(inputs["cluster"]).rpartition("/")[2], str(inputs["name"]), row.urn)
    history = f"{account.name} {row.urn} {row.created_at}"
    shown = (row.outputs.get("nodeConfig") or {}).get("effectiveTaints") or machines.config(inputs).get("taints") or []
    return nodes.Pool(
        name=str(inputs["name"]),
        machine=machines.machine(inputs),
        region=region,
        zones=zones,
        size=machines.nodes_per_zone(inputs) * len(zones),
        labels=machines.labels(str(inputs["name"]), inputs),
        taints=machines.node_taints(shown),
        node_name=lambda index, zone: f"{group}-{_digits(f'{history} {index}', 4)}",
        provider_id=lambda node, zone: f"gce://{account.name}/{zone}/{node}",
        most=_most(inputs, len(zones)),
        spot=machines.purchase(inputs) == "spot",
        resource=(row.type, row.key),
    )


def _most(inputs: Properties, zones: int) -> int:
    scaling = inputs.get("autoscaling") or {}
    return int(scaling.get("totalMaxNodeCount") or zones * int(scaling.get("maxNodeCount") or 0))


def _digits(text: str, length: int) -> str:
    """Hex digits of a text: a node keeps its name however often the cluster is looked at."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]
