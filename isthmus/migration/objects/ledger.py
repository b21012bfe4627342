"""What is known of every object of one copy, in one SQLite file: the memory that makes a copy resumable.

An object goes pending -> copied -> verified (or corrupt). Its digest is the SHA-256 of its bytes; for one copied in parts, the
SHA-256 of its parts' SHA-256 digests in order, as S3's own composite checksums are made (S3 user guide, checking object
integrity), so that a copy can be gone on with in the middle of an object. Rows of small objects are committed in groups: a
kill -9 costs at most the last GROUP of them, which are copied again. A part of a large object is committed at once.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from isthmus.migration import disk
from isthmus.migration.objects.store import Item, Metadata
from isthmus.specs.errors import Refused

GROUP = 64
PAGE = 500
"""Rows read at a time: the objects of a bucket are never all in memory."""
RATE_FROM = 1_000_000
"""Bytes below which a copy says nothing about the rate of a larger one."""
FORMAT = 1
BOTH = "it was written at both ends since it was verified; --repair takes the source's"

_SCHEMA = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE objects (
  key TEXT PRIMARY KEY, size INTEGER NOT NULL, version TEXT NOT NULL, metadata TEXT, state TEXT NOT NULL,
  digest TEXT NOT NULL DEFAULT '', destination TEXT NOT NULL DEFAULT '', upload TEXT NOT NULL DEFAULT '',
  reason TEXT NOT NULL DEFAULT '', losses TEXT NOT NULL DEFAULT '', scan INTEGER NOT NULL, there TEXT NOT NULL DEFAULT '')
  WITHOUT ROWID;
CREATE INDEX objects_by_state ON objects (state, key);
CREATE TABLE parts (
  key TEXT NOT NULL, number INTEGER NOT NULL, digest TEXT NOT NULL, tag TEXT NOT NULL, PRIMARY KEY (key, number))
  WITHOUT ROWID;
"""


class State(StrEnum):
    """How far an object is."""

    PENDING = "pending"
    COPIED = "copied"
    VERIFIED = "verified"
    """Read back from the destination, and equal."""
    CORRUPT = "corrupt"
    """Read back, and different."""
    GONE = "gone"
    """Deleted at the source before it was copied."""
    REFUSED = "refused"
    """The destination cannot hold it."""
    CONFLICT = "conflict"
    """Written at both ends since it was verified: which one counts is not ours to say."""
    FAILED = "failed"


DONE = frozenset({State.COPIED, State.VERIFIED, State.CORRUPT})
"""The destination has what we wrote."""


@dataclass(frozen=True)
class Row:
    """One object."""

    key: str
    size: int
    version: str
    """At the source."""
    metadata: Metadata | None
    state: State
    digest: str
    destination: str
    """Its version at the destination when it was verified."""
    upload: str
    """A begun upload, "" for none."""
    reason: str


