"""kill -9 at every step between a queued run and a job in the cluster, and between a cancelled one and its end.

A process of its own (killing.py) works on the queue and is killed at the point; another one then goes on, after the lease
has ended. Whatever the point: the job was created exactly once, and the run is where it should be. The points are found by
running once without a kill, so a step that is added is killed at, too. The table in docs/service.md is made from them.
"""

import multiprocessing
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from isthmus.service.model import RunState
from isthmus.service.tables import leases, runs
from tests import killing

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.killing"])

SUBMIT = {
    "claimed": "claimed, the cluster not yet asked",
    "request:1:before": "before the namespace",
    "request:1:after": "after the namespace",
    "request:2:after": "after the service account",
    "request:3:before": "intent in runs.db, before the volume claim",
    "request:3:after": "after the volume claim",
    "request:4:before": "before the job",
    "request:4:after": "after the job, before runs.db says so",
    "submitted": "runs.db says so, the service's database not yet",
    "db:1": "in the commit of the claim",
    "db:2": "in the commit of `Pending`",
    "placed": "all written",
}
"""Points of a submission, in words."""

CANCEL = {
    "cancelling": "claimed to be cancelled",
    "request:1:before": "before the job is deleted",
    "request:1:after": "after the job is deleted, before runs.db says so",
    "cancelled": "all written",
    "db:1": "in the commit of the claim",
    "db:2": "in the commit of `Cancelled`",
}


@pytest.fixture
def place(house: Any, tmp_path: Path) -> Path:
    return tmp_path


def work(folder: Path, point: str = "none") -> int | None:
    """One process that works until there is nothing to do, or is killed; its exit code, -9 for a kill."""
    (folder / "ended").unlink(missing_ok=True)
    process = PROCESSES.Process(target=killing.main, args=(folder, point))
    process.start()
    process.join(120)
    return process.exitcode


def ended(folder: Path) -> tuple[int, int]:
    """Requests that would change the cluster, and commits, of the last process."""
    requests, commits = (folder / "ended").read_text().split()
    return int(requests), int(commits)


def end_leases(house: Any) -> None:
    """Let the time of every lease pass."""
    past = datetime.now(UTC) - timedelta(seconds=1)
    with house.database.write() as connection:
        connection.execute(update(runs).where(runs.c.lease_until.is_not(None)).values(lease_until=past))
        connection.execute(update(leases).values(until=past))


def jobs(folder: Path) -> tuple[int, int]:
    """How often a job was created, and how many there are."""
    database = sqlite3.connect(folder / "cluster.db")
    pattern = "%/pytorchjobs/%"
    created = database.execute("SELECT count(*) FROM created WHERE path LIKE ?", (pattern,)).fetchone()[0]
    there = database.execute("SELECT count(*) FROM objects WHERE path LIKE ?", (pattern,)).fetchone()[0]
    return created, there


@pytest.mark.parametrize("point", SUBMIT)
def test_killed_while_submitting(house: Any, place: Path, point: str) -> None:
    run = house.submit()
    assert work(place, point) == -9
    end_leases(house)
    assert work(place) == 0
    assert jobs(place) == (1, 1)
    with house.database.read() as connection:
        [row] = connection.execute(select(runs)).all()
    assert (row.id, row.state) == (run, RunState.PENDING)
    assert work(place) == 0
    assert ended(place)[0] == 0, "nothing is left to do"


@pytest.mark.parametrize("point", CANCEL)
def test_killed_while_cancelling(house: Any, place: Path, point: str) -> None:
    run = house.submit()
    assert work(place) == 0
    house.client().cancel("vision", run)
    assert work(place, point) == -9
    end_leases(house)
    assert work(place) == 0
    assert jobs(place) == (1, 0)
    assert house.run(run)["state"] == "Cancelled"


@pytest.mark.parametrize("point", ["claimed", "request:4:before", "request:4:after", "submitted"])
def test_cancelled_after_the_submission_was_killed(house: Any, place: Path, point: str) -> None:
    """The job may be there and nobody knows: it is taken out, not submitted again."""
    run = house.submit()
    assert work(place, point) == -9
    assert house.client().cancel("vision", run).cancelling
    end_leases(house)
    assert work(place) == 0
    assert jobs(place)[1] == 0
    assert house.run(run)["state"] == "Cancelled"


def test_every_step_has_a_point(house: Any, place: Path) -> None:
    """A request or commit that is added to the path is a point to be killed at, too."""
    house.submit()
    assert work(place) == 0
    assert ended(place)[0] == 4, "namespace, account, claim, job"
    assert ended(place)[1] == 6, (
        "the run's claim, Pending; nothing to submit, nothing to cancel; the watch's lease and look"
    )


def table() -> str:
    """The kill-point table as docs/service.md shows it."""
    rows = [("submitting", point, words, "1") for point, words in SUBMIT.items()]
    rows += [("cancelling", point, words, "0") for point, words in CANCEL.items()]
    lines = ["| while | killed at | that is | jobs afterwards |", "| --- | --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {a} | `{b}` | {c} | {d} |" for a, b, c, d in rows)])


def test_the_page_shows_this_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "service.md"
    assert table() in page.read_text(), f"put this into {page.name}:\n{table()}"
