"""Waits end, and say what they waited for."""

from typing import Any

import pytest

from isthmus.kube import wait
from isthmus.specs.errors import NotFound, NotReady


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_the_answer_is_returned_as_soon_as_it_is_there() -> None:
    clock, answers = Clock(), iter([None, False, "there"])
    assert wait.until(lambda: next(answers), seconds=10, what="it", sleep=clock.sleep, clock=clock) == "there"
    assert len(clock.slept) == 2


def test_a_wait_ends_and_says_why() -> None:
    clock = Clock()
    with pytest.raises(NotReady, match="waited 10 s for the operator: no node") as caught:
        wait.until(
            lambda: None,
            seconds=10,
            what="the operator",
            why=lambda: "no node",
            sleep=clock.sleep,
            clock=clock,
            subject="s",
        )
    assert caught.value.subject == "s"
    assert 10 <= clock.now < 11
    assert max(clock.slept) <= wait.INTERVAL_MAX


def test_a_server_that_is_away_is_waited_for_and_then_named() -> None:
    clock = Clock()

    def away() -> None:
        raise NotReady("connection refused")

    with pytest.raises(NotReady, match="for it: connection refused"):
        wait.until(away, seconds=3, what="it", why=lambda: "not asked", sleep=clock.sleep, clock=clock)


def test_other_errors_are_not_swallowed() -> None:
    def fails() -> None:
        raise NotFound("no such thing")

    with pytest.raises(NotFound):
        wait.until(fails, seconds=3, what="it", sleep=lambda _: None)


def deployment(replicas: int, updated: int, available: int, *, seen: int = 2) -> dict[str, Any]:
    return {
        "kind": "Deployment",
        "metadata": {"generation": 2},
        "spec": {"replicas": replicas},
        "status": {"observedGeneration": seen, "updatedReplicas": updated, "availableReplicas": available},
    }


@pytest.mark.parametrize(
    ("item", "done"),
    [
        (deployment(2, 2, 2), True),
        (deployment(2, 2, 1), False),
        (deployment(2, 1, 2), False),
        (deployment(2, 2, 2, seen=1), False),
        (deployment(0, 0, 0), True),
        (
            {
                "kind": "DaemonSet",
                "status": {"desiredNumberScheduled": 1, "updatedNumberScheduled": 1, "numberAvailable": 1},
            },
            True,
        ),
        ({"kind": "DaemonSet", "status": {"desiredNumberScheduled": 1, "updatedNumberScheduled": 1}}, False),
    ],
)
def test_rolled_out_means_the_newest_form_is_available(item: dict[str, Any], done: bool) -> None:
    assert wait.rolled_out(item) is done
