"""A service in one process: a real database file, the real application, and a platform that keeps what it was asked."""

import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event

from isthmus.billing.budgets import Amount, Standing
from isthmus.service import app as application
from isthmus.service import credentials, directory, registry
from isthmus.service.client import Client
from isthmus.service.context import Service
from isthmus.service.credentials import Keys
from isthmus.service.database import Database
from isthmus.service.limits import Rates
from isthmus.service.mappings import AlgorithmMapping
from isthmus.service.model import Order, Role, RunState, Seen
from isthmus.service.platform import LogLine, Place
from isthmus.service.submissions import Limits, Submissions
from isthmus.service.worker import Worker
from isthmus.specs.errors import IsthmusError
from tests.postgresql import PostgreSQL, server

MAPPING: dict[str, Any] = {
    "parameters": {
        "epochs": {"type": "integer", "default": 3, "minimum": 1, "maximum": 100},
        "lr": {"type": "number", "default": 0.1, "minimum": 0.0001, "maximum": 1},
        "optimizer": {"type": "choice", "choices": ["sgd", "adam"], "default": "sgd"},
        "workers": {"type": "integer", "default": 3, "minimum": 1, "maximum": 7},
    },
    "workload": {
        "kind": "PyTorchJob",
        "image": "docker.io/isthmus/torch:1.13.1",
        "command": ["python3", "/opt/isthmus/ddp_digits.py", "--optimizer={optimizer}"],
        "env": {"EPOCHS": "{epochs}", "LR": "{lr}"},
        "roles": {"Master": {"replicas": 1}, "Worker": {"replicas": "{workers}"}},
        "volumes": [{"name": "out", "size": "1Gi", "mountPath": "/out", "role": "Master"}],
    },
}


@dataclass
class Recorder:
    """A platform in memory: two stacks, and every call by its run's id."""

    jobs: dict[str, Order] = field(default_factory=dict)
    submitted: list[str] = field(default_factory=list)
    """Ids in the order in which jobs were made: one that is there twice is a run that ran twice."""
    asked: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    shows: dict[str, Seen] = field(default_factory=dict)
    fault: Exception | None = None
    over_budget: IsthmusError | None = None
    printed: list[LogLine] = field(default_factory=list)

    def places(self) -> list[Place]:
        return [
            Place("aws-sim", "aws", "us-east-1", "simulated", {"T4": 4}),
            Place("gcp-sim", "gcp", "us-central1", "simulated", {"T4": 4}),
        ]

    def forecast(self, order: Order) -> Amount:
        from decimal import Decimal

        return Amount(Decimal("1.5"), Decimal(order.spec.gpus))

    def check_budgets(self, order: Order, *, queued: Callable[[], Amount], now: datetime) -> None:
        if self.over_budget is not None:
            raise self.over_budget

    def budgets(self, *, project: str, now: datetime) -> list[Standing]:
        return []

    def submit(self, order: Order) -> None:
        self.asked.append(order.id)
        if self.fault is not None:
            raise self.fault
        if order.id not in self.submitted:
            self.jobs[order.id] = order
            self.submitted.append(order.id)

    def look(self, order: Order) -> Seen:
        if self.fault is not None:
            raise self.fault
        return self.shows.get(order.id, Seen(RunState.PENDING))

    def cancel(self, order: Order) -> RunState:
        if self.fault is not None:
            raise self.fault
        self.jobs.pop(order.id, None)
        self.cancelled.append(order.id)
        return RunState.CANCELLED

    def changes(self, stack: str, stop: threading.Event) -> Iterator[str]:
        yield from ()

    def logs(self, order: Order, *, role: str | None, rank: int | None, follow: bool) -> Iterator[LogLine]:
        yield from self.printed

    def artefacts(self, order: Order) -> list[dict[str, Any]]:
        volume = {"role": "Master", "path": "/out", "size": "1Gi", "namespace": order.namespace, "present": True}
        return [{"volume": f"{order.spec.name}-{order.id}-out", **volume}]


