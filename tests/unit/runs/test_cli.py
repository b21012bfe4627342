"""The commands: what they print and their exit codes, over a cluster in memory."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isthmus.cli import project
from isthmus.cli import run as run_command
from isthmus.cli.main import run as isthmus
from isthmus.runs import submit as submitting
from isthmus.runs import watch
from isthmus.specs.stack import StackSettings

WORKLOAD = """\
apiVersion: isthmus.dev/v1
kind: PyTorchJob
name: train
image: docker.io/isthmus/torch:1
command: [python3, train.py]
roles: {Master: {replicas: 1, gpus: 1}}
metrics: {accuracy: 0.95}
"""

SETTINGS = {
    "cloud": "aws",
    "mode": "simulated",
    "account": "isthmus-demo",
    "region": "us-east-1",
    "zones": ["us-east-1a", "us-east-1b"],
    "systemPool": {"name": "system", "instanceType": "m5.xlarge"},
}


@pytest.fixture
def workload(tmp_path: Path) -> str:
    path = tmp_path / "train.yaml"
    path.write_text(WORKLOAD)
    return str(path)


@pytest.fixture(autouse=True)
def stack(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_command, "cluster_of", lambda stack: harness.cluster)
    monkeypatch.setattr(run_command, "open_store", lambda: harness.store)
    monkeypatch.setattr(project, "settings", lambda stack: StackSettings.model_validate(SETTINGS))
    monkeypatch.setattr(submitting, "ADVERTISE_SECONDS", 0)
    monkeypatch.setattr(watch, "INTERVAL", 0.0)


def when_submitted(harness: Any, do: Callable[[], None]) -> None:
    """Do something once the job is there: what the operator and the kubelet would."""
    done = []

    def react(method: str, path: str) -> None:
        if method == "GET" and harness.api.of_kind("PyTorchJob") and not done:
            done.append(True)
            do()

    harness.api.fail = react


def ends(harness: Any, accuracy: float, code: int = 0) -> None:
    state = {
        "terminated": {"exitCode": code, "startedAt": "2026-11-30T12:00:01Z", "finishedAt": "2026-11-30T12:00:31Z"}
    }
    harness.job(("Succeeded" if code == 0 else "Failed", "True"))
    pod = harness.pod("master", 0, "Succeeded" if code == 0 else "Failed", state=state)
    harness.api.log[pod["metadata"]["name"], False] = [
        "2026-11-30T12:00:02.1Z started",
        f'2026-11-30T12:00:03.1Z {{"metric": "accuracy", "value": {accuracy}, "epoch": 2}}',
    ]


@pytest.mark.parametrize(("accuracy", "code", "exit_code"), [(0.97, 0, 0), (0.5, 0, 1), (0.97, 3, 1)])
def test_run_follow_ends_zero_only_when_it_succeeded_and_reached_its_metrics(
    harness: Any, workload: str, capsys: pytest.CaptureFixture[str], accuracy: float, code: int, exit_code: int
) -> None:
    when_submitted(harness, lambda: ends(harness, accuracy, code))
    assert isthmus(["run", workload, "-s", "aws-sim", "--follow"]) == exit_code
    printed = capsys.readouterr().out
    assert "30.0 s measured" in printed
    assert f"accuracy {accuracy:g}" in printed
    if code:
        assert "Master rank 0 ended with exit code 3" in printed
        assert "started" in printed, "the end of the failed rank's log"


def test_run_without_follow_says_how_to_follow(harness: Any, workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert isthmus(["run", workload, "-s", "aws-sim", "--set", "roles.Master.cpu=2"]) == 0
    [run] = harness.store.runs()
    assert f"isthmus runs follow {run.id}" in capsys.readouterr().out
    assert run.spec.roles["Master"].cpu == "2"


def test_ctrl_c_leaves_the_run_going_and_says_how_to_go_on(
    harness: Any, workload: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any, **more: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "follow", interrupted)
    assert isthmus(["run", workload, "-s", "aws-sim", "--follow"]) == 130
    [run] = harness.store.runs()
    said = capsys.readouterr().err
    assert f"isthmus runs follow {run.id}" in said
    assert f"isthmus cancel {run.id}" in said
    assert harness.api.of_kind("PyTorchJob"), "the job is still there"
    assert not run.state.final


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (["--set", "roles.Master.gpus=8"], 3, "the largest node, local, has 4"),
        (["--set", "image"], 2, "--set takes field=value"),
        (["--set", "epochs=3"], 2, "there is no field 'epochs'"),
        (["--simulate", "soon"], 2, "is no duration"),
        (["--simulate", "90s"], 3, "has no simulated nodes"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_created(
    harness: Any, workload: str, capsys: pytest.CaptureFixture[str], arguments: list[str], exit_code: int, words: str
) -> None:
    assert isthmus(["run", workload, "-s", "aws-sim", *arguments]) == exit_code
    assert words in capsys.readouterr().err
    assert not harness.api.of_kind("PyTorchJob")
    assert not harness.store.runs()


def test_runs_logs_metrics_show_and_cancel(harness: Any, workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    isthmus(["run", workload, "-s", "aws-sim"])
    [run] = harness.store.runs()
    harness.job(("Running", "True"))
    pod = harness.pod("master", 0, state={"running": {"startedAt": "2026-11-30T12:00:01Z"}})
    harness.api.log[pod["metadata"]["name"], False] = [
        "2026-11-30T12:00:02.1Z hello",
        '2026-11-30T12:00:03.1Z {"metric": "loss", "value": 0.5, "epoch": 1, "step": 9}',
    ]
    capsys.readouterr()
    assert isthmus(["logs", run.id, "--role", "Master"]) == 0
    assert "master 0 | hello" in capsys.readouterr().out
    assert isthmus(["metrics", run.id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0] | {"at": ""} == {
        "metric": "loss", "value": 0.5, "epoch": 1, "step": 9, "role": "Master", "rank": 0, "restart": 0, "at": "",
    }  # fmt: skip
    assert isthmus(["metrics", run.id, "--format", "csv"]) == 0
    assert "loss,0.5,1,9,Master,0" in capsys.readouterr().out
    assert isthmus(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["state"] == "Running"
    assert isthmus(["runs", "show", run.id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pods"][0]["phase"] == "Running"
    assert isthmus(["cancel", run.id]) == 0
    assert harness.store.get(run.id).state.value == "Cancelled"
    assert isthmus(["cancel", run.id]) == 3
    assert isthmus(["logs", "zzz"]) == 1


def test_runs_are_shown_as_last_seen_when_their_stack_is_away(
    harness: Any, workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    isthmus(["run", workload, "-s", "aws-sim"])
    harness.away()
    assert isthmus(["runs"]) == 0
    printed = capsys.readouterr()
    assert "Pending" in printed.out
    assert "as they were last seen: the API server at https://10.0.0.1:6443 cannot be reached" in printed.err


def test_a_stack_that_is_being_moved_takes_no_runs(
    harness: Any, workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from isthmus.cli import migration_world

    migration_world.hold_file("aws-sim").write_text('{"to": "gcp-sim", "since": "2026-11-30T20:00:00+00:00"}')
    assert isthmus(["run", workload, "-s", "aws-sim"]) == 3
    assert "being moved to gcp-sim" in capsys.readouterr().err
    migration_world.hold_file("aws-sim").unlink()
