"""The caller, API keys, users, stacks, and the audit of everything."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from isthmus.service import audit, credentials, directory, schemas
from isthmus.service.context import Asking, Caller
from isthmus.service.model import Role

router = APIRouter(prefix="/v1", tags=["users"])

UserName = Annotated[str, Path(pattern=schemas.USER_NAME)]
KeyId = Annotated[str, Path(pattern="^[0-9a-f]{12}$")]
Limit = Annotated[int, Query(ge=1, le=500)]
Before = Annotated[int | None, Query(ge=1, le=2**31 - 1)]


@router.get("/me", operation_id="whoAmI")
def who_am_i(asking: Asking) -> schemas.Me:
    """The caller and the projects that they belong to."""
    with asking.read() as connection:
        rows = directory.list_projects(connection, asking.principal)
    mine = [schemas.Membership(project=row.name, role=role_name(row.role)) for row in rows if row.role is not None]
    return schemas.Me(name=asking.principal.name, administrator=asking.principal.administrator, projects=mine)


@router.get("/me/keys", operation_id="listKeys")
def list_keys(asking: Asking) -> list[schemas.Key]:
    """The caller's API keys; the keys themselves cannot be had again."""
    with asking.read() as connection:
        return [schemas.Key(**vars(key)) for key in credentials.of_user(connection, asking.principal.user_id)]


@router.post("/me/keys", operation_id="createKey", status_code=201)
def create_key(asking: Asking, body: schemas.NewKey) -> schemas.SecretKey:
    """Another API key for the caller."""
    return _create_key(asking, asking.principal.user_id, asking.principal.name, body)


@router.delete("/me/keys/{key}", operation_id="revokeKey", status_code=204)
def revoke_key(asking: Asking, key: KeyId) -> Response:
    """Revoke one of the caller's keys."""
    with asking.change("revoke key", f"key {key}") as change:
        credentials.revoke(change.connection, asking.principal.user_id, key, now=change.now)
    asking.service.keys.forget()
    return Response(status_code=204)


@router.get("/stacks", operation_id="listStacks", tags=["stacks"])
def list_stacks(asking: Asking) -> list[schemas.Stack]:
    """The stacks that runs may be sent to."""
    return [
        schemas.Stack(name=item.name, cloud=item.cloud, region=item.region, mode=item.mode)
        for item in asking.service.platform.places()
    ]


@router.get("/users", operation_id="listUsers")
def list_users(asking: Asking) -> list[schemas.User]:
    """Every user."""
    with asking.read() as connection:
        return [schemas.User(**_user(row)) for row in directory.list_users(connection)]


@router.post("/users", operation_id="createUser", status_code=201)
def create_user(asking: Asking, body: schemas.NewUser) -> schemas.User:
    """Add a user."""
    with asking.change("create user", f"user {body.name}", administrator=body.administrator) as change:
        directory.create_user(change.connection, now=change.now, **body.model_dump())
        return schemas.User(**_user(directory.user(change.connection, body.name)))


@router.post("/users/{user}:disable", operation_id="disableUser")
def disable_user(asking: Asking, user: UserName) -> schemas.User:
    """Their keys and tokens count no longer; what they made stays."""
    with asking.change("disable user", f"user {user}") as change:
        directory.set_disabled(change.connection, user, at=change.now)
        shown = schemas.User(**_user(directory.user(change.connection, user)))
    asking.service.keys.forget()
    return shown


@router.post("/users/{user}:enable", operation_id="enableUser")
def enable_user(asking: Asking, user: UserName) -> schemas.User:
    """Undo disable."""
    with asking.change("enable user", f"user {user}") as change:
        directory.set_disabled(change.connection, user, at=None)
        return schemas.User(**_user(directory.user(change.connection, user)))


@router.post("/users/{user}/keys", operation_id="createKeyFor", status_code=201)
def create_key_for(asking: Asking, user: UserName, body: schemas.NewKey) -> schemas.SecretKey:
    """An API key for somebody, to hand over."""
    with asking.read() as connection:
        row = directory.user(connection, user)
    return _create_key(asking, row.id, user, body)


@router.get("/audit", operation_id="readAudit", tags=["operations"])
def read_audit(asking: Asking, limit: Limit = 100, before: Before = None) -> list[schemas.AuditEntry]:
    """Who changed what, newest first."""
    with asking.read() as connection:
        return [schemas.AuditEntry(**item) for item in audit.read(connection, limit=limit, before=before)]


def role_name(number: int) -> schemas.RoleName:
    """A role as the API names it."""
    return Role(number).name.lower()  # type: ignore[return-value]


def _create_key(asking: Caller, user_id: int, user: str, body: schemas.NewKey) -> schemas.SecretKey:
    with asking.change("create key", f"user {user}", label=body.label) as change:
        expires = None if body.days is None else change.now + timedelta(days=body.days)
        secret, key = credentials.create(change.connection, user_id, body.label, now=change.now, expires=expires)
    return schemas.SecretKey(key=secret, **vars(key))


def _user(row: object) -> dict[str, object]:
    names = ("name", "administrator", "issuer", "subject", "disabled", "created")
    return {name: getattr(row, name) for name in names}
