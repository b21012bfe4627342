"""The queue: who may work on which run, and what came of it. Rows of `runs` with leases; every function one transaction.

At most one submission. A run is claimed by a guarded update that gives it an owner, a token and an end of the lease. What
the claimer finds out is written only while the token still is its own. A run whose lease ended in `Submitting` may or may
not be in the cluster: the next claimer submits it again under the same id, which the cluster takes for the same run.

Fair: the project that has least in the clusters for its weight is served next, of equals the one that waited longest for a
turn; inside a project the highest priority, then the oldest. Kill -9 at any point is tested in tests/unit/service.
"""

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, and_, bindparam, case, func, or_, select, update

from isthmus.service.database import Database, upsert
from isthmus.service.model import ACTIVE, FINAL, IN_CLUSTER, Measured, Order, RunState, Seen
from isthmus.service.submissions import order_of, query
from isthmus.service.tables import latest, leases, metrics, projects, runs
from isthmus.specs.errors import IsthmusError

LEASE_SECONDS = 120.0
"""Longer than a submission takes with every time limit of its requests used up; a claim that lived on is never taken."""

NONE = -1

_BY_ID = query().where(runs.c.id == bindparam("run"))


@dataclass(frozen=True)
class Claim:
    """A run that we may work on until the lease ends."""

    seq: int
    token: str
    attempts: int
    created: datetime
    order: Order


def claim(
    database: Database, owner: str, *, most_active: int, stacks: Collection[str], seconds: float = LEASE_SECONDS
) -> Claim | None:
    """Take the next run to be submitted, or None where there is none.

    Args:
        owner: who takes it, for people that look into the table.
        most_active: runs that a stack may have at once; the rest waits here, where it costs nothing and can be cancelled.
        stacks: only runs for these.
    """
    with database.write() as connection:
        now = database.now(connection)
        seq = _interrupted(connection, now, stacks) or _next(connection, now, most_active, stacks)
        if seq is None:
            return None
        return _lease(connection, seq, owner, now, seconds)


def claim_cancellation(
    database: Database, owner: str, *, stacks: Collection[str], seconds: float = LEASE_SECONDS
) -> Claim | None:
    """Take the next run that is to be taken out of its cluster, or None."""
    with database.write() as connection:
        now = database.now(connection)
        seq = connection.execute(
            select(runs.c.seq)
            .where(
                runs.c.cancel_asked.is_not(None),
                runs.c.state.in_(ACTIVE),
                runs.c.stack.in_(stacks),
                or_(runs.c.lease_until.is_(None), runs.c.lease_until <= now),
            )
            .order_by(runs.c.cancel_asked)
            .limit(1)
        ).scalar()
        return None if seq is None else _lease(connection, seq, owner, now, seconds)


def placed(database: Database, taken: Claim) -> bool:
    """The cluster has the run. False where the lease was lost: then somebody else says so."""
    with database.write() as connection:
        now = database.now(connection)
        return _finish(connection, taken, {"state": RunState.PENDING, "submitted": now, "reason": "", "remedy": ""})


def refused(database: Database, taken: Claim, error: IsthmusError) -> bool:
    """A check refused the run for good."""
    with database.write() as connection:
        values = {
            "state": RunState.REFUSED,
            "reason": error.message,
            "remedy": error.remedy,
            "finished": database.now(connection),
        }
        return _finish(connection, taken, values)


def failed(database: Database, taken: Claim, reason: str) -> bool:
    """The run could not be brought into the cluster, and is given up."""
    with database.write() as connection:
        values = {"state": RunState.FAILED, "reason": reason, "finished": database.now(connection)}
        return _finish(connection, taken, values)


def cancelled(database: Database, taken: Claim) -> bool:
    """The run is out of the cluster."""
    with database.write() as connection:
        values = {
            "state": RunState.CANCELLED,
            "reason": "cancelled as asked",
            "finished": database.now(connection),
        }
        return _finish(connection, taken, values)


def let_go(database: Database, taken: Claim) -> bool:
    """It ended before it could be cancelled."""
    with database.write() as connection:
        return _finish(connection, taken, {"cancel_asked": None})


