"""runs.db: what survives, what is kept once, who may read it."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from isthmus.runs.model import Metric, Replica, Run, State
from isthmus.runs.store import Store
from isthmus.specs.errors import NotFound, Refused
from isthmus.specs.workload import WorkloadSpec

Make = Callable[..., WorkloadSpec]
NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home" / "runs.db")


def begin(store: Store, spec: WorkloadSpec, **more: Any) -> Run:
    values = {"stack": "aws-sim", "namespace": "isthmus-runs", "simulated_seconds": None, "owner": "1@1"} | more
    return store.begin(spec, **values)


def metric(
    name: str = "loss", value: float | None = 0.5, *, epoch: int | None = 1, after: float = 0, **more: Any
) -> Metric:
    return Metric(name, value, epoch, role="Master", at=NOON + timedelta(seconds=after), **more)


def test_only_the_owner_may_read_it(tmp_path: Path, make_spec: Make) -> None:
    path = tmp_path / "runs.db"
    before = os.umask(0)
    try:
        begin(Store(path), make_spec())
    finally:
        os.umask(before)
    modes = {item.name: stat.S_IMODE(item.stat().st_mode) for item in tmp_path.glob("runs.db*")}
    assert set(modes.values()) == {0o600}, modes


def test_a_run_comes_back_as_it_was_written(store: Store, make_spec: Make) -> None:
    run = begin(store, make_spec(), simulated_seconds=90.0)
    assert store.get(run.id) == run
    assert store.get(run.job) == run, "the job's name will do, too"
    assert (run.source, run.state) == ("simulated", State.SUBMITTING)


def test_an_unknown_run_names_the_latest(store: Store, make_spec: Make) -> None:
    with pytest.raises(NotFound, match="there is no run yet"):
        store.get("zzz")
    run = begin(store, make_spec())
    with pytest.raises(NotFound, match=run.id):
        store.get("zzz")


def test_a_file_of_a_newer_isthmus_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    Store(path)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(Refused, match="newer isthmus"):
        Store(path)


def test_a_final_state_stays(store: Store, make_spec: Make) -> None:
    run = begin(store, make_spec())
    assert store.record(run, State.RUNNING).state is State.RUNNING
    assert store.record(run, State.FAILED, reason="exit 1").state is State.FAILED
    after = store.record(run, State.RUNNING)
    assert (after.state, after.reason) == (State.FAILED, "exit 1")


def test_times_are_from_the_first_start_to_the_last_end(store: Store, make_spec: Make) -> None:
    run = begin(store, make_spec())

    def pod(rank: int, start: float, end: float | None, phase: str = "Running") -> Replica:
        moment = NOON + timedelta(seconds=end) if end is not None else None
        return Replica(
            f"u{rank}", f"p{rank}", "Worker", rank, phase, started=NOON + timedelta(seconds=start), finished=moment
        )

    store.record(run, State.RUNNING, replicas=[pod(0, 5, None), pod(1, 2, 9)])
    assert store.get(run.id).seconds is None, "not over yet"
    # A restarted container starts later than the pod first did: the first start stays.
    store.record(run, State.SUCCEEDED, replicas=[pod(0, 7, 20, "Succeeded"), pod(1, 6, 9, "Succeeded")])
    assert store.get(run.id).seconds == 18


def test_a_metric_read_again_is_not_counted_twice(store: Store, make_spec: Make) -> None:
    run = begin(store, make_spec())
    lines = [metric(epoch=1), metric(epoch=2, after=1), metric("accuracy", 0.9, epoch=None, after=2)]
    assert store.add_metrics(run, lines) == 3
    assert store.add_metrics(run, lines) == 0
    assert store.metrics(run) == lines


def test_an_epoch_repeated_after_a_restart_replaces_the_first(store: Store, make_spec: Make) -> None:
    run = begin(store, make_spec())
    store.add_metrics(run, [metric(value=0.5, epoch=3)])
    store.add_metrics(run, [metric(value=0.4, epoch=3, after=60, restart=1)])
    store.add_metrics(run, [metric(value=0.5, epoch=3)])
    assert [(m.value, m.restart) for m in store.metrics(run)] == [(0.4, 1)]


def test_ranks_are_kept_apart_and_the_last_value_counts(store: Store, make_spec: Make) -> None:
    run = begin(store, make_spec())
    store.add_metrics(run, [metric("accuracy", 0.97, rank=3), metric("accuracy", 0.96, rank=0)])
    assert len(store.metrics(run, "accuracy")) == 2
    assert store.latest(run)["accuracy"].rank == 0, "of the same moment the lowest rank"
    store.add_metrics(run, [metric("accuracy", 0.2, epoch=2, after=1, rank=1)])
    assert store.latest(run)["accuracy"].value == 0.2


def test_what_is_not_a_number_is_kept_as_such(store: Store, make_spec: Make) -> None:
    run = begin(store, make_spec())
    store.add_metrics(run, [metric(value=None)])
    assert store.metrics(run)[0].value is None


def test_two_take_up_an_interrupted_run_and_one_gets_it(store: Store, make_spec: Make) -> None:
    run = begin(store, make_spec(), owner="dead")
    begin(store, make_spec(name="other"))
    begin(store, make_spec(), stack="gcp-sim")
    begin(store, make_spec(), simulated_seconds=5.0)
    assert store.submitting(make_spec(), stack="aws-sim", simulated_seconds=None) == [(run, "dead")]
    assert store.own(run, "first", instead_of="dead") is True
    assert store.own(run, "second", instead_of="dead") is False


def test_ids_can_be_names_and_never_numbers(store: Store, make_spec: Make) -> None:
    ids = {begin(store, make_spec()).id for _ in range(50)}
    assert len(ids) == 50
    assert all(one[0].isalpha() and one.isalnum() and one == one.lower() and len(one) == 6 for one in ids)


WRITER = """
import sys
from pathlib import Path
from isthmus.runs.store import Store
from isthmus.runs.model import Metric, State
from datetime import UTC, datetime
store = Store(Path(sys.argv[1]))
run = store.get(sys.argv[2])
number = 0
while True:
    number += 1
    at = datetime.now(UTC)
    store.add_metrics(run, [Metric("loss", 1.0, number, role="Master", at=at), Metric("pair", 1.0, number, role="Master", at=at)])
    print(number, flush=True)
