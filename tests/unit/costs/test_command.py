"""`isthmus cost compare` as a user types it: in a process of its own, with nothing built and no state."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

WORKLOAD = """\
apiVersion: isthmus.dev/v1
kind: PyTorchJob
name: tiny
image: docker.io/isthmus/torch:1
command: [python3, train.py]
roles:
  Master: {replicas: 1, gpus: 1}
  Worker: {replicas: 3, gpus: 1}
gpu: {model: T4, count: 4}
cost: {hours: 2, storageGib: 1}
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(WORKLOAD, encoding="utf-8")
    return path


def isthmus(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with an empty home and nothing on the PATH."""
    environment = {
        "ISTHMUS_HOME": str(tmp_path / "home"),
        "HOME": str(tmp_path),
        "PATH": "/nonexistent",
        "LANG": "C.UTF-8",
    }
    return subprocess.run(
        [sys.executable, "-m", "isthmus.cli.main", "cost", "compare", *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        timeout=60,
        check=False,
    )


def test_it_needs_nothing_but_python(tmp_path: Path, tiny: Path) -> None:
    done = isthmus(tmp_path, str(tiny))
    assert done.returncode == 0, done.stderr
    assert re.match(
        r"(AWS|GCP) [a-z0-9-]+ on (spot|demand) is the cheapest for tiny: \d+\.\d{4} USD for 2 h on 1 x ", done.stdout
    )
    assert "list prices, not measured" in done.stdout
    assert not (tmp_path / "home").exists(), "a comparison leaves nothing behind"


def test_json_is_the_report_and_nothing_else(tmp_path: Path, tiny: Path) -> None:
    done = isthmus(tmp_path, str(tiny), "--json", "--purchase", "on-demand", "--regions", "us-east-1,us-central1")
    report = json.loads(done.stdout)
    offers = report["workloads"][0]["offers"]
    assert {(offer["region"], offer["purchase"], offer["machine"]) for offer in offers} == {
        ("us-central1", "on-demand", "n1-standard-8 + 4 x T4"),
        ("us-east-1", "on-demand", "g4dn.12xlarge"),
    }


def test_a_page_is_written_and_named(tmp_path: Path, tiny: Path) -> None:
    done = isthmus(tmp_path, str(tiny), "-o", "out/x.html")
    assert done.returncode == 0, done.stderr
    assert "written: out/x.html" in done.stdout
    assert (tmp_path / "out" / "x.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "says", "remedy"),
    [
        ((), "name at least one workload, or cards as MODEL:N", "isthmus cost compare ddp-digits"),
        (("tiny.yaml", "--regions", "us-east1"), "there is no region 'us-east1'; nearest: us-east-1", "use us-east-1"),
        (("tiny.yaml", "--gpus", "T5"), "there is no GPU model 'T5'; nearest: T4", "use T4"),
        (("tiny.yaml", "--hours", "-3"), "hours must be more than 0", ""),
        (("tiny.yaml", "--hours", "soon"), "hours must be a number, not 'soon'", "--hours 1.5"),
        (("tiny.yaml", "-o", "x.pdf"), "must end in .html, .json or .csv", "isthmus cost compare"),
        (("no-such",), "no-such", ""),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    tmp_path: Path, tiny: Path, arguments: tuple[str, ...], says: str, remedy: str
) -> None:
    assert tiny.exists()
    done = isthmus(tmp_path, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("error: ")
    assert says in done.stderr and remedy in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_places_that_cannot_run_it_are_exit_code_3(tmp_path: Path, tiny: Path) -> None:
    done = isthmus(tmp_path, str(tiny), "--gpus", "H200", "--regions", "us-west1")
    assert done.returncode == 3
    assert "None of the places asked for can run tiny." in done.stdout
    assert "gcp us-west1 (on-demand, spot, 1-year, 3-year): H200: not sold there" in done.stdout
