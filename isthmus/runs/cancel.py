"""Cancels a run: its last metrics are kept, its job goes, its volumes stay."""

from isthmus.kube import wait
from isthmus.kube.client import Cluster
from isthmus.runs.model import Run, State
from isthmus.runs.store import Store
from isthmus.runs.watch import Watcher
from isthmus.specs import labels
from isthmus.specs.errors import NotFound, Refused
from workloads import render

GONE_SECONDS = 90
"""Pods get 30 s to end by themselves (Kubernetes' default grace period); the rest is for the kubelet."""


def cancel(cluster: Cluster, store: Store, run: Run, *, delete_volumes: bool = False) -> Run:
    """Stop a run and wait until its pods are gone. Doing it again finishes what was interrupted.

    Of a run that has failed it stops the pods that still run (they keep their GPUs, and their logs as evidence); its state
    stays Failed.

    Args:
        delete_volumes: also its volume claims, with the checkpoints in them; then of any run.

    Raises:
        Refused: it has ended and nothing of it runs; or the stack itself deployed its job, which the engine would then miss.
        NotReady: pods were still there after GONE_SECONDS, or the cluster cannot be reached.
    """
    if not run.state.final:
        run = Watcher(cluster, store, run).look()[0].run
    if run.state.final and not delete_volumes and not _running(cluster, run):
        raise Refused(
            f"run {run.id} has already ended ({run.state}) and nothing of it runs",
            subject=f"run {run.id}",
            remedy=f"isthmus runs show {run.id}",
        )
    if run.job == render.job_name(run.spec, None):
        sample = run.spec.name
        raise Refused(
            f"the stack itself deployed {sample}: Pulumi manages its job, and would find it gone",
            subject=f"run {run.id}",
            remedy=f"take {sample} out of isthmus:samples in stacks/Pulumi.{run.stack}.yaml, then isthmus up {run.stack};"
            f" or isthmus down {run.stack}",
        )
    cluster.delete(run.api_version, run.spec.kind, run.job, run.namespace, propagation="Foreground")
    wait.until(
        lambda: not cluster.list("v1", "Pod", run.namespace, selector=run.selector),
        seconds=GONE_SECONDS,
        what=f"the pods of run {run.id} to end",
        subject=f"run {run.id}",
        remedy=f"isthmus cancel {run.id}",
    )
    if delete_volumes:
        for claim in claims(cluster, run):
            cluster.delete("v1", "PersistentVolumeClaim", claim, run.namespace)
    return store.record(run, State.CANCELLED, reason="cancelled by `isthmus cancel`")


def claims(cluster: Cluster, run: Run) -> list[str]:
    """Names of a run's volume claims."""
    try:
        found = cluster.list("v1", "PersistentVolumeClaim", run.namespace, selector={labels.RUN: run.id})
    except NotFound:
        return []
    return [str(item["metadata"]["name"]) for item in found]


def _running(cluster: Cluster, run: Run) -> bool:
    return any(
        (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}
        for pod in cluster.list("v1", "Pod", run.namespace, selector=run.selector)
    )
