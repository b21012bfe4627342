"""The frame of the command line: names, errors as one sentence, exit codes."""

from pathlib import Path

import pytest

from isthmus.cli import main
from isthmus.specs.errors import InvalidSpec, IsthmusError, NoCapacity, NotFound, NotReady, QuotaExceeded, Refused


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in main.COMMANDS)


def test_an_unknown_command_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["instal"]) == 2
    assert "install" in capsys.readouterr().err


def test_a_wrong_argument_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["down"]) == 2
    assert main.run(["down", "aws-sim", "--no-such-option"]) == 2
    shown = capsys.readouterr()
    assert "no-such-option" in shown.err + shown.out


@pytest.mark.parametrize(
    "command",
    [
        *(f"{name} aws-smi" for name in ("preview", "up", "refresh", "down", "status", "kubeconfig")),
        "run ddp-digits -s aws-smi",
        "runs -s aws-smi",
        "parity aws-smi gcp-sim",
    ],
)
def test_an_unknown_stack_is_wrong_usage_everywhere(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    assert main.run(command.split()) == 2
    assert "nearest: aws-sim" in capsys.readouterr().err
    assert not (tmp_path / "state").exists(), "no engine was started"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (IsthmusError, 1),
        (NotFound, 1),
        (NoCapacity, 1),
        (QuotaExceeded, 1),
        (NotReady, 1),
        (InvalidSpec, 2),
        (Refused, 3),
    ],
)
def test_an_error_is_a_sentence_an_object_and_a_next_command(
    error: type[IsthmusError], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> int:
        raise error("it broke", subject="stack x", remedy="isthmus up x")

    monkeypatch.setattr(main, "_dispatch", fail)
    assert main.run(["up", "x"]) == code
    assert capsys.readouterr().err == "error: it broke\n  object: stack x\n  next:   isthmus up x\n"


def test_a_fault_of_ours_is_short_and_keeps_its_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    def fail(*_: object) -> int:
        raise ZeroDivisionError("oh")

    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    monkeypatch.setattr(main, "_dispatch", fail)
    assert main.run(["up", "x"]) == 1
    shown = capsys.readouterr().err
    assert "ZeroDivisionError" in shown
    log = shown.split("see ")[1].strip()
    with open(log, encoding="utf-8") as file:
        assert "Traceback" in file.read()
