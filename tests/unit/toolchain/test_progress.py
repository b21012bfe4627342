"""How an install looks without a terminal and with one."""

from collections.abc import Callable

import pytest

from isthmus.specs.errors import IsthmusError
from isthmus.toolchain.install import Outcome
from isthmus.toolchain.progress import Progress, duration
from isthmus.toolchain.rows import Tool


def test_plain_lines_name_tool_time_and_log(make_tool: Callable[..., Tool], capsys: pytest.CaptureFixture[str]) -> None:
    tool = make_tool(seconds=300)
    with Progress(live=False) as progress:
        progress.begin(tool)
        progress.say(tool, "building")
        assert progress.lines() == ["hammer 1.0.0: building, 0 s (expected 5.0 min)"]
        progress.end(tool, Outcome("hammer", "build", 12.3))
        assert progress.lines() == []
        error = IsthmusError("the build of hammer failed: undefined: nail", subject="/logs/build.log")
        progress.end(tool, Outcome("hammer", "failed", 1.0, error))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "hammer 1.0.0: building, about 5.0 min",
        "hammer 1.0.0: built in 12 s",
        "hammer 1.0.0: FAILED: the build of hammer failed: undefined: nail (log: /logs/build.log)",
    ]


def test_a_terminal_gets_one_live_line_per_tool(
    make_tool: Callable[..., Tool], capsys: pytest.CaptureFixture[str]
) -> None:
    tool = make_tool()
    with Progress(live=True) as progress:
        progress.begin(tool)
        progress.say(tool, "downloading 3 MB [of 9]")
        progress.end(tool, Outcome("hammer", "release", 2.0))
    assert "hammer 1.0.0: from its publisher in 2 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (75, "75 s"), (119.4, "119 s"), (120, "2.0 min"), (270, "4.5 min")]
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words
