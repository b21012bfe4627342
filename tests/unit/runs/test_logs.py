"""Logs by role and rank, each line once; and what of them is a metric."""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.runs import metrics
from isthmus.runs import submit as submitting
from isthmus.runs.logs import Line, Reader, pods_of, stream
from isthmus.runs.model import Run
from isthmus.specs.errors import NotFound
from isthmus.specs.workload import WorkloadSpec
from workloads import bindings

Make = Callable[..., WorkloadSpec]


@pytest.fixture
def run(harness: Any, make_spec: Make) -> Run:
    made = submitting.submit(
        harness.cluster, harness.store, make_spec(), stack="aws-sim", binding=bindings.for_cloud("aws")
    )
    for role, index in (("master", 0), ("worker", 0), ("worker", 1)):
        harness.pod(role, index)
        harness.api.log[f"{made.job}-{role}-{index}", False] = [
            f"2026-11-30T12:00:0{index}.5Z hello from {role} {index}"
        ]
    return made


def texts(lines: Any) -> list[str]:
    return [line.text for line in lines]


def test_lines_come_in_time_order_with_role_and_rank(harness: Any, run: Run) -> None:
    lines = list(stream(harness.cluster, run))
    assert [(line.role, line.rank) for line in lines] == [("Master", 0), ("Worker", 1), ("Worker", 2)]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [({"role": "worker"}, ["hello from worker 0", "hello from worker 1"]), ({"rank": 2}, ["hello from worker 1"])],
)
def test_a_role_or_a_rank_can_be_chosen(harness: Any, run: Run, choice: dict[str, Any], expected: list[str]) -> None:
    assert texts(stream(harness.cluster, run, **choice)) == expected


def test_a_rank_that_is_not_there_is_said_so(harness: Any, run: Run) -> None:
    with pytest.raises(NotFound, match="no rank 9 pod"):
        list(stream(harness.cluster, run, rank=9))


def test_following_takes_each_line_once_and_ends_with_the_run(harness: Any, run: Run) -> None:
    name = f"{run.job}-master-0"
    looks = [0]

    def pause() -> None:
        looks[0] += 1
        # Two lines of the same second, one of them stamped before what was already read (another stream).
        harness.api.log[name, False].append(f"2026-11-30T12:00:00.{4 + looks[0]}1Z line {looks[0]}")
        if looks[0] == 3:
            harness.job(("Succeeded", "True"))
            for role, index in (("master", 0), ("worker", 0), ("worker", 1)):
                harness.pod(role, index, "Succeeded", state={"terminated": {"exitCode": 0}})

    found = texts(stream(harness.cluster, run, role="Master", follow=True, pause=pause))
    assert found == ["hello from master 0", "line 1", "line 2", "line 3"]


def test_equal_texts_at_other_times_are_both_lines(harness: Any, run: Run) -> None:
    harness.api.log[f"{run.job}-master-0", False] = ["2026-11-30T12:00:01.1Z same", "2026-11-30T12:00:01.2Z same"]
    reader = Reader(harness.cluster, run)
    pods = [pod for pod in pods_of(harness.cluster, run) if "master" in pod["metadata"]["name"]]
    assert texts(reader.new_lines(pods)) == ["same", "same"]
    assert reader.new_lines(pods) == []


def test_a_pod_without_a_log_yet_has_no_lines(harness: Any, run: Run) -> None:
    del harness.api.log[f"{run.job}-master-0", False]
    assert len(list(stream(harness.cluster, run))) == 2


def test_a_pod_made_anew_under_the_same_name_is_another_pod(harness: Any, run: Run) -> None:
    reader = Reader(harness.cluster, run)
    reader.new_lines(pods_of(harness.cluster, run))
    harness.pod("worker", 0, uid="another")
    harness.api.log[f"{run.job}-worker-0", False] = ["2026-11-30T12:00:00.5Z hello again"]
    assert texts(reader.new_lines(pods_of(harness.cluster, run))) == ["hello again"]


def line(text: str) -> Line:
    return Line("Master", 0, text, datetime(2026, 11, 30, tzinfo=UTC))


def test_a_metric_line_is_read_with_what_it_has() -> None:
    found = metrics.from_line(line('  {"metric": "loss", "value": 0.25, "epoch": 3, "step": 40, "more": [1]} '))
    assert found is not None
    assert (found.name, found.value, found.epoch, found.step, found.rank) == ("loss", 0.25, 3, 40, 0)
    plain = metrics.from_line(line('{"metric": "accuracy", "value": 1}'))
    assert plain is not None
    assert (plain.value, plain.epoch, plain.step) == (1.0, None, None)


@pytest.mark.parametrize(
    "text",
    [
        "loss 0.3",
        '{"value": 1}',
        '{"metric": "x"}',
        '{"metric": "x", "value": "1"}',
        '{"metric": "x", "value": true}',
        '{"metric": 3, "value": 1}',
        '{"metric": "", "value": 1}',
        '{"metric": "x", "value": 1',
        '["metric"]',
        '{"metric": "x", "value": [1]}',
    ],
)
def test_other_lines_are_no_metrics(text: str) -> None:
    assert metrics.from_line(line(text)) is None


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_is_not_a_finite_number_is_a_metric_without_a_value(value: str) -> None:
    found = metrics.from_line(line(f'{{"metric": "loss", "value": {value}}}'))
    assert found is not None
    assert found.value is None


@given(st.text(), st.floats(allow_nan=True), st.integers(), st.one_of(st.none(), st.integers()))
def test_no_line_a_program_can_print_breaks_the_reader(text: str, value: float, epoch: int, step: int | None) -> None:
    import json

    found = metrics.from_line(line(json.dumps({"metric": text, "value": value, "epoch": epoch, "step": step})))
    if found is not None:
        assert found.value is None or math.isfinite(found.value)
        assert found.epoch is None or found.epoch >= 0
    metrics.from_line(line(text))


def test_csv_has_one_line_for_each_metric() -> None:
    found = metrics.from_line(line('{"metric": "loss, or so", "value": 0.25, "epoch": 3}'))
    assert found is not None
    assert metrics.to_csv([found]).splitlines() == [
        "metric,value,epoch,step,role,rank,restart,at",
        '"loss, or so",0.25,3,,Master,0,0,2026-11-30T00:00:00+00:00',
    ]
