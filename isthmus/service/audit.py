"""Who did what: one row for each change, written in the transaction that makes it, so that neither is without the other."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select

from isthmus.service.tables import audit, projects

_WRITE = insert(audit)


def write(
    connection: Connection,
    *,
    now: datetime,
    user: str,
    action: str,
    what: str,
    project_id: int | None = None,
    request_id: str = "",
    details: Mapping[str, Any] | None = None,
) -> None:
    """Write down a change. `what` names the object; secrets never go into `details`."""
    connection.execute(
        _WRITE,
        {
            "at": now,
            "user_name": user,
            "project_id": project_id,
            "action": action,
            "object": what,
            "request_id": request_id,
            "details": dict(details or {}),
        },
    )


def read(
    connection: Connection, *, project_id: int | None = None, limit: int, before: int | None
) -> list[dict[str, Any]]:
    """Entries, newest first; of one project or of all."""
    query = (
        select(audit, projects.c.name.label("project"))
        .outerjoin(projects, projects.c.id == audit.c.project_id)
        .order_by(audit.c.id.desc())
        .limit(limit)
    )
    if project_id is not None:
        query = query.where(audit.c.project_id == project_id)
    if before is not None:
        query = query.where(audit.c.id < before)
    return [
        {
            "id": row.id,
            "at": row.at,
            "user": row.user_name,
            "project": row.project,
            "action": row.action,
            "object": row.object,
            "request_id": row.request_id,
            "details": row.details,
        }
        for row in connection.execute(query)
    ]
