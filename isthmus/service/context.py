"""What every route needs: who asks, which operation it is, and what the application holds."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request
from sqlalchemy import Connection

from isthmus.service import access, audit
from isthmus.service.access import NEEDS, Need
from isthmus.service.credentials import Keys, is_key
from isthmus.service.database import Database
from isthmus.service.limits import Rates
from isthmus.service.model import Principal, Project, Role, Unauthenticated
from isthmus.service.platform import Platform
from isthmus.service.problems import request_id
from isthmus.service.submissions import Submissions
from isthmus.service.tokens import Tokens


@dataclass
class Service:
    """Everything that the application is made of."""

    database: Database
    platform: Platform
    submissions: Submissions
    keys: Keys
    tokens: Tokens | None = None
    rates: Rates = field(default_factory=Rates)
    wake: Any = field(default=lambda: None)
    """Called when there is something new for the worker."""


@dataclass(frozen=True)
class Caller:
    """One request: who asks for which operation."""

    service: Service
    principal: Principal
    need: Need
    request_id: str

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A reading transaction."""
        with self.service.database.read() as connection:
            yield connection

    @contextmanager
    def change(self, action: str, what: str, *, project: str | None = None, **details: Any) -> Iterator["Change"]:
        """A writing transaction for one change, which is allowed, made and written into the audit, or none of it."""
        with self.service.database.write() as connection:
            now = self.service.database.now(connection)
            where = None
            if project is not None:
                where, _ = access.project(connection, self.principal, project, self.need)
            yield Change(connection, now, where)
            audit.write(
                connection,
                now=now,
                user=self.principal.name,
                project_id=where.id if where else None,
                action=action,
                what=what,
                request_id=self.request_id,
                details=details,
            )

    def project(self, connection: Connection, name: str) -> tuple[Project, Role]:
        """A project as this caller may see it for this operation."""
        return access.project(connection, self.principal, name, self.need)


@dataclass(frozen=True)
class Change:
    """What one change works with."""

    connection: Connection
    now: Any
    where: Project | None

    @property
    def project(self) -> Project:
        """The project that the change is made in."""
        assert self.where is not None  # the route named one
        return self.where


def service_of(request: Request) -> Service:
    """The application's service."""
    service: Service = request.app.state.service
    return service


def caller(request: Request) -> Caller:
    """Who asks. Every route but the public ones depends on this.

    Raises:
        Unauthenticated: no good key or token. Forbidden: it takes an administrator. TooManyRequests.
    """
    service = service_of(request)
    need = NEEDS[request.scope["route"].operation_id]
    principal = _principal(service, request.headers.get("authorization", ""))
    service.rates.take(principal.name)
    access.check(need, principal)
    return Caller(service, principal, need, request_id(request))


def _principal(service: Service, header: str) -> Principal:
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise Unauthenticated(
            "the request carries no key or token",
            remedy="send Authorization: Bearer KEY; a maintainer or administrator gives you one",
        )
    if is_key(token):
        return service.keys.principal(token)
    if service.tokens is None:
        raise Unauthenticated(
            "this is no API key, and the service trusts no identity provider", remedy="use an API key (isk_...)"
        )
    return service.tokens.principal(token)


Asking = Annotated[Caller, Depends(caller)]
Served = Annotated[Service, Depends(service_of)]
