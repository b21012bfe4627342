"""The real platform: stacks, through isthmus.runs, as the command line does it: same workloads, same run record.

A run has one id in the service's database, in runs.db and in the cluster. Services on several machines may share a
database: what one machine's runs.db lacks is written into it when a run is looked at there.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from isthmus.billing import guard
from isthmus.billing.budgets import NOTHING, Amount, Standing, standings
from isthmus.catalog import load as load_catalog
from isthmus.kube.client import Cluster
from isthmus.runs import cancel as cancelling
from isthmus.runs import ledger
from isthmus.runs import logs as run_logs
from isthmus.runs.model import Metric, Run, State
from isthmus.runs.store import Store
from isthmus.runs.submit import SERVICE, cluster_uid, submit
from isthmus.runs.watch import Watcher
from isthmus.service.model import Measured, Order, RunState, Seen
from isthmus.service.platform import LogLine, Place
from isthmus.specs import labels
from isthmus.specs.errors import IsthmusError, NotFound, NotReady, Refused
from isthmus.specs.stack import StackSettings
from workloads import bindings
from workloads.fit import NodeCapacity

WATCH_SECONDS = 300.0
"""One watch of a cluster's pods; then everything is listed anew."""


@dataclass
class Stacks:
    """The clusters of the stacks that a service serves. Safe to share between threads."""

    names: tuple[str, ...]
    store: Store
    settings_of: Callable[[str], StackSettings | None]
    cluster_of: Callable[[str], Cluster]
    """A stack's cluster; NotFound where it has none yet."""
    growth_of: Callable[[str, bool], Iterable[NodeCapacity]] = field(default=lambda stack, simulated: ())
    """Nodes that a stack's pools may still add, for runs that execute or (True) only schedule."""
    check_hold: Callable[[str], None] = field(default=lambda stack: None)
    """Refuses runs for a stack that is being moved."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._clusters: dict[str, Cluster] = {}
        self._watchers: dict[str, Watcher] = {}
        self._digests: dict[str, str] = {}

    def places(self) -> list[Place]:
        """See platform.Platform."""
        found = [(name, self.settings_of(name)) for name in self.names]
        return [
            Place(name, item.cloud, item.region, item.mode, _cards(item)) for name, item in found if item is not None
        ]

    def forecast(self, order: Order) -> Amount:
        """See platform.Platform."""
        settings = self.settings_of(order.stack)
        if settings is None or not load_catalog().has_prices(settings.cloud):
            return NOTHING
        return guard.expected(order.spec, settings, order.simulated_seconds)

    def check_budgets(self, order: Order, *, queued: Callable[[], Amount], now: datetime) -> None:
        """See platform.Platform."""
        self.check_hold(order.stack)
        with self._within_budgets(order, queued, now):
            pass  # nothing is submitted yet: it is asked again when it is

    def budgets(self, *, project: str, now: datetime) -> list[Standing]:
        """See platform.Platform."""
        rows = [row for row in ledger.budgets(self.store) if (row.kind, row.name) == ("project", project)]
        return [
            standing
            for row in rows
            for standing in standings(
                [row], guard.used(self.store, self.settings_of, now, simulated=row.simulated), now=now
            )
        ]

    def submit(self, order: Order) -> None:
        """See platform.Platform."""
        settings = self.settings_of(order.stack)
        if settings is None:
            raise Refused(f"there is no stack {order.stack} any more", subject=f"stack {order.stack}")
        try:
            self.check_hold(order.stack)
        except Refused as error:  # what was queued before the move waits for its end
            raise NotReady(error.message, subject=error.subject, remedy=error.remedy) from error
        # A run that was begun before counts itself already.
        begun = self.store.find(order.id) is not None
        budgets = nullcontext() if begun else self._within_budgets(order, lambda: NOTHING, datetime.now(UTC))
        with self._asking(order.stack) as cluster, budgets:
            submit(
                cluster,
                self.store,
                order.spec,
                stack=order.stack,
                binding=bindings.for_cloud(settings.cloud),
                simulated_seconds=order.simulated_seconds,
                growth=self.growth_of(order.stack, order.simulated_seconds is not None),
                user=order.user,
                project=order.project,
                namespace=order.namespace,
                identity=order.id,
            )

    def look(self, order: Order) -> Seen:
        """See platform.Platform."""
        with self._asking(order.stack) as cluster:
            watcher, is_new = self._watcher(cluster, order)
            snapshot, fresh = watcher.look()
            digest = self._image(cluster, snapshot.run) if snapshot.run.started else ""
        metrics = self.store.metrics(snapshot.run) if is_new else fresh
        run = snapshot.run
        if run.state.final:
            with self._lock:
                self._watchers.pop(order.id, None)
                self._digests.pop(order.id, None)
        return Seen(
            state=RunState(run.state.value),
            reason=run.reason,
            waiting=snapshot.waiting,
            started=run.started,
            finished=run.finished,
            image_digest=digest,
            metrics=tuple(_measured(item) for item in metrics),
        )

    def cancel(self, order: Order) -> RunState:
        """See platform.Platform."""
        with self._asking(order.stack) as cluster:
            run = self._run(cluster, order)
            try:
                run = cancelling.cancel(cluster, self.store, run)
            except Refused:
                run = self.store.get(run.id)
                if not run.state.final:
                    raise
            if run.state in (State.CANCELLED, State.LOST):
                # A submission that somebody had begun may have come after the look.
                cluster.delete(run.api_version, order.spec.kind, run.job, run.namespace)
                return RunState.CANCELLED
            return RunState(run.state.value)

    def changes(self, stack: str, stop: threading.Event) -> Iterator[str]:
        """See platform.Platform."""
        cluster = self._cluster(stack)
        for _, pod in cluster.watch("v1", "Pod", selector=labels.RUN, seconds=WATCH_SECONDS):
            if stop.is_set():
                return
            yield str(pod["metadata"]["labels"][labels.RUN])

    def logs(self, order: Order, *, role: str | None, rank: int | None, follow: bool) -> Iterator[LogLine]:
        """See platform.Platform."""
        with self._asking(order.stack) as cluster:
            run = self._run(cluster, order)
            for line in run_logs.stream(cluster, run, role=role, rank=rank, follow=follow, pause=lambda: time.sleep(1)):
                yield LogLine(line.role, line.rank, line.at, line.text)

    def artefacts(self, order: Order) -> list[dict[str, Any]]:
        """See platform.Platform."""
        with self._asking(order.stack) as cluster:
            run = self._run(cluster, order)
            present = set(cancelling.claims(cluster, run))
        return [
            {
                "volume": name,
                "role": volume.role,
                "path": volume.mount_path,
                "size": volume.size,
                "namespace": order.namespace,
                "present": name in present,
            }
            for volume in order.spec.volumes
            for name in [f"{run.job}-{volume.name}"]
        ]

    def _within_budgets(
        self, order: Order, queued: Callable[[], Amount], now: datetime
    ) -> AbstractContextManager[None]:
        return guard.within_budgets(
            self.store,
            order.spec,
            self.settings_of,
            stack=order.stack,
            user=order.user,
            project=order.project,
            seconds=order.simulated_seconds,
            now=now,
            queued=queued,
        )

    def _watcher(self, cluster: Cluster, order: Order) -> tuple[Watcher, bool]:
        with self._lock:
            known = self._watchers.get(order.id)
        if known is not None:
            return known, False
        made = Watcher(cluster, self.store, self._run(cluster, order))
        with self._lock:
            self._watchers[order.id] = made
        return made, True

    def _run(self, cluster: Cluster, order: Order) -> Run:
        """The run's record here; made where another machine submitted it."""
        run = self.store.begin(
            order.spec,
            stack=order.stack,
            namespace=order.namespace,
            simulated_seconds=order.simulated_seconds,
            owner=SERVICE,
            user=order.user,
            project=order.project,
            identity=order.id,
        )
        return run if run.cluster_uid else self.store.set_cluster(run, cluster_uid(cluster))

    def _image(self, cluster: Cluster, run: Run) -> str:
        """The digest of the image that its containers really run, as the kubelet says it."""
        if run.simulated or run.id in self._digests:
            return self._digests.get(run.id, "")
        for pod in run_logs.pods_of(cluster, run):
            for status in (pod.get("status") or {}).get("containerStatuses") or ():
                if status.get("imageID"):
                    self._digests[run.id] = str(status["imageID"])
                    return self._digests[run.id]
        return ""

    def _cluster(self, stack: str) -> Cluster:
        with self._lock:
            if stack not in self._clusters:
                self._clusters[stack] = self.cluster_of(stack)
            return self._clusters[stack]

    @contextmanager
    def _asking(self, stack: str) -> Iterator[Cluster]:
        """A stack's cluster for one piece of work. After an error the next one asks anew where the cluster is: it may have
        been made anew, with another address."""
        try:
            cluster = self._cluster(stack)
        except NotFound as error:
            # Not refused for good: its cluster may be on its way.
            raise NotReady(error.message, subject=error.subject, remedy=error.remedy) from error
        try:
            yield cluster
        except IsthmusError as error:
            if not isinstance(error, Refused | NotFound):
                self._forget(stack)
            raise

    def _forget(self, stack: str) -> None:
        with self._lock:
            self._clusters.pop(stack, None)
            self._watchers = {key: item for key, item in self._watchers.items() if item.run.stack != stack}


def _cards(settings: StackSettings) -> dict[str, int]:
    """Cards of a stack's pools by model."""
    found: dict[str, int] = {}
    for pool in settings.gpu_pools:
        if pool.gpu is not None:
            found[pool.gpu.model] = found.get(pool.gpu.model, 0) + pool.size * pool.gpu.count
    return found


def _measured(metric: Metric) -> Measured:
    return Measured(
        metric.name, metric.value, metric.epoch, metric.step, metric.role, metric.rank, metric.at, metric.restart
    )
