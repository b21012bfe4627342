"""A disk that fills up while a tool is built: a real small file system, the real Go build."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.specs.errors import Refused
from isthmus.toolchain import home, install, state
from isthmus.toolchain.rows import Tool
from isthmus.toolchain.table import tool_named

pytestmark = pytest.mark.local


class Quiet:
    """Hears nothing."""

    def begin(self, tool: Tool) -> None: ...
    def say(self, tool: Tool, text: str) -> None: ...
    def end(self, tool: Tool, outcome: install.Outcome) -> None: ...
    def note(self, text: str) -> None: ...


class BuildOnly(install.Ways):
    """Nothing from PATH: the build is what is tested."""

    def from_path(self, tool: Tool, work: Path) -> bool:
        return False


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """ISTHMUS_HOME on a file system of 40 MB."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m,mode=0700", "small", folder], check=True)
    monkeypatch.setenv("ISTHMUS_HOME", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_told_and_nothing_half_installed_stays(small_disk: Path) -> None:
    tool = tool_named("crane")
    outcome = install.install_one(tool, BuildOnly(releases=False), Quiet())
    assert outcome.error is not None
    assert "the disk is full: crane" in outcome.error.message, outcome.error.message
    assert "isthmus install" in outcome.error.remedy
    assert state.source(tool) is None
    assert not (home.tools_bin() / "crane").exists()
    assert {path.name for path in state.folder(tool).iterdir()} <= {"build.log"}


def test_too_small_a_disk_is_refused_before_anything_is_built(small_disk: Path) -> None:
    with pytest.raises(Refused, match="GB are free") as caught:
        install.install(["engine"], listener=Quiet(), ways=BuildOnly(releases=False))
    assert "ISTHMUS_HOME" in caught.value.remedy
    assert not list((small_disk / "tools").glob("pulumi*"))
