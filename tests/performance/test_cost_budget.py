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

BILL_ROWS = 1_000_000
BILL_SECONDS = 5.0
BILL_MIB = 500

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


BILL = """
import collections, resource, time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from isthmus.costs.bill import bill
from isthmus.specs.usage import NodeRecord, UsageRecord

rows, nodes = {rows}, 1250
noon = datetime(2026, 11, 1, tzinfo=UTC)
there = [
    NodeRecord(f"n{{i}}", "g4dn.12xlarge", "spot" if i % 3 else "on-demand", noon, noon + timedelta(hours=rows // nodes + 2),
               47810, 178933, 4, Decimal("3.912"), Decimal("1.776"), Decimal("0.528"), Decimal("1.608"))
    for i in range(nodes)
]
hour = timedelta(hours=1)
owners = [(f"run{{i}}", f"user{{i % 300}}", f"project{{i % 40}}") for i in range(5000)]
shares = [(1, 1), (1, 4), (1, 7), (1, 10)]

def records():
    for i in range(rows):
        start = noon + timedelta(hours=i // nodes, seconds=i % 97)
        yield UsageRecord(*owners[i % 5000], f"pod-{{i}}", there[i % nodes].node, start, start + hour, 4000, 16384, *shares[i % 4])

begun = time.perf_counter()
collections.deque(records(), maxlen=0)
making = time.perf_counter() - begun
begun = time.perf_counter()
made = bill(there, records())
seconds = time.perf_counter() - begun - making
for node in made.nodes:
    assert abs(sum(node.used) + sum(node.idle) - node.usd) < 1e-9
assert len(made.by("run")) == 5000
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def test_a_million_rows_are_billed() -> None:
    """In a process of its own, for its peak of memory. Making the records is this test's own work: timed alone and taken off."""
    runs = [
        subprocess.run([sys.executable, "-c", BILL.format(rows=BILL_ROWS)], check=True, capture_output=True, text=True)
        for _ in range(2)
    ]
    measured = [tuple(map(float, run.stdout.split())) for run in runs]
    mib = max(memory for _, memory in measured)
    print(f"peak of memory: {mib:.0f} MiB, {mib / BILL_MIB:.2f} of the budget of {BILL_MIB} MiB")
    told("bill a million rows of use", min(seconds for seconds, _ in measured), BILL_SECONDS)
    assert mib <= BILL_MIB