@dataclass
class Time:
    """A clock that tests move."""

    now: datetime = datetime(2026, 11, 30, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return self.now.timestamp()

    def pass_(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class House:
    """A whole service with two projects, `vision` and `speech`, and a user for each role."""

    database: Database
    platform: Recorder
    time: Time
    service: Service
    keys: dict[str, str]
    """API key by user: admin; viewer, member, maintainer of vision; stranger, a maintainer of speech."""
    http: TestClient

    def client(self, user: str = "member") -> Client:
        """The typed client of a user."""
        return Client("http://testserver", self.keys[user], http=self.http, sleep=lambda seconds: None)  # type: ignore[arg-type]

    def ask(self, method: str, path: str, user: str | None = "member", **more: Any) -> Any:
        """One request as a user (None: nobody)."""
        headers = dict(more.pop("headers", {}))
        if user is not None:
            headers["Authorization"] = f"Bearer {self.keys[user]}"
        return self.http.request(method, path, headers=headers, **more)

    def submit(self, user: str = "member", project: str = "vision", **more: Any) -> str:
        """Queue a run, return its id."""
        body = {"algorithm": "digits", "stack": "aws-sim"} | more
        answer = self.ask("POST", f"/v1/projects/{project}/runs", user, json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def worker(self, **more: Any) -> Worker:
        return Worker(self.database, self.platform, ("aws-sim", "gcp-sim"), **more)

    def run(self, identity: str, project: str = "vision") -> Any:
        return self.ask("GET", f"/v1/projects/{project}/runs/{identity}", "admin").json()


ROLES = {"viewer": Role.VIEWER, "member": Role.MEMBER, "maintainer": Role.MAINTAINER}

MakeHouse = Callable[..., House]


def furnish(database: Database, now: datetime) -> dict[str, str]:
    """Users, projects and an algorithm; returns an API key for each user."""
    keys = {}
    with database.write() as connection:
        users = {
            name: directory.create_user(connection, name, now=now, administrator=name == "admin")
            for name in ("admin", *ROLES, "stranger")
        }
        for name, identity in users.items():
            keys[name], _ = credentials.create(connection, identity, "test", now=now)
        for project in ("vision", "speech"):
            number = directory.create_project(
                connection, project, namespace="isthmus-runs", clouds=(), weight=1.0, now=now
            )
            mapping = AlgorithmMapping.model_validate(MAPPING)
            registry.create(connection, number, users["admin"], "digits", mapping, note="first", now=now)
            for name, role in ROLES.items():
                if project == "vision":
                    directory.set_member(connection, number, name, role)
            if project == "speech":
                directory.set_member(connection, number, "stranger", Role.MAINTAINER)
    return keys


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A database that is furnished, to be copied for each test, and its users' keys."""
    path = tmp_path_factory.mktemp("furnished") / "service.db"
    database = Database(f"sqlite:///{path}")
    database.migrate()
    keys = furnish(database, Time().now)
    with database.engine.connect() as connection:
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    return path, keys


@pytest.fixture
def make_house(tmp_path: Path, furnished: tuple[Path, dict[str, str]]) -> Iterator[MakeHouse]:
    opened: list[Database] = []

    def make(url: str | None = None, *, limits: Limits | None = None, rates: Rates | None = None) -> House:
        time = Time()
        keys = dict(furnished[1])
        if url is None:
            shutil.copy(furnished[0], tmp_path / "service.db")
            database = Database(f"sqlite:///{tmp_path}/service.db", clock=time)
            # A killed process loses nothing by it, only a machine would; and tests need not wait for the disk.
            event.listen(database.engine, "connect", lambda raw, record: raw.execute("PRAGMA synchronous = OFF"))
        else:
            database = Database(url, clock=time)
            database.migrate()
            keys = furnish(database, time.now)
        opened.append(database)
        platform = Recorder()
        service = Service(
            database,
            platform,
            Submissions(database, platform, limits or Limits()),
            Keys(database, clock=time.monotonic),
            None,
            rates or Rates(1e6, 1e6),
        )
        app = application.create(service)
        return House(database, platform, time, service, keys, TestClient(app, raise_server_exceptions=False))

    yield make
    for database in opened:
        database.close()


@pytest.fixture
def house(make_house: MakeHouse) -> House:
    return make_house()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL | None]:
    """A PostgreSQL server for the session, or None where its programs are not on this machine."""
    with server() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/other.db"
    running: PostgreSQL | None = request.getfixturevalue("postgresql")
    if running is None:
        pytest.skip("no PostgreSQL on this machine")
    return running.new_database()
