"""What a changed sharing mode changes in the program: the pool and the operators, never a cluster."""

from typing import Any

import pytest

from infra import cloud as clouds
from isthmus.localcluster.kind.resources import TYPES
from isthmus.specs.cluster import NodePool
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.sharing import GpuSharing
from tests.unit.infra.recording import Recording, record
from tests.unit.infra.stacks import infrastructure, settings

MODES: list[dict[str, Any]] = [
    {"mode": "time-slicing", "replicas": 4},
    {"mode": "mps", "clients": 4},
    {"mode": "mig", "layout": {"1g.5gb": 7}, "strategy": "single"},
    {"mode": "dra", "claims": [{"name": "one"}]},
]


def made(cloud: str, sharing: dict[str, Any]) -> Recording:
    card = {"aws": {"model": "A100", "count": 8}, "gcp": {"model": "A100", "count": 1}}[cloud]
    pool = NodePool(name="g", gpu=card, sharing=GpuSharing.model_validate(sharing))
    zones = {"aws": ("us-east-1a", "us-east-1b"), "gcp": ("us-central1-a",)}[cloud]
    return record(infrastructure(settings(cloud, gpu_pools=(pool,), zones=zones)))


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
@pytest.mark.parametrize("sharing", MODES, ids=lambda sharing: str(sharing["mode"]))
def test_another_mode_is_another_node_pool_and_nothing_else(cloud: str, sharing: dict[str, Any]) -> None:
    before, after = made(cloud, {"mode": "none"}).inputs(), made(cloud, sharing)
    assert before.keys() == after.inputs().keys()
    changed = [(item.token, item.name) for item in after.resources if before[item.urn] != item.inputs]
    kind = {"aws": "aws:eks/nodeGroup:NodeGroup", "gcp": "gcp:container/nodePool:NodePool"}[cloud]
    assert changed == [(kind, "isthmus-g")]


@pytest.mark.parametrize("sharing", MODES[:3], ids=lambda sharing: str(sharing["mode"]))
def test_another_mode_on_kind_changes_the_nodes_of_the_cluster_in_place(sharing: dict[str, Any]) -> None:
    """Asked of the provider's own rule for what makes a cluster anew."""

    def cluster(mode: dict[str, Any]) -> Recording:
        pool = NodePool(name="g", gpu={"model": "A100", "count": 1}, sharing=GpuSharing.model_validate(mode))
        return record(infrastructure(settings("kind", gpu_pools=(pool,))))

    before, after = cluster({"mode": "none"}).inputs(), cluster(sharing)
    changed = [item for item in after.resources if before[item.urn] != item.inputs]
    assert [item.token for item in changed] == ["isthmus:kind:Cluster"]
    olds, news = dict(before[changed[0].urn]), dict(changed[0].inputs)
    assert [key for key in news if olds[key] != news[key]] == ["nodes"]
    assert TYPES["isthmus:kind:Cluster"].replaces(olds, news) == []


@pytest.mark.parametrize(
    ("cloud", "sharing", "says"),
    [
        ("aws", {"mode": "mig", "layout": {"3g.20gb": 3}}, "legal: 1 to 2"),
        ("gcp", {"mode": "mig", "layout": {"3g.20gb": 1, "1g.5gb": 4}}, "sharing.strategy is mixed; legal: single"),
    ],
)
def test_what_the_card_or_the_cloud_does_not_take_is_refused(cloud: str, sharing: dict[str, Any], says: str) -> None:
    card = {"aws": {"model": "A100", "count": 8}, "gcp": {"model": "A100", "count": 1}}[cloud]
    pool = NodePool(name="g", gpu=card, sharing=GpuSharing.model_validate(sharing))
    zones = {"aws": ("us-east-1a", "us-east-1b"), "gcp": ("us-central1-a",)}[cloud]
    with pytest.raises(InvalidSpec) as refused:
        clouds.select(settings(cloud, gpu_pools=(pool,), zones=zones)).check()
    assert says in refused.value.message
