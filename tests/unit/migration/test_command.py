"""isthmus migrate objects: what it refuses before it asks any cloud."""

from pathlib import Path

import pytest

from isthmus.cli.main import run
from isthmus.migration import residency
from isthmus.specs import stack
from isthmus.specs.stack import StackSettings

ROOT = Path(__file__).resolve().parents[3]


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run(["migrate", "objects", *arguments])
    return code, capsys.readouterr().err


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))


def test_the_same_stack_twice(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = refusal(capsys, "aws-sim", "aws-sim")
    assert (code, "the same stack, aws-sim" in said) == (2, True), said


def test_a_stack_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = refusal(capsys, "aws-sim", "gcp-simm")
    assert (code, "gcp-sim" in said) == (2, True), said


def test_a_stack_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = refusal(capsys, "aws-sim", "kind")
    assert (code, "stack kind is on this machine" in said) == (2, True), said


@pytest.mark.parametrize("threads", ["0", "65"])
def test_threads_out_of_range(threads: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = refusal(capsys, "aws-sim", "gcp-sim", "--threads", threads)
    assert (code, "--threads is 1 to 64" in said) == (2, True), said


def changed(name: str, **values: str) -> StackSettings:
    return stack.load(ROOT, name).model_copy(update=values)


@pytest.mark.parametrize(
    ("stays", "region", "to", "refused"),
    [
        ("anywhere", "us-east-1", "gcp-sim", False),
        ("cloud", "us-east-1", "gcp-sim", True),
        ("cloud", "us-east-1", "aws-sim", False),
        ("region", "us-east-1", "gcp-sim", True),
        ("region", "us-east-1", "aws-sim", False),
        ("region", "eu-west-1", "aws-sim", True),
    ],
)
def test_data_that_must_stay_are_refused_to_leave(stays: str, region: str, to: str, refused: bool) -> None:
    source = changed("aws-sim", data_stays=stays, region=region)
    assert bool(residency.problem(source, stack.load(ROOT, to))) is refused
