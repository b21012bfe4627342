"""Pools that grow when pods wait: what Karpenter is told about them, and what its nodes take of the account. Pure but for
the account.

The autoscaler is Karpenter with its own provider for KWOK nodes: it is told each pool's machine with what a node of it offers
pods - shares of cards, not cards, or four slices of one card would start four nodes (case A14, Azure/AKS#3427) - and it
makes the nodes. How many it may make is a limit that follows the pool's largest size, the account's quotas and the zones'
stock; what it made is written into the account as the pool's. autoscaler.py runs it.

EKS has no autoscaler of its own for managed node groups, and GKE's is not Karpenter: what they have in common is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from isthmus import catalog
from isthmus.simulation import capacity, nodes, quota
from isthmus.simulation.account import Account
from isthmus.simulation.quota import Quota
from isthmus.simulation.resource import Placement, Usage
from isthmus.specs import labels
from isthmus.specs.errors import Refused
from isthmus.specs.offer import Purchase
from isthmus.specs.quantity import mebibytes, millicores

GROWTH = "a pool grows to its largest size when pods wait, by `isthmus sim autoscale`: Karpenter's decisions"
"""For the ledger of both clouds."""

API = "karpenter.sh/v1"
CLASS = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "machines"},
    "spec": {"nodeRegistrationDelay": "0s"},
}
RESERVED_CPU_M, RESERVED_MEMORY_MIB = 100, 10
"""What Karpenter's KWOK provider takes off a machine (v1.15.0, kwok/cloudprovider/helpers.go): added beforehand, so that a
node offers what the catalog says."""

EMPTY_SECONDS = 600
"""How long a node that it made stands empty before it goes: cluster-autoscaler's default, --scale-down-unneeded-time."""

Object = dict[str, Any]


def growing(pools: Iterable[nodes.Pool]) -> list[nodes.Pool]:
    """The pools that may have more nodes than they were asked for.

    Raises:
        Refused: one gives its cards out on claim, or two have the same machine and share its cards differently.
    """
    found = [pool for pool in pools if pool.most > pool.size]
    offered: dict[str, tuple[str, Mapping[str, str]]] = {}
    for pool in found:
        sharing = nodes.sharing_of(pool.labels)
        if sharing.mode == "dra":
            raise Refused(
                "Karpenter 1.15 does not count claims, so a pool that gives its cards out on claim cannot grow by them",
                subject=f"pool {pool.name}",
                remedy=f"give it a max of {pool.size}, or another sharing mode",
            )
        offers = nodes.allocatable(pool.machine, sharing)
        other, before = offered.setdefault(pool.machine.instance_type, (pool.name, offers))
        if before != offers:
            raise Refused(
                f"pools {other} and {pool.name} have the same machine, {pool.machine.instance_type}, and share its cards"
                " differently: Karpenter knows a machine by its name",
                subject=f"pool {pool.name}",
                remedy="let one of them be of a fixed size (min = max)",
            )
    return found


def instance_types(pools: Sequence[nodes.Pool]) -> list[Object]:
    """Karpenter's file of machines (--instance-types-file-path), each with what a node of it offers."""
    made: dict[str, Object] = {}
    for pool in pools:
        offers = nodes.allocatable(pool.machine, nodes.sharing_of(pool.labels))
        resources = offers | {
            "cpu": f"{millicores(offers['cpu']) + RESERVED_CPU_M}m",
            "memory": f"{mebibytes(offers['memory']) + RESERVED_MEMORY_MIB}Mi",
        }
        entry = made.setdefault(
            pool.machine.instance_type,
            {
                "name": pool.machine.instance_type,
                "architecture": "amd64",
                "operatingSystems": ["linux"],
                "resources": resources,
                "offerings": [],
            },
        )
        entry["offerings"] += [_offering(pool, zone) for zone in pool.zones]
    return list(made.values())


