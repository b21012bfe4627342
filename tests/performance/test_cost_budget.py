"""Budgets of the cost comparison, measured in one run and printed (`pytest -s tests/performance/test_cost_budget.py`)."""

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from isthmus.catalog import load, read_catalog
from isthmus.catalog.load import DATA
from isthmus.costs.compare import compare
from isthmus.specs.workload import WorkloadSpec

pytestmark = pytest.mark.performance  # wall time: only on an idle machine does it say anything

LOAD_SECONDS = 0.05
HUNDRED_SECONDS = 1.0
COMMAND_SECONDS = 1.0

WORKLOAD = """\
apiVersion: isthmus.dev/v1
kind: PyTorchJob
name: tiny
image: docker.io/isthmus/torch:1
command: [python3, train.py]
roles: {Master: {replicas: 1, gpus: 1}, Worker: {replicas: 3, gpus: 1}}
"""


def fastest(times: int, run: Callable[[], object]) -> float:
    """Seconds of the fastest of several runs: what the work takes when the machine does nothing else."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken)


def told(what: str, seconds: float, budget: float) -> None:
    print(f"{what}: {seconds * 1000:.0f} ms, {seconds / budget:.2f} of the budget of {budget * 1000:.0f} ms")
    assert seconds <= budget


def test_the_catalog_loads_fast() -> None:
    told("load the catalog", fastest(5, lambda: read_catalog(DATA, today=date(2026, 11, 30))), LOAD_SECONDS)


def test_a_hundred_workloads_over_the_whole_catalog() -> None:
    roles = {"Master": {"replicas": 1, "gpus": 1}, "Worker": {"replicas": 3, "gpus": 1}}
    workloads = [
        WorkloadSpec.model_validate(
            {
                "apiVersion": "isthmus.dev/v1",
                "kind": "PyTorchJob",
                "name": f"w{number}",
                "image": "i",
                "command": ["c"],
                "roles": roles | {"Worker": {"replicas": number, "gpus": 1 + number % 4}},
                "gpu": {"model": "T4", "count": 4} if number % 2 else {"model": "A10G", "count": 4},
            }
        )
        for number in range(1, 101)
    ]
    catalog = load()
    told("compare 100 workloads", fastest(3, lambda: compare(workloads, catalog)), HUNDRED_SECONDS)


def test_the_command_answers_at_once(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(WORKLOAD, encoding="utf-8")
    command = [sys.executable, "-m", "isthmus.cli.main", "cost", "compare", str(path), "-o", str(tmp_path / "x.html")]
    told(
        "isthmus cost compare, page included",
        fastest(3, lambda: subprocess.run(command, check=True, capture_output=True)),
        COMMAND_SECONDS,
    )
