"""Runs the service: the HTTP server and the worker's threads in one process, and an end that loses nothing.

On SIGTERM no new request is taken, those that are being answered are finished, the worker ends its step and gives its
leases back. After a kill -9 the leases end by themselves.
"""

import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import uvicorn
from fastapi import FastAPI

from isthmus.service import app as application
from isthmus.service import audit, credentials, directory
from isthmus.service.context import Service
from isthmus.service.credentials import Keys
from isthmus.service.database import Database
from isthmus.service.limits import Rates
from isthmus.service.platform import Platform
from isthmus.service.submissions import Limits, Submissions
from isthmus.service.tokens import Issuer, Tokens
from isthmus.service.worker import Threads, Worker
from isthmus.specs.errors import Refused

STOP_SECONDS = 20
"""How long requests and the worker's step may take to end."""

IDLE_SECONDS = 30
"""How long a connection may be idle."""

FIRST_KEY_LABEL = "first key"


@dataclass(frozen=True)
class Settings:
    """How a service is run."""

    host: str = "127.0.0.1"
    port: int = 8080
    issuer: str = ""
    audience: str = "isthmus"
    requests_per_second: float = 100.0
    limits: Limits = field(default_factory=Limits)
    most_active: int = 100
    """Runs that a stack may have at once; the others wait in the queue."""
    works: bool = True
    """False: only the API, the queue is left to other services on the same database."""


def build(database: Database, platform: Platform, settings: Settings) -> tuple[FastAPI, Threads | None]:
    """The application and its worker, neither started."""
    threads = None
    if settings.works:
        stacks = tuple(place.name for place in platform.places())
        threads = Threads(Worker(database, platform, stacks, settings.most_active))
    rates = Rates(settings.requests_per_second, 2 * settings.requests_per_second)
    tokens = Tokens(database, Issuer(settings.issuer, settings.audience)) if settings.issuer else None
    service = Service(
        database, platform, Submissions(database, platform, settings.limits), Keys(database), tokens, rates
    )
    if threads is not None:
        service.wake = threads.wake

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if threads is not None:
            threads.start()
        yield
        if threads is not None:
            threads.stop(seconds=STOP_SECONDS)
        database.close()

    return application.create(service, lifespan=lifespan), threads


def serve(database: Database, platform: Platform, settings: Settings) -> None:
    """Run until SIGTERM or SIGINT."""
    log_as_json()
    app, _ = build(database, platform, settings)
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        limit_concurrency=500,
    )


def first_administrator(database: Database, name: str) -> str:
    """Make the first user, an administrator, and return an API key of theirs.

    Raises:
        Refused: there are users already.
    """
    with database.write() as connection:
        if directory.list_users(connection):
            raise Refused(
                "the service has users already: its administrators make more",
                subject=database.shown,
                remedy="POST /v1/users with an administrator's key",
            )
        now = database.now(connection)
        identity = directory.create_user(connection, name, now=now, administrator=True)
        key, _ = credentials.create(connection, identity, FIRST_KEY_LABEL, now=now)
        audit.write(connection, now=now, user=name, action="create user", what=f"user {name}", details={"first": True})
    return key


class _Json(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and what the caller gave besides (the run's id)."""

    _OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in self._OWN},
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_as_json() -> None:
    """Log to standard error, for a collector to take."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
