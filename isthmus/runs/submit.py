"""Submits a run: checks first, then writes the intent down, then tells the cluster.

The order makes a kill -9 harmless. Killed before the intent: nothing happened. Killed after it: the run has its id and
its object names, the same request typed again finishes that very run, and applying what is there already changes
nothing. So one run is never two jobs.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from isthmus.kube import wait
from isthmus.kube.client import Cluster, Object
from isthmus.kube.objects import quantity
from isthmus.runs.model import Run, State
from isthmus.runs.store import Store
from isthmus.specs import labels
from isthmus.specs.errors import NotFound, NotReady, Refused
from isthmus.specs.workload import WorkloadSpec
from workloads import fit, render
from workloads.bindings import Binding

ADVERTISE_SECONDS = 30
"""How long the device plugin may take to advertise the cards of a node that is meant to have some."""


def submit(
    cluster: Cluster,
    store: Store,
    spec: WorkloadSpec,
    *,
    stack: str,
    binding: Binding,
    simulated_seconds: float | None = None,
    growth: Iterable[fit.NodeCapacity] = (),
    tell: Callable[[str], None] = lambda text: None,
    user: str = "",
    project: str = "",
) -> Run:
    """Submit a workload and return its run.

    Args:
        stack: name of the stack that the cluster belongs to.
        simulated_seconds: only schedule it, on simulated nodes, for so long; nothing is computed.
        growth: nodes that the stack's pools may still add.
        tell: told in a sentence what a person should know (an interrupted submission that is taken up).
        user, project: whose it is, for bills and budgets.

    Raises:
        Refused: no node can run it, the cluster lacks the operator or the storage class, or it has no simulated nodes.
        InvalidSpec, Refused: the API server or the operator's webhook finds it wrong. Nothing was created.
        NotReady: the cluster cannot be reached; the run stays written down and the same command finishes it.
    """
    check(cluster, spec, stack=stack, binding=binding, simulated_seconds=simulated_seconds, growth=growth)
    marks, notes = pod_marks(simulated_seconds)
    namespace = labels.RUNS_NAMESPACE
    ensure_namespace(cluster, namespace)
    rehearsal = render.render(
        spec, namespace=namespace, binding=binding, run="rehearsal", pod_labels=marks, pod_annotations=notes
    )
    for manifest in rehearsal:
        cluster.apply(manifest, dry_run=True)
    run = _take_up(store, spec, stack, simulated_seconds, tell) or store.begin(
        spec,
        stack=stack,
        namespace=namespace,
        simulated_seconds=simulated_seconds,
        owner=owner(),
        user=user,
        project=project,
    )
    run = store.set_cluster(run, cluster_uid(cluster))
    for manifest in render.render(
        spec, namespace=namespace, binding=binding, run=run.id, pod_labels=marks, pod_annotations=notes
    ):
        cluster.apply(manifest)
    return store.record(run, State.PENDING)


def adopt(cluster: Cluster, store: Store, spec: WorkloadSpec, *, stack: str) -> Run:
    """The run of a sample that `up` itself deployed, so that it is followed and its metrics are kept like any other.

    Doing it again gives the same run.

    Raises:
        NotFound: the stack has no such job.
    """
    name, namespace = render.job_name(spec, None), labels.RUNS_NAMESPACE
    job = cluster.get("kubeflow.org/v1", spec.kind, name, namespace)
    uid = cluster_uid(cluster)
    for run in store.runs(stack=stack):
        if run.job == name and run.cluster_uid == uid:
            return run
    made = datetime.fromisoformat(str(job["metadata"]["creationTimestamp"]))
    run = store.begin(
        spec, stack=stack, namespace=namespace, simulated_seconds=None, owner=owner(), job=name, created=made
    )
    return store.record(store.set_cluster(run, uid), State.PENDING)


def check(
    cluster: Cluster,
    spec: WorkloadSpec,
    *,
    stack: str,
    binding: Binding,
    simulated_seconds: float | None = None,
    growth: Iterable[fit.NodeCapacity] = (),
) -> None:
    """Refuse what cannot run there. Only reads. Errors as of `submit`."""
    try:
        cluster.list("kubeflow.org/v1", spec.kind, labels.RUNS_NAMESPACE)
    except NotFound as error:
        raise Refused(
            f"the cluster does not know {spec.kind}: the training operator is not there",
            subject=f"stack {stack}",
            remedy=f"isthmus up {stack}",
        ) from error
    _check_storage(cluster, spec, stack, binding)
    nodes = _nodes_with_cards(cluster, spec, simulated=simulated_seconds is not None)
    if simulated_seconds is None:
        _check_executes(spec, nodes, growth, stack)
        return
    simulated = [capacity(node) for node in nodes if is_simulated(node)]
    if not simulated:
        raise Refused(
            "this cluster has no simulated nodes, so every pod would really run",
            subject=f"stack {stack}",
            remedy="leave --simulate out",
        )
    fit.check(spec, simulated)


def pod_marks(simulated_seconds: float | None) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations that let pods land on simulated nodes and say how long they take there."""
    if simulated_seconds is None:
        return {}, {}
    return {labels.EXECUTION: labels.EXECUTION_SIMULATED}, {labels.DURATION: f"{simulated_seconds:g}s"}


