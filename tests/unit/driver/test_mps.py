"""The MPS control program and the compute mode of the driver root, as NVIDIA's MPS control daemon uses them."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.localcluster import driver
from isthmus.specs.cluster import GpuCards
from tests.unit.driver.test_driver import built, root, smi  # noqa: F401 - fixtures

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")


class Control:
    """The program with directories of its own."""

    def __init__(self, root: Path, folder: Path) -> None:  # noqa: F811
        self.program, self.folder = root / driver.MPS, folder
        self.environment = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}

    def start(self) -> subprocess.CompletedProcess[str]:
        return self._run("-d")

    def say(self, *lines: str) -> subprocess.CompletedProcess[str]:
        return self._run(text="\n".join(lines))

    def _run(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [self.program, *words]
        return subprocess.run(
            command, input=text, capture_output=True, text=True, env=self.environment, check=False, timeout=20
        )


@pytest.fixture
def control(root: Path, tmp_path: Path) -> Iterator[Control]:  # noqa: F811
    (folder := tmp_path / "mps").mkdir()
    made = Control(root, folder)
    yield made
    made.say("quit")


def test_limits_are_kept_and_given_back(control: Control) -> None:
    assert control.start().returncode == 0
    assert control.say("get_default_active_thread_percentage").stdout == "100.0\n"
    control.say("set_default_device_pinned_mem_limit 0 1536M", "set_default_active_thread_percentage 10")
    answers = control.say("get_default_active_thread_percentage", "get_default_device_pinned_mem_limit 0")
    assert answers.stdout.split() == ["10", "1536M"]
    assert control.say("get_server_list").stdout == ""
    log = (control.folder / "control.log").read_text()
    assert "limits are not enforced" in log and "set_default_active_thread_percentage 10" in log


def test_without_a_daemon_a_command_fails(control: Control) -> None:
    answer = control.say("get_default_active_thread_percentage")
    assert answer.returncode == 1 and "Cannot find MPS control daemon process" in answer.stderr


def test_a_second_daemon_is_refused_and_a_stopped_one_may_come_again(control: Control) -> None:
    assert control.start().returncode == 0
    assert "already running" in control.start().stderr
    assert control.say("quit").returncode == 0
    assert control.say("get_server_list").returncode == 1
    assert control.start().returncode == 0


@pytest.mark.parametrize(
    "line", ["nonsense", "set_default_active_thread_percentage", "get_default_device_pinned_mem_limit 99"]
)
def test_what_it_does_not_know_it_says(control: Control, line: str) -> None:
    control.start()
    assert control.say(line).stdout == f"Unknown command or argument: {line}\n"


def test_the_compute_mode_is_set_for_one_card(root: Path) -> None:  # noqa: F811
    driver.write_cards(root, GpuCards(model="T4", count=2))
    wanted = driver.uuids(root)[1]
    done = smi(root, "-i", wanted, "-c", "EXCLUSIVE_PROCESS")
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["Set compute mode to EXCLUSIVE_PROCESS for GPU 00000000:02:00.0.", "All done."]
    assert [path.name for path in (root / driver.MODES).iterdir()] == [wanted]
    assert (root / driver.MODES / wanted).read_text() == "3\n"
    assert smi(root, "-i", "7", "-c", "DEFAULT").returncode == 6
    assert smi(root, "-c", "FAST").returncode == 6
    driver.write_cards(root, GpuCards(model="T4", count=2))  # new cards are in the default mode
    assert os.listdir(root / driver.MODES) == []
