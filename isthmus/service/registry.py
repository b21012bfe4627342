"""The algorithm registry: mappings and their versions. Every function works in its caller's transaction.

A version is written once and never changed; `current` says which one a run gets that names none. Rolling back moves
`current`, and nothing else, so that a run always finds the version it was made from.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Integer, Row, bindparam, func, select, update

from isthmus.kube.objects import digest
from isthmus.service import mappings
from isthmus.service.database import upsert
from isthmus.service.mappings import AlgorithmMapping
from isthmus.service.model import Conflict
from isthmus.service.tables import algorithms, users, versions
from isthmus.specs.errors import IsthmusError, NotFound, Refused
from isthmus.specs.names import nearest


@dataclass(frozen=True)
class Version:
    """One version of an algorithm."""

    algorithm_id: int
    algorithm: str
    version: int
    mapping: AlgorithmMapping
    digest: str
    note: str
    created: datetime
    created_by: str
    current: bool
    deprecated: datetime | None


def create(
    connection: Connection,
    project_id: int,
    user_id: int,
    name: str,
    mapping: AlgorithmMapping,
    *,
    note: str,
    now: datetime,
) -> Version:
    """Add an algorithm, with this mapping as version 1.

    Raises:
        Conflict: the project has one of that name.
        InvalidSpec: the mapping could not be run.
    """
    mappings.check(name, mapping)
    made = connection.execute(
        upsert(connection.dialect.name, algorithms)
        .values(project_id=project_id, name=name, current=1, created=now)
        .on_conflict_do_nothing()
        .returning(algorithms.c.id)
    ).scalar()
    if made is None:
        raise Conflict(
            f"there is an algorithm {name} already",
            subject=f"algorithm {name}",
            remedy="add a version: POST .../versions",
        )
    _add(connection, made, 1, user_id, mapping, note, now)
    return version(connection, project_id, name, 1)


def add_version(
    connection: Connection,
    project_id: int,
    user_id: int,
    name: str,
    mapping: AlgorithmMapping,
    *,
    note: str,
    now: datetime,
) -> Version:
    """Add a version and make it the current one.

    Raises:
        NotFound: no such algorithm. InvalidSpec: as of `create`.
        Conflict: somebody added the same number at the same moment.
    """
    mappings.check(name, mapping)
    row = algorithm(connection, project_id, name)
    last = connection.execute(
        select(func.max(versions.c.version)).where(versions.c.algorithm_id == row.id)
    ).scalar_one()
    if not _add(connection, row.id, last + 1, user_id, mapping, note, now):
        raise Conflict(
            f"version {last + 1} was added by somebody else a moment ago",
            subject=f"algorithm {name}",
            remedy="look at it, then try again",
        )
    connection.execute(update(algorithms).where(algorithms.c.id == row.id).values(current=last + 1))
    return version(connection, project_id, name, last + 1)


def roll_back(connection: Connection, project_id: int, name: str, number: int) -> Version:
    """Make an earlier version (or a later one again) the current one. NotFound where there is none."""
    found = version(connection, project_id, name, number)
    connection.execute(update(algorithms).where(algorithms.c.id == found.algorithm_id).values(current=number))
    return version(connection, project_id, name, number)


def set_deprecated(connection: Connection, project_id: int, name: str, at: datetime | None) -> None:
    """Say that an algorithm is no longer to be used (its runs stay, and can be retried and replayed), or that it is again."""
    row = algorithm(connection, project_id, name)
    connection.execute(update(algorithms).where(algorithms.c.id == row.id).values(deprecated=at))


def algorithm(connection: Connection, project_id: int, name: str) -> Row[Any]:
    """An algorithm of a project. NotFound where there is none, with the nearest names."""
    mine = algorithms.c.project_id == project_id
    row = connection.execute(select(algorithms).where(mine, algorithms.c.name == name)).first()
    if row is None:
        near = nearest(name, connection.execute(select(algorithms.c.name).where(mine)).scalars())
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise NotFound(
            f"the project has no algorithm {name!r}{hint}", subject=f"algorithm {name}", remedy="GET .../algorithms"
        )
    return row


def list_algorithms(connection: Connection, project_id: int) -> list[Version]:
    """The algorithms of a project with their current versions, by name."""
    query = _query().where(algorithms.c.project_id == project_id, versions.c.version == algorithms.c.current)
    return [_version(row) for row in connection.execute(query.order_by(algorithms.c.name))]


def list_versions(connection: Connection, project_id: int, name: str) -> list[Version]:
    """Every version of an algorithm, newest first. NotFound where there is no such algorithm."""
    row = algorithm(connection, project_id, name)
    query = _query().where(algorithms.c.id == row.id).order_by(versions.c.version.desc())
    return [_version(item) for item in connection.execute(query)]


def version(connection: Connection, project_id: int, name: str, number: int | None = None) -> Version:
    """One version of an algorithm, by default the current one.

    Raises:
        NotFound: no such algorithm or version.
        IsthmusError: what is kept is not what was written.
    """
    found = connection.execute(_VERSION, {"project": project_id, "name": name, "number": number}).first()
    if found is None:
        current = algorithm(connection, project_id, name).current
        raise NotFound(
            f"algorithm {name} has no version {number}; the current one is {current}",
            subject=f"algorithm {name}",
            remedy=f"use version {current}, or GET .../algorithms/{name}/versions",
        )
    return _version(found)


def usable(found: Version) -> Version:
    """The same version, where it may be used for a new run. Refused for a deprecated algorithm."""
    if found.deprecated is not None:
        raise Refused(
            f"algorithm {found.algorithm} has been deprecated since {found.deprecated:%Y-%m-%d}",
            subject=f"algorithm {found.algorithm}",
            remedy="use another one: GET .../algorithms; a maintainer can restore it",
        )
    return found


def _add(
    connection: Connection,
    algorithm_id: int,
    number: int,
    user_id: int,
    mapping: AlgorithmMapping,
    note: str,
    now: datetime,
) -> bool:
    document = mapping.model_dump(mode="json")
    made = connection.execute(
        upsert(connection.dialect.name, versions)
        .values(
            algorithm_id=algorithm_id,
            version=number,
            mapping=document,
            digest=digest(document),
            note=note,
            created=now,
            created_by=user_id,
        )
        .on_conflict_do_nothing()
        .returning(versions.c.version)
    )
    return made.scalar() is not None


def _query() -> Any:
    return (
        select(versions, algorithms.c.name, algorithms.c.current, algorithms.c.deprecated, users.c.name.label("author"))
        .join(algorithms, algorithms.c.id == versions.c.algorithm_id)
        .join(users, users.c.id == versions.c.created_by)
    )


def _version(row: Any) -> Version:
    if digest(row.mapping) != row.digest:
        raise IsthmusError(
            f"version {row.version} of {row.name} is not as it was written: its digest differs",
            subject=f"algorithm {row.name}",
            remedy="restore the database from a back-up, or add a new version",
        )
    return Version(
        row.algorithm_id, row.name, row.version, AlgorithmMapping.model_validate(row.mapping), row.digest, row.note, row.created, row.author,
        row.version == row.current, row.deprecated,
    )  # fmt: skip


_VERSION = _query().where(
    algorithms.c.project_id == bindparam("project"),
    algorithms.c.name == bindparam("name"),
    versions.c.version == func.coalesce(bindparam("number", type_=Integer), algorithms.c.current),
)
"""Built once, as of access."""
