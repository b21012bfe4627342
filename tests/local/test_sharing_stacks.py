"""A changed sharing mode on whole simulated stacks: what a preview shows, and what the nodes are afterwards."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from isthmus.sharing import offers
from isthmus.specs import labels
from isthmus.specs.sharing import GpuSharing
from tests.stacks import Stacks

pytestmark = pytest.mark.local

SYSTEM = {"name": "system", "instanceType": "m5.xlarge", "min": 1, "size": 1, "max": 1}
MPS = {"mode": "mps", "clients": 10}
MIG = {"mode": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}}
POOLS = {
    "aws-sim": {"name": "cards", "gpu": {"model": "A100", "count": 8}, "min": 2, "size": 2, "max": 2},
    "gcp-sim": {"name": "cards", "gpu": {"model": "A100", "count": 1}, "min": 2, "size": 2, "max": 2},
}


@pytest.fixture(scope="module")
def stacks(can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stacks]:
    """A simulated EKS with two nodes of A100, up; one is the local node."""
    made = Stacks(tmp_path_factory.mktemp("stacks") / "home")
    try:
        ask(made, "aws-sim", {"mode": "none"})
        made.isthmus("up", "aws-sim", "--yes")
        yield made
    finally:
        made.end()


def ask(stacks: Stacks, stack: str, sharing: dict[str, Any]) -> None:
    changes: dict[str, Any] = {"gpuPools": [{**POOLS[stack], "sharing": sharing}], "samples": [], "costReport": "false"}
    if stack == "gcp-sim":
        changes["zones"] = ["us-central1-a"]
    stacks.settings(stack, **changes)


def preview(stacks: Stacks, stack: str) -> set[tuple[str, str]]:
    """What a preview would do: operation and type of each step that does something."""
    plan = json.loads(stacks.isthmus("preview", stack, "--json").stdout)
    return {(step["operation"], step["type"]) for step in plan["steps"] if step["operation"] != "same"}


def nodes(stacks: Stacks, stack: str) -> dict[str, dict[str, Any]]:
    """The pool's nodes: the local one under `local`, the simulated one under `simulated`."""
    found = stacks.cluster(stack).list("v1", "Node", selector={labels.POOL: "cards"})
    return {"local" if item["metadata"]["labels"].get(labels.LOCAL_NODE) else "simulated": item for item in found}


@pytest.mark.parametrize("sharing", [MPS, MIG], ids=lambda sharing: str(sharing["mode"]))
def test_a_preview_on_eks_changes_the_pool_and_adds_operators(stacks: Stacks, sharing: dict[str, Any]) -> None:
    ask(stacks, "aws-sim", sharing)
    shown = preview(stacks, "aws-sim")
    assert ("update", "aws:eks/nodeGroup:NodeGroup") in shown
    others = {kind for _, kind in shown if not kind.startswith(("kubernetes:", "isthmus:"))}
    assert others == {"aws:eks/nodeGroup:NodeGroup"}
    assert not [kind for operation, kind in shown if "delete" in operation or "replace" in operation]


def test_a_preview_on_gke_makes_the_pool_anew_and_nothing_else(stacks: Stacks) -> None:
    ask(stacks, "gcp-sim", {"mode": "none"})
    stacks.isthmus("up", "gcp-sim", "--yes")
    ask(stacks, "gcp-sim", {"mode": "mig", "layout": {"1g.5gb": 7}, "strategy": "single"})
    kinds = {kind for _, kind in preview(stacks, "gcp-sim") if not kind.startswith("isthmus:")}
    assert kinds <= {"gcp:container/nodePool:NodePool", "pulumi:providers:kubernetes"}
    assert "gcp:container/nodePool:NodePool" in kinds
    refused = stacks.isthmus("sharing", "change", "gcp-sim", "cards", "--yes", code=3)
    assert "the cloud makes the pool anew" in refused.stderr
    stacks.isthmus("up", "gcp-sim", "--yes")
    offers.expect(
        stacks.cluster("gcp-sim"), nodes(stacks, "gcp-sim")["local"]["metadata"]["name"], {"nvidia.com/gpu": 7}
    )
    assert offers.advertised(nodes(stacks, "gcp-sim")["simulated"]) == {"nvidia.com/gpu": 7}


def test_a11_up_with_mps_gives_eighty_and_the_programs_that_mps_needs(stacks: Stacks) -> None:
    """NVIDIA/k8s-device-plugin#634: 8 cards, 10 clients. The label comes from the pool, and from feature discovery."""
    ask(stacks, "aws-sim", MPS)
    stacks.isthmus("up", "aws-sim", "--yes")
    kube = stacks.cluster("aws-sim")
    offers.expect(kube, nodes(stacks, "aws-sim")["local"]["metadata"]["name"], {"nvidia.com/gpu": 80})
    for node in nodes(stacks, "aws-sim").values():
        assert node["metadata"]["labels"][labels.MPS_CAPABLE] == "true"
        assert offers.advertised(node) == {"nvidia.com/gpu": 80}
    running = {item["metadata"]["name"]: item["status"] for item in kube.list("apps/v1", "DaemonSet")}
    assert running["nvidia-mps-control-daemon"]["numberReady"] == 1  # on the local node
    assert running["gpu-feature-discovery"]["numberReady"] == 1
    local = nodes(stacks, "aws-sim")["local"]["metadata"]["labels"]
    assert local["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB-SHARED"  # by the real feature discovery
    assert local["nvidia.com/gpu.replicas"] == "10"


def test_a_pool_is_changed_in_order_and_up_finds_it_so(stacks: Stacks) -> None:
    ask(stacks, "aws-sim", MIG)
    plan = json.loads(stacks.isthmus("sharing", "change", "aws-sim", "cards", "--json").stdout)
    per_node = [step["action"] for step in plan]
    assert per_node == ["cordon", "layout", "wait-layout", "configure", "wait-node", "uncordon"] * 2
    stacks.isthmus("sharing", "change", "aws-sim", "cards", "--yes")
    wanted = GpuSharing.model_validate(MIG).advertised(8)
    for node in nodes(stacks, "aws-sim").values():
        assert offers.advertised(node) == wanted and not node["spec"].get("unschedulable")
    stacks.isthmus("up", "aws-sim", "--yes")
    assert json.loads(stacks.isthmus("preview", "aws-sim", "--json").stdout)["changes"] == {}
    for node in nodes(stacks, "aws-sim").values():
        assert offers.advertised(node) == wanted
