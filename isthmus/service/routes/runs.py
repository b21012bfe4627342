"""Runs: submit, list and search, look at, follow, cancel, retry, replay, compare."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import StreamingResponse

from isthmus.service import queue, schemas, submissions, views
from isthmus.service.context import Asking, Caller
from isthmus.service.mappings import NAME
from isthmus.service.model import Order, RunState
from isthmus.service.platform import LogLine
from isthmus.service.routes.projects import ProjectName
from isthmus.service.submissions import Asked
from isthmus.specs.errors import IsthmusError, NotFound

router = APIRouter(prefix="/v1/projects/{project}/runs", tags=["runs"])

RunId = Annotated[str, Path(pattern=schemas.RUN_ID)]
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", pattern=schemas.KEY)]
Number = Annotated[float | None, Query(allow_inf_nan=False)]
MetricName = Annotated[schemas.Text | None, Query(min_length=1, max_length=120)]


@router.post("", operation_id="submitRun", status_code=201)
def submit_run(
    asking: Asking, response: Response, project: ProjectName, body: schemas.NewRun, key: IdempotencyKey = None
) -> schemas.Run:
    """Queue a run. It is in the database when this returns; sent again with the same Idempotency-Key, the answer is the same
    run (200 instead of 201)."""
    asked = Asked(**body.model_dump())
    made = asking.service.submissions.submit(asking.principal, project, asked, key=key, request_id=asking.request_id)
    return _made(asking, response, project, *made)


@router.get("", operation_id="listRuns")
def list_runs(
    asking: Asking,
    project: ProjectName,
    q: schemas.Search | None = None,
    state: RunState | None = None,
    algorithm: Annotated[str | None, Query(pattern=NAME)] = None,
    user: Annotated[str | None, Query(pattern=schemas.USER_NAME)] = None,
    stack: Annotated[str | None, Query(pattern=schemas.STACK_NAME)] = None,
    metric: MetricName = None,
    at_least: Number = None,
    at_most: Number = None,
    since: Annotated[datetime | None, Query()] = None,
    until: Annotated[datetime | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: Annotated[str | None, Query(pattern="^[0-9]{1,9}$")] = None,
) -> schemas.Runs:
    """A page of the project's runs, newest first. `q` searches id, algorithm, user, stack and parameters (`lr=0.1`); `metric`
    with `at_least` or `at_most` searches last values."""
    wanted = views.Filter(
        text=q, state=state, algorithm=algorithm, user=user, stack=stack, metric=metric, at_least=at_least,
        at_most=at_most, since=since, until=until,
    )  # fmt: skip
    with asking.read() as connection:
        where, _ = asking.project(connection, project)
        return views.list_runs(connection, where, wanted, limit=limit, cursor=cursor)


@router.get(":compare", operation_id="compareRuns")
def compare_runs(
    asking: Asking,
    project: ProjectName,
    run: Annotated[list[Annotated[str, Query(pattern=schemas.RUN_ID)]], Query(min_length=1, max_length=50)],
    tolerance: Annotated[float, Query(ge=0, le=1)] = 0.02,
) -> schemas.Comparison:
    """Runs side by side: what differs, and their last metrics with whether they agree within a relative tolerance."""
    with asking.read() as connection:
        where, _ = asking.project(connection, project)
        return views.compare(connection, where, run, tolerance)


@router.get("/{run}", operation_id="getRun")
def get_run(asking: Asking, project: ProjectName, run: RunId) -> schemas.Run:
    """One run."""
    return _get(asking, project, run)


@router.get("/{run}/metrics", operation_id="getMetrics")
def get_metrics(asking: Asking, project: ProjectName, run: RunId, name: MetricName = None) -> list[schemas.Metric]:
    """Every number that the run printed (loss by epoch, accuracy, ...), in order."""
    with asking.read() as connection:
        where, _ = asking.project(connection, project)
        return views.run_metrics(connection, where, run, name)


@router.get(
    "/{run}/logs",
    operation_id="getLogs",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def get_logs(
    asking: Asking,
    project: ProjectName,
    run: RunId,
    role: Annotated[str | None, Query(pattern="^[A-Za-z]{1,40}$")] = None,
    rank: Annotated[int | None, Query(ge=0, le=100_000)] = None,
    follow: bool = False,
) -> Response:
    """What the run's pods printed, each line with its role and rank; with `follow` until they end."""
    order = _order(asking, project, run)
    lines = asking.service.platform.logs(order, role=role, rank=rank, follow=follow)
    first = next(lines, None)  # an error is still an answer of its own here
    return StreamingResponse(_text(first, lines), media_type="text/plain; charset=utf-8")


