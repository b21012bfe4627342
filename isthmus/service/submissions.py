"""Runs as users ask for them: submit, retry, replay, cancel. What is asked for is in the database before anything else.

Checks that only read come first, then one transaction writes the run, its idempotency key and its audit entry: after a
kill -9 there is all of it or nothing. The same key sent again gives the run that it gave before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any

from sqlalchemy import Connection, Row, bindparam, case, func, or_, select, update

from isthmus.billing.budgets import NOTHING, Amount
from isthmus.kube.objects import digest
from isthmus.runs.store import new_id
from isthmus.service import access, audit, registry
from isthmus.service.access import Need
from isthmus.service.database import Database, upsert
from isthmus.service.mappings import fill
from isthmus.service.model import Conflict, Forbidden, Order, Principal, Project, QueueFull, Role, RunState
from isthmus.service.platform import Platform, check_residency, place
from isthmus.service.tables import algorithms, idempotency, projects, runs, users
from isthmus.specs.errors import InvalidSpec, NotFound, Refused
from isthmus.specs.workload import WorkloadSpec

PRIORITIES = {"low": -10, "normal": 0, "high": 10}
"""Within a project: who is first. Between projects it decides nothing, or one project's `high` would starve another."""


@dataclass(frozen=True)
class Limits:
    """How much may wait before the service says: later."""

    queued_of_project: int = 5_000
    queued: int = 20_000


@dataclass(frozen=True)
class Asked:
    """One request for a run."""

    algorithm: str
    version: int | None
    parameters: Mapping[str, Any]
    stack: str
    priority: str = "normal"
    simulated_seconds: float | None = None
    retry_of: str | None = None
    replay_of: str | None = None

    @property
    def digest(self) -> str:
        """Equal for equal requests."""
        return digest({**vars(self), "parameters": dict(self.parameters)})


