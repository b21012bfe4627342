"""What the autoscaler is told of a pool: shares and not cards, and no more nodes than pool, quota and stock allow."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus import catalog
from isthmus.simulation import capacity, growth, nodes, quota
from isthmus.simulation.account import Account
from isthmus.simulation.aws.base import quotas
from isthmus.specs import labels
from isthmus.specs.errors import Refused
from isthmus.specs.sharing import GpuSharing

ZONES = ("us-east-1a", "us-east-1b")
G_AND_VT = "L-DB2E81BA"


def pool(name: str = "cards", machine: str = "g4dn.xlarge", size: int = 0, most: int = 4, **sharing: Any) -> nodes.Pool:
    wanted = GpuSharing.model_validate({"mode": "time-slicing", "replicas": 4} if not sharing else sharing)
    return nodes.Pool(
        name=name,
        machine=catalog.load().shape("aws", machine),
        region="us-east-1",
        zones=ZONES,
        size=size,
        most=most,
        labels={labels.POOL: name, labels.GPU_MODEL: "T4", **wanted.node_labels},
        taints=({"key": labels.GPU_TAINT, "value": "present", "effect": "NoSchedule"},),
        resource=("aws:eks/nodeGroup:NodeGroup", f"us-east-1/{name}"),
    )


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    yield Account("acme", tmp_path / "acme.db")


def test_a14_a_machine_is_told_with_its_shares() -> None:
    """Azure/AKS#3427: counted by cards, four slices of one card start four nodes."""
    (entry,) = growth.instance_types([pool()])
    assert entry["name"] == "g4dn.xlarge"
    assert entry["resources"]["nvidia.com/gpu"] == "4"
    offered = nodes.allocatable(pool().machine, GpuSharing())
    assert entry["resources"]["cpu"] == f"{int(offered['cpu'][:-1]) + 100}m", "what Karpenter takes off again"
    assert [item["Requirements"][0]["values"] for item in entry["offerings"]] == [["us-east-1a"], ["us-east-1b"]]
    assert all(item["Price"] == pytest.approx(0.526) for item in entry["offerings"])


def test_a_pool_s_nodes_carry_what_its_others_carry() -> None:
    spec = growth.node_pool(pool(), 3)["spec"]
    marks = spec["template"]["metadata"]["labels"]
    assert marks.items() >= pool().labels.items()
    assert marks[labels.SIMULATED_NODE] == "true"
    assert [taint["key"] for taint in spec["template"]["spec"]["taints"]] == [labels.SIMULATED_TAINT, labels.GPU_TAINT]
    each = int(growth.instance_types([pool()])[0]["resources"]["cpu"][:-1])
    assert spec["limits"] == {"nodes": "3", "cpu": f"{3 * each}m"}
    assert growth.node_pool(pool(), -1)["spec"]["limits"] == {"nodes": "0", "cpu": "0m"}


def test_no_more_nodes_than_the_pool_the_quota_and_the_zones_allow(account: Account) -> None:
    def room(made: int = 0) -> int:
        return growth.room(account, pool(), made, quotas())

    assert room() == 4
    quota.set_limit(account, G_AND_VT, 8)  # two machines of four cores
    assert room() == 2
    growth.record(account, pool(), ["us-east-1a"], quotas())
    assert quota.used(account, G_AND_VT, "us-east-1") == 4
    assert room(made=1) == 2, "the one that is there counts among them"
    capacity.set_available(account, "us-east-1a", "g4dn.xlarge", 1)
    assert room(made=1) == 2, "the other zone has no limit"
    capacity.set_available(account, "us-east-1b", "g4dn.xlarge", 0)
    assert room(made=1) == 1
    growth.record(account, pool(), [], quotas())
    assert quota.used(account, G_AND_VT, "us-east-1") == 0
    assert capacity.available(account, "us-east-1a", "g4dn.xlarge") == 1


def test_only_pools_below_their_largest_size_grow() -> None:
    assert [item.name for item in growth.growing([pool(), pool("full", size=4), pool("fixed", size=1, most=1)])] == [
        "cards"
    ]


@pytest.mark.parametrize(
    ("pools", "words"),
    [
        ([pool(mode="dra")], "does not count claims"),
        ([pool(), pool("whole", mode="none", replicas=1)], "cards and whole have the same machine, g4dn.xlarge"),
    ],
)
def test_what_karpenter_cannot_be_told_is_refused(pools: list[nodes.Pool], words: str) -> None:
    with pytest.raises(Refused, match=words):
        growth.growing(pools)