class Ledger:
    """One copy's memory. Safe to share between threads of one process."""

    def __init__(self, path: Path, *, source: str, destination: str) -> None:
        """
        Args:
            path: the file; made with mode 0600 when it is not there.
            source, destination: the buckets' URLs, kept in the file.

        Raises:
            Refused: the file is of a copy between other buckets, or of another isthmus.
        """
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._path = path
        self._lock = threading.RLock()
        self._open = 0
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=20.0)
        self._database.row_factory = sqlite3.Row
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        with self.group():
            version = self._database.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    self._database.execute(statement)
                about = [("source", source), ("destination", destination), ("scan", "0"), ("used", ""), ("rate", "")]
                self._database.executemany("INSERT INTO about VALUES (?, ?)", about)
                self._database.execute(f"PRAGMA user_version = {FORMAT}")
            elif version != FORMAT:
                raise Refused(f"{path.name} has format {version}, this isthmus knows {FORMAT}", subject=str(path))
        theirs = (self.about("source"), self.about("destination"))
        if theirs != (source, destination):
            raise Refused(
                f"{path.name} is of a copy from {theirs[0]} to {theirs[1]}, not from {source} to {destination}",
                subject=str(path),
            )

    @contextmanager
    def group(self) -> Iterator[None]:
        """Everything in the block is one transaction."""
        with self._lock:
            self.flush()
            self._execute("BEGIN IMMEDIATE")
            self._open = 1
            try:
                yield
            except BaseException:
                if self._database.in_transaction:  # SQLite ends one itself when the disk is full
                    self._database.execute("ROLLBACK")
                self._open = 0
                raise
            self.flush()

    def flush(self) -> None:
        """Commit what is not yet."""
        with self._lock:
            if self._open:
                self._open = 0
                if self._database.in_transaction:
                    self._execute("COMMIT")

    def close(self) -> None:
        """Commit, and close the file."""
        with self._lock:
            self.flush()
            self._database.close()

    def about(self, name: str) -> str:
        """A fact of the whole copy."""
        return str(self._execute("SELECT value FROM about WHERE name = ?", name).fetchone()["value"])

    def use(self) -> None:
        """Note that a copy works with it now: the latest of two ledgers between the same buckets counts."""
        with self.group():
            self._execute("UPDATE about SET value = ? WHERE name = 'used'", datetime.now(UTC).isoformat())

    def note_rate(self, size: int, seconds: float) -> None:
        """Remember how fast a copy of so many bytes was, reading back included: what later plans expect."""
        if size >= RATE_FROM and seconds > 0:
            value = json.dumps({"bytes": size, "seconds": round(seconds, 3), "at": datetime.now(UTC).isoformat()})
            with self.group():
                self._execute("UPDATE about SET value = ? WHERE name = 'rate'", value)

    def turn(self, other: Ledger) -> None:
        """Begin with what a copy the other way round has verified: then only what changed since is copied back.

        An object changed at the end that is now the destination shows as another version there, and is read back.
        """
        with self.group():
            self._execute("DELETE FROM objects")
            self._execute("DELETE FROM parts")
            for row in other.rows(State.VERIFIED):
                self._execute(
                    "INSERT INTO objects (key, size, version, state, digest, destination, scan)"
                    " VALUES (?, ?, ?, 'verified', ?, ?, 0)",
                    row.key, row.size, row.destination, row.digest, row.version,
                )  # fmt: skip
                for number, (digest, tag) in enumerate(other.parts(row.key), 1):
                    self._execute("INSERT INTO parts VALUES (?, ?, ?, ?)", row.key, number, digest, tag)
            self._execute("UPDATE about SET value = '1' WHERE name = 'scan'")

    @property
    def scans(self) -> int:
        """How often the source was listed."""
        return int(self.about("scan"))

    def take_source(self, items: Iterable[Item]) -> list[tuple[str, str]]:
        """Take in a listing of the source: what is new or changed becomes pending.

        Returns:
            Uploads that were begun for versions which are no more, to be forgotten: (key, upload).
        """
        scan, stale = self.scans + 1, []
        for page in _pages(items):
            with self.group():
                for item in page:
                    stale += self._take(item, scan)
        with self.group():
            self._execute("UPDATE about SET value = ? WHERE name = 'scan'", str(scan))
        return stale

    def _take(self, item: Item, scan: int) -> list[tuple[str, str]]:
        known = self._execute("SELECT * FROM objects WHERE key = ?", item.key).fetchone()
        metadata = json.dumps(asdict(item.metadata)) if item.metadata else None
        if known and known["version"] == item.version:
            kept = {State.FAILED, State.GONE}  # those are tried again
            state = State.PENDING if known["state"] in kept else State(known["state"])
            self._execute(
                "UPDATE objects SET scan = ?, state = ?, metadata = ? WHERE key = ?", scan, state, metadata, item.key
            )
            return []
        both = known and known["there"] and known["destination"] and known["there"] != known["destination"]
        state, reason = (State.CONFLICT, BOTH) if both else (State.PENDING, "")
        self._execute("DELETE FROM parts WHERE key = ?", item.key)
        self._execute(
            "INSERT INTO objects (key, size, version, metadata, state, reason, scan) VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (key) DO UPDATE SET size = excluded.size, version = excluded.version, state = excluded.state,"
            " metadata = excluded.metadata, digest = '', upload = '', reason = excluded.reason, losses = '',"
            " scan = excluded.scan, destination = ''",
            item.key, item.size, item.version, metadata, state, reason, scan,
        )  # fmt: skip
        return [(item.key, known["upload"])] if known and known["upload"] else []

    def take_destination(self, items: Iterable[Item]) -> tuple[int, list[str]]:
        """Take in a listing of the destination: what we wrote and is not there is pending again, what is there in another
        version than the one we verified must be verified again.

        Returns:
            How many objects there are none of ours, and the first few of them.
        """
        foreign, first = 0, list[str]()
        with self.group():
            self._execute("UPDATE objects SET there = ''")
        for page in _pages(items):
            with self.group():
                for item in page:
                    changed = self._execute("UPDATE objects SET there = ? WHERE key = ?", item.version, item.key)
                    if not changed.rowcount:
                        foreign += 1
                        first += [item.key] if len(first) < 5 else []
        with self.group():
            self._execute("UPDATE objects SET state = 'pending' WHERE state IN ('copied', 'verified') AND there = ''")
            self._execute("UPDATE objects SET state = 'copied' WHERE state = 'verified' AND there <> destination")
        return foreign, first

    def rows(self, *states: State, larger: int = -1, up_to: int = 1 << 62) -> Iterator[Row]:
        """Objects in these states by key, whose size is over `larger` and at most `up_to`. Rows may change on the way."""
        last, marks = "", ", ".join("?" * len(states))
        while True:
            with self._lock:
                page = self._execute(
                    f"SELECT * FROM objects WHERE state IN ({marks}) AND key > ? AND size > ? AND size <= ?"
                    " ORDER BY key LIMIT ?",
                    *states, last, larger, up_to, PAGE,
                ).fetchall()  # fmt: skip
            for row in page:
                yield _row(row)
            if len(page) < PAGE:
                return
            last = page[-1]["key"]

    def drop_absent(self) -> None:
        """Forget objects that the latest listing has not and that never came to the destination."""
        marks = ", ".join(f"'{state}'" for state in sorted(DONE))
        with self.group():
            self._execute(f"DELETE FROM objects WHERE scan < ? AND there = '' AND state NOT IN ({marks})", self.scans)

    def removed(self) -> list[str]:
        """Objects that the destination has from us and the latest listing of the source has not."""
        marks = ", ".join(f"'{state}'" for state in sorted(DONE))
        found = self._execute(
            f"SELECT key FROM objects WHERE scan < ? AND (state IN ({marks}) OR there <> '') ORDER BY key", self.scans
        ).fetchall()
        return [row["key"] for row in found]

    def settle(self, key: str, state: State, *, reason: str = "", **columns: str) -> None:
        """Write down how far an object is; `columns` are digest, destination, losses, upload."""
        changed = {"state": state, "reason": reason, **columns}
        assignments = ", ".join(f"{name} = ?" for name in changed)
        with self._lock:
            self._begin()
            self._execute(f"UPDATE objects SET {assignments} WHERE key = ?", *changed.values(), key)
            self._open += 1
            if self._open > GROUP:
                self.flush()

    def renew(self, item: Item) -> list[tuple[str, str]]:
        """Take in one object anew, which changed after it was listed. Returns as `take_source`."""
        with self.group():
            return self._take(item, self.scans)

    def begun(self, key: str, upload: str) -> None:
        """Remember a begun upload, and that it has no parts yet."""
        with self.group():
            self._execute("DELETE FROM parts WHERE key = ?", key)
            self._execute("UPDATE objects SET upload = ? WHERE key = ?", upload, key)

    def add_part(self, key: str, number: int, digest: str, tag: str) -> None:
        """Remember a part that the destination has."""
        with self.group():
            self._execute("INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?)", key, number, digest, tag)

    def parts(self, key: str) -> list[tuple[str, str]]:
        """Digest and tag of the parts that are written, in order."""
        with self._lock:
            found = self._execute("SELECT digest, tag FROM parts WHERE key = ? ORDER BY number", key).fetchall()
        return [(row["digest"], row["tag"]) for row in found]

    def forget(self, key: str) -> None:
        """Forget an object that is at neither end."""
        with self.group():
            self._execute("DELETE FROM parts WHERE key = ?", key)
            self._execute("DELETE FROM objects WHERE key = ?", key)

    def reset(self, before: State, after: State) -> None:
        """Move all objects from one state to another."""
        with self.group():
            self._execute("UPDATE objects SET state = ? WHERE state = ?", after, before)

    def totals(self) -> dict[State, tuple[int, int]]:
        """Objects and bytes in each state."""
        with self._lock:
            found = self._execute(
                "SELECT state, count(*) AS n, sum(size) AS bytes FROM objects GROUP BY state"
            ).fetchall()
        return {State(row["state"]): (row["n"], row["bytes"]) for row in found}

    def losses(self) -> list[tuple[str, str]]:
        """Objects that lost some of their metadata, and what."""
        found = self._execute("SELECT key, losses FROM objects WHERE losses <> '' ORDER BY key").fetchall()
        return [(row["key"], row["losses"]) for row in found]

    def digest(self) -> str:
        """One digest of everything that is verified: SHA-256 over key, size and digest of each object by key."""
        total = sha256()
        for row in self.rows(State.VERIFIED):
            total.update(json.dumps([row.key, row.size, row.digest]).encode() + b"\n")
        return total.hexdigest()

    def _begin(self) -> None:
        if not self._open:
            self._execute("BEGIN IMMEDIATE")
            self._open = 1

    def _execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        with self._lock:
            try:
                return self._database.execute(statement, values)
            except sqlite3.OperationalError as error:
                if not disk.full(error):
                    raise
                if not self._database.in_transaction:
                    self._open = 0
                raise disk.is_full(error, self._path, "what was copied is kept") from error


