"""The part of a move that is done in the two clusters and in runs.db: stopping runs, their volumes, making jobs anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from isthmus.kube import wait
from isthmus.kube.client import Cluster
from isthmus.migration.move import volumes
from isthmus.migration.move.endings import Endings
from isthmus.migration.move.record import VolumeRow
from isthmus.runs.model import Run, State
from isthmus.runs.store import Store
from isthmus.runs.submit import cluster_uid, ensure_namespace, pod_marks
from isthmus.runs.watch import Watcher
from isthmus.specs.errors import NotFound, NotReady
from workloads import render
from workloads.bindings import Binding

STOP_SECONDS = 120
"""Pods get their grace period (30 s by default) to write a checkpoint; the rest is for operator and kubelet."""
LOOK = 0.5


@dataclass
class Side:
    """One stack, as far as runs are concerned."""

    stack: str
    binding: Binding
    kubeconfig: Callable[[], dict[str, Any]]

    @cached_property
    def cluster(self) -> Cluster:
        """Its cluster; asked for when it is first needed, since a destination may not be up before."""
        return Cluster(self.kubeconfig())

    @property
    def end(self) -> volumes.End:
        """The same for volumes."""
        return volumes.End(self.stack, self.cluster, self.kubeconfig())


class Clusters:
    """Runs between two stacks."""

    def __init__(self, here: Side, there: Side, store: Store, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """
        Args:
            here, there: source and destination of the move.
        """
        self._here, self._there, self._store, self._sleep = here, there, store, sleep

    def active(self, *, there: bool) -> list[Run]:
        """Runs that have not ended, as they are now; not those that the program itself deploys."""
        side = self._side(there)
        known = [
            run
            for run in self._store.runs(stack=side.stack)
            if not run.state.final and run.job != render.job_name(run.spec, None)
        ]
        looked = [Watcher(side.cluster, self._store, run).look()[0].run for run in known]
        return [run for run in reversed(looked) if not run.state.final]

    def wait(self, run: Run) -> None:
        """Wait until a run at the source has ended: as long as it takes."""
        watcher = Watcher(self._here.cluster, self._store, run)
        while not watcher.look()[0].run.state.final:
            self._sleep(LOOK * 2)

    def run(self, identity: str) -> Run:
        """A run as runs.db has it."""
        return self._store.get(identity)

    def suspended(self, run: Run, *, there: bool) -> bool | None:
        """See World."""
        try:
            job = self._side(there).cluster.get(run.api_version, run.spec.kind, run.job, run.namespace)
        except NotFound:
            return None
        spec = job["spec"] if run.spec.kind == "Job" else job["spec"].get("runPolicy") or {}
        return bool(spec.get("suspend"))

    def stop(self, run: Run, *, there: bool) -> bool:
        """See World. The job is suspended before it is deleted: one that ends in between, or whose processes all end well in
        their grace period, is seen to have ended, so that no job is done twice."""
        side = self._side(there)
        endings = Endings(side.cluster, run)
        try:
            return self._stopped(run, side, endings)
        finally:
            endings.close()

    def _stopped(self, run: Run, side: Side, endings: Endings) -> bool:
        place = (run.api_version, run.spec.kind, run.job, run.namespace)
        try:
            side.cluster.patch(run.api_version, run.spec.kind, run.job, _suspended(run, True), run.namespace)
        except NotFound:
            return True  # stopped before, by a move that was ended here
        # It keeps what pods print: a process that does not heed SIGTERM prints to its last moment, and its pod goes with it.
        watcher = Watcher(side.cluster, self._store, run, keep=True)

        def gone() -> bool:
            """Looks at the logs until the last pod is gone, so that the metrics of its last seconds are kept. An API server
            that is away is waited for, too."""
            try:
                state = watcher.look()[0].run.state
                return state.final or not side.cluster.list("v1", "Pod", run.namespace, selector=run.selector)
            except NotReady:
                return False

        end = time.monotonic() + STOP_SECONDS
        while not gone():
            if time.monotonic() > end:
                raise NotReady(
                    f"the pods of run {run.id} did not end in {STOP_SECONDS} s", subject=f"run {run.id} of {side.stack}"
                )
            self._sleep(LOOK)
        if watcher.look()[0].run.state.final:  # once more: what the pods printed after the last look is taken now
            return False
        over = endings.well()
        if over:
            self._store.record(run, State.SUCCEEDED, replicas=endings.replicas())
        self._store.set_cluster(run, "")  # or whoever looks at it meanwhile would call it lost
        side.cluster.delete(*place, propagation="Foreground")
        wait.gone(side.cluster, *place, seconds=STOP_SECONDS)
        return not over

    def copy_volumes(self, run: Run, *, back: bool) -> list[VolumeRow]:
        """See World."""
        source, destination = self._side(there=back), self._side(there=not back)
        ensure_namespace(destination.cluster, run.namespace)
        copied = []
        for claim in (item for item in self._manifests(run, destination) if item["kind"] == "PersistentVolumeClaim"):
            destination.cluster.apply(claim)
            content = volumes.copy(source.end, destination.end, claim, run.spec.image)
            if content is not None:
                name = claim["metadata"]["name"]
                copied.append(VolumeRow(name, run.id, content.files, content.bytes, content.digest))
        return copied

    def start(self, run: Run, *, there: bool, suspended: bool) -> None:
        """See World."""
        side = self._side(there)
        ensure_namespace(side.cluster, run.namespace)
        for manifest in self._manifests(run, side):
            side.cluster.apply(manifest)
        # One that a stop was ended in the middle of is still there, suspended.
        side.cluster.patch(run.api_version, run.spec.kind, run.job, _suspended(run, suspended), run.namespace)
        moved = self._store.move(run, stack=side.stack, cluster_uid=cluster_uid(side.cluster))
        self._store.record(moved, State.PENDING)

    def _manifests(self, run: Run, side: Side) -> list[dict[str, Any]]:
        marks, notes = pod_marks(run.simulated_seconds)
        return render.render(
            run.spec,
            namespace=run.namespace,
            binding=side.binding,
            run=run.id,
            pod_labels=marks,
            pod_annotations=notes,
        )

    def _side(self, there: bool) -> Side:
        return self._there if there else self._here


def _suspended(run: Run, suspend: bool) -> Mapping[str, Any]:
    """A patch that makes the job's own operator take its pods away, or make them."""
    return {"spec": {"suspend": suspend}} if run.spec.kind == "Job" else {"spec": {"runPolicy": {"suspend": suspend}}}
