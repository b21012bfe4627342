"""How commands print: tables for people, JSON for programs, one live line for anything that takes over two seconds."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


def is_terminal() -> bool:
    """Whether a person is likely to read our output and can answer questions."""
    return sys.stdout.isatty() and sys.stdin.isatty()


def print_json(value: Any) -> None:
    """Print a value as indented JSON with stable key order; dates and decimals as strings."""
    print(json.dumps(value, indent=2, sort_keys=True, default=str))


def print_rows(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool = False, empty: str = "none"
) -> None:
    """Print a list: a table of `columns` for people, or every field of each row with `as_json`.

    Args:
        rows: one mapping per line; keys are column names.
        columns: the columns to show, in order.
        empty: what to print for an empty list.
    """
    if as_json:
        print_json([dict(row) for row in rows])
        return
    if not rows:
        print(empty)
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*("" if row.get(column) is None else str(row[column]) for column in columns))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def confirm(question: str, *, yes: bool) -> bool:
    """Ask before a change. True at once with `yes` or where nobody can answer (not a terminal)."""
    if yes or not is_terminal():
        return True
    return input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}


class Progress:
    """One line that says what is happening now and for how long; plain lines where there is no terminal."""

    def __init__(self, title: str, *, every: float = 15.0) -> None:
        self._title = title
        self._every = every
        self._started = time.monotonic()
        self._printed = 0.0
        self._shown = ""
        self._live = sys.stderr.isatty()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def update(self, text: str) -> None:
        """Say what is happening now."""
        if self._live:
            line = f"{self._title}: {text} ({self.elapsed:.0f} s)"
            print(f"\r\033[K{line[:118]}", end="", file=sys.stderr, flush=True)
            return
        now = time.monotonic()
        if text != self._shown and now - self._printed >= self._every:
            print(f"{self._title}: {text} ({self.elapsed:.0f} s)", file=sys.stderr, flush=True)
            self._printed, self._shown = now, text

    def note(self, text: str) -> None:
        """Print a line that stays."""
        clear = "\r\033[K" if self._live else ""
        print(f"{clear}{text}", file=sys.stderr, flush=True)

    def done(self, text: str) -> None:
        """Print the last line, with the time it took."""
        self.note(f"{self._title}: {text} ({self.elapsed:.1f} s)")


@contextmanager
def progress(title: str) -> Iterator[Progress]:
    """A Progress that is cleared if the block fails, so that the error stands alone."""
    line = Progress(title)
    try:
        yield line
    except BaseException:
        if line._live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        raise
