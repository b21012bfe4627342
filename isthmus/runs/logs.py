"""The logs of a run's pods, by role and rank, each line once.

A reader asks each pod for the lines since the last one it saw. That survives lost connections, a restarted container
(whose former log the kubelet keeps once) and a reader that is started again, which a plain follow does not.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from isthmus.kube.client import Cluster, Object
from isthmus.runs.model import Run
from isthmus.runs.observe import CONTAINER, container_status, job_state, role_and_rank
from isthmus.specs.errors import InvalidSpec, IsthmusError, NotFound

OVERLAP = timedelta(seconds=1)
"""Read again this far before the last line: two streams of a container may be stamped slightly out of order."""


MANY = 5000
"""Lines remembered before old ones are dropped."""


@dataclass(frozen=True)
class Line:
    """One line that a rank printed."""

    role: str
    rank: int
    text: str
    at: datetime | None
    restart: int = 0


@dataclass
class _Cursor:
    """How far one container run's log was read."""

    last: datetime | None = None
    seen: dict[tuple[str, str], datetime] = field(default_factory=dict)
    """Lines at and shortly before `last`, by their stamp and text."""


class Reader:
    """Reads a run's logs; each call of `new_lines` returns what came since the one before."""

    def __init__(self, cluster: Cluster, run: Run) -> None:
        self._cluster = cluster
        self._run = run
        self._cursors: dict[tuple[str, int], _Cursor] = {}
        self._restarts: dict[str, int] = {}
        self._ended: set[tuple[str, int]] = set()

    def new_lines(self, pods: Iterable[Object]) -> list[Line]:
        """New lines of these pods, in time order as far as the nodes' clocks tell. A pod without a log yet has none."""
        lines: list[Line] = []
        for pod in pods:
            lines += self._of_pod(pod)
        return sorted(lines, key=lambda line: line.at or datetime.min.replace(tzinfo=UTC))

    def _of_pod(self, pod: Object) -> Iterator[Line]:
        status = container_status(pod)
        state = status.get("state") or {}
        restart = int(status.get("restartCount", 0))
        uid = pod["metadata"]["uid"]
        if restart > self._restarts.get(uid, 0):
            # The container before this one: what it printed after our last look, or all of it on the first.
            yield from self._read(pod, restart - 1, previous=True)
        self._restarts[uid] = restart
        ended = "terminated" in state
        if ("running" in state or ended) and (uid, restart) not in self._ended:
            yield from self._read(pod, restart, previous=False)
            if ended:
                self._ended.add((uid, restart))

    def _read(self, pod: Object, restart: int, *, previous: bool) -> Iterator[Line]:
        cursor = self._cursors.setdefault((pod["metadata"]["uid"], restart), _Cursor())
        since = (cursor.last - OVERLAP).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if cursor.last else None
        role, rank = role_and_rank(pod)
        try:
            for raw in self._cluster.logs(
                pod["metadata"]["name"], self._run.namespace, CONTAINER, previous=previous, timestamps=True, since=since
            ):
                if (line := _take(cursor, raw, role, rank, restart)) is not None:
                    yield line
        except (NotFound, InvalidSpec):
            # Gone between our look at the pod and its log, or not started yet: it has no log to give.
            return
        _forget(cursor)


def stream(
    cluster: Cluster,
    run: Run,
    *,
    role: str | None = None,
    rank: int | None = None,
    follow: bool = False,
    pause: Callable[[], None] = lambda: None,
) -> Iterator[Line]:
    """Lines of a run's pods; with `follow` until none of them can print any more.

    Args:
        role, rank: only these.
        pause: called between two looks.

    Raises:
        NotFound: no pod of the run is (or was, while following) there.
    """
    reader = Reader(cluster, run)
    found = False
    while True:
        pods = [pod for pod in pods_of(cluster, run) if _wanted(pod, role, rank)]
        found = found or bool(pods)
        if not found and not follow:
            what = " ".join(filter(None, [role, f"rank {rank}" if rank is not None else ""]))
            raise NotFound(
                f"run {run.id} has no {what + ' ' if what else ''}pod in the cluster", subject=f"run {run.id}"
            )
        yield from reader.new_lines(pods)
        if not follow or (found and all(_is_over(pod) for pod in pods) and _job_is_over(cluster, run)):
            return
        pause()


def pods_of(cluster: Cluster, run: Run) -> list[Object]:
    """The pods of a run, by rank."""
    pods = cluster.list("v1", "Pod", run.namespace, selector=run.selector)
    return sorted(pods, key=lambda pod: (role_and_rank(pod)[1], str(pod["metadata"].get("creationTimestamp"))))


def last_words(cluster: Cluster, run: Run, pod: str, lines: int = 20) -> list[str]:
    """The end of one pod's log, for a failure's report; empty where it cannot be had."""
    try:
        return list(cluster.logs(pod, run.namespace, CONTAINER, tail=lines))
    except IsthmusError:
        return []


def _take(cursor: _Cursor, raw: str, role: str, rank: int, restart: int) -> Line | None:
    stamp, _, text = raw.partition(" ")
    try:
        at = datetime.fromisoformat(stamp)
    except ValueError:
        return Line(role, rank, raw, None, restart)  # the kubelet's own remark, for example that the log was rotated
    if (stamp, text) in cursor.seen:
        return None
    cursor.seen[stamp, text] = at
    if cursor.last is None or at > cursor.last:
        cursor.last = at
    if len(cursor.seen) > MANY:
        _forget(cursor)
    return Line(role, rank, text, at, restart)


def _forget(cursor: _Cursor) -> None:
    """Drop lines that will not be read again: whole seconds are, so keep one more than the overlap."""
    if cursor.last is not None:
        oldest = cursor.last - OVERLAP - timedelta(seconds=1)
        cursor.seen = {key: moment for key, moment in cursor.seen.items() if moment >= oldest}


def _wanted(pod: Object, role: str | None, rank: int | None) -> bool:
    its_role, its_rank = role_and_rank(pod)
    return (role is None or its_role.lower() == role.lower()) and (rank is None or its_rank == rank)


def _is_over(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def _job_is_over(cluster: Cluster, run: Run) -> bool:
    try:
        return job_state(cluster.get("kubeflow.org/v1", run.spec.kind, run.job, run.namespace))[0].final
    except NotFound:
        return True
