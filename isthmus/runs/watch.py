"""Watches a run: looks at its job and pods, writes down what it sees, and tells it.

It looks again and again instead of counting events, so it can be killed and started at any moment and still says what
is. Watching changes nothing in the cluster: a run goes on when its watcher stops.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from isthmus.kube import claims
from isthmus.kube.client import Cluster, Object
from isthmus.kube.explain import why_pending
from isthmus.runs import ledger
from isthmus.runs import metrics as metric_lines
from isthmus.runs.logs import Reader, pods_of
from isthmus.runs.model import Metric, Node, Replica, Run, Snapshot, State
from isthmus.runs.observe import asked_share, claimed_share, failure, job_state, node_of, replica, role_and_rank
from isthmus.runs.store import Store
from isthmus.runs.submit import cluster_uid
from isthmus.specs import labels
from isthmus.specs.errors import NotFound, NotReady

INTERVAL = 1.0
"""Seconds between two looks."""

UNREACHABLE_SECONDS = 120.0
"""How long the API server may be away while we follow (it restarts, the network changes) before we give up watching."""

SETTLE_SECONDS = 20.0
"""After a job's end: how long its pods' last container may take to be reported as ended."""

REMOVED = "Removed"
"""Phase of a pod that is gone and was not seen to end; the others are Kubernetes' own."""

EXPLAIN_SECONDS = 3.0
"""At most this often is it asked why pods wait: that takes six lists, of all pods and nodes among them."""