def postpone(database: Database, taken: Claim, reason: str, *, seconds: float) -> bool:
    """Not now: the lease ends in so many seconds, and whoever claims the run then goes on with it."""
    with database.write() as connection:
        until = database.now(connection) + timedelta(seconds=seconds)
        changed = connection.execute(
            update(runs).where(*_mine(taken)).values(lease_until=until, lease_owner="", reason=reason)
        )
        return changed.rowcount == 1


def in_cluster(database: Database, stack: str) -> list[Any]:
    """The runs that a stack's cluster has, oldest first: seq and id of each."""
    with database.read() as connection:
        wanted = select(runs.c.seq, runs.c.id).where(runs.c.stack == stack, runs.c.state.in_(IN_CLUSTER))
        return list(connection.execute(wanted.order_by(runs.c.seq)))


def by_id(database: Database, identity: str) -> Any:
    """One run by its id, or None."""
    with database.read() as connection:
        return connection.execute(_BY_ID, {"run": identity}).first()


def record(database: Database, seq: int, seen: Seen) -> None:
    """Write what the cluster shows. A final state stays; metrics printed again replace what they were."""
    with database.write() as connection:
        now = database.now(connection)
        values: dict[str, Any] = {
            "state": seen.state,
            "reason": seen.reason,
            "waiting": list(seen.waiting),
            "started": seen.started,
            "seen": now,
        }
        if seen.image_digest:
            values["image_digest"] = seen.image_digest
        if seen.state.final:
            values["finished"] = seen.finished or now
        connection.execute(update(runs).where(runs.c.seq == seq, runs.c.state.in_(IN_CLUSTER)).values(**values))
        _add_metrics(connection, seq, seen.metrics)


def hold(database: Database, name: str, owner: str, token: str, *, seconds: float) -> bool:
    """Take or keep a piece of work that one service at a time does. False while another one has it."""
    with database.write() as connection:
        now = database.now(connection)
        until = now + timedelta(seconds=seconds)
        changed = connection.execute(
            update(leases)
            .where(leases.c.name == name, or_(leases.c.token == token, leases.c.until <= now))
            .values(owner=owner, token=token, until=until)
        )
        if changed.rowcount == 1:
            return True
        made = connection.execute(
            upsert(connection.dialect.name, leases)
            .values(name=name, owner=owner, token=token, until=until)
            .on_conflict_do_nothing(index_elements=[leases.c.name])
            .returning(leases.c.name)
        )
        return made.scalar() is not None


def release(database: Database, name: str, token: str) -> None:
    """Give a piece of work back, so that another service need not wait for the lease's end."""
    with database.write() as connection:
        now = database.now(connection)
        connection.execute(update(leases).where(leases.c.name == name, leases.c.token == token).values(until=now))


def counts(database: Database) -> dict[tuple[str, str], int]:
    """Runs by project and state, of states that are not final."""
    with database.read() as connection:
        rows = connection.execute(
            select(projects.c.name, runs.c.state, func.count())
            .join(projects, projects.c.id == runs.c.project_id)
            .where(runs.c.state.not_in(FINAL))
            .group_by(projects.c.name, runs.c.state)
        )
        return {(name, state): count for name, state, count in rows}


def _interrupted(connection: Connection, now: datetime, stacks: Collection[str]) -> int | None:
    """A run whose claimer died or could not reach the cluster."""
    return connection.execute(
        select(runs.c.seq)
        .where(
            runs.c.state == RunState.SUBMITTING,
            runs.c.lease_until <= now,
            runs.c.cancel_asked.is_(None),
            runs.c.stack.in_(stacks),
        )
        .order_by(runs.c.lease_until)
        .limit(1)
    ).scalar()


