"""What the database knows, as the API shows it: runs listed and searched, compared, and summed up as execution metrics."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, and_, select

from isthmus.service import schemas
from isthmus.service.model import ACTIVE, FINAL, Project, RunState
from isthmus.service.platform import Place
from isthmus.service.queue import NONE
from isthmus.service.submissions import PRIORITIES, find, query
from isthmus.service.tables import algorithms, latest, metrics, projects, runs, users
from isthmus.specs.errors import InvalidSpec

_PRIORITY = {number: name for name, number in PRIORITIES.items()}

MOST_COMPARED = 20

ENDED_BY_ITSELF = (RunState.SUCCEEDED, RunState.FAILED)

CAUSES = (
    ("image", ("ErrImage", "ImagePull", "InvalidImageName")),
    ("memory", ("OOMKilled",)),
    ("node", ("Evicted", "NodeLost", "Preempt", "Shutdown")),
    ("deadline", ("DeadlineExceeded", "activeDeadlineSeconds")),
    ("exit code", ("exit code",)),
)
"""Causes by words of a run's reason; the words are the kubelet's and the operator's own."""


@dataclass(frozen=True)
class Filter:
    """Which runs of a project."""

    text: str | None = None
    state: RunState | None = None
    algorithm: str | None = None
    user: str | None = None
    stack: str | None = None
    metric: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    since: datetime | None = None
    until: datetime | None = None


def list_runs(
    connection: Connection, project: Project, wanted: Filter, *, limit: int, cursor: str | None
) -> schemas.Runs:
    """A page of runs, newest first."""
    conditions = [runs.c.project_id == project.id, *_conditions(wanted)]
    if cursor is not None:
        conditions.append(runs.c.seq < int(cursor))
    rows = connection.execute(query().where(*conditions).order_by(runs.c.seq.desc()).limit(limit + 1)).all()
    page = rows[:limit]
    return schemas.Runs(
        runs=[run(row, values) for row, values in _with_latest(connection, page)],
        next=str(page[-1].seq) if len(rows) > limit else None,
    )


def get_run(connection: Connection, project: Project, identity: str) -> schemas.Run:
    """One run of a project. NotFound where there is none."""
    [(row, values)] = _with_latest(connection, [find(connection, project.id, identity)])
    return run(row, values)


def run(row: Row[Any], values: Mapping[str, float | None]) -> schemas.Run:
    """A run as the API shows it."""
    return schemas.Run(
        id=row.id,
        project=row.project,
        user=row.user,
        algorithm=row.algorithm,
        version=row.version,
        parameters=row.parameters,
        stack=row.stack,
        priority=_PRIORITY[row.priority],
        state=row.state,
        reason=row.reason,
        next=row.remedy,
        waiting=row.waiting,
        source="measured" if row.simulated_seconds is None else "simulated",
        gpus=row.gpus,
        gpu_model=row.gpu_model,
        image=row.workload["image"],
        image_digest=row.image_digest,
        retry_of=row.retry_of,
        replay_of=row.replay_of,
        created=row.created,
        submitted=row.submitted,
        started=row.started,
        finished=row.finished,
        seen=row.seen,
        cancelling=row.cancel_asked is not None and row.state not in FINAL,
        forecast_usd=row.forecast_usd,
        forecast_gpu_hours=row.forecast_gpu_hours,
        metrics=dict(values),
    )


def run_metrics(connection: Connection, project: Project, identity: str, name: str | None) -> list[schemas.Metric]:
    """Every number that a run printed, in order."""
    row = find(connection, project.id, identity)
    wanted = select(metrics).where(metrics.c.run_seq == row.seq)
    if name is not None:
        wanted = wanted.where(metrics.c.name == name)
    order = (metrics.c.at, metrics.c.rank, metrics.c.name, metrics.c.epoch, metrics.c.step)
    return [
        schemas.Metric(
            name=item.name,
            value=item.value,
            epoch=None if item.epoch == NONE else item.epoch,
            step=None if item.step == NONE else item.step,
            role=item.role,
            rank=item.rank,
            restart=item.restart,
            at=item.at,
        )
        for item in connection.execute(wanted.order_by(*order))
    ]


def compare(connection: Connection, project: Project, ids: Sequence[str], tolerance: float) -> schemas.Comparison:
    """Runs side by side: what they were asked and what came of it, where it differs, and their last metrics."""
    if not 2 <= len(set(ids)) <= MOST_COMPARED:
        raise InvalidSpec(
            f"compare takes 2 to {MOST_COMPARED} different runs, not {len(set(ids))}",
            remedy="GET .../runs:compare?run=ID&run=ID",
        )
    rows = [find(connection, project.id, identity) for identity in dict.fromkeys(ids)]
    found = [run(row, values) for row, values in _with_latest(connection, rows)]
    names = sorted({name for item in found for name in item.metrics})
    return schemas.Comparison(
        runs=found,
        differences=list(_differences(found)),
        metrics=[_compared(name, [item.metrics.get(name) for item in found], tolerance) for name in names],
        tolerance=tolerance,
        mixed=len({item.source for item in found}) > 1,
    )


