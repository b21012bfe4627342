"""How an install looks: one live line per tool on a terminal, plain lines every 15 seconds otherwise."""

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from isthmus.toolchain.install import Outcome
from isthmus.toolchain.rows import Tool

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

EVERY_SECONDS = 15.0
_HOW = {
    "present": "there already",
    "path": "found on PATH",
    "release": "from its publisher",
    "build": "built",
    "apt": "installed by apt",
}


class Progress:
    """A Listener that shows each tool with its elapsed and expected time. Use as a context manager."""

    def __init__(self, *, live: bool | None = None, every: float = EVERY_SECONDS) -> None:
        self._live = sys.stderr.isatty() if live is None else live
        self._every = every
        self._lock = threading.Lock()
        self._running: dict[str, tuple[Tool, float, str]] = {}
        self._display: Live | None = None
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Self:
        if self._live:
            from rich.console import Console
            from rich.live import Live

            self._display = Live(
                console=Console(stderr=True), get_renderable=self._render, refresh_per_second=2, transient=True
            )
            self._display.start()
        else:
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._display is not None:
            self._display.stop()

    def begin(self, tool: Tool) -> None:
        with self._lock:
            self._running[tool.name] = (tool, time.monotonic(), "")

    def say(self, tool: Tool, text: str) -> None:
        with self._lock:
            started = self._running[tool.name][1] if tool.name in self._running else time.monotonic()
            news = text == "building" and self._running.get(tool.name, (tool, 0.0, ""))[2] != text
            self._running[tool.name] = (tool, started, text)
        if news and not self._live:
            self.note(f"{tool.name} {tool.version}: building, about {duration(tool.seconds)}")

    def end(self, tool: Tool, outcome: Outcome) -> None:
        with self._lock:
            self._running.pop(tool.name, None)
        if outcome.error is not None:
            where = f" (log: {outcome.error.subject})" if "/" in outcome.error.subject else ""
            self.note(f"{tool.name} {tool.version}: FAILED: {outcome.error.message}{where}")
        else:
            took = f" in {duration(outcome.seconds)}" if outcome.how in ("build", "release") else ""
            self.note(f"{tool.name} {tool.version}: {_HOW.get(outcome.how, outcome.how)}{took}")

    def note(self, text: str) -> None:
        if self._display is not None:
            self._display.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def lines(self) -> list[str]:
        """What is being worked on now, one line per tool."""
        now = time.monotonic()
        with self._lock:
            running = list(self._running.values())
        return [
            f"{tool.name} {tool.version}: {text or 'starting'}, {duration(now - started)} (expected {duration(tool.seconds)})"
            for tool, started, text in running
        ]

    def _tick(self) -> None:
        while not self._stop.wait(self._every):
            for line in self.lines():
                self.note(line)

    def _render(self) -> "Text":
        from rich.text import Text

        return Text("\n".join(self.lines()))


def duration(seconds: float) -> str:
    """Seconds for people: 8 s, 75 s, 4.5 min."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
