"""The logs of a run's pods, by role and rank, each line once.

A reader asks each pod for the lines since the last one it saw. That survives lost connections, a restarted container
(whose former log the kubelet keeps once) and a reader that is started again, which a plain follow does not. A pod that is
removed takes its log along, as an operator does with one that it replaces: a reader that goes on looking therefore also keeps
what each running container prints (see _Tail), and takes the last lines from there.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from isthmus.kube.client import Cluster, Object
from isthmus.runs.model import Run
from isthmus.runs.observe import container_name, container_status, job_state, role_and_rank
from isthmus.specs.errors import InvalidSpec, IsthmusError, NotFound

OVERLAP = timedelta(seconds=1)
"""Read again this far before the last line: two streams of a container may be stamped slightly out of order."""


MANY = 5000
"""Lines remembered before old ones are dropped."""

MOST_TAILS = 64
"""Containers that are followed at a time; those beyond are only looked at."""

TAIL_SILENCE_SECONDS = 3600.0
"""How long a container may print nothing before it is no longer followed."""


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


class _Tail:
    """What one container run prints, kept from the moment it is printed: its pod may be gone at the next look."""

    def __init__(self, cluster: Cluster, run: Run, pod: Object, restart: int) -> None:
        self.role, self.rank = role_and_rank(pod)
        self.restart = restart
        self._lines: deque[str] = deque(maxlen=MANY)
        follow = threading.Thread(target=self._follow, args=(cluster, run.namespace, pod), daemon=True)
        follow.start()

    def lines(self) -> list[str]:
        """Every line so far, at most the last MANY."""
        return list(self._lines)

    def _follow(self, cluster: Cluster, namespace: str, pod: Object) -> None:
        name, container = pod["metadata"]["name"], container_name(pod)
        try:
            for raw in cluster.logs(
                name, namespace, container, follow=True, timestamps=True, silence_seconds=TAIL_SILENCE_SECONDS
            ):
                self._lines.append(raw)
        except IsthmusError:
            return  # the looks go on without it


class Reader:
    """Reads a run's logs; each call of `new_lines` returns what came since the one before."""

    def __init__(self, cluster: Cluster, run: Run, *, keep: bool = False) -> None:
        """
        Args:
            keep: keep what containers print between two looks. For a reader that goes on looking.
        """
        self._cluster = cluster
        self._run = run
        self._keep = keep
        self._tails: dict[tuple[str, int], _Tail] = {}
        self._cursors: dict[tuple[str, int], _Cursor] = {}
        self._restarts: dict[str, int] = {}
        self._ended: set[tuple[str, int]] = set()

    def new_lines(self, pods: Iterable[Object]) -> list[Line]:
        """New lines of these pods, in time order as far as the nodes' clocks tell. A pod without a log yet has none."""
        lines: list[Line] = []
        current = {}
        for pod in pods:
            lines += self._of_pod(pod)
            current[pod["metadata"]["uid"]] = self._restarts[pod["metadata"]["uid"]]
        for uid, restart in [key for key in self._tails if current.get(key[0]) != key[1] or key in self._ended]:
            lines += self._last_of(uid, restart)
        return sorted(lines, key=lambda line: line.at or datetime.min.replace(tzinfo=UTC))

    def _last_of(self, uid: str, restart: int) -> Iterator[Line]:
        """What a container run that is over, or whose pod is gone, printed after our last look at it."""
        tail = self._tails.pop((uid, restart))
        cursor = self._cursors.setdefault((uid, restart), _Cursor())
        for raw in tail.lines():
            line = _take(cursor, raw, tail.role, tail.rank, restart, old=False)
            if line is not None:
                yield line

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
        if self._keep and "running" in state and (uid, restart) not in self._tails and len(self._tails) < MOST_TAILS:
            self._tails[uid, restart] = _Tail(self._cluster, self._run, pod, restart)
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
                pod["metadata"]["name"],
                self._run.namespace,
                container_name(pod),
                previous=previous,
                timestamps=True,
                since=since,
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
        container = container_name(cluster.get("v1", "Pod", pod, run.namespace))
        return list(cluster.logs(pod, run.namespace, container, tail=lines))
    except IsthmusError:
        return []


def _take(cursor: _Cursor, raw: str, role: str, rank: int, restart: int, *, old: bool = True) -> Line | None:
    """The line if it is new. `old` False: lines from before the overlap have all been seen, and may be forgotten."""
    stamp, _, text = raw.partition(" ")
    try:
        at = datetime.fromisoformat(stamp)
    except ValueError:  # the kubelet's own remark, for example that the log was rotated
        return Line(role, rank, raw, None, restart) if old else None
    if (stamp, text) in cursor.seen or not old and cursor.last is not None and at < cursor.last - OVERLAP:
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
        return job_state(cluster.get(run.api_version, run.spec.kind, run.job, run.namespace))[0].final
    except NotFound:
        return True