def statistics(
    connection: Connection, project: Project | None, by: str, places: Iterable[Place], *, since: datetime | None
) -> list[schemas.Statistic]:
    """Execution metrics of runs, grouped by user, project, algorithm, GPU model or stack."""
    column = {
        "user": users.c.name,
        "project": projects.c.name,
        "algorithm": algorithms.c.name,
        "gpu_model": runs.c.gpu_model,
        "stack": runs.c.stack,
    }[by]
    wanted = (
        select(
            column.label("group"),
            runs.c.simulated_seconds.is_not(None).label("simulated"),
            runs.c.state,
            runs.c.reason,
            runs.c.gpus,
            runs.c.created,
            runs.c.submitted,
            runs.c.started,
            runs.c.finished,
        )
        .select_from(runs)
        .join(users, users.c.id == runs.c.user_id)
        .join(projects, projects.c.id == runs.c.project_id)
        .join(algorithms, algorithms.c.id == runs.c.algorithm_id)
    )
    if project is not None:
        wanted = wanted.where(runs.c.project_id == project.id)
    if since is not None:
        wanted = wanted.where(runs.c.created >= since)
    groups: dict[tuple[str, bool], list[Any]] = {}
    for row in connection.execute(wanted):
        groups.setdefault((row.group, bool(row.simulated)), []).append(row)
    cards: dict[str, int] = {}
    for where in places:
        for model, count in where.cards.items():
            cards[model] = cards.get(model, 0) + count
    total = sum(cards.values())
    return [
        _statistic(name, simulated, rows, cards.get(name, 0) if by == "gpu_model" and name else total)
        for (name, simulated), rows in sorted(groups.items())
    ]


def cause(reason: str) -> str:
    """Of a failed run's reason: the kind of cause."""
    return next((name for name, words in CAUSES if any(word in reason for word in words)), "other")


def _statistic(name: str, simulated: bool, rows: Sequence[Any], cards: int) -> schemas.Statistic:
    states = [RunState(row.state) for row in rows]
    succeeded, failed = states.count(RunState.SUCCEEDED), states.count(RunState.FAILED)
    ended = succeeded + failed
    lost = states.count(RunState.LOST)
    failures: dict[str, int] = {}
    for row in rows:
        if row.state == RunState.FAILED:
            failures[cause(row.reason)] = failures.get(cause(row.reason), 0) + 1
    active = sum(max(row.gpus, 0) for row in rows if row.state in ACTIVE)
    took = [
        (row.finished - row.started).total_seconds()
        for row in rows
        if row.state in ENDED_BY_ITSELF and row.started and row.finished
    ]
    queued = [max(0.0, (row.started - row.created).total_seconds()) for row in rows if row.started]
    return schemas.Statistic(
        group=name,
        source="simulated" if simulated else "measured",
        runs=len(rows),
        waiting=states.count(RunState.QUEUED),
        active=sum(state in ACTIVE for state in states),
        succeeded=succeeded,
        failed=failed,
        failures=failures,
        failure_rate=failed / ended if ended else None,
        availability=ended / (ended + lost) if ended + lost else None,
        mean_run_seconds=sum(took) / len(took) if took else None,
        mean_queue_seconds=sum(queued) / len(queued) if queued else None,
        gpus_active=active,
        saturation=active / cards if cards else None,
    )


def _conditions(wanted: Filter) -> list[Any]:
    found: list[Any] = []
    if wanted.text:
        found += [runs.c.words.contains(word, autoescape=True) for word in wanted.text.lower().split()]
    for column, value in (
        (runs.c.state, wanted.state),
        (algorithms.c.name, wanted.algorithm),
        (users.c.name, wanted.user),
        (runs.c.stack, wanted.stack),
    ):
        if value is not None:
            found.append(column == value)
    if wanted.since is not None:
        found.append(runs.c.created >= wanted.since)
    if wanted.until is not None:
        found.append(runs.c.created < wanted.until)
    if wanted.metric is not None:
        reached = [latest.c.run_seq == runs.c.seq, latest.c.name == wanted.metric]
        if wanted.at_least is not None:
            reached.append(latest.c.value >= wanted.at_least)
        if wanted.at_most is not None:
            reached.append(latest.c.value <= wanted.at_most)
        found.append(select(latest.c.run_seq).where(and_(*reached)).exists())
    elif wanted.at_least is not None or wanted.at_most is not None:
        raise InvalidSpec("at_least and at_most are of a metric", subject="metric", remedy="add metric=NAME")
    return found


def _with_latest(connection: Connection, rows: Sequence[Row[Any]]) -> list[tuple[Row[Any], dict[str, float | None]]]:
    values: dict[int, dict[str, float | None]] = {row.seq: {} for row in rows}
    if rows:
        for item in connection.execute(
            select(latest.c.run_seq, latest.c.name, latest.c.value).where(latest.c.run_seq.in_(values))
        ):
            values[item.run_seq][item.name] = item.value
    return [(row, values[row.seq]) for row in rows]


def _differences(found: Sequence[schemas.Run]) -> Iterable[schemas.Difference]:
    for field in ("algorithm", "version", "stack", "user", "state", "gpus", "image", "image_digest", "source"):
        values = [getattr(item, field) for item in found]
        if len(set(values)) > 1:
            yield schemas.Difference(name=field, values=values)
    for name in sorted({name for item in found for name in item.parameters}):
        values = [item.parameters.get(name) for item in found]
        if len({repr(value) for value in values}) > 1:
            yield schemas.Difference(name=f"parameters.{name}", values=values)
    times = [
        (item.finished - item.started).total_seconds() if item.finished and item.started else None for item in found
    ]
    if any(item is not None for item in times):
        yield schemas.Difference(name="seconds", values=times)


def _compared(name: str, values: list[float | None], tolerance: float) -> schemas.MetricComparison:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return schemas.MetricComparison(name=name, values=values, spread=None, within=None)
    spread = max(known) - min(known)
    largest = max(abs(value) for value in known)
    return schemas.MetricComparison(name=name, values=values, spread=spread, within=spread <= tolerance * largest)
