"""What a run took, runs side by side, charts; and the last lines of pods that are gone."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.cli import run as run_command
from isthmus.cli import runs as runs_command
from isthmus.cli.main import run as isthmus
from isthmus.runs import chart, compare, watch
from isthmus.runs import submit as submitting
from isthmus.runs.figures import figures
from isthmus.runs.model import Metric, Replica, Run, Snapshot, State
from isthmus.specs.workload import WorkloadSpec
from workloads import bindings

Make = Callable[..., WorkloadSpec]
BEGUN = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def later(seconds: float) -> datetime:
    return BEGUN + timedelta(seconds=seconds)


def make_run(spec: WorkloadSpec, **change: Any) -> Run:
    made = Run(
        id="r1", spec=spec, stack="aws-sim", namespace="n", job="j", state=State.SUCCEEDED, created=BEGUN,
        started=later(5), finished=later(65),
    )  # fmt: skip
    return replace(made, **change)


def pod(role: str, rank: int, **change: Any) -> Replica:
    made = Replica(
        uid=f"{role}-{rank}", name=f"{role}-{rank}", role=role, rank=rank, phase="Succeeded", exit_code=0,
        started=later(5), finished=later(65), card_parts=1, card_whole=1,
    )  # fmt: skip
    return replace(made, **change)


def test_figures_of_a_run(make_spec: Make) -> None:
    pods = [
        pod("Master", 0),
        pod("Worker", 1, uid="first", exit_code=137, finished=later(25)),
        pod("Worker", 1, uid="second", started=later(30), restarts=2),
        pod("Worker", 2, card_parts=1, card_whole=4),
        pod("Worker", 3, card_parts=0),
    ]
    found = figures(make_run(make_spec()), pods, now=later(100))
    assert (found.seconds, found.queue_seconds) == (60, 5)
    assert found.restarts == 3, "two in place and a pod made anew"
    assert found.exit_codes == {"Master 0": 1, "Worker 0": 3, "Worker 137": 1}
    assert found.gpu_seconds == {"1/4 card": 15, "1 card": 60 + 20 + 35}
    assert found.all_gpu_seconds == 130


def test_a_pod_that_runs_counts_until_now_and_one_that_was_taken_away_until_the_run_s_end(make_spec: Make) -> None:
    running = pod("Master", 0, finished=None, exit_code=None, phase="Running")
    still = make_run(make_spec(), state=State.RUNNING, finished=None)
    assert figures(still, [running], now=later(20)).gpu_seconds == {"1 card": 15}
    assert figures(make_run(make_spec()), [running], now=later(900)).gpu_seconds == {"1 card": 60}


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 8), st.floats(0, 1e4)), max_size=12))
def test_card_seconds_by_share_add_up_to_those_of_all_pods(held: list[tuple[int, int, float]]) -> None:
    spec = WorkloadSpec.model_validate(
        {"apiVersion": "isthmus.dev/v1", "kind": "PyTorchJob", "name": "train", "image": "i", "command": ["c"],
         "roles": {"Master": {"replicas": 1}}}
    )  # fmt: skip
    pods = [
        pod("Worker", rank, card_parts=parts, card_whole=whole, started=BEGUN, finished=later(seconds))
        for rank, (parts, whole, seconds) in enumerate(held)
    ]
    expected = sum(parts / whole * round(seconds, 6) for parts, whole, seconds in held)
    assert figures(make_run(spec), pods, now=BEGUN).all_gpu_seconds == pytest.approx(expected, rel=1e-6, abs=1e-3)


def test_runs_side_by_side_show_what_differs_and_leave_empty_what_one_has_not(make_spec: Make) -> None:
    first = make_run(make_spec(env={"WORKERS": "2", "SEED": "0"}))
    second = make_run(make_spec(env={"WORKERS": "4", "SEED": "0"}), id="r2", simulated_seconds=90.0)
    sides = [
        compare.side(Snapshot(first, (pod("Master", 0),), latest={"loss": Metric("loss", 0.25, 3)}), now=BEGUN),
        compare.side(Snapshot(second), now=BEGUN),
    ]
    rows = dict(compare.rows(sides))
    assert rows["env WORKERS"] == ["2", "4"]
    assert "env SEED" not in rows
    assert rows["source"] == ["measured", "simulated"]
    assert rows["loss"] == [0.25, None]
    assert rows["GPU-seconds"] == [{"1 card": 60.0}, {}]
    assert compare.words("GPU-seconds", {"1 card": 60.0}) == "1 card: 60"
    assert compare.words("time", 60.0) == "60.0 s"
    assert compare.words("loss", None) == ""


def test_a_chart_has_a_mark_for_each_rank_and_the_ends_of_both_axes() -> None:
    found = [Metric("loss", 2.0 / epoch, epoch, role="Worker", rank=rank) for epoch in (1, 2, 4) for rank in (0, 1)]
    lines = chart.charts([*found, Metric("accuracy", 0.97, 4)])
    assert lines[0] == "loss (o Worker rank 0, x Worker rank 1)"
    assert lines[1].startswith("  2 |x") and lines[chart.HEIGHT].startswith("0.5 |")
    assert lines[chart.HEIGHT + 2].split() == ["1", "4"]
    assert not any(line.startswith("accuracy") for line in lines), "one value is no curve"
    assert chart.charts([Metric("loss", None, 1), Metric("loss", None, 2)]) == []


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.floats(-1e6, 1e6), st.none() | st.integers(0, 10**6), st.none() | st.integers(0, 10**6)
        ),
        max_size=40,
    )
)
def test_a_chart_can_be_drawn_of_anything(points: list[tuple[float | None, int | None, int | None]]) -> None:
    lines = chart.charts([Metric("m", value, epoch, step) for value, epoch, step in points])
    assert all(len(line) < chart.WIDTH + 60 for line in lines)


# ---- the last lines of pods that are gone ----


class Following:
    """The log of a pod that prints more after our look, and then is removed."""

    def __init__(self, harness: Any, looked: list[str], more: list[str]) -> None:
        self._looked, self._more = looked, more
        self._plain = harness.api.lines
        self.read = threading.Event()
        harness.api.lines = self.lines

    def lines(self, path: str, *, query: Any = None, **more: Any) -> Iterator[str]:
        if (query or {}).get("follow"):
            yield from self._looked
            yield from self._more
            self.read.set()
        else:
            yield from self._plain(path, query=query, **more)


def test_what_a_pod_printed_between_our_look_and_its_removal_is_kept(harness: Any, make_spec: Make) -> None:
    run = submitting.submit(
        harness.cluster, harness.store, make_spec(), stack="aws-sim", binding=bindings.for_cloud("aws")
    )
    made = harness.pod("worker", 0)
    looked = ['2026-11-30T12:00:01.1Z {"metric": "loss", "value": 0.5, "epoch": 1}']
    more = ['2026-11-30T12:00:02.1Z {"metric": "loss", "value": 0.25, "epoch": 2}']
    harness.api.log[made["metadata"]["name"], False] = looked
    following = Following(harness, looked, more)
    watcher = watch.Watcher(harness.cluster, harness.store, run, keep=True)
    assert [metric.value for metric in watcher.look()[1]] == [0.5]
    assert following.read.wait(10)
    harness.cluster.delete("v1", "Pod", made["metadata"]["name"], "isthmus-runs")
    assert [(metric.value, metric.rank) for metric in watcher.look()[1]] == [(0.25, 1)], "each line once"
    assert watcher.look()[1] == []


def test_of_containers_that_restarted_twice_between_two_looks_nothing_is_lost(harness: Any, make_spec: Make) -> None:
    run = submitting.submit(
        harness.cluster, harness.store, make_spec(), stack="aws-sim", binding=bindings.for_cloud("aws")
    )
    name = harness.pod("worker", 0)["metadata"]["name"]
    line = '2026-11-30T12:00:0{0}.1Z {{"metric": "loss", "value": {0}, "epoch": {0}}}'
    harness.api.log[name, False] = [line.format(1)]
    following = Following(harness, [line.format(1)], [line.format(2)])
    watcher = watch.Watcher(harness.cluster, harness.store, run, keep=True)
    watcher.look()
    assert following.read.wait(10)
    harness.pod("worker", 0, restarts=2)
    harness.api.log[name, True], harness.api.log[name, False] = [line.format(3)], [line.format(4)]
    assert sorted(metric.epoch or 0 for metric in watcher.look()[1]) == [2, 3, 4]


# ---- the commands ----


@pytest.fixture
def two_runs(harness: Any, make_spec: Make, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(run_command, "open_store", lambda: harness.store)
    monkeypatch.setattr(
        runs_command,
        "look",
        lambda store, run: (Snapshot(run, tuple(store.replicas(run)), (), store.latest(run)), ""),
    )
    names = []
    for workers, accuracy in ((2, 0.95), (4, 0.97)):
        spec = make_spec(roles={"Master": {"replicas": 1}, "Worker": {"replicas": workers}})
        run = harness.store.begin(spec, stack="aws-sim", namespace="n", simulated_seconds=None, owner="1@1")
        harness.store.add_metrics(run, [Metric("loss", 1 / epoch, epoch, rank=0) for epoch in (1, 2, 3)])
        harness.store.add_metrics(run, [Metric("accuracy", accuracy, 3)])
        harness.store.record(run, State.SUCCEEDED, replicas=[pod("Master", 0)])
        names.append(run.id)
    return names


def test_runs_compare_as_a_table_and_as_json(two_runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert isthmus(["runs", "compare", *two_runs]) == 0
    table = capsys.readouterr().out
    assert all(name in table for name in two_runs)
    assert "Master: 1, Worker: 2" in table and "0.97" in table
    assert isthmus(["runs", "compare", *two_runs, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["runs"]
    assert [item["accuracy"] for item in found] == [0.95, 0.97]
    assert [item["run"] for item in found] == two_runs


def test_one_run_cannot_be_compared(two_runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert isthmus(["runs", "compare", two_runs[0]]) == 2
    assert "two runs or more" in capsys.readouterr().err


def test_metrics_as_a_chart_and_what_the_run_took(two_runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert isthmus(["metrics", two_runs[0], "--format", "chart"]) == 0
    shown = capsys.readouterr().out
    assert "loss (o" in shown and "GPUs      60 card-seconds measured (60 held as 1 card per pod)" in shown
    assert isthmus(["metrics", two_runs[0]]) == 0
    assert "time      60.0 s measured" in capsys.readouterr().out