def node_pool(pool: nodes.Pool, room: int) -> Object:
    """Karpenter's NodePool for a pool.

    Args:
        room: nodes that it may have made at once.
    """
    always = {
        **pool.labels,
        labels.SIMULATED_NODE: "true",
        labels.MANAGED_BY: labels.OWNER,
        nodes.REGION: pool.region,
    }
    if labels.MIG_CONFIG in pool.labels:
        always[labels.MIG_STATE] = "success"
    taints = [{"key": labels.SIMULATED_TAINT, "value": "true", "effect": "NoSchedule"}, *map(dict, pool.taints)]
    cpu = millicores(nodes.allocatable(pool.machine, nodes.sharing_of(pool.labels))["cpu"]) + RESERVED_CPU_M
    requirements = {
        nodes.INSTANCE_TYPE: [pool.machine.instance_type],
        nodes.ZONE: list(pool.zones),
        "karpenter.sh/capacity-type": [_capacity_type(pool)],
    }
    return {
        "apiVersion": API,
        "kind": "NodePool",
        "metadata": {"name": pool.name},
        "spec": {
            # By nodes it counts those that are there, by their CPU those that it is about to make together.
            "limits": {"nodes": str(max(room, 0)), "cpu": f"{cpu * max(room, 0)}m"},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": f"{EMPTY_SECONDS}s"},
            "template": {
                "metadata": {"labels": always},
                "spec": {
                    "nodeClassRef": {
                        "group": "karpenter.kwok.sh",
                        "kind": CLASS["kind"],
                        "name": "machines",
                    },
                    "expireAfter": "Never",
                    "taints": taints,
                    "requirements": [
                        {"key": key, "operator": "In", "values": values} for key, values in requirements.items()
                    ],
                },
            },
        },
    }


def room(account: Account, pool: nodes.Pool, made: int, quotas: Mapping[str, Quota]) -> int:
    """How many nodes the autoscaler may have made of a pool at once: up to the pool's largest size, as far as quotas and
    the zones' stock go.

    Args:
        made: those that it has made, which the account counts already.
    """
    most = pool.most - pool.size
    for item in _usage(pool, 1, quotas):
        left = quota.limit(account, quotas[item.code], item.place) - quota.used(account, item.code, item.place)
        most = min(most, made + int(left // item.amount))
    stock = [capacity.available(account, zone, pool.machine.instance_type) for zone in pool.zones]
    known = [left for left in stock if left is not None]
    return min(most, made + sum(known)) if len(known) == len(stock) else most


def record(account: Account, pool: nodes.Pool, zones: Sequence[str], quotas: Mapping[str, Quota]) -> None:
    """Write what a pool takes of the account, with the nodes that the autoscaler made of it.

    Args:
        zones: of each of those.
    """
    every = [pool.zone_of(index) for index in range(pool.size)] + list(zones)
    placements = [
        Placement(zone, pool.machine.instance_type, every.count(zone), pool.spot) for zone in dict.fromkeys(every)
    ]
    with account.transaction():
        quota.take(account, pool.resource, _usage(pool, len(every), quotas), lambda code: None, _never)
        capacity.put_back(account, pool.resource, placements)


def _usage(pool: nodes.Pool, count: int, quotas: Mapping[str, Quota]) -> list[Usage]:
    purchase: Purchase = "spot" if pool.spot else "on-demand"
    return [
        Usage(
            fact.code,
            float(fact.amount(pool.machine, purchase) * count),
            "global" if fact.scope == "global" else pool.region,
        )
        for fact in catalog.load().quotas_for(pool.machine, purchase)
        if fact.code in quotas
    ]


def _offering(pool: nodes.Pool, zone: str) -> Object:
    purchase: Purchase = "spot" if pool.spot else "on-demand"
    offer = catalog.load().offer(pool.machine, pool.region, purchase)
    price = (
        float(offer.usd_per_hour) if offer and offer.usd_per_hour is not None else 1.0
    )  # among one machine it decides nothing
    requirements = {nodes.ZONE: zone, "karpenter.sh/capacity-type": _capacity_type(pool)}
    return {
        "Price": price,
        "Available": True,
        "Requirements": [{"key": key, "operator": "In", "values": [value]} for key, value in requirements.items()],
    }


def _capacity_type(pool: nodes.Pool) -> str:
    return "spot" if pool.spot else "on-demand"


def _never(quota_: Quota, limit: float, used: float, asked: float) -> Any:
    raise AssertionError("what exists is recorded, whatever the limits are")
