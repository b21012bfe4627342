"""Packing: how many equal nodes hold the pods of a workload."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.costs.demand import Demand, PodDemand, Room, demand_of, nodes_needed, room
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.quantity import mebibytes, millicores


def demand(*pods: PodDemand) -> Demand:
    ordered = tuple(sorted(pods, key=lambda pod: (-pod.gpus, -pod.cpu_m, -pod.memory_mib)))
    return Demand(ordered, None, None, Decimal(1), Decimal(0), Decimal(0))


def pods(count: int, gpus: int = 0, cpu_m: int = 0, memory_mib: int = 0, role: str = "Worker") -> PodDemand:
    return PodDemand(role, count, gpus, cpu_m, memory_mib)


FOUR_CARDS = Room(gpus=4, cpu_m=8000, memory_mib=32000, pods=100)


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [
        (demand(pods(4, gpus=1)), 1),
        (demand(pods(5, gpus=1)), 2),
        (demand(pods(2, gpus=3)), 2),
        (demand(pods(2, gpus=3), pods(2, gpus=1)), 2),
        (demand(pods(4, gpus=1, cpu_m=3000)), 2),
        (demand(pods(4, gpus=1, memory_mib=20000)), 4),
        (demand(pods(201)), 3),
        (demand(pods(1, gpus=5)), None),
        (demand(pods(1, cpu_m=8001)), None),
        (demand(pods(10_000, gpus=1, cpu_m=1)), 2500),
    ],
)
def test_nodes_needed(asked: Demand, nodes: int | None) -> None:
    assert nodes_needed(asked, FOUR_CARDS) == nodes


kinds = st.tuples(st.integers(1, 40), st.integers(0, 4), st.integers(0, 4000), st.integers(0, 16000))


@given(st.lists(kinds, min_size=1, max_size=2))
def test_the_nodes_have_the_room_and_one_less_would_lack_none_by_more_than_packing_can(
    made: list[tuple[int, ...]],
) -> None:
    asked = demand(*(pods(*kind) for kind in made))
    nodes = nodes_needed(asked, FOUR_CARDS)
    assert nodes is not None
    for have, amount in ((4, "gpus"), (8000, "cpu_m"), (32000, "memory_mib")):
        assert sum(pod.count * getattr(pod, amount) for pod in asked.pods) <= nodes * have
    assert nodes <= asked.count, "no node stands empty"


@given(st.lists(kinds, min_size=1, max_size=2), st.integers(1, 5))
def test_more_pods_never_need_fewer_nodes(made: list[tuple[int, ...]], more: int) -> None:
    before = nodes_needed(demand(*(pods(*kind) for kind in made)), FOUR_CARDS)
    made[0] = (made[0][0] + more, *made[0][1:])
    after = nodes_needed(demand(*(pods(*kind) for kind in made)), FOUR_CARDS)
    assert before is not None and after is not None and after >= before


def test_daemons_take_their_part() -> None:
    empty = room({"cpu_millicores": 3920, "memory_mib": 14162, "pods": 58}, 1)
    assert (empty.cpu_m, empty.memory_mib, empty.pods, empty.gpus) == (3670, 13906, 58, 1)


def test_the_demand_of_a_workload(workload) -> None:
    spec = workload(
        roles={
            "Master": {"replicas": 1, "gpus": 1, "cpu": "500m"},
            "Worker": {"replicas": 3, "gpus": 2, "memory": "2Gi"},
        },
        volumes=[{"name": "a", "size": "3Gi", "mountPath": "/a", "role": "Master"}],
        cost={"hours": "2.5", "storageGib": 1, "egressGib": 7},
    )
    asked = demand_of(spec)
    assert [str(pod) for pod in asked.pods] == ["Worker: 2 GPU, 1 CPU, 2048 MiB", "Master: 1 GPU, 0.5 CPU, 1024 MiB"]
    assert (asked.gpus, asked.count, asked.hours, asked.egress_gib) == (7, 4, Decimal("2.5"), 7)
    assert asked.storage_gib == 3, "the volumes are larger than what cost.storageGib says"


@pytest.mark.parametrize(("text", "amount"), [("500m", 500), ("2", 2000), ("0.5", 500), ("1.0001", 1001)])
def test_millicores(text: str, amount: int) -> None:
    assert millicores(text) == amount


@pytest.mark.parametrize(("text", "amount"), [("1Gi", 1024), ("512Mi", 512), ("1G", 954), ("1048577", 2), ("1.5Ki", 1)])
def test_mebibytes(text: str, amount: int) -> None:
    assert mebibytes(text) == amount


@pytest.mark.parametrize("text", ["", "one", "1Gi", "-1", "1e3x", "1 2"])
def test_no_cpu_amount(text: str) -> None:
    with pytest.raises(InvalidSpec, match="is not a CPU amount"):
        millicores(text)


@pytest.mark.parametrize("text", ["", "much", "1m", "-1Gi", "1GiB"])
def test_no_amount_of_memory(text: str) -> None:
    with pytest.raises(InvalidSpec, match="is not an amount of memory"):
        mebibytes(text)