@dataclass(frozen=True)
class Submissions:
    """What users do with runs."""

    database: Database
    platform: Platform
    limits: Limits = Limits()

    def submit(
        self, principal: Principal, project: str, asked: Asked, *, key: str | None = None, request_id: str = ""
    ) -> tuple[str, bool]:
        """Queue a run; returns its id and whether it is new (False: the key had been used for this very request).

        Raises:
            NotFound: no such project, algorithm or version. InvalidSpec: a parameter, or a key used for something else.
            Refused: deprecated, elsewhere than the data may be, or over a budget. QueueFull: too many wait.
        """
        with self.database.read() as connection:
            where, _ = access.project(connection, principal, project, Need.MEMBER)
            if key is not None and (known := _by_key(connection, principal, key, asked)) is not None:
                return known, False
            version = registry.version(connection, where.id, asked.algorithm, asked.version)
            if asked.retry_of is None and asked.replay_of is None:
                registry.usable(version)
            now = self.database.now(connection)
        check_residency(where.name, where.clouds, place(self.platform, asked.stack))
        values, spec = fill(asked.algorithm, version.mapping, asked.parameters)
        identity = new_id()
        order = Order(identity, spec, asked.stack, where.namespace, principal.name, where.name, asked.simulated_seconds)
        self.platform.check_budgets(order, queued=lambda: self._promised(principal, where), now=now)
        forecast = self.platform.forecast(order)
        with self.database.write() as connection:
            now = self.database.now(connection)
            if key is not None and (known := _keep_key(connection, principal, key, asked, identity, now)) is not None:
                return known, False
            self._check_room(connection, where)
            row = _row(order, asked, version, values, forecast)
            values_of = {"project_id": where.id, "user_id": principal.user_id, "created": now}
            made = connection.execute(_new_run(connection.dialect.name), values_of | row)
            if made.scalar() is None:
                raise Conflict("another run was given the same id a moment ago", remedy="send it again")
            action = "retry" if asked.retry_of else "replay" if asked.replay_of else "submit"
            audit.write(
                connection,
                now=now,
                user=principal.name,
                project_id=where.id,
                action=action,
                what=f"run {identity}",
                request_id=request_id,
                details={"algorithm": asked.algorithm, "version": version.version, "stack": asked.stack},
            )
        return identity, True

    def retry(self, principal: Principal, project: str, run: str, **more: Any) -> tuple[str, bool]:
        """Queue the same run again: same version, parameters and stack.

        Raises:
            Refused: it has not ended, or it succeeded.
        """
        row = self._find(principal, project, run)
        state = RunState(row.state)
        if not state.final or state is RunState.SUCCEEDED:
            raise Refused(
                f"run {run} is {state.value}: only a run that ended without success can be retried",
                subject=f"run {run}",
                remedy="submit it anew, or replay it"
                if state.final
                else f"cancel it first: POST .../runs/{run}:cancel",
            )
        return self.submit(principal, project, _again(row, retry_of=run), **more)

    def replay(self, principal: Principal, project: str, run: str, stack: str, **more: Any) -> tuple[str, bool]:
        """Queue the same run on another stack: same version and parameters."""
        row = self._find(principal, project, run)
        return self.submit(principal, project, _again(row, replay_of=run, stack=stack), **more)

    def cancel(self, principal: Principal, project: str, run: str, *, request_id: str = "") -> None:
        """Cancel a run: at once while it waits, else as soon as the worker has taken it out of its cluster. Asking again is
        fine.

        Raises:
            Refused: it has ended otherwise. Forbidden: it is somebody else's and the caller no maintainer.
        """
        with self.database.write() as connection:
            where, role = access.project(connection, principal, project, Need.MEMBER)
            row = find(connection, where.id, run)
            if row.user_id != principal.user_id and role < Role.MAINTAINER:
                raise Forbidden(
                    f"run {run} is {row.user}'s: only its user and maintainers cancel it",
                    subject=f"run {run}",
                    remedy=f"ask {row.user} or a maintainer",
                )
            state, now = RunState(row.state), self.database.now(connection)
            if state.final and state is not RunState.CANCELLED:
                raise Refused(
                    f"run {run} has already ended ({state.value})", subject=f"run {run}", remedy=f"GET .../runs/{run}"
                )
            if state is RunState.CANCELLED or row.cancel_asked is not None:
                return
            values: dict[str, Any] = {"cancel_asked": now}
            if state is RunState.QUEUED:
                values |= {
                    "state": RunState.CANCELLED,
                    "finished": now,
                    "reason": f"cancelled by {principal.name} before the cluster had it",
                }
            connection.execute(update(runs).where(runs.c.seq == row.seq).values(**values))
            audit.write(
                connection,
                now=now,
                user=principal.name,
                project_id=where.id,
                action="cancel",
                what=f"run {run}",
                request_id=request_id,
            )

    def _find(self, principal: Principal, project: str, run: str) -> Row[Any]:
        with self.database.read() as connection:
            where, _ = access.project(connection, principal, project, Need.MEMBER)
            return find(connection, where.id, run)

    def _promised(self, principal: Principal, project: Project) -> Amount:
        """What runs of this user or project are forecast to use that wait here, so that the clusters' own records lack them."""
        waiting = runs.c.state.in_([RunState.QUEUED, RunState.SUBMITTING])
        with self.database.read() as connection:
            rows = connection.execute(
                select(
                    func.sum(runs.c.forecast_usd),
                    func.sum(runs.c.forecast_gpu_hours),
                    func.count(),
                    func.count(runs.c.forecast_usd),
                ).where(waiting, or_(runs.c.user_id == principal.user_id, runs.c.project_id == project.id))
            ).one()
        usd, hours, count, priced = rows
        if not count:
            return NOTHING
        return Amount(Decimal(repr(usd)) if priced == count else None, Decimal(repr(hours)))

    def _check_room(self, connection: Connection, project: Project) -> None:
        everybody, own = connection.execute(_WAITING, {"project": project.id}).one()
        for count, limit, whose in (
            (own or 0, self.limits.queued_of_project, f"project {project.name}"),
            (everybody, self.limits.queued, "the service"),
        ):
            if count >= limit:
                raise QueueFull(
                    f"{count} runs of {whose} wait already, which is all that may",
                    subject=whose,
                    remedy="send it again later (see Retry-After), or cancel runs that wait",
                )


