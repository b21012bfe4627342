"""The kind cloud: which nodes its pools become, and what it refuses."""

from typing import Any

import pytest

from infra import cloud as clouds
from isthmus import catalog
from isthmus.specs import labels
from isthmus.specs.cluster import GpuCards, NodePool
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.sharing import GpuSharing
from tests.unit.infra.recording import record
from tests.unit.infra.stacks import infrastructure, settings

SYSTEM = NodePool(name="system", instanceType="node", min=1, size=2, max=2)


def nodes(**changes: Any) -> list[dict[str, Any]]:
    made = record(infrastructure(settings("kind", **changes)))
    return list(made.one("isthmus:kind:Cluster").inputs["nodes"])


def test_the_shipped_stack_is_a_control_plane_and_two_workers_with_cards() -> None:
    first, *workers = nodes()
    assert first == {"labels": {labels.POOL: "system"}, "taints": []}
    assert len(workers) == 2
    for worker in workers:
        assert worker["gpu"] == {"model": "T4", "count": 2}
        assert worker["labels"] == {labels.POOL: "gpu-t4", labels.GPU_MODEL: "T4"}
        assert worker["taints"] == [{"key": labels.GPU_TAINT, "value": "present", "effect": "NoSchedule"}]


def test_pools_become_nodes_with_the_system_pool_first() -> None:
    pools = (
        NodePool(name="a", gpu=GpuCards(model="A100", count=1), size=1),
        NodePool(name="b", gpu=GpuCards(model="L4", count=4), size=1),
    )
    found = nodes(system_pool=SYSTEM, gpu_pools=pools)
    assert [node["labels"][labels.POOL] for node in found] == ["system", "system", "a", "b"]
    assert [node.get("gpu", {}).get("count") for node in found] == [None, None, 1, 4]


def test_cards_are_cut_labelled_or_left_whole_for_claims_by_the_pools_sharing() -> None:
    cut = GpuSharing(mode="mig", layout={"3g.20gb": 2})
    claimed = GpuSharing.model_validate({"mode": "dra", "claims": [{"name": "one"}]})
    pools = (
        NodePool(name="a", gpu=GpuCards(model="A100", count=1), sharing=cut, size=1),
        NodePool(name="b", gpu=GpuCards(model="A100", count=1), sharing=claimed, size=1),
    )
    _, a, b = nodes(gpu_pools=pools)
    assert (a["gpu"]["layout"], a["labels"][labels.MIG_CONFIG]) == ({"3g.20gb": 2}, cut.layout_name)
    assert (b["gpu"].get("layout"), b["labels"][labels.GPU_SHARING]) == (None, "dra")


def test_nothing_but_names_and_numbers_is_in_the_inputs() -> None:
    inputs = record(infrastructure(settings("kind"))).one("isthmus:kind:Cluster").inputs
    given = {key for key, value in inputs.items() if value is not None}
    assert given == {"name", "kubernetesVersion", "nodes"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mode": "simulated"}, "leave mode out"),
        ({"region": "us-east-1"}, "local"),
        ({"zones": ("local", "us-east-1a")}, "local"),
        ({"system_pool": NodePool(name="system", instanceType="m5.xlarge")}, "'node'"),
        ({"system_pool": NodePool(name="system", instanceType="node", min=0, size=0)}, "1 to 16"),
        ({"gpu_pools": (NodePool(name="g", instanceType="node"),)}, "no cards"),
        ({"gpu_pools": (NodePool(name="g", gpu=GpuCards(model="T5", count=1)),)}, "T4"),
        ({"gpu_pools": (NodePool(name="g", gpu=GpuCards(model="T4", count=1), spot=True),)}, "spot"),
        ({"gpu_pools": (NodePool(name="g", gpu=GpuCards(model="T4", count=1), max=16, size=16),)}, "17"),
    ],
)
def test_settings_that_no_machine_of_ours_has_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        clouds.select(settings("kind", **changes), catalog.load()).check()
    assert words in f"{refused.value.message} {refused.value.remedy}"
