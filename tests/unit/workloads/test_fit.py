"""What no node can run is refused, naming the largest."""

from typing import Any

import pytest

from isthmus import catalog
from isthmus.specs.cluster import GpuCards, NodePool
from isthmus.specs.errors import Refused
from isthmus.specs.sharing import GpuSharing
from isthmus.specs.workload import WorkloadSpec
from workloads import fit
from workloads.fit import NodeCapacity


def spec(gpus: int, workers: int = 3, model: str | None = None) -> WorkloadSpec:
    values: dict[str, Any] = {
        "apiVersion": "isthmus.dev/v1",
        "kind": "PyTorchJob",
        "name": "train",
        "image": "i",
        "command": ["c"],
        "roles": {"Master": {"replicas": 1, "gpus": gpus}, "Worker": {"replicas": workers, "gpus": gpus}},
    }
    if model:
        values["gpu"] = {"model": model, "count": 1}
    return WorkloadSpec.model_validate(values)


SMALL = NodeCapacity("small", 1, "T4")
LARGE = NodeCapacity("large", 4, "T4")


def test_what_fits_is_let_through() -> None:
    fit.check(spec(1), [LARGE])
    fit.check(spec(0), [])
    fit.check(spec(1, model="T4"), [LARGE, NodeCapacity("other", 8, "A100")])


@pytest.mark.parametrize(
    ("workload", "nodes", "words"),
    [
        (spec(8), [SMALL, LARGE], "each Master pod asks for 8 GPUs; the largest node, large, has 4"),
        (spec(1, workers=8), [SMALL, LARGE], "its 9 pods ask for 9 GPUs together; the nodes have 5"),
        (spec(1), [], "no node has any"),
        (spec(1), [NodeCapacity("cpu", 0)], "no node has any"),
        (spec(1, model="H100"), [LARGE, NodeCapacity("a", 8, "A100")], "no node has H100 cards; there are: A100, T4"),
    ],
)
def test_what_can_never_run_is_refused(workload: WorkloadSpec, nodes: list[NodeCapacity], words: str) -> None:
    with pytest.raises(Refused, match=words) as caught:
        fit.check(workload, nodes)
    assert caught.value.exit_code == 3


def test_the_way_out_is_named() -> None:
    with pytest.raises(Refused) as caught:
        fit.check(spec(8), [LARGE], remedy="this way")
    assert caught.value.remedy == "this way"


def shares(**role: Any) -> WorkloadSpec:
    """Four workers that hold cards in some way, with the claims that they name."""
    values = spec(0).model_dump(by_alias=True) | {"claims": role.pop("of", [])}
    return WorkloadSpec.model_validate(values | {"kind": "Job", "roles": {"Worker": {"replicas": 4, **role}}})


def pool(count: int = 1, **sharing: Any) -> NodeCapacity:
    cards, sharing = GpuCards(model="A100", count=count), {"mode": "mig" if "layout" in sharing else "none"} | sharing
    made = NodePool(name="p", gpu=cards, sharing=GpuSharing.model_validate(sharing))
    return fit.pool_node(made, catalog.load(), "aws", "us-east-1")


MIXED = pool(layout={"3g.20gb": 1, "1g.5gb": 4})
SLICED = pool(2, mode="time-slicing", replicas=4)
GIVEN = pool(2, mode="dra")
HALF = {"name": "half", "deviceClass": "mig", "profile": "3g.20gb"}
CARD = {"name": "card"}


@pytest.mark.parametrize(
    ("workload", "nodes"),
    [
        (shares(gpus=1, resource="nvidia.com/mig-1g.5gb"), [MIXED]),
        (shares(gpus=1, resource="nvidia.com/gpu.shared"), [pool(mode="time-slicing", replicas=4, rename=True)]),
        (shares(gpus=1), [SLICED]),
        (shares(gpus=2), [pool(2, mode="time-slicing", replicas=4, failGreaterThanOne=False)]),
        (shares(claims=["half"], of=[HALF]), [GIVEN]),
        (shares(claims=["card"], of=[CARD | {"scope": "run"}]), [GIVEN]),
    ],
)
def test_shares_and_claims_that_fit_are_let_through(workload: WorkloadSpec, nodes: list[NodeCapacity]) -> None:
    fit.check(workload, nodes)


@pytest.mark.parametrize(
    ("workload", "nodes", "words"),
    [
        (
            shares(gpus=1),
            [MIXED],
            "asks for GPUs and no node has any; they have nvidia.com/mig-1g.5gb, nvidia.com/mig-3g",
        ),
        (
            shares(gpus=1, resource="nvidia.com/mig-3g.20gb"),
            [MIXED],
            "4 pods ask for 4 nvidia.com/mig-3g.20gb .* have 1",
        ),
        (shares(gpus=5, resource="nvidia.com/mig-1g.5gb"), [MIXED], "each Worker pod asks for 5 nvidia.com/mig-1g.5gb"),
        (shares(claims=["half"], of=[HALF]), [SLICED], "claim half|no node gives any out on claim"),
        (
            shares(claims=["half"], of=[HALF | {"count": 3}]),
            [GIVEN],
            "ask for 12 3g.20gb devices together; the nodes have 4",
        ),
        (shares(claims=["card"], of=[CARD | {"count": 3}]), [GIVEN], "3 whole cards; no node gives out more than 2"),
        (shares(claims=["card"], of=[CARD]), [GIVEN], "ask for 4 whole cards together; the nodes have 2"),
    ],
)
def test_shares_and_claims_that_can_never_be_had_are_refused(
    workload: WorkloadSpec, nodes: list[NodeCapacity], words: str
) -> None:
    with pytest.raises(Refused, match=words):
        fit.check(workload, nodes)


def test_a09_more_than_one_share_is_refused_before_there_is_a_pod() -> None:
    """kubernetes/kubernetes#108152: the kubelet turns such pods away, and a controller makes more without end."""
    sliced = pool(mode="time-slicing", replicas=4)
    with pytest.raises(Refused, match="1 is a grant of access, and more buy no more compute") as refused:
        fit.check(shares(gpus=2), [sliced])
    assert refused.value.remedy == "set roles.Worker.gpus to 1"
    fit.check(shares(gpus=1), [sliced])