def ensure_namespace(cluster: Cluster, namespace: str) -> None:
    """Make the namespace of runs and its service account where the stack has not; leave them alone where it has."""
    try:
        cluster.get("v1", "ServiceAccount", labels.RUNS_ACCOUNT, namespace)
    except NotFound:
        for manifest in render.namespace(namespace, labels.RUNS_ACCOUNT, {}):
            cluster.apply(manifest)


def cluster_uid(cluster: Cluster) -> str:
    """What tells one cluster from another of the same name: the uid of its first namespace."""
    return str(cluster.get("v1", "Namespace", "kube-system")["metadata"]["uid"])


def capacity(node: Mapping[str, Any]) -> fit.NodeCapacity:
    """The cards of a node."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    metadata = node.get("metadata") or {}
    return fit.NodeCapacity(
        name=str(metadata.get("name")),
        gpus=int(quantity(allocatable.get(labels.GPU_RESOURCE, 0))),
        model=(metadata.get("labels") or {}).get(labels.GPU_MODEL),
    )


def is_simulated(node: Mapping[str, Any]) -> bool:
    """Whether a node only schedules."""
    return any(taint.get("key") == labels.SIMULATED_TAINT for taint in (node.get("spec") or {}).get("taints") or ())


def owner() -> str:
    """This process, so that another can tell whether it still lives: pid and start time (a pid is used again)."""
    import psutil

    return f"{os.getpid()}@{psutil.Process().create_time():.2f}"


def lives(owner_text: str) -> bool:
    """Whether the process of `owner` still runs on this machine."""
    import psutil

    pid, _, created = owner_text.partition("@")
    try:
        return f"{psutil.Process(int(pid)).create_time():.2f}" == created
    except (psutil.Error, ValueError):
        return False


def _check_storage(cluster: Cluster, spec: WorkloadSpec, stack: str, binding: Binding) -> None:
    if not spec.volumes or binding.storage_class is None:
        return
    names = sorted(str(item["metadata"]["name"]) for item in cluster.list("storage.k8s.io/v1", "StorageClass"))
    if binding.storage_class not in names:
        raise Refused(
            f"the cluster has no storage class {binding.storage_class} for the workload's volumes"
            f" (it has: {', '.join(names) or 'none'})",
            subject=f"stack {stack}",
            remedy=f"isthmus up {stack}",
        )


def _check_executes(spec: WorkloadSpec, nodes: list[Object], growth: Iterable[fit.NodeCapacity], stack: str) -> None:
    executing = [capacity(node) for node in nodes if not is_simulated(node)]
    if len(executing) == len(nodes):
        fit.check(spec, [*executing, *growth])
        return
    try:
        fit.check(spec, executing)
    except Refused as error:
        # Pods run for real on the local node only; the simulated ones can still show that it would schedule.
        fitting = "" if _fits_simulated(spec, nodes) else ", and it fits no simulated node either"
        raise Refused(
            f"{error.message}: only the local node runs containers{fitting}",
            subject=error.subject,
            remedy=f"isthmus run {spec.name} -s {stack} --simulate 90s only schedules it, on the simulated nodes",
        ) from error


def _fits_simulated(spec: WorkloadSpec, nodes: list[Object]) -> bool:
    try:
        fit.check(spec, [capacity(node) for node in nodes if is_simulated(node)])
    except Refused:
        return False
    return True


def _nodes_with_cards(cluster: Cluster, spec: WorkloadSpec, *, simulated: bool) -> list[Object]:
    """All nodes, after those that are meant to have cards had a moment to advertise them (just after `up`)."""

    def look() -> list[Object] | None:
        nodes = cluster.list("v1", "Node")
        meant = [node for node in nodes if is_simulated(node) == simulated and capacity(node).model]
        return nodes if not meant or any(capacity(node).gpus for node in meant) else None

    if not spec.gpus:
        return cluster.list("v1", "Node")
    try:
        return wait.until(look, seconds=ADVERTISE_SECONDS, what="a node to advertise its GPUs")
    except NotReady:
        return cluster.list("v1", "Node")


def _take_up(
    store: Store, spec: WorkloadSpec, stack: str, simulated_seconds: float | None, tell: Callable[[str], None]
) -> Run | None:
    """The same request whose command was killed between intent and submission, if there is one."""
    for run, its_owner in store.submitting(spec, stack=stack, simulated_seconds=simulated_seconds):
        ours = run.job == render.job_name(spec, run.id)  # and not a sample's that somebody was about to follow
        if ours and not lives(its_owner) and store.own(run, owner(), instead_of=its_owner):
            tell(
                f"run {run.id} was interrupted while it was being submitted at {run.created:%H:%M:%S}: going on with it"
            )
            return run
    return None
