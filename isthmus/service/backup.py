"""Back-up and restore: the whole database as one file that is the same from SQLite and PostgreSQL.

JSON lines, compressed: a first line that says what it is, then every row, table by table. It is read in one transaction,
so that it is of one moment, and holds only digests of keys. A restore goes into an empty database, of either kind.
"""

import gzip
import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Integer, func, insert, select, text
from sqlalchemy.exc import IntegrityError

from isthmus.service.database import Database
from isthmus.service.tables import Moment, metadata
from isthmus.specs.errors import InvalidSpec, Refused

FORMAT = "isthmus-service-backup"
BATCH = 1000


def back_up(database: Database, path: Path) -> int:
    """Write every row to a file (mode 0600), whole or not at all; returns their number.

    Raises:
        Refused: the file is there already.
    """
    if path.exists():
        raise Refused(f"{path} is there already", subject=str(path), remedy="choose another name")
    partial = path.with_name(path.name + ".partial")
    count = 0
    descriptor = os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as raw, gzip.open(raw, "wt", encoding="utf-8") as file:
        with database.engine.connect() as connection:
            if not database.sqlite:
                connection.execution_options(isolation_level="REPEATABLE READ")
            head = {"format": FORMAT, "revision": database.revision(), "at": database.now(connection).isoformat()}
            file.write(json.dumps(head) + "\n")
            for line in _rows(connection):
                file.write(line + "\n")
                count += 1
        file.write(json.dumps({"rows": count}) + "\n")
    partial.replace(path)
    return count


def restore(database: Database, path: Path) -> int:
    """Put a back-up into an empty database, all of it or nothing; returns the number of rows.

    Raises:
        InvalidSpec: it is no back-up, or not a whole one.
        Refused: the database holds something, or the back-up is of another revision than this isthmus.
    """
    database.migrate()
    with database.write() as connection:
        for table in metadata.sorted_tables:
            if connection.execute(select(func.count()).select_from(table)).scalar_one():
                raise Refused(
                    f"the database is not empty: {table.name} has rows",
                    subject=database.shown,
                    remedy="restore into a new one: --database sqlite:///NEW-FILE",
                )
        count = _read(database, connection, path)
        if not database.sqlite:
            _set_sequences(connection)
    return count


def _rows(connection: Connection) -> Iterator[str]:
    for table in metadata.sorted_tables:
        result = connection.execute(select(table).order_by(*table.primary_key.columns))
        for row in result:
            yield json.dumps([table.name, row._asdict()], default=_written)


def _read(database: Database, connection: Connection, path: Path) -> int:
    batch: list[dict[str, Any]] = []
    count, name = 0, ""
    ended = False

    def flush() -> None:
        if batch:
            connection.execute(insert(metadata.tables[name]), batch)
            batch.clear()

    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            head = json.loads(next(file, "null"))
            if not isinstance(head, dict) or head.get("format") != FORMAT:
                raise _not_one(path, "its first line is not a back-up's")
            if head["revision"] != database.revision():
                raise Refused(
                    f"the back-up is of revision {head['revision']}, this isthmus has {database.revision()}",
                    subject=str(path),
                    remedy="restore it with the isthmus that wrote it, then migrate",
                )
            for line in file:
                item = json.loads(line)
                if isinstance(item, dict):
                    ended = item.get("rows") == count
                    break
                table, row = item
                if table != name or len(batch) >= BATCH:
                    flush()
                    name = table
                batch.append(_parsed(table, row))
                count += 1
            flush()
    except (OSError, EOFError, ValueError, KeyError, TypeError, IntegrityError) as error:
        raise _not_one(path, str(error)) from error
    if not ended:
        raise _not_one(path, "its end is missing")
    return count


def _parsed(table: str, row: dict[str, Any]) -> dict[str, Any]:
    for column in metadata.tables[table].columns:
        if isinstance(column.type, Moment) and row[column.name] is not None:
            row[column.name] = datetime.fromisoformat(row[column.name])
    return row


def _written(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"no way to write {type(value).__name__}")


def _set_sequences(connection: Connection) -> None:
    """On PostgreSQL a number that was given does not move the counter that gives the next."""
    for table in metadata.sorted_tables:
        keys = list(table.primary_key.columns)
        if len(keys) == 1 and isinstance(keys[0].type, Integer):
            column = keys[0].name
            connection.execute(
                text(
                    f"SELECT setval(pg_get_serial_sequence('{table.name}', '{column}'),"
                    f" (SELECT coalesce(max({column}), 0) + 1 FROM {table.name}), false)"
                )
            )


def _not_one(path: Path, why: str) -> InvalidSpec:
    return InvalidSpec(f"{path} is no whole back-up of the service: {why}", subject=str(path))
