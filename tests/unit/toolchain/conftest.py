"""A home of its own for every test, and tools that are made by writing a file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from isthmus.toolchain.install import Outcome
from isthmus.toolchain.rows import GoBuild, Tool


@pytest.fixture
def isthmus_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty ISTHMUS_HOME, and none of the user's own Pulumi settings."""
    place = tmp_path / "home"
    monkeypatch.setenv("ISTHMUS_HOME", str(place))
    for name in (
        "PULUMI_HOME",
        "PULUMI_BACKEND_URL",
        "PULUMI_ACCESS_TOKEN",
        "PULUMI_CONFIG_PASSPHRASE",
        "PULUMI_CONFIG_PASSPHRASE_FILE",
        "PULUMI_STACK",
    ):
        monkeypatch.delenv(name, raising=False)
    return place


@pytest.fixture
def make_tool() -> Callable[..., Tool]:
    """Builds a row of the table with valid defaults; the last word wins."""

    def make(name: str = "hammer", *programs: str, **changes: object) -> Tool:
        names = programs or (name,)
        values: dict[str, object] = {
            "name": name,
            "version": "1.0.0",
            "group": "cluster",
            "about": "a tool",
            "go": GoBuild(
                f"example.org/{name}", "v1.0.0", tuple((program, f"example.org/{program}") for program in names)
            ),
            "seconds": 1,
            "size_mb": 1,
            **changes,
        }
        return Tool(**values)  # type: ignore[arg-type]

    return make


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.said: list[tuple[str, str]] = []
        self.ended: list[Outcome] = []

    def begin(self, tool: Tool) -> None:
        self.said.append((tool.name, "begin"))

    def say(self, tool: Tool, text: str) -> None:
        self.said.append((tool.name, text))

    def end(self, tool: Tool, outcome: Outcome) -> None:
        self.ended.append(outcome)

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def heard() -> Heard:
    """A listener to give to an install."""
    return Heard()
