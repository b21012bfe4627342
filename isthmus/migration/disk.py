"""A full disk under one of a migration's SQLite files, in words."""

import sqlite3
from pathlib import Path

from isthmus.specs.errors import IsthmusError


def full(error: sqlite3.OperationalError) -> bool:
    """Whether SQLite could not write for want of space (SQLITE_FULL, in its own words)."""
    return "full" in str(error)


def is_full(error: sqlite3.OperationalError, path: Path, kept: str) -> IsthmusError:
    """What to tell. SQLite has taken back the transaction that was under way.

    Args:
        kept: what is safe.
    """
    return IsthmusError(
        f"the disk is full: {error}; {kept}",
        subject=str(path),
        remedy="free some space, then give the same command again: it goes on",
    )