"""


def test_a_kill_in_the_middle_of_writing_leaves_whole_transactions(tmp_path: Path, make_spec: Make) -> None:
    store = Store(tmp_path / "runs.db")
    run = begin(store, make_spec())
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "runs.db"), run.id], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for _ in range(20):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        told = [int(line) for line in writer.stdout]
    begun = time.monotonic()
    losses, pairs = store.metrics(run, "loss"), store.metrics(run, "pair")
    assert len(losses) == len(pairs) >= max(told, default=20)
    assert time.monotonic() - begun < 10, "a dead writer's lock is no lock"
    store.record(run, State.RUNNING)


def test_a_file_of_the_first_format_is_taken_over_and_keeps_its_runs(tmp_path: Path, make_spec: Make) -> None:
    from isthmus.runs.store import SCHEMA, VERSION

    new = Store(tmp_path / "new.db")
    kept = begin(new, make_spec())
    path = tmp_path / "runs.db"
    with sqlite3.connect(path) as old:
        old.executescript(SCHEMA + "PRAGMA user_version = 1;")
        columns = "id, workload, stack, namespace, job, spec, request, owner, state, created"
        row = sqlite3.connect(tmp_path / "new.db").execute(f"SELECT {columns} FROM runs").fetchone()
        old.execute(f"INSERT INTO runs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    assert Store(path).get(kept.id) == kept
    assert Store(path).get(kept.id).user == ""
    assert sqlite3.connect(path).execute("PRAGMA user_version").fetchone() == (VERSION,)


def test_whose_a_run_is_is_kept(store: Store, make_spec: Make) -> None:
    run = begin(store, make_spec(), user="ada", project="vision")
    assert (store.get(run.id).user, store.get(run.id).project) == ("ada", "vision")
