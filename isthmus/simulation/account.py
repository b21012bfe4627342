"""A simulated cloud account: what exists in it, kept in one SQLite file (mode 0600) under ISTHMUS_HOME/accounts.

Two processes may work on one account at once: every change is one `BEGIN IMMEDIATE` transaction in WAL mode. A create
writes an intent (state `creating`, with the id it will have and the process that does it) before it does anything
else, so a kill -9 at any moment leaves either nothing or a row that the next create of the same URN continues. (A power
cut may lose the last transactions, never damage the file: WAL with synchronous NORMAL, https://sqlite.org/wal.html.) This
module knows nothing of single resource types; quotas, capacity, faults and the clock have modules of their own over
the same file. Secrets are never in the file: `values.conceal` leaves their digests.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.toolchain.values import Properties

SCHEMA_VERSION = 1
BUSY_SECONDS = 60.0

CREATING, READY, DELETING = "creating", "ready", "deleting"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS resources (
  type TEXT NOT NULL, key TEXT NOT NULL, id TEXT NOT NULL, urn TEXT NOT NULL, name TEXT, region TEXT NOT NULL,
  state TEXT NOT NULL, inputs TEXT NOT NULL, outputs TEXT NOT NULL, owner TEXT NOT NULL,
  created_at TEXT NOT NULL, updated_at TEXT NOT NULL, PRIMARY KEY (type, key));
CREATE UNIQUE INDEX IF NOT EXISTS resource_names ON resources (type, region, name) WHERE name IS NOT NULL;
CREATE INDEX IF NOT EXISTS resource_urns ON resources (urn);
CREATE TABLE IF NOT EXISTS aliases (
  type TEXT NOT NULL, alias TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (type, alias, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS refs (
  type TEXT NOT NULL, key TEXT NOT NULL, to_type TEXT NOT NULL, to_key TEXT NOT NULL, holds INTEGER NOT NULL,
  PRIMARY KEY (type, key, to_type, to_key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS usage (
  type TEXT NOT NULL, key TEXT NOT NULL, place TEXT NOT NULL, code TEXT NOT NULL, amount REAL NOT NULL,
  PRIMARY KEY (type, key, place, code)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS placements (
  type TEXT NOT NULL, key TEXT NOT NULL, zone TEXT NOT NULL, machine TEXT NOT NULL, spot INTEGER NOT NULL,
  count INTEGER NOT NULL, PRIMARY KEY (type, key, zone, machine, spot)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quotas (
  code TEXT NOT NULL, place TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (code, place)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS capacity (
  zone TEXT NOT NULL, machine TEXT NOT NULL, available INTEGER NOT NULL, PRIMARY KEY (zone, machine)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS faults (
  id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, operation TEXT NOT NULL, type TEXT NOT NULL,
  nth INTEGER NOT NULL, times INTEGER NOT NULL, seconds REAL NOT NULL, code TEXT NOT NULL, message TEXT NOT NULL,
  seen INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS lingering (
  type TEXT NOT NULL, key TEXT NOT NULL, holder TEXT NOT NULL, until REAL NOT NULL,
  PRIMARY KEY (type, key, holder)) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Row:
    """One resource of the account."""

    type: str
    key: str
    """Unique among the resources of its type: its place and its id (see `key_of`)."""
    id: str
    """As the engine and users know it; two regions may each have an EKS cluster of one name."""
    urn: str
    name: str | None
    region: str
    state: str
    inputs: Properties
    outputs: Properties
    owner: str
    created_at: str
    updated_at: str


class Account:
    """One simulated account. Safe to share between threads; each gets its own connection."""

    def __init__(self, name: str, path: Path) -> None:
        """Open the account, making its file when it is not there.

        Args:
            name: as users know it (the AWS profile, the GCP project).
            path: the SQLite file; its folder must exist.
        """
        self.name = name
        self.path = path
        self._local = threading.local()
        self._lock = threading.RLock()
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        if not self._is_current():
            with self.transaction() as database:
                _migrate(database)

    @property
    def database(self) -> sqlite3.Connection:
        """This thread's connection (autocommit; use `transaction` to change anything)."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None or getattr(self._local, "pid", 0) != os.getpid():
            connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
            connection.row_factory = sqlite3.Row
            connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            self._local.connection, self._local.pid = connection, os.getpid()
        return connection

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One write transaction; an inner one joins the outer. Rolled back on any exception."""
        database = self.database
        if database.in_transaction:
            yield database
            return
        with self._lock:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")

    def setting(self, key: str, default: str = "") -> str:
        """A setting of the account, or the default."""
        row = self.database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return str(row["value"]) if row else default

    def set_setting(self, key: str, value: str) -> None:
        """Change a setting of the account."""
        with self.transaction() as database:
            database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def drop_settings(self, prefix: str) -> None:
        """Forget every setting whose key starts with a prefix."""
        with self.transaction() as database:
            database.execute("DELETE FROM meta WHERE substr(key, 1, ?) = ?", (len(prefix), prefix))

    def count(self, key: str) -> int:
        """The next number of a counter, starting at 1."""
        with self.transaction():
            value = int(self.setting(f"counter:{key}", "0")) + 1
            self.set_setting(f"counter:{key}", str(value))
        return value

    def hexadecimal(self, purpose: str, length: int) -> str:
        """Hex digits that look random and are the same in every account with the same name and history."""
        seed = f"{self.name}\0{purpose}\0{self.count('hexadecimal')}"
        return hashlib.sha256(seed.encode()).hexdigest()[:length]

    def get(self, token: str, key: str) -> Row | None:
        """The resource of that type and key."""
        found = self.database.execute("SELECT * FROM resources WHERE type = ? AND key = ?", (token, key)).fetchone()
        return _row(found) if found else None

    def find(self, token: str, reference: str, region: str) -> Row | None:
        """The resource of that type whose id or alias is `reference`, as seen from a region; a ready one first.

        Seen are the region's own, global ones, and those of the region that a zone lies in (or the other way round).
        """
        found = self.database.execute(
            "SELECT * FROM resources WHERE type = ?1 AND (id = ?2 OR key IN (SELECT key FROM aliases WHERE type = ?1 "
            "AND alias = ?2)) AND (region IN ('', ?3) OR ?3 = '' OR ?3 LIKE region || '-%' OR region LIKE ?3 || '-%') "
            "ORDER BY state = 'ready' DESC, region = ?3 DESC LIMIT 1",
            (token, reference, region),
        ).fetchone()
        return _row(found) if found else None

    def named(self, token: str, region: str, name: str) -> Row | None:
        """The resource that has a natural name."""
        found = self.database.execute(
            "SELECT * FROM resources WHERE type = ? AND region = ? AND name = ?", (token, region, name)
        ).fetchone()
        return _row(found) if found else None

    def rows(self, token: str | None = None, *, urn: str | None = None) -> list[Row]:
        """Resources in the order they were made, of one type or one URN or all."""
        found = self.database.execute(
            "SELECT * FROM resources WHERE (?1 IS NULL OR type = ?1) AND (?2 IS NULL OR urn = ?2) ORDER BY rowid",
            (token, urn),
        )
        return [_row(item) for item in found]

    def insert(self, row: Row) -> None:
        """Write a new resource (an intent, usually). Call inside a transaction."""
        values = (row.type, row.key, row.id, row.urn, row.name, row.region, row.state, _text(row.inputs))
        more = (_text(row.outputs), row.owner, row.created_at, row.updated_at)
        with self.transaction() as database:
            database.execute(f"INSERT INTO resources VALUES ({', '.join('?' * 12)})", (*values, *more))

    def store(self, token: str, key: str, **columns: Any) -> None:
        """Change columns of a resource; `inputs` and `outputs` are properties."""
        changed = {name: _text(value) if name in {"inputs", "outputs"} else value for name, value in columns.items()}
        assignments = ", ".join(f"{name} = :{name}" for name in changed)
        with self.transaction() as database:
            database.execute(
                f"UPDATE resources SET {assignments} WHERE type = :token_ AND key = :key_",
                {**changed, "token_": token, "key_": key},
            )

    def set_aliases(self, token: str, key: str, aliases: Iterable[str]) -> None:
        """Replace the other names of a resource."""
        with self.transaction() as database:
            database.execute("DELETE FROM aliases WHERE type = ? AND key = ?", (token, key))
            rows = [(token, alias, key) for alias in set(aliases) if alias]
            database.executemany("INSERT INTO aliases VALUES (?, ?, ?)", rows)

    def set_refs(self, token: str, key: str, refs: Iterable[tuple[str, str, bool]]) -> None:
        """Replace what a resource names: (type, key, whether it holds the other)."""
        with self.transaction() as database:
            database.execute("DELETE FROM refs WHERE type = ? AND key = ?", (token, key))
            for to_type, to_key, holds in refs:
                database.execute(
                    "INSERT INTO refs VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET holds = max(holds, excluded.holds)",
                    (token, key, to_type, to_key, holds),
                )

    def holders(self, token: str, key: str) -> list[Row]:
        """The resources that keep another from being deleted."""
        found = self.database.execute(
            "SELECT r.* FROM refs f JOIN resources r ON r.type = f.type AND r.key = f.key "
            "WHERE f.to_type = ? AND f.to_key = ? AND f.holds ORDER BY r.rowid",
            (token, key),
        )
        return [_row(item) for item in found]

    def targets(self, token: str, key: str, to_type: str) -> list[Row]:
        """The resources of one type that a resource names."""
        found = self.database.execute(
            "SELECT r.* FROM refs f JOIN resources r ON r.type = f.to_type AND r.key = f.to_key "
            "WHERE f.type = ? AND f.key = ? AND f.to_type = ? ORDER BY r.rowid",
            (token, key, to_type),
        )
        return [_row(item) for item in found]

    def remove(self, token: str, key: str) -> None:
        """Forget a resource and everything recorded for it. Nothing happens when it is not there."""
        with self.transaction() as database:
            for table in ("resources", "aliases", "refs", "usage", "placements"):
                database.execute(f"DELETE FROM {table} WHERE type = ? AND key = ?", (token, key))

    def clear(self) -> None:
        """Forget everything, settings too: the account as it was on its first day."""
        with self.transaction() as database:
            for table in (
                "resources",
                "aliases",
                "refs",
                "usage",
                "placements",
                "quotas",
                "capacity",
                "faults",
                "lingering",
                "meta",
            ):
                database.execute(f"DELETE FROM {table}")
            _migrate(database)

    def _is_current(self) -> bool:
        try:
            return self.setting("schema") == str(SCHEMA_VERSION)
        except sqlite3.OperationalError:  # a new file has no tables yet
            return False

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None


def open_account(name: str, *, create: bool = True) -> Account:
    """The account of that name under ISTHMUS_HOME.

    Raises:
        NotFound: it does not exist and `create` is false; the message lists those there are.
    """
    from isthmus.specs.errors import NotFound
    from isthmus.toolchain import home

    path = home.account_file(name)
    if not create and not path.exists():
        known = ", ".join(sorted(item.stem for item in path.parent.glob("*.db"))) or "none"
        raise NotFound(
            f"there is no simulated account {name!r}; known: {known}",
            subject=f"account {name}",
            remedy="isthmus up aws-sim",
        )
    return Account(name, path)


def key_of(region: str, identity: str) -> str:
    """The key of a resource: ids that users choose repeat between regions."""
    return f"{region}/{identity}"


def this_process() -> str:
    """This process as an owner of intents: pid and start time, so that a reused pid is not mistaken for it."""
    return _identity(os.getpid())


def is_alive(owner: str) -> bool:
    """Whether the process that wrote an intent still runs."""
    pid, _, _ = owner.partition(":")
    return pid.isdigit() and _identity(int(pid)) == owner


def _identity(pid: int) -> str:
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    if after_name[0] == "Z":
        return ""
    return f"{pid}:{after_name[19]}"


def _migrate(database: sqlite3.Connection) -> None:
    for statement in filter(str.strip, _SCHEMA.split(";\n")):
        database.execute(statement)
    database.execute("INSERT OR IGNORE INTO meta VALUES ('schema', ?)", (str(SCHEMA_VERSION),))


def _text(properties: Properties | Sequence[Any]) -> str:
    return json.dumps(properties, sort_keys=True)


def _row(found: sqlite3.Row) -> Row:
    return Row(
        type=found["type"],
        key=found["key"],
        id=found["id"],
        urn=found["urn"],
        name=found["name"],
        region=found["region"],
        state=found["state"],
        inputs=json.loads(found["inputs"]),
        outputs=json.loads(found["outputs"]),
        owner=found["owner"],
        created_at=found["created_at"],
        updated_at=found["updated_at"],
    )