def find(connection: Connection, project_id: int, run: str) -> Row[Any]:
    """A run of a project with the names of its user, project and algorithm. NotFound where there is none."""
    row = connection.execute(_FIND, {"run": run, "project": project_id}).first()
    if row is None:
        raise NotFound(f"the project has no run {run!r}", subject=f"run {run}", remedy="GET .../runs")
    return row


def query() -> Any:
    """Runs with the names of whom and what they belong to."""
    return (
        select(
            runs,
            users.c.name.label("user"),
            projects.c.name.label("project"),
            algorithms.c.name.label("algorithm"),
        )
        .join(users, users.c.id == runs.c.user_id)
        .join(projects, projects.c.id == runs.c.project_id)
        .join(algorithms, algorithms.c.id == runs.c.algorithm_id)
    )


def order_of(row: Row[Any]) -> Order:
    """What the cluster is asked for by a row of `query`."""
    spec = WorkloadSpec.model_validate(row.workload)
    return Order(row.id, spec, row.stack, row.namespace, row.user, row.project, row.simulated_seconds)


def _by_key(connection: Connection, principal: Principal, key: str, asked: Asked) -> str | None:
    row = connection.execute(_BY_KEY, {"user": principal.user_id, "key": key}).first()
    if row is None:
        return None
    if row.request != asked.digest:
        raise InvalidSpec(
            f"the idempotency key was used for another request, which made run {row.run_id}",
            subject="Idempotency-Key",
            remedy="use a new key for a new request",
        )
    return str(row.run_id)


def _keep_key(
    connection: Connection, principal: Principal, key: str, asked: Asked, run: str, now: datetime
) -> str | None:
    """Remember a key for a new run; or the run that it gave before, also where that is being written at this moment."""
    values = {"user_id": principal.user_id, "key": key, "request": asked.digest, "run_id": run, "created": now}
    made = connection.execute(_new_key(connection.dialect.name), values)
    return None if made.scalar() is not None else _by_key(connection, principal, key, asked)


def _again(row: Row[Any], *, stack: str | None = None, **why: str) -> Asked:
    names = {number: name for name, number in PRIORITIES.items()}
    return Asked(
        algorithm=row.algorithm,
        version=row.version,
        parameters=row.parameters,
        stack=stack or row.stack,
        priority=names[row.priority],
        simulated_seconds=row.simulated_seconds,
        **why,
    )


def _row(
    order: Order, asked: Asked, version: registry.Version, values: Mapping[str, Any], forecast: Amount
) -> dict[str, Any]:
    said = " ".join(f"{key}={value}" for key, value in values.items())
    return {
        "id": order.id,
        "algorithm_id": version.algorithm_id,
        "version": version.version,
        "parameters": dict(values),
        "workload": order.spec.model_dump(mode="json", by_alias=True),
        "words": f"{order.id} {asked.algorithm} {order.user} {order.stack} {said}".lower(),
        "stack": order.stack,
        "namespace": order.namespace,
        "simulated_seconds": order.simulated_seconds,
        "priority": PRIORITIES[asked.priority],
        "gpus": order.spec.gpus,
        "gpu_model": order.spec.gpu.model if order.spec.gpu else "",
        "forecast_usd": None if forecast.usd is None else float(forecast.usd),
        "forecast_gpu_hours": float(forecast.gpu_hours),
        "retry_of": asked.retry_of,
        "replay_of": asked.replay_of,
        "state": RunState.QUEUED,
        "waiting": [],
    }


# Statements of the way that every submission takes, built once as of access.
_FIND = query().where(runs.c.id == bindparam("run"), runs.c.project_id == bindparam("project"))
_BY_KEY = select(idempotency).where(idempotency.c.user_id == bindparam("user"), idempotency.c.key == bindparam("key"))
_WAITING = select(func.count(), func.sum(case((runs.c.project_id == bindparam("project"), 1), else_=0))).where(
    runs.c.state == RunState.QUEUED
)


@cache
def _new_run(dialect: str) -> Any:
    return upsert(dialect, runs).on_conflict_do_nothing().returning(runs.c.seq)


@cache
def _new_key(dialect: str) -> Any:
    return upsert(dialect, idempotency).on_conflict_do_nothing().returning(idempotency.c.run_id)