def _next(connection: Connection, now: datetime, most_active: int, stacks: Collection[str]) -> int | None:
    active = connection.execute(
        select(runs.c.project_id, runs.c.stack, func.count(), func.sum(case((runs.c.gpus > 1, runs.c.gpus), else_=1)))
        .where(runs.c.state.in_(ACTIVE))
        .group_by(runs.c.project_id, runs.c.stack)
    ).all()
    on_stack: dict[str, int] = {}
    held: dict[int, int] = {}
    for project_id, stack, count, weight in active:
        on_stack[stack] = on_stack.get(stack, 0) + count
        held[project_id] = held.get(project_id, 0) + weight
    open_stacks = [stack for stack in stacks if on_stack.get(stack, 0) < most_active]
    if not open_stacks:
        return None
    waits = and_(runs.c.state == RunState.QUEUED, runs.c.stack.in_(open_stacks))
    waiting = connection.execute(
        select(projects.c.id, projects.c.weight, projects.c.served).where(
            select(runs.c.seq).where(waits, runs.c.project_id == projects.c.id).exists()
        )
    ).all()
    if not waiting:
        return None
    first = min(waiting, key=lambda row: (held.get(row.id, 0) / row.weight, row.served, row.id))
    turn = connection.execute(select(func.max(projects.c.served))).scalar_one() + 1
    connection.execute(update(projects).where(projects.c.id == first.id).values(served=turn))
    return connection.execute(
        select(runs.c.seq)
        .where(waits, runs.c.project_id == first.id)
        .order_by(runs.c.priority.desc(), runs.c.seq)
        .limit(1)
    ).scalar()


def _lease(connection: Connection, seq: int, owner: str, now: datetime, seconds: float) -> Claim | None:
    """Give a run a new lease, where it has no living one; None where another service was faster (PostgreSQL)."""
    token = secrets.token_hex(16)
    free = or_(runs.c.lease_until.is_(None), runs.c.lease_until <= now)
    state = case((runs.c.state == RunState.QUEUED, RunState.SUBMITTING), else_=runs.c.state)
    changed = connection.execute(
        update(runs)
        .where(runs.c.seq == seq, free, runs.c.state.not_in(FINAL))
        .values(
            state=state,
            attempts=runs.c.attempts + 1,
            lease_owner=owner,
            lease_token=token,
            lease_until=now + timedelta(seconds=seconds),
        )
    )
    if changed.rowcount != 1:
        return None
    row = connection.execute(query().where(runs.c.seq == seq)).one()
    return Claim(seq, token, row.attempts, row.created, order_of(row))


def _mine(taken: Claim) -> tuple[Any, ...]:
    return runs.c.seq == taken.seq, runs.c.lease_token == taken.token, runs.c.state.not_in(FINAL)


def _finish(connection: Connection, taken: Claim, values: dict[str, Any]) -> bool:
    free = {"lease_owner": "", "lease_token": "", "lease_until": None}
    return connection.execute(update(runs).where(*_mine(taken)).values(**values, **free)).rowcount == 1


def _add_metrics(connection: Connection, seq: int, found: Collection[Measured]) -> None:
    """One value for each rank, name, epoch and step; the last value of each name also where runs are searched."""
    last: dict[str, Measured] = {}
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for item in found:
        epoch = NONE if item.epoch is None else item.epoch
        step = NONE if item.step is None else item.step
        key = (item.role, item.rank, item.name, epoch, step)
        rows[key] = {
            "run_seq": seq, "role": item.role, "rank": item.rank, "name": item.name, "epoch": epoch, "step": step,
            "value": item.value, "at": item.at, "restart": item.restart,
        }  # fmt: skip
        known = last.get(item.name)
        if known is None or known.at is None or (item.at is not None and item.at >= known.at):
            last[item.name] = item
    if rows:
        statement = upsert(connection.dialect.name, metrics)
        changed = {name: statement.excluded[name] for name in ("value", "at", "restart")}
        key_columns = [metrics.c[name] for name in ("run_seq", "role", "rank", "name", "epoch", "step")]
        connection.execute(
            statement.on_conflict_do_update(index_elements=key_columns, set_=changed), list(rows.values())
        )
    for name, item in last.items():
        statement = upsert(connection.dialect.name, latest).values(run_seq=seq, name=name, value=item.value, at=item.at)
        newer = or_(latest.c.at.is_(None), statement.excluded.at >= latest.c.at)
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=[latest.c.run_seq, latest.c.name],
                set_={"value": statement.excluded["value"], "at": statement.excluded["at"]},
                where=newer,
            )
        )
