"""isthmus cost run, cost stack, cost budget, and isthmus run asking the budgets: what they print and their exit codes."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from isthmus.billing import guard
from isthmus.cli import project
from isthmus.cli import run as run_command
from isthmus.cli.main import run as isthmus
from isthmus.runs import submit as submitting
from isthmus.runs.model import Run, State
from isthmus.runs.store import Store
from isthmus.simulation import account as accounts
from isthmus.simulation import clock
from isthmus.specs.stack import StackSettings
from tests.unit.runs.conftest import Harness

from .conftest import LABELS, NODE, at, replace

Ran = Callable[..., Run]

WORKLOAD = """\
apiVersion: isthmus.dev/v1
kind: PyTorchJob
name: train
image: docker.io/isthmus/torch:1
command: [python3, train.py]
roles: {Master: {replicas: 1, gpus: 1}}
cost: {hours: 2}
"""


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """A cluster in memory with a node of the GPU pool and one of the system pool."""
    made = Harness(tmp_path / "cluster")
    for name, marks, cards in (
        ("local", LABELS, 4),
        ("system-1", {"node.kubernetes.io/instance-type": "m5.xlarge", "isthmus.dev/pool": "system"}, 0),
    ):
        made.api.put(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "uid": f"uid-{name}", "labels": marks},
                "spec": {},
                "status": {"allocatable": {"cpu": "4", "nvidia.com/gpu": str(cards)}},
            }
        )
    return made


@pytest.fixture(autouse=True)
def world(
    harness: Harness, store: Store, settings: StackSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(run_command, "cluster_of", lambda stack: harness.cluster)
    monkeypatch.setattr(run_command, "open_store", lambda: store)
    monkeypatch.setattr(run_command, "user", lambda: "ada")
    monkeypatch.setattr(project, "settings", lambda stack: settings)
    monkeypatch.setattr(submitting, "ADVERTISE_SECONDS", 0)


@pytest.fixture
def workload(tmp_path: Path) -> str:
    path = tmp_path / "train.yaml"
    path.write_text(WORKLOAD, encoding="utf-8")
    return str(path)


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


# cost run


def test_a_run_is_billed_next_to_its_estimate(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    run = ran(seconds=36)
    assert isthmus(["cost", "run", run.id, "--json"]) == 0
    bill = said(capsys)
    assert bill["simulated"] is True and bill["basis"].startswith("simulated: its nodes only stand for these machines")
    assert bill["estimate"]["total"] == "2.2041" and bill["estimate"]["machines"] == "4 x g4dn.xlarge"
    steps = sum(Decimal(step["usd"]) for step in bill["differences"])
    assert abs(Decimal(bill["estimate"]["total"]) + steps - Decimal(bill["total"])) < Decimal("1e-9")
    assert Decimal(bill["nodesTotal"]) == pytest.approx(Decimal("0.03912"), abs=Decimal("1e-9"))
    assert bill["gpuHours"] == "0.040000"


def test_a_run_is_told_in_words_and_several_as_a_list(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = ran(seconds=36), ran(seconds=72, begins=100, user="bob")
    assert isthmus(["cost", "run", first.id]) == 0
    out = capsys.readouterr().out
    assert "simulated" in out and "estimated: 2.2041 USD for 1 h on 4 x g4dn.xlarge (on-demand, us-east-1)" in out
    assert "hours: planned 1, took 0.010000" in out and "not metered: traffic out and through NAT" in out
    assert isthmus(["cost", "run", first.id, second.id, "--json"]) == 0
    assert [bill["user"] for bill in said(capsys)] == ["ada", "bob"]


def test_a_run_that_used_nothing_or_is_not_there(store: Store, spec: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run = store.begin(spec, stack="aws-sim", namespace="n", simulated_seconds=None, owner="1@1")
    store.record(run, State.CANCELLED)
    assert isthmus(["cost", "run", run.id]) == 1
    assert f"run {run.id} (Cancelled) has not used any node yet" in capsys.readouterr().err
    assert isthmus(["cost", "run", "nobody"]) == 1
    assert isthmus(["cost", "run"]) == 2


def test_a_run_on_an_unknown_machine_has_an_unknown_bill(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    run = ran(node=replace(NODE, labels={"node.kubernetes.io/instance-type": "x99.huge"}))
    assert isthmus(["cost", "run", run.id, "--json"]) == 0
    bill = said(capsys)
    assert bill["total"] is None and bill["unknown"] == ["node gpu-0 (x99.huge, on-demand)"]
    assert isthmus(["cost", "run", run.id]) == 0
    assert "unknown USD" in capsys.readouterr().out


# cost stack


@pytest.fixture
def account() -> accounts.Account:
    """A simulated account whose cluster was made 600 s after its first moment, and the GPU pool 900 s after."""
    made = accounts.open_account("aws-sim")

    def row(kind: str, key: str, moment: str, inputs: dict[str, Any]) -> None:
        made.insert(
            accounts.Row(
                type=kind, key=key, id=key, urn=f"urn:{key}", name=key, region="us-east-1", state=accounts.READY,
                inputs=inputs, outputs={}, owner="", created_at=moment, updated_at=moment,
            )
        )  # fmt: skip

    row("aws:eks/cluster:Cluster", "isthmus", "2026-01-01T00:10:00Z", {})
    for pool, moment in (("system", "2026-01-01T00:12:00Z"), ("gpu-t4", "2026-01-01T00:15:00Z")):
        row("aws:eks/nodeGroup:NodeGroup", pool, moment, {"labels": {"isthmus.dev/pool": pool}})
    clock.advance(made, 3600)
    return made


def test_a_simulated_stack_is_billed_by_its_accounts_clock_and_says_so(
    account: accounts.Account, ran: Ran, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 01:00:00 by the account's clock: the GPU node is 45 min old, the two of the system pool 48 min, one of them stood for
    by the local node; and a run of 36 s was executed on top."""
    run = ran(seconds=36, node=replace(NODE, uid="uid-local", name="local"))
    assert isthmus(["cost", "stack", "aws-sim", "--json"]) == 0
    bill = said(capsys)
    assert bill["simulated"] is True and "Times are the clock of account aws-sim" in bill["basis"]
    hours = {node["node"]: float(node["hours"]) for node in bill["nodes"]}
    assert hours == {
        "local": pytest.approx(0.76, abs=1e-6),
        "system-1": pytest.approx(0.81, abs=1e-6),
        "system (2)": pytest.approx(0.81, abs=1e-6),
    }
    for node in bill["nodes"]:
        parts = [Decimal(value) for side in ("used", "idle") for value in node[side].values()]
        assert abs(sum(parts) - Decimal(node["total"])) < Decimal("1e-9")
    platform = {part["name"]: Decimal(part["usd"]) for part in bill["platform"]}
    assert platform["control plane"] == pytest.approx(Decimal("0.1") * Decimal("0.8433"), abs=Decimal("0.0001"))
    assert [line["name"] for line in bill["byRun"]] == [run.id]
    assert bill["byRun"][0]["gpuHours"] == "0.040000"


