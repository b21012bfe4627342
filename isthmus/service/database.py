"""One database: SQLite by default, PostgreSQL by URL. Short transactions, writing or reading, and the migrations.

On SQLite a writing transaction takes the write lock at its beginning, and threads of one process queue for it in order:
SQLite itself only tries again and again, which under load serves some much later than others. Several services may share
one database; on SQLite that means one machine.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError

from isthmus.specs.errors import InvalidSpec, Refused

BUSY_MILLISECONDS = 20_000
"""How long SQLite waits for another process's transaction; ours take milliseconds."""

STATEMENT_SECONDS = 20
"""Limit for one statement on PostgreSQL."""

MIGRATIONS = Path(__file__).parent / "migrations"


class Database:
    """Connections to the service's database. Safe to share between threads."""

    def __init__(self, url: str, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """
        Args:
            url: sqlite:///FILE or postgresql://USER@HOST/NAME.
            clock: this machine's; used where the database has none of its own (SQLite).

        Raises:
            InvalidSpec: the URL is of neither kind.
        """
        try:
            parsed = make_url(url)
        except ArgumentError as error:
            raise _wrong_url(url) from error
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise _wrong_url(url)
        self._clock = clock
        self._writer = threading.Lock()
        self.sqlite = parsed.get_backend_name() == "sqlite"
        self.path = Path(parsed.database) if self.sqlite and parsed.database else None
        self.url = parsed
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.path.touch(mode=0o600)
        self.engine = _sqlite(parsed) if self.sqlite else _postgresql(parsed)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One writing transaction: all of it or nothing of it."""
        if not self.sqlite:
            with self.engine.begin() as connection:
                yield connection
            return
        with self._writer, self.engine.connect().execution_options(writes=True) as connection, connection.begin():
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One reading transaction."""
        with self.engine.connect() as connection:
            yield connection

    def now(self, connection: Connection) -> datetime:
        """The time that all services on this database agree on: the server's own where it has a clock, so that leases do
        not depend on the clocks of the machines that take them."""
        if self.sqlite:
            return self._clock()
        moment: datetime = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
        return moment.astimezone(UTC)

    def migrate(self, revision: str = "head") -> None:
        """Bring the tables to a revision: `head`, or `base` for none, or one between. Up or down, whichever it takes."""
        from alembic import command
        from alembic.script import ScriptDirectory

        config = self._alembic()
        script = ScriptDirectory.from_config(config)
        current = self.revision()
        if current is not None and current not in {item.revision for item in script.walk_revisions()}:
            raise Refused(
                f"the database was written by a newer isthmus (revision {current})",
                subject=self.shown,
                remedy="use the newer isthmus",
            )
        target = script.get_current_head() if revision == "head" else None if revision == "base" else revision
        with self.engine.connect() as connection:
            config.attributes["connection"] = connection
            if target == current:
                return
            upwards = target is not None and (current is None or current in _below(script, target))
            (command.upgrade if upwards else command.downgrade)(config, revision)

    def revision(self) -> str | None:
        """The revision of the tables; None where there are none."""
        from alembic.runtime.migration import MigrationContext

        with self.engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()

    def check_schema(self) -> None:
        """Refuse tables of another revision than this isthmus knows."""
        from alembic.script import ScriptDirectory

        head, found = ScriptDirectory.from_config(self._alembic()).get_current_head(), self.revision()
        if head != found:
            raise Refused(
                f"the database is at revision {found}, this isthmus needs {head}",
                subject=self.shown,
                remedy="isthmus serve --migrate",
            )

    @property
    def shown(self) -> str:
        """The database for people: its URL without a password."""
        return self.url.render_as_string(hide_password=True)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def _alembic(self) -> Any:
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        return config


def upsert(dialect: str, table: Any) -> Any:
    """For a dialect by its name: an INSERT that takes an ON CONFLICT clause, so that what is there already needs no error and no savepoint."""
    if dialect == "sqlite":
        from sqlalchemy.dialects.sqlite import insert as sqlite_insert

        return sqlite_insert(table)
    from sqlalchemy.dialects.postgresql import insert as postgresql_insert

    return postgresql_insert(table)


def _sqlite(url: Any) -> Engine:
    engine = create_engine(url, connect_args={"check_same_thread": False, "timeout": BUSY_MILLISECONDS / 1000})

    @event.listens_for(engine, "connect")
    def connected(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, not by the driver's guess
        for pragma in ("journal_mode = WAL", "foreign_keys = ON", "synchronous = FULL"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgresql(url: Any) -> Engine:
    return create_engine(
        url,
        pool_pre_ping=True,  # a server that was restarted in between is connected to anew
        pool_size=16,
        max_overflow=8,
        connect_args={"connect_timeout": 5, "options": f"-c statement_timeout={STATEMENT_SECONDS * 1000}"},
    )


def _below(script: Any, target: str) -> set[str]:
    return {item.revision for item in script.walk_revisions("base", target)}


def _wrong_url(url: str) -> InvalidSpec:
    kind = url.partition(":")[0]
    return InvalidSpec(
        f"{kind!r} is no database that the service knows",
        subject="--database",
        remedy="--database sqlite:///FILE or postgresql://USER@HOST/NAME",
    )
