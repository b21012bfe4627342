"""Who may do what: one table of every operation of the API, and the one place that asks it.

An operation that is not in NEEDS cannot be served: the application refuses to start. A project that a user does not
belong to is not there for them (404), so nobody learns the names of others' projects.
"""

from enum import Enum

from sqlalchemy import Connection, bindparam, select

from isthmus.service.model import Forbidden, Principal, Project, Role
from isthmus.service.tables import members, projects
from isthmus.specs.errors import NotFound


class Need(Enum):
    """What an operation asks of its caller."""

    NOTHING = "nobody in particular"
    USER = "any user"
    VIEWER = "viewer"
    MEMBER = "member"
    MAINTAINER = "maintainer"
    ADMINISTRATOR = "administrator"


NEEDS: dict[str, Need] = {
    "health": Need.NOTHING,
    "ready": Need.NOTHING,
    "prometheus": Need.ADMINISTRATOR,
    "whoAmI": Need.USER,
    "listKeys": Need.USER,
    "createKey": Need.USER,
    "revokeKey": Need.USER,
    "listStacks": Need.USER,
    "listUsers": Need.ADMINISTRATOR,
    "createUser": Need.ADMINISTRATOR,
    "disableUser": Need.ADMINISTRATOR,
    "enableUser": Need.ADMINISTRATOR,
    "createKeyFor": Need.ADMINISTRATOR,
    "readAudit": Need.ADMINISTRATOR,
    "listProjects": Need.USER,
    "createProject": Need.ADMINISTRATOR,
    "getProject": Need.VIEWER,
    "changeProject": Need.ADMINISTRATOR,
    "listMembers": Need.VIEWER,
    "setMember": Need.MAINTAINER,
    "removeMember": Need.MAINTAINER,
    "readProjectAudit": Need.MAINTAINER,
    "getStatistics": Need.VIEWER,
    "getBudgets": Need.VIEWER,
    "listAlgorithms": Need.VIEWER,
    "getAlgorithm": Need.VIEWER,
    "listVersions": Need.VIEWER,
    "getVersion": Need.VIEWER,
    "createAlgorithmMapping": Need.MAINTAINER,
    "updateAlgorithmVersion": Need.MAINTAINER,
    "rollBackAlgorithm": Need.MAINTAINER,
    "deprecateAlgorithm": Need.MAINTAINER,
    "restoreAlgorithm": Need.MAINTAINER,
    "listRuns": Need.VIEWER,
    "getRun": Need.VIEWER,
    "getMetrics": Need.VIEWER,
    "getLogs": Need.VIEWER,
    "listArtefacts": Need.VIEWER,
    "compareRuns": Need.VIEWER,
    "submitRun": Need.MEMBER,
    "cancelRun": Need.MEMBER,
    "retryRun": Need.MEMBER,
    "replayRun": Need.MEMBER,
}
"""By operationId. A member cancels their own runs, a maintainer anybody's (submissions.cancel)."""

_PROJECT = (
    select(projects, members.c.role)
    .outerjoin(members, (members.c.project_id == projects.c.id) & (members.c.user_id == bindparam("user")))
    .where(projects.c.name == bindparam("project"))
)
"""Built once: every request asks this, and SQLAlchemy takes longer to build a statement than SQLite to answer it."""

_ROLE = {Need.VIEWER: Role.VIEWER, Need.MEMBER: Role.MEMBER, Need.MAINTAINER: Role.MAINTAINER}


def check(need: Need, principal: Principal) -> None:
    """Check what does not depend on a project.

    Raises:
        Forbidden: it takes an administrator.
    """
    if need is Need.ADMINISTRATOR and not principal.administrator:
        raise Forbidden(
            "only an administrator may do this",
            subject=f"user {principal.name}",
            remedy="ask an administrator of the service",
        )


def project(connection: Connection, principal: Principal, name: str, need: Need) -> tuple[Project, Role]:
    """A project as its caller may see it, and the role that they have in it (an administrator's is the highest).

    Raises:
        NotFound: there is none such, or the caller does not belong to it.
        Forbidden: their role is too low.
    """
    row = connection.execute(_PROJECT, {"user": principal.user_id, "project": name}).first()
    if row is None or (row.role is None and not principal.administrator):
        raise NotFound(
            f"there is no project {name!r} that you belong to", subject=f"project {name}", remedy="GET /v1/projects"
        )
    check(need, principal)
    role = Role.MAINTAINER if principal.administrator else Role(row.role)
    needed = _ROLE.get(need, Role.VIEWER)
    if role < needed:
        raise Forbidden(
            f"this takes the role {needed.name.lower()} in the project, yours is {role.name.lower()}",
            subject=f"project {name}",
            remedy="ask a maintainer of the project: GET /v1/projects/" + name + "/members",
        )
    return Project(row.id, row.name, row.namespace, tuple(row.clouds)), role
