"""The record of a tool: written last, links in one step, old versions removed but never a tool at work."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from isthmus.toolchain import home, state
from isthmus.toolchain.rows import Tool


def make(tool: Tool, text: str) -> None:
    with state.locked(tool), state.stage(tool) as work:
        (work / "bin").mkdir()
        for program in tool.programs:
            (work / "bin" / program).write_text(text)
            (work / "bin" / program).chmod(0o755)
        state.commit(tool, work, "build")


def test_a_new_commit_replaces_all_of_the_old(isthmus_home: Path, make_tool: Callable[..., Tool]) -> None:
    tool = make_tool()
    make(tool, "old")
    (state.folder(tool) / "bin" / "leftover").write_text("")
    make(tool, "new")
    assert (state.folder(tool) / "bin" / "hammer").read_text() == "new"
    assert sorted(path.name for path in state.folder(tool).iterdir()) == [".complete", "bin"]
    assert not (state.folder(tool) / "bin" / "leftover").exists()


def test_a_commit_that_breaks_off_is_not_complete(
    isthmus_home: Path, make_tool: Callable[..., Tool], monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = make_tool()
    make(tool, "old")

    def broken(source: object, target: object) -> None:
        raise OSError("power cut")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="power cut"):
        make(tool, "new")
    assert state.source(tool) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"recipe": "another"}'])
def test_a_damaged_record_is_not_complete(isthmus_home: Path, make_tool: Callable[..., Tool], content: str) -> None:
    tool = make_tool()
    make(tool, "old")
    (state.folder(tool) / state.COMPLETE).write_text(content)
    assert state.source(tool) is None


def test_links_are_relative_and_follow_the_version(isthmus_home: Path, make_tool: Callable[..., Tool]) -> None:
    for version in ("1.0.0", "1.1.0"):
        tool = make_tool(version=version)
        make(tool, version)
        state.link(tool)
        assert os.readlink(home.tools_bin() / "hammer") == f"../hammer-{version}/bin/hammer"
        assert home.tool("hammer").read_text() == version


def test_the_lock_is_seen_by_others(isthmus_home: Path, make_tool: Callable[..., Tool]) -> None:
    tool = make_tool()
    assert not state.is_locked(tool)
    with state.locked(tool):
        assert state.is_locked(tool)
    assert not state.is_locked(tool)


def test_stale_versions_go_and_nothing_else(
    isthmus_home: Path, make_tool: Callable[..., Tool], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, namesake, busy = make_tool(version="0.9.0"), make_tool(), make_tool("hammer-drill"), make_tool("busy")
    old_busy = make_tool("busy", version="0.1.0")
    for tool in (old, new, namesake, busy, old_busy):
        make(tool, "x")
    (home.tools_bin() / "dead").symlink_to("../hammer-0.1/bin/hammer")
    monkeypatch.setattr(state, "TOOLS", (new, namesake, busy))
    with state.locked(busy):
        removed = state.remove_stale()
    assert removed == ["hammer-0.9.0", "bin/dead"]
    assert sorted(path.name for path in home.tools().iterdir() if path.is_dir() and "-" in path.name) == [
        "busy-0.1.0",
        "busy-1.0.0",
        "hammer-1.0.0",
        "hammer-drill-1.0.0",
    ]
