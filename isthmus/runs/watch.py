"""Watches a run: looks at its job and pods, writes down what it sees, and tells it.

It looks again and again instead of counting events, so it can be killed and started at any moment and still says what
is. Watching changes nothing in the cluster: a run goes on when its watcher stops.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from isthmus.kube.client import Cluster, Object
from isthmus.kube.explain import why_pending
from isthmus.runs import ledger
from isthmus.runs import metrics as metric_lines
from isthmus.runs.logs import Reader, pods_of
from isthmus.runs.model import Metric, Node, Replica, Run, Snapshot, State
from isthmus.runs.observe import failure, job_state, node_of, replica
from isthmus.runs.store import Store
from isthmus.runs.submit import cluster_uid
from isthmus.specs.errors import NotFound, NotReady

INTERVAL = 1.0
"""Seconds between two looks."""

UNREACHABLE_SECONDS = 120.0
"""How long the API server may be away while we follow (it restarts, the network changes) before we give up watching."""

SETTLE_SECONDS = 20.0
"""After a job's end: how long its pods' last container may take to be reported as ended."""

EXPLAIN_SECONDS = 3.0
"""At most this often is it asked why pods wait: that takes six lists, of all pods and nodes among them."""


@dataclass
class Watcher:
    """Looks at one run. Keeps how far the logs were read, so that each line is taken once."""

    cluster: Cluster
    store: Store
    run: Run
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._reader = Reader(self.cluster, self.run)
        self._written: dict[str, Replica] = {}
        self._nodes: dict[str, Node] = {}
        self._words: tuple[str, ...] = ()
        self._explain_at = float("-inf")

    def look(self) -> tuple[Snapshot, list[Metric]]:
        """One look: the run as it is now, and the metrics that are new since the last look.

        Raises:
            NotReady: the cluster cannot be reached.
        """
        if self.run.state.final:
            return self._snapshot(()), []
        try:
            job = self.cluster.get("kubeflow.org/v1", self.run.spec.kind, self.run.job, self.run.namespace)
        except NotFound:
            return self._without_job()
        pods = pods_of(self.cluster, self.run)
        fresh: list[Metric] = []
        if not self.run.simulated:  # a simulated pod has no log
            fresh = metric_lines.collect(self.store, self.run, self._reader.new_lines(pods))
        state, message = job_state(job)
        self._learn_nodes(pods)
        replicas = [replica(pod, self._nodes.get(str(pod["spec"].get("nodeName")))) for pod in pods]
        reason = failure(replicas, message) if state is State.FAILED else ""
        if state is State.SUCCEEDED and not _settled(job, pods):
            state = State.RUNNING  # the job's end was told a moment before that of each container
        changed = [item for item in replicas if self._written.get(item.uid) != item]
        self.run = self.store.record(self.run, state, reason=reason, replicas=changed)
        self._written.update((item.uid, item) for item in changed)
        waiting = not state.final and (not pods or any(item.phase == "Pending" for item in replicas))
        return self._snapshot(self._why() if waiting else ()), fresh

    def _without_job(self) -> tuple[Snapshot, list[Metric]]:
        if self.run.state is State.SUBMITTING:
            return self._snapshot(()), []
        gone = "its job was removed from the cluster by someone else"
        if self.run.cluster_uid and cluster_uid(self.cluster) != self.run.cluster_uid:
            gone = f"the cluster it ran on is gone; stack {self.run.stack} has a new one"
        self.run = self.store.record(self.run, State.LOST, reason=gone)
        return self._snapshot(()), []

    def _learn_nodes(self, pods: list[Object]) -> None:
        """Write down the nodes that its pods are on, once each: a bill needs what they were when they are gone."""
        names = {str(pod["spec"].get("nodeName", "")) for pod in pods} - self._nodes.keys() - {""}
        for name in sorted(names):
            try:
                self._nodes[name] = node_of(self.cluster.get("v1", "Node", name), seen=datetime.now(UTC))
            except NotFound:
                continue  # taken away a moment ago
        if names:
            found = [self._nodes[name] for name in sorted(names & self._nodes.keys())]
            ledger.record_nodes(self.store, self.run.cluster_uid, found)

    def _why(self) -> tuple[str, ...]:
        begun = self.clock()
        if begun >= self._explain_at:
            self._words = tuple(why_pending(self.cluster, self.run.namespace, self.run.selector))
            self._explain_at = self.clock() + max(EXPLAIN_SECONDS, 5 * (self.clock() - begun))
        return self._words

    def _snapshot(self, waiting: tuple[str, ...]) -> Snapshot:
        return Snapshot(self.run, tuple(self.store.replicas(self.run)), waiting, self.store.latest(self.run))


def follow(
    cluster: Cluster,
    store: Store,
    run: Run,
    tell: Callable[[Snapshot, list[Metric]], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Snapshot:
    """Watch a run to its end; `tell` is called after each look with the metrics that are new.

    Raises:
        NotReady: the cluster could not be reached for UNREACHABLE_SECONDS. The run itself goes on.
    """
    watcher = Watcher(cluster, store, run, clock)
    away: float | None = None
    while True:
        begun = clock()
        try:
            snapshot, fresh = watcher.look()
            away = None
        except NotReady as error:
            away = away if away is not None else clock()
            if clock() - away > UNREACHABLE_SECONDS:
                raise NotReady(
                    f"{error.message}; gave up watching after {UNREACHABLE_SECONDS:.0f} s, the run is not touched",
                    subject=f"run {run.id}",
                    remedy=f"isthmus runs follow {run.id}",
                ) from error
            sleep(INTERVAL)
            continue
        tell(snapshot, fresh)
        if snapshot.run.state.final or snapshot.run.state is State.SUBMITTING:
            return snapshot
        # A look at thousands of pods takes seconds: then look less often, so that the API server is mostly left alone.
        sleep(max(INTERVAL, 2 * (clock() - begun)))


def refresh(cluster: Cluster, store: Store, run: Run) -> Snapshot:
    """One look at a run, its metrics included."""
    return Watcher(cluster, store, run).look()[0]


def _settled(job: Object, pods: list[Object]) -> bool:
    """Whether every pod of a job that succeeded has ended, or has had SETTLE_SECONDS to."""
    if all((pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"} for pod in pods):
        return True
    completed = (job.get("status") or {}).get("completionTime")
    if completed is None:
        return False
    return (datetime.now(UTC) - datetime.fromisoformat(str(completed))).total_seconds() > SETTLE_SECONDS