def test_time_that_passes_idle_is_billed_as_idle(
    account: accounts.Account, ran: Ran, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(seconds=36, node=replace(NODE, uid="uid-local", name="local"))
    totals = []
    for _ in range(2):
        assert isthmus(["cost", "stack", "aws-sim", "--json"]) == 0
        bill = said(capsys)
        totals.append((Decimal(bill["nodesTotal"]), Decimal(bill["idle"])))
        assert isthmus(["sim", "clock", "aws-sim", "--advance", "10h"]) == 0
        capsys.readouterr()
    (before, idle), (after, more_idle) = totals
    assert after - before == pytest.approx(10 * Decimal("4.296"), abs=Decimal("1e-6")), (
        "3.912 and twice 0.192, for 10 h"
    )
    assert more_idle - idle == pytest.approx(after - before, abs=Decimal("1e-6"))


def test_a_stack_is_told_in_words(account: accounts.Account, ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    ran(seconds=36, node=replace(NODE, uid="uid-local", name="local"))
    assert isthmus(["cost", "stack", "aws-sim"]) == 0
    out = capsys.readouterr().out
    assert "project vision" in out and "user ada" in out
    assert "1 node of the system pool is stood for by the local node: billed, and idle" in out


@pytest.mark.parametrize("span", ["soon", "-1h", "1d", "h", ""])
def test_a_span_that_is_none_is_refused(account: accounts.Account, span: str) -> None:
    before = clock.now(account)
    assert isthmus(["sim", "clock", "aws-sim", "--advance", span]) == 2
    assert clock.now(account) == before


# Budgets


def test_a_budget_is_set_shown_with_what_was_used_and_removed(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    import datetime

    since = (datetime.datetime.now(datetime.UTC) - at(0)).total_seconds()
    ran(seconds=3600, share=(1, 4), begins=since - 3600)
    assert (
        isthmus(["cost", "budget", "set", "--project", "vision", "--usd", "5", "--gpu-hours", "8", "--simulated"]) == 0
    )
    capsys.readouterr()
    assert isthmus(["cost", "budget", "list", "--json"]) == 0
    [row] = said(capsys)
    assert row["whose"] == "project vision" and row["source"] == "simulated"
    assert isthmus(["cost", "budget", "remove", "--project", "vision"]) == 1, "that one would be for real stacks"
    assert isthmus(["cost", "budget", "remove", "--project", "vision", "--simulated"]) == 0
    capsys.readouterr()
    assert isthmus(["cost", "budget", "list"]) == 0
    assert "no budgets" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [
        ["--usd", "5"],
        ["--user", "ada", "--project", "vision", "--usd", "5"],
        ["--user", "ada"],
        ["--user", "ada", "--usd", "much"],
        ["--user", "ada", "--usd", "-1"],
        ["--user", "ada", "--gpu-hours", "NaN"],
        ["--user", "ada", "--usd", "5", "--period", "year"],
    ],
)
def test_a_budget_that_is_none_is_wrong_usage(options: list[str]) -> None:
    assert isthmus(["cost", "budget", "set", *options]) == 2


def test_a_run_beyond_its_budget_is_refused_before_anything_is_submitted(
    workload: str, harness: Harness, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isthmus(["cost", "budget", "set", "--user", "ada", "--gpu-hours", "1.5", "--simulated"]) == 0
    assert isthmus(["run", workload, "-s", "aws-sim"]) == 3
    error = capsys.readouterr().err
    assert "simulated budget of user ada: 0 GPU-hours used and 2 forecast are more than 1.5 a month" in error
    assert store.runs() == [] and harness.api.of_kind("PyTorchJob") == []


def test_a_run_within_its_budget_is_submitted_and_told_its_forecast(
    workload: str, harness: Harness, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isthmus(["cost", "budget", "set", "--project", "vision", "--usd", "3", "--simulated"]) == 0
    assert isthmus(["run", workload, "-s", "aws-sim", "--project", "vision"]) == 0
    assert "forecast 0.8" in capsys.readouterr().err, (
        "a quarter of the cards, and its cores and memory, of 3.912 USD/h for 2 h"
    )
    [run] = store.runs()
    assert (run.user, run.project) == ("ada", "vision")
    for _ in range(2):  # each run that is not over counts its forecast: a fourth would be beyond 3 USD
        assert isthmus(["run", workload, "-s", "aws-sim", "--project", "vision", "--set", f"env.N={_}"]) == 0
    assert isthmus(["run", workload, "-s", "aws-sim", "--project", "vision", "--set", "env.N=9"]) == 3


def test_two_submissions_at_once_cannot_both_pass_the_same_budget(
    workload: str, store: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second asks while the first is between its check and its record, waits, and gives up naming it."""
    assert isthmus(["cost", "budget", "set", "--user", "ada", "--gpu-hours", "2", "--simulated"]) == 0
    monkeypatch.setattr(guard, "SUBMIT_SECONDS", 0)
    submit, codes = submitting.submit, []

    def during(*arguments: Any, **options: Any) -> Run:
        if not codes:
            codes.append(isthmus(["run", workload, "-s", "aws-sim"]))
        return submit(*arguments, **options)

    monkeypatch.setattr(submitting, "submit", during)
    assert isthmus(["run", workload, "-s", "aws-sim"]) == 0
    assert codes == [3] and "submit train" in capsys.readouterr().err
    assert len(store.runs()) == 1
    assert isthmus(["run", workload, "-s", "aws-sim"]) == 3, "and now the first one counts"


def test_a_budget_for_real_stacks_does_not_count_simulated_runs(workload: str) -> None:
    assert isthmus(["cost", "budget", "set", "--user", "ada", "--usd", "0"]) == 0
    assert isthmus(["run", workload, "-s", "aws-sim"]) == 0


def test_a_cluster_on_this_machine_has_no_bill_and_no_budget(
    ran: Ran,
    workload: str,
    monkeypatch: pytest.MonkeyPatch,
    settings: StackSettings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = ran()
    local = settings.model_copy(update={"cloud": "kind", "mode": "real"})
    monkeypatch.setattr(project, "settings", lambda stack: local)
    assert isthmus(["cost", "run", run.id]) == 2
    assert isthmus(["cost", "stack", "kind"]) == 2
    assert "which has no prices: it runs on this machine" in capsys.readouterr().err
    assert isthmus(["cost", "budget", "set", "--user", "ada", "--usd", "0"]) == 0
    assert isthmus(["cost", "budget", "list", "--json"]) == 0