def _pages(items: Iterable[Item]) -> Iterator[list[Item]]:
    page: list[Item] = []
    for item in items:
        page.append(item)
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page


def _row(row: sqlite3.Row) -> Row:
    metadata = Metadata(**json.loads(row["metadata"])) if row["metadata"] else None
    return Row(
        row["key"], row["size"], row["version"], metadata, State(row["state"]), row["digest"], row["destination"],
        row["upload"], row["reason"],
    )  # fmt: skip


def between(folder: Path, name: str, back: str, *, source: str, destination: str) -> Ledger:
    """The ledger of a copy, seeded by the one of the way back where that was used later.

    Args:
        name, back: what the files of this copy and of the way back are called.
    """
    ledger = Ledger(folder / f"{name}.db", source=source, destination=destination)
    if (folder / f"{back}.db").exists():
        other = Ledger(folder / f"{back}.db", source=destination, destination=source)
        try:
            if other.about("used") > ledger.about("used"):
                ledger.turn(other)
        finally:
            other.close()
    ledger.use()
    return ledger


def measured_rate(path: Path) -> tuple[float, str] | None:
    """Bytes a second of the last copy that a ledger has seen, and when and of how much; None where there was none."""
    if not path.exists():
        return None
    with sqlite3.connect(path) as database:
        found = database.execute("SELECT value FROM about WHERE name = 'rate'").fetchone()
    if not found or not found[0]:
        return None
    said = json.loads(found[0])
    how = f"measured {said['at'][:10]} on {said['bytes'] / 1e6:.1f} MB, with reading back"
    return said["bytes"] / said["seconds"], how
