"""Users, projects and who belongs to which. Every function works in its caller's transaction."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from isthmus.service.database import upsert
from isthmus.service.model import Conflict, Principal, Role
from isthmus.service.tables import members, projects, users
from isthmus.specs.errors import NotFound, Refused


def create_user(
    connection: Connection,
    name: str,
    *,
    now: datetime,
    administrator: bool = False,
    issuer: str = "",
    subject: str = "",
) -> int:
    """Add a user and return their id.

    Raises:
        Conflict: the name, or the person at the identity provider, is taken.
    """
    if (
        subject
        and connection.execute(select(users.c.id).where(users.c.issuer == issuer, users.c.subject == subject)).first()
    ):
        raise Conflict(
            f"another user is {subject!r} of {issuer} already", subject=f"user {name}", remedy="GET /v1/users"
        )
    values = {"name": name, "administrator": administrator, "issuer": issuer, "subject": subject, "created": now}
    return _insert(connection, users, values, f"user {name}", "GET /v1/users")


def list_users(connection: Connection) -> list[Row[Any]]:
    """Every user, by name."""
    return list(connection.execute(select(users).order_by(users.c.name)))


def user(connection: Connection, name: str) -> Row[Any]:
    """A user by name. NotFound where there is none."""
    row = connection.execute(select(users).where(users.c.name == name)).first()
    if row is None:
        raise NotFound(f"there is no user {name!r}", subject=f"user {name}", remedy="GET /v1/users")
    return row


def set_disabled(connection: Connection, name: str, *, at: datetime | None) -> None:
    """Disable a user (their keys and tokens count no longer) or enable them again.

    Raises:
        Refused: nobody would be left to administer the service.
    """
    row = user(connection, name)
    if at is not None and row.administrator:
        others = select(users.c.id).where(
            users.c.administrator.is_(True), users.c.disabled.is_(None), users.c.id != row.id
        )
        if connection.execute(others).first() is None:
            raise Refused(
                f"{name} is the last administrator",
                subject=f"user {name}",
                remedy="make another one first: POST /v1/users",
            )
    connection.execute(update(users).where(users.c.id == row.id).values(disabled=at))


def create_project(
    connection: Connection, name: str, *, namespace: str, clouds: Iterable[str], weight: float, now: datetime
) -> int:
    """Add a project and return its id. Conflict where the name is taken."""
    values = {"name": name, "namespace": namespace, "clouds": list(clouds), "weight": weight, "created": now}
    return _insert(connection, projects, values, f"project {name}", "GET /v1/projects")


def change_project(connection: Connection, identity: int, **values: Any) -> None:
    """Change a project's clouds or weight; what is None stays."""
    given = {key: value for key, value in values.items() if value is not None}
    if given:
        connection.execute(update(projects).where(projects.c.id == identity).values(**given))


def list_projects(connection: Connection, principal: Principal) -> list[Row[Any]]:
    """The projects that a user belongs to with their role, or all (role None where an administrator does not)."""
    join = (members.c.project_id == projects.c.id) & (members.c.user_id == principal.user_id)
    query = select(projects, members.c.role).outerjoin(members, join).order_by(projects.c.name)
    if not principal.administrator:
        query = query.where(members.c.role.is_not(None))
    return list(connection.execute(query))


def list_members(connection: Connection, project_id: int) -> list[Row[Any]]:
    """Who belongs to a project, by name."""
    return list(
        connection.execute(
            select(users.c.name, members.c.role)
            .join(users, users.c.id == members.c.user_id)
            .where(members.c.project_id == project_id)
            .order_by(users.c.name)
        )
    )


def set_member(connection: Connection, project_id: int, name: str, role: Role) -> None:
    """Give a user a role in a project, instead of the one they had. NotFound for an unknown user."""
    row = user(connection, name)
    mine = (members.c.project_id == project_id) & (members.c.user_id == row.id)
    if connection.execute(update(members).where(mine).values(role=int(role))).rowcount == 0:
        connection.execute(insert(members).values(project_id=project_id, user_id=row.id, role=int(role)))


def remove_member(connection: Connection, project_id: int, name: str) -> None:
    """Take a user out of a project. NotFound where they are not in it."""
    row = user(connection, name)
    gone = connection.execute(delete(members).where(members.c.project_id == project_id, members.c.user_id == row.id))
    if gone.rowcount == 0:
        raise NotFound(f"{name} does not belong to the project", subject=f"user {name}", remedy="GET .../members")


def _insert(connection: Connection, table: Any, values: dict[str, Any], what: str, remedy: str) -> int:
    made = connection.execute(
        upsert(connection.dialect.name, table).values(**values).on_conflict_do_nothing().returning(table.c.id)
    ).scalar()
    if made is None:
        raise Conflict(f"there is a {what} already", subject=what, remedy=remedy)
    return int(made)