@dataclass
class Watcher:
    """Looks at one run. Keeps how far the logs were read, so that each line is taken once."""

    cluster: Cluster
    store: Store
    run: Run
    clock: Callable[[], float] = time.monotonic
    keep: bool = False
    """Whether it goes on looking, and so keeps what a pod prints in case that it is gone at the next look."""

    def __post_init__(self) -> None:
        self._reader = Reader(self.cluster, self.run, keep=self.keep and not self.run.simulated)
        self._written = {item.uid: item for item in self.store.replicas(self.run)}
        self._nodes: dict[str, Node] = {}
        self._shares = {uid: Fraction(item.card_parts, item.card_whole) for uid, item in self._written.items()}
        self._devices: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._looked_at: set[str] = set()
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
            job = self.cluster.get(self.run.api_version, self.run.spec.kind, self.run.job, self.run.namespace)
        except NotFound:
            return self._without_job()
        pods = pods_of(self.cluster, self.run)
        fresh: list[Metric] = []
        if not self.run.simulated:  # a simulated pod has no log
            fresh = metric_lines.collect(self.store, self.run, self._reader.new_lines(pods))
        state, message = job_state(job)
        self._learn_nodes(pods)
        self._learn_claims(pods)
        replicas = [replica(pod, self._nodes.get(node_name(pod)), self._claimed(pod)) for pod in pods]
        replicas = self._removed(replicas, pods if state.final else ())
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
        now = self.store.get(self.run.id)
        # A move took the job away, or has made it anew elsewhere.
        if not now.cluster_uid or now.stack != self.run.stack:
            self.run = now
            return self._snapshot(("it is being moved: no cluster has its job now",) if not now.cluster_uid else ()), []
        last = metric_lines.collect(self.store, self.run, self._reader.new_lines(()))
        gone = "its job was removed from the cluster by someone else"
        if self.run.spec.ttl_seconds is not None:
            gone = f"its job went {self.run.spec.ttl_seconds} s after it was over (ttlSecondsAfterFinished); nobody looked before"
        if self.run.cluster_uid and cluster_uid(self.cluster) != self.run.cluster_uid:
            gone = f"the cluster it ran on is gone; stack {self.run.stack} has a new one"
        self.run = self.store.record(self.run, State.LOST, reason=gone)
        return self._snapshot(()), last

    def _removed(self, replicas: list[Replica], over: Iterable[Object]) -> list[Replica]:
        """The replicas, with those that operators took away: to make them anew, or because the job is over.

        Args:
            over: the pods of a job that is over; those that are being removed then are not waited for.
        """
        leaving = {str(pod["metadata"]["uid"]) for pod in over if pod["metadata"].get("deletionTimestamp")}
        there = {item.uid for item in replicas}
        gone = [item for uid, item in self._written.items() if uid not in there]
        return [
            replace(item, phase=REMOVED)
            if (item.uid in leaving or item.uid not in there) and item.phase in {"Pending", "Running"}
            else item
            for item in [*gone, *replicas]
        ]

    def _learn_nodes(self, pods: list[Object]) -> None:
        """Write down the nodes that its pods are on, once each: a bill needs what they were when they are gone."""
        names = {node_name(pod) for pod in pods} - self._nodes.keys() - {""}
        for name in sorted(names):
            try:
                self._nodes[name] = node_of(self.cluster.get("v1", "Node", name), seen=datetime.now(UTC))
            except NotFound:
                continue  # taken away a moment ago
        if names:
            found = [self._nodes[name] for name in sorted(names & self._nodes.keys())]
            ledger.record_nodes(self.store, self.run.cluster_uid, found)

    def _learn_claims(self, pods: list[Object]) -> None:
        """What part of a card each pod has by its claims. The least that was seen counts: of pods that share a claim, the
        one that ends last is alone for a moment."""
        holding = [(pod, names) for pod in pods if (names := claims.of_pod(pod))]
        if not holding:
            return
        there = {
            item["metadata"]["name"]: item
            for item in self.cluster.list(claims.API, "ResourceClaim", self.run.namespace)
        }
        for node in {node_name(pod) for pod, _ in holding} - self._looked_at - {""}:
            slices = self.cluster.list(claims.API, "ResourceSlice", fields=f"spec.nodeName={node}")
            self._devices |= claims.published(slices)
            self._looked_at.add(node)
        for pod, names in holding:
            if all(name in there for name in names):  # a claim of one pod goes with the pod
                share = claimed_share([there[name] for name in names], self._devices)
                if share is not None:
                    uid = str(pod["metadata"]["uid"])
                    self._shares[uid] = min(share, self._shares.get(uid, share))

    def _claimed(self, pod: Object) -> Fraction:
        """The part of a card that a pod has by its claims: as it was seen, else as the workload asks for it."""
        role, _ = role_and_rank(pod)
        if role not in self.run.spec.roles or not self.run.spec.roles[role].claims:
            return Fraction(0)
        seen = self._shares.get(str(pod["metadata"]["uid"]))
        if seen is not None:
            return seen
        node = self._nodes.get(node_name(pod))
        return asked_share(self.run.spec, role, node.labels.get(labels.GPU_MODEL) if node else None)

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
    """Watch a run to its end, or until it was moved to another stack; `tell` is called after each look with the metrics that
    are new.

    Raises:
        NotReady: the cluster could not be reached for UNREACHABLE_SECONDS. The run itself goes on.
    """
    watcher = Watcher(cluster, store, run, clock, keep=True)
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
        if snapshot.run.state.final or snapshot.run.state is State.SUBMITTING or snapshot.run.stack != run.stack:
            return snapshot
        # A look at thousands of pods takes seconds: then look less often, so that the API server is mostly left alone.
        sleep(max(INTERVAL, 2 * (clock() - begun)))


def refresh(cluster: Cluster, store: Store, run: Run) -> Snapshot:
    """One look at a run, its metrics included."""
    return Watcher(cluster, store, run).look()[0]


def _settled(job: Object, pods: list[Object]) -> bool:
    """Whether every pod of a job that succeeded has ended or is being removed, or has had SETTLE_SECONDS to end."""
    if all(
        (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"} or pod["metadata"].get("deletionTimestamp")
        for pod in pods
    ):
        return True
    completed = (job.get("status") or {}).get("completionTime")
    if completed is None:
        return False
    return (datetime.now(UTC) - datetime.fromisoformat(str(completed))).total_seconds() > SETTLE_SECONDS


def node_name(pod: Object) -> str:
    """The node a pod is on; "" before it has one."""
    return str(pod["spec"].get("nodeName", ""))