@router.get("/{run}/artefacts", operation_id="listArtefacts")
def list_artefacts(asking: Asking, project: ProjectName, run: RunId) -> list[schemas.Artefact]:
    """The volumes that the run wrote to; they outlive it."""
    order = _order(asking, project, run)
    return [schemas.Artefact(**item) for item in asking.service.platform.artefacts(order)]


@router.post("/{run}:cancel", operation_id="cancelRun")
def cancel_run(asking: Asking, project: ProjectName, run: RunId) -> schemas.Run:
    """Cancel a run: at once while it waits, else as soon as its cluster has let go of it (`cancelling` until then)."""
    asking.service.submissions.cancel(asking.principal, project, run, request_id=asking.request_id)
    asking.service.wake()
    return _get(asking, project, run)


@router.post("/{run}:retry", operation_id="retryRun", status_code=201)
def retry_run(
    asking: Asking, response: Response, project: ProjectName, run: RunId, key: IdempotencyKey = None
) -> schemas.Run:
    """Queue the same again: a new run of the same version, parameters and stack."""
    made = asking.service.submissions.retry(asking.principal, project, run, key=key, request_id=asking.request_id)
    return _made(asking, response, project, *made)


@router.post("/{run}:replay", operation_id="replayRun", status_code=201)
def replay_run(
    asking: Asking,
    response: Response,
    project: ProjectName,
    run: RunId,
    body: schemas.Replay,
    key: IdempotencyKey = None,
) -> schemas.Run:
    """Queue the same on another stack: a new run of the same version and parameters."""
    made = asking.service.submissions.replay(
        asking.principal, project, run, body.stack, key=key, request_id=asking.request_id
    )
    return _made(asking, response, project, *made)


def _made(asking: Caller, response: Response, project: str, identity: str, is_new: bool) -> schemas.Run:
    response.headers["Location"] = f"/v1/projects/{project}/runs/{identity}"
    if not is_new:
        response.status_code = 200
    asking.service.wake()
    if not is_new:
        return _get(asking, project, identity)
    row = queue.by_id(asking.service.database, identity)
    return views.run(row, {})


def _get(asking: Caller, project: str, run: str) -> schemas.Run:
    with asking.read() as connection:
        where, _ = asking.project(connection, project)
        return views.get_run(connection, where, run)


def _order(asking: Caller, project: str, run: str) -> Order:
    """A run that its cluster has, or has had. NotFound before that: there is nothing of it to show."""
    with asking.read() as connection:
        where, _ = asking.project(connection, project)
        row: Any = submissions.find(connection, where.id, run)
    if row.submitted is None:
        raise NotFound(
            f"run {run} is {row.state}: no cluster has had it", subject=f"run {run}", remedy=f"GET .../runs/{run}"
        )
    return submissions.order_of(row)


def _text(first: LogLine | None, rest: Iterator[LogLine]) -> Iterator[str]:
    try:
        if first is not None:
            yield _line(first)
        for line in rest:
            yield _line(line)
    except IsthmusError as error:
        yield f"-- the log ends here: {error.message}\n"


def _line(line: LogLine) -> str:
    at = line.at.isoformat(timespec="milliseconds") if line.at else ""
    return f"{at} {line.role}-{line.rank} {line.text}\n"
