"""Projects, who belongs to them, their audit, budgets and execution metrics."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response

from isthmus.service import audit, directory, schemas, views
from isthmus.service.context import Asking, Caller
from isthmus.service.model import ROLES
from isthmus.service.routes.account import Before, Limit, UserName, role_name
from isthmus.specs import labels

router = APIRouter(prefix="/v1/projects", tags=["projects"])

ProjectName = Annotated[str, Path(pattern=schemas.PROJECT_NAME)]
Since = Annotated[datetime | None, Query()]


@router.get("", operation_id="listProjects")
def list_projects(asking: Asking) -> list[schemas.Project]:
    """The projects that the caller belongs to; for an administrator, all."""
    with asking.read() as connection:
        return [_project(row) for row in directory.list_projects(connection, asking.principal)]


@router.post("", operation_id="createProject", status_code=201)
def create_project(asking: Asking, body: schemas.NewProject) -> schemas.Project:
    """Add a project. Nobody belongs to it yet."""
    with asking.change("create project", f"project {body.name}") as change:
        directory.create_project(
            change.connection, body.name, namespace=labels.RUNS_NAMESPACE, clouds=body.clouds, weight=body.weight,
            now=change.now,
        )  # fmt: skip
    return _get(asking, body.name)


@router.get("/{project}", operation_id="getProject")
def get_project(asking: Asking, project: ProjectName) -> schemas.Project:
    """One project."""
    return _get(asking, project)


@router.patch("/{project}", operation_id="changeProject")
def change_project(asking: Asking, project: ProjectName, body: schemas.ProjectChange) -> schemas.Project:
    """Change where its data may be, or its weight; what is null stays."""
    details = body.model_dump(exclude_none=True)
    with asking.change("change project", f"project {project}", project=project, **details) as change:
        directory.change_project(change.connection, change.project.id, **body.model_dump())
    return _get(asking, project)


@router.get("/{project}/members", operation_id="listMembers")
def list_members(asking: Asking, project: ProjectName) -> list[schemas.Member]:
    """Who belongs to it, with their roles."""
    with asking.read() as connection:
        where, _ = asking.project(connection, project)
        rows = directory.list_members(connection, where.id)
    return [schemas.Member(user=row.name, role=role_name(row.role)) for row in rows]


@router.put("/{project}/members/{user}", operation_id="setMember")
def set_member(asking: Asking, project: ProjectName, user: UserName, body: schemas.RoleOf) -> schemas.Member:
    """Give a user a role, instead of the one they had."""
    with asking.change("set member", f"user {user}", project=project, role=body.role) as change:
        directory.set_member(change.connection, change.project.id, user, ROLES[body.role])
    return schemas.Member(user=user, role=body.role)


@router.delete("/{project}/members/{user}", operation_id="removeMember", status_code=204)
def remove_member(asking: Asking, project: ProjectName, user: UserName) -> Response:
    """Take a user out of the project; their runs stay."""
    with asking.change("remove member", f"user {user}", project=project) as change:
        directory.remove_member(change.connection, change.project.id, user)
    return Response(status_code=204)


@router.get("/{project}/audit", operation_id="readProjectAudit")
def read_audit(
    asking: Asking, project: ProjectName, limit: Limit = 100, before: Before = None
) -> list[schemas.AuditEntry]:
    """Who changed what in the project, newest first."""
    with asking.read() as connection:
        where, _ = asking.project(connection, project)
        found = audit.read(connection, project_id=where.id, limit=limit, before=before)
    return [schemas.AuditEntry(**item) for item in found]


@router.get("/{project}/statistics", operation_id="getStatistics")
def get_statistics(
    asking: Asking,
    project: ProjectName,
    by: Literal["user", "project", "algorithm", "gpu_model", "stack"] = "algorithm",
    since: Since = None,
) -> list[schemas.Statistic]:
    """Execution metrics of the project's runs in groups."""
    with asking.read() as connection:
        where, _ = asking.project(connection, project)
        return views.statistics(connection, where, by, asking.service.platform.places(), since=since)


@router.get("/{project}/budgets", operation_id="getBudgets")
def get_budgets(asking: Asking, project: ProjectName) -> list[schemas.Budget]:
    """The project's budgets, and what has been used of each in its period."""
    with asking.read() as connection:
        asking.project(connection, project)
        now = asking.service.database.now(connection)
    return [
        schemas.Budget(
            whose=f"{item.budget.kind} {item.budget.name}",
            period=item.budget.period,
            usd=None if item.budget.usd is None else str(item.budget.usd),
            usd_used=None if item.spent.usd is None else f"{item.spent.usd:.4f}",
            gpu_hours=None if item.budget.gpu_hours is None else str(item.budget.gpu_hours),
            gpu_hours_used=f"{item.spent.gpu_hours:.4f}",
            source="simulated" if item.budget.simulated else "measured",
        )
        for item in asking.service.platform.budgets(project=project, now=now)
    ]


def _get(asking: Caller, name: str) -> schemas.Project:
    with asking.read() as connection:
        asking.project(connection, name)
        [row] = [row for row in directory.list_projects(connection, asking.principal) if row.name == name]
    return _project(row)


def _project(row: object) -> schemas.Project:
    fields = {name: getattr(row, name) for name in ("name", "namespace", "clouds", "weight", "created")}
    role = getattr(row, "role")  # noqa: B009 - a column of the query
    return schemas.Project(role=None if role is None else role_name(role), **fields)
