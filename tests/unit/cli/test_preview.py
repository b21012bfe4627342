"""isthmus preview: what the engine's events become, and the exit code of a plan that costs too much."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.cli import stack as command
from isthmus.cli.engine import Watch
from isthmus.cli.main import run as isthmus
from isthmus.cli.output import Progress

POOL = {"instanceTypes": ["m5.xlarge"], "scalingConfig": {"desiredSize": 2}}


def event(operation: str, kind: str, name: str, old: Any, new: Any) -> Any:
    """A ResourcePreEvent as the Automation API gives it."""
    sides = {
        key: None if value is None else SimpleNamespace(inputs=value) for key, value in (("old", old), ("new", new))
    }
    step = SimpleNamespace(op=operation, urn=f"urn:pulumi:s::p::{kind}::{name}", type=kind, **sides)
    return SimpleNamespace(
        resource_pre_event=SimpleNamespace(metadata=step), res_outputs_event=None, res_op_failed_event=None,
        diagnostic_event=None,
    )  # fmt: skip


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Makes the engine plan these events."""

    def build(*events: Any) -> None:
        class Planned:
            def __init__(self, name: str) -> None:
                self.settings = SimpleNamespace(cloud="aws", region="us-east-1")

            def preview(self, title: str) -> Watch:
                watch = Watch(Progress(title), tmp_path / "log")
                for item in events:
                    watch(item)
                return watch

        monkeypatch.setattr(command, "Engine", Planned)

    return build


def test_the_plan_ends_with_its_price(plan: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    plan(
        event("create", "aws:eks/nodeGroup:NodeGroup", "system", None, POOL),
        event("same", "aws:eks/cluster:Cluster", "isthmus", {}, {}),
    )
    assert isthmus(["preview", "aws"]) == 0
    out = capsys.readouterr().out
    assert "USD a month: 73.0000 before, 353.3200 after, change 280.3200; list prices by the month of 730 hours" in out
    assert "2 x m5.xlarge (on-demand): 2 x 0.192 USD/h x 730 h" in out


def test_json_has_the_price_of_each_resource(plan: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    plan(
        event("delete", "aws:eks/nodeGroup:NodeGroup", "system", POOL, None),
        event("create", "aws:ec2/eip:Eip", "nat", None, {}),
    )
    assert isthmus(["preview", "aws", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["changes"] == {"create": 1, "delete": 1}
    assert said["cost"]["change"] == "-280.3200"
    assert said["cost"]["unknown"] == ["aws:ec2/eip:Eip nat (a public IPv4 address)"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--max-monthly", "281"], 0),
        (["--max-monthly", "280"], 3),
        (["--max-monthly", "0"], 3),
        (["--max-monthly", "-1"], 2),
        (["--max-monthly", "much"], 2),
    ],
)
def test_a_plan_above_the_limit_is_exit_code_3(plan: Callable[..., None], options: list[str], code: int) -> None:
    plan(event("create", "aws:eks/nodeGroup:NodeGroup", "system", None, POOL))
    assert isthmus(["preview", "aws", *options]) == code


def test_a_price_that_is_not_known_is_not_below_a_limit(plan: Callable[..., None]) -> None:
    plan(event("create", "aws:ec2/eip:Eip", "nat", None, {}))
    assert isthmus(["preview", "aws", "--max-monthly", "1000"]) == 3
    assert isthmus(["preview", "aws", "--max-monthly", "1000", "--allow-unknown"]) == 0


def test_a_cluster_on_this_machine_has_no_price(
    plan: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan(event("create", "kubernetes:core/v1:Namespace", "runs", None, {}))
    planned = command.Engine

    class Local(planned):  # type: ignore[valid-type,misc]
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.settings = SimpleNamespace(cloud="kind", region="local")

    monkeypatch.setattr(command, "Engine", Local)
    assert isthmus(["preview", "kind"]) == 0
    assert "USD" not in capsys.readouterr().out
    assert isthmus(["preview", "kind", "--max-monthly", "1"]) == 2
