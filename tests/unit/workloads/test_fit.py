"""What no node can run is refused, naming the largest."""

from typing import Any

import pytest

from isthmus.specs.errors import Refused
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
