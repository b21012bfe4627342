"""A run whose processes use their grace period to finish is over: what the drill found, training a run twice."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from isthmus.migration.move.endings import Endings
from isthmus.runs.model import Run, State
from isthmus.specs.errors import NotReady
from tests.unit.migration.fake_world import world


class Watched:
    """A cluster whose watch is away once, then tells of pods that ended and are gone."""

    def __init__(self, codes: list[int | None]) -> None:
        self.codes, self.asked = codes, 0

    def watch(self, *place: str, **options: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        self.asked += 1
        if self.asked == 1:
            raise NotReady("the API server cannot be reached")
        for number, code in enumerate(self.codes if self.asked == 2 else ()):
            yield "MODIFIED", pod(number, None)
            yield "DELETED", pod(number, code)
        time.sleep(0.01)


def pod(number: int, code: int | None) -> dict[str, Any]:
    state = {"running": {}} if code is None else {"terminated": {"exitCode": code}}
    return {
        "metadata": {"uid": f"uid-{number}", "name": f"pod-{number}"},
        "spec": {"containers": [{"name": "pytorch", "env": [{"name": "RANK", "value": str(number)}]}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "pytorch", "restartCount": 0, "state": state}]},
    }


@pytest.mark.parametrize(
    ("codes", "well"), [([0, 0, 0, 0], True), ([0, 0, 0, 137], False), ([0, 0, 0, None], False), ([0, 0, 0], False)]
)
def test_only_a_run_whose_every_process_ended_well_is_over(codes: list[int | None], well: bool) -> None:
    run: Run = replace(world().runs["aaaaaa"], state=State.RUNNING, created=datetime.now(UTC))
    watched = Watched(codes)
    endings = Endings(watched, run)  # type: ignore[arg-type]
    end = time.monotonic() + 10
    while watched.asked < 3 and time.monotonic() < end:
        time.sleep(0.01)
    endings.close()
    assert len(endings.replicas()) == len(codes)
    assert endings.well() is well
