"""Waiting for what a node advertises, past the figures of the device plugin that goes."""

from typing import Any, cast

import pytest

from isthmus.kube import Cluster, wait
from isthmus.sharing import offers
from isthmus.specs import labels
from isthmus.specs.errors import NotReady


class Nodes:
    """A node that advertises one number after the other, the last one for good."""

    def __init__(self, *counts: int, simulated: bool = False) -> None:
        self.counts = list(counts)
        self.labels = {labels.SIMULATED_NODE: "true"} if simulated else {}

    def get(self, api: str, kind: str, name: str) -> dict[str, Any]:
        count = self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]
        return {"metadata": {"labels": self.labels}, "status": {"allocatable": {"nvidia.com/gpu": str(count)}}}


@pytest.fixture(autouse=True)
def without_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time goes on by what is slept."""
    now = [0.0]
    until = wait.until

    def ahead(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(wait, "until", lambda *args, **named: until(*args, **named, sleep=ahead, clock=lambda: now[0]))


def expect_anew(nodes: Nodes, count: int) -> None:
    offers.expect_anew(cast("Cluster", nodes), "n", {"nvidia.com/gpu": count} if count else {})


@pytest.mark.parametrize("counts", [(1, 1, 0, 0, 1), (1, 0, 1), (4, 0, 1), (0, 1), (4, 1)])
def test_the_number_of_the_plugin_before_is_seen_to_go(counts: tuple[int, ...]) -> None:
    nodes = Nodes(*counts)
    expect_anew(nodes, 1)
    assert len(nodes.counts) == 1, "it is over only when the last plugin advertises"


def test_a_plugin_that_came_back_between_two_reports_is_not_waited_for_forever() -> None:
    expect_anew(Nodes(1), 1)


def test_a_simulated_node_has_no_plugin_that_restarts() -> None:
    nodes = Nodes(1, 1, 1, 1, simulated=True)
    expect_anew(nodes, 1)
    assert len(nodes.counts) == 2


def test_what_it_advertises_instead_is_told() -> None:
    with pytest.raises(NotReady, match=r"for node n to advertise nvidia.com/gpu: 2: it advertises nvidia.com/gpu: 1"):
        expect_anew(Nodes(1), 2)
