"""The order in which a pool's sharing changes, and what is refused. Pure; tests/local/test_sharing.py runs it."""

import itertools

import pytest
from pydantic import ValidationError

from isthmus.sharing.change import Holder, NodeState, Step, plan
from isthmus.specs import labels
from isthmus.specs.errors import Refused
from isthmus.specs.sharing import GpuSharing

THREE = GpuSharing(mode="mig", layout={"2g.12gb": 1, "1g.6gb": 2})
WHOLE = GpuSharing(mode="mig", layout={"4g.24gb": 1}, strategy="single")
WAYS = [
    GpuSharing(),
    GpuSharing(mode="time-slicing", replicas=4),
    GpuSharing(mode="mps", clients=4),
    THREE,
    WHOLE,
    GpuSharing.model_validate({"mode": "dra", "claims": [{"name": "one"}]}),
]
JOB = Holder("team", "train-0", "Job train")
BARE = Holder("team", "notebook", "")


def state(sharing: GpuSharing, *holders: Holder, cards: int = 1, change: str = "") -> NodeState:
    found = dict(sharing.node_labels)
    if sharing.mode == "mig":
        found[labels.MIG_STATE] = "success"
    return NodeState("n", found, sharing.advertised(cards), cordoned=bool(change), change=change, holders=holders)


def actions(steps: tuple[Step, ...]) -> list[str]:
    return [step.action for step in steps]


def test_a10_the_layout_is_there_before_the_strategy_changes() -> None:
    """NVIDIA/gpu-operator#460: an A30 with 1 x 2g.12gb and 2 x 1g.6gb under mixed is to become single with all-4g.24gb."""
    steps = plan([state(THREE, JOB)], WHOLE, 1, evict=True)
    assert actions(steps) == ["cordon", "drain", "layout", "wait-layout", "configure", "wait-node", "uncordon"]
    assert steps[2].text.endswith("nvidia.com/mig.config=layout_1x4g.24gb")
    assert steps[-2].text == "wait until the node advertises nvidia.com/gpu: 1"


def test_a10_single_with_several_profiles_is_refused_naming_them() -> None:
    with pytest.raises(ValidationError, match=r"2 profiles \(2g.12gb, 1g.6gb\)"):
        GpuSharing(mode="mig", layout=THREE.layout, strategy="single")


@pytest.mark.parametrize(("before", "after"), itertools.product(WAYS, WAYS))
def test_every_way_leads_to_every_other(before: GpuSharing, after: GpuSharing) -> None:
    steps = actions(plan([state(before)], after, 1))
    if before == after:
        assert steps == []
        return
    assert steps[0] == "cordon" and steps[-3:] == ["configure", "wait-node", "uncordon"]
    assert ("layout" in steps) is (before.layout != after.layout)
    assert "drain" not in steps


def test_pods_are_not_ended_unasked_and_it_is_said_what_becomes_of_them() -> None:
    with pytest.raises(Refused) as refused:
        plan([state(GpuSharing(), JOB, BARE)], THREE, 1)
    assert "team/train-0 (Job train makes another)" in refused.value.message
    assert "team/notebook (nothing makes another: it is lost)" in refused.value.message
    assert "--evict" in refused.value.remedy
    assert "drain" in actions(plan([state(GpuSharing(), JOB, BARE)], THREE, 1, evict=True))


def test_what_feature_discovery_says_is_no_difference() -> None:
    node = state(THREE)
    assert (
        plan([NodeState("n", {**node.labels, labels.MPS_CAPABLE: "false"}, *list(vars(node).values())[2:])], THREE, 1)
        == ()
    )


def test_pods_on_nodes_that_do_not_change_are_no_matter() -> None:
    assert plan([state(THREE, JOB)], THREE, 1) == ()


def test_nodes_change_one_after_the_other() -> None:
    nodes = [state(GpuSharing()), state(THREE), state(GpuSharing())]
    steps = plan([NodeState(f"n{i}", *list(vars(node).values())[1:]) for i, node in enumerate(nodes)], THREE, 1)
    assert [name for name, _ in itertools.groupby(step.node for step in steps)] == ["n0", "n2"]


def test_what_was_cut_short_is_taken_up_where_it_stands() -> None:
    """The cards are cut and the labels set, but the node is still cordoned and marked."""
    steps = plan([state(THREE, change=THREE.config_name)], THREE, 1)
    assert actions(steps) == ["cordon", "configure", "wait-node", "uncordon"]
    halfway = NodeState(
        "n", {labels.MIG_CONFIG: THREE.layout_name, labels.MIG_STATE: "pending"}, {}, True, THREE.config_name, ()
    )
    assert "wait-layout" in actions(plan([halfway], THREE, 1))
