"""What is known of one move, in one SQLite file: which steps are done, and how far each run and each of its volumes is.

Every change is one transaction with synchronous FULL, written before what it announces and after what it reports, so that a
kill -9 or a power cut leaves a state that `resume` goes on from.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from isthmus.migration import disk

Mode = Literal["drain", "checkpoint"]

_SCHEMA = """
CREATE TABLE move (one INTEGER PRIMARY KEY CHECK (one = 1), mode TEXT NOT NULL, state TEXT NOT NULL, began TEXT NOT NULL,
  ended TEXT NOT NULL DEFAULT '');
CREATE TABLE steps (name TEXT PRIMARY KEY, state TEXT NOT NULL, began TEXT NOT NULL, ended TEXT NOT NULL DEFAULT '',
  detail TEXT NOT NULL DEFAULT '{}');
CREATE TABLE runs (id TEXT PRIMARY KEY, state TEXT NOT NULL, stopped TEXT NOT NULL DEFAULT '', started TEXT NOT NULL DEFAULT '');
CREATE TABLE volumes (claim TEXT PRIMARY KEY, run TEXT NOT NULL, files INTEGER NOT NULL, bytes INTEGER NOT NULL,
  digest TEXT NOT NULL);
"""

_FORMATS = (_SCHEMA, "ALTER TABLE runs ADD COLUMN suspended INTEGER NOT NULL DEFAULT 0")
"""Each format of the file as the statements that make it from the one before."""


class Stage(StrEnum):
    """Where a move is."""

    MOVING = "moving"
    CUT_OVER = "cut over"
    """The destination has it; the source is kept."""
    ROLLING_BACK = "rolling back"
    ROLLED_BACK = "rolled back"
    FINISHED = "finished"


OVER = frozenset({Stage.ROLLED_BACK, Stage.FINISHED})


class RunStage(StrEnum):
    """Where a run of the source is."""

    CHOSEN = "chosen"
    STOPPED = "stopped"
    COPIED = "volumes copied"
    MOVED = "moved"
    """Its job is at the destination."""
    ENDED = "ended"
    """It ended at the source before it was its turn."""
    RETURNED = "returned"


@dataclass(frozen=True)
class StepRow:
    """One step."""

    name: str
    done: bool
    began: str
    ended: str
    detail: Mapping[str, Any]


@dataclass(frozen=True)
class RunRow:
    """One run of the source."""

    id: str
    state: RunStage
    stopped: str
    """When it was stopped, "" for not yet."""
    started: str
    """When its job was made anew."""
    suspended: bool
    """Whether its job was suspended before the move touched it: then it is made anew suspended."""


@dataclass(frozen=True)
class VolumeRow:
    """One volume that was copied, with what was in it."""

    claim: str
    run: str
    files: int
    bytes: int
    digest: str
    """SHA-256 over name and SHA-256 of every file: the same at both ends."""


class Record:
    """One move's file."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self.path = path
        with self._transaction() as database:
            known = int(database.execute("PRAGMA user_version").fetchone()[0])
            for statements in _FORMATS[known:]:
                for statement in filter(str.strip, statements.split(";")):
                    database.execute(statement)
            if known < len(_FORMATS):
                database.execute(f"PRAGMA user_version = {len(_FORMATS)}")

    @property
    def stage(self) -> Stage | None:
        """Where the move is; None before it began."""
        row = self._one("SELECT state FROM move")
        return Stage(row["state"]) if row else None

    @property
    def mode(self) -> Mode:
        """How running jobs are moved."""
        row = self._one("SELECT mode FROM move")
        return "drain" if row is None or row["mode"] == "drain" else "checkpoint"

    def begin(self, mode: Mode) -> None:
        """A new move; what is known of an earlier one between the same stacks goes."""
        with self._transaction() as database:
            for table in ("move", "steps", "runs", "volumes"):
                database.execute(f"DELETE FROM {table}")
            database.execute(
                "INSERT INTO move (one, mode, state, began) VALUES (1, ?, ?, ?)", (mode, Stage.MOVING, now())
            )

    def enter(self, stage: Stage) -> None:
        """The move is at another stage now."""
        with self._transaction() as database:
            ended = now() if stage in OVER else ""
            database.execute("UPDATE move SET state = ?, ended = ?", (stage, ended))

    def steps(self) -> dict[str, StepRow]:
        """The steps that were begun, by name."""
        return {
            row["name"]: StepRow(
                row["name"], row["state"] == "done", row["began"], row["ended"], json.loads(row["detail"])
            )
            for row in self._all("SELECT * FROM steps ORDER BY rowid")
        }

    def begin_step(self, name: str) -> None:
        """A step is begun; one that was begun before keeps its first time."""
        with self._transaction() as database:
            database.execute("INSERT OR IGNORE INTO steps (name, state, began) VALUES (?, 'begun', ?)", (name, now()))

    def end_step(self, name: str, detail: Mapping[str, Any]) -> None:
        """A step is done, for good."""
        with self._transaction() as database:
            database.execute(
                "UPDATE steps SET state = 'done', ended = ?, detail = ? WHERE name = ?",
                (now(), json.dumps(detail, default=str), name),
            )

    def runs(self, *states: RunStage) -> list[RunRow]:
        """The source's runs in these states (none: all), in the order they were chosen."""
        rows = [
            RunRow(row["id"], RunStage(row["state"]), row["stopped"], row["started"], bool(row["suspended"]))
            for row in self._all("SELECT * FROM runs ORDER BY rowid")
        ]
        return [row for row in rows if not states or row.state in states]

    def choose(self, identity: str, *, suspended: bool) -> None:
        """A run is to be moved. Doing it again changes nothing."""
        with self._transaction() as database:
            database.execute(
                "INSERT OR IGNORE INTO runs (id, state, suspended) VALUES (?, ?, ?)",
                (identity, RunStage.CHOSEN, suspended),
            )

    def suspend(self, identity: str, suspended: bool) -> None:
        """Whether a run's job is to be suspended when it is made anew."""
        with self._transaction() as database:
            database.execute("UPDATE runs SET suspended = ? WHERE id = ?", (suspended, identity))

    def settle(self, identity: str, state: RunStage) -> None:
        """How far a run is."""
        column = {RunStage.STOPPED: "stopped", RunStage.MOVED: "started"}.get(state)
        with self._transaction() as database:
            database.execute("UPDATE runs SET state = ? WHERE id = ?", (state, identity))
            if column:
                database.execute(f"UPDATE runs SET {column} = ? WHERE id = ?", (now(), identity))

    def volumes(self) -> list[VolumeRow]:
        """What was copied of volumes."""
        rows = self._all("SELECT * FROM volumes ORDER BY claim")
        return [VolumeRow(row["claim"], row["run"], row["files"], row["bytes"], row["digest"]) for row in rows]

    def add_volume(self, row: VolumeRow) -> None:
        """A volume is copied and compared."""
        values = (row.claim, row.run, row.files, row.bytes, row.digest)
        with self._transaction() as database:
            database.execute("INSERT OR REPLACE INTO volumes VALUES (?, ?, ?, ?, ?)", values)

    def times(self) -> tuple[str, str]:
        """When the move began and ended."""
        row = self._one("SELECT began, ended FROM move")
        return (row["began"], row["ended"]) if row else ("", "")

    def _one(self, statement: str) -> sqlite3.Row | None:
        rows = self._all(statement)
        return rows[0] if rows else None

    def _all(self, statement: str) -> list[sqlite3.Row]:
        with self._transaction() as database:
            return database.execute(statement).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self.path, timeout=20.0, isolation_level=None)
        database.row_factory = sqlite3.Row
        try:
            database.execute("PRAGMA synchronous = FULL")
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if not disk.full(error):
                raise
            raise disk.is_full(error, self.path, "every step that was told is written down") from error
        finally:
            database.close()


def now() -> str:
    """This moment, as it is stored."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
