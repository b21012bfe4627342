"""Submits a run: checks first, then writes the intent down, then tells the cluster.

The order makes a kill -9 harmless. Killed before the intent: nothing happened. Killed after it: the run has its id and
its object names, the same request typed again finishes that very run, and applying what is there already changes
nothing. So one run is never two jobs.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from isthmus import catalog
from isthmus.kube import claims, wait
from isthmus.kube.client import Cluster
from isthmus.runs import observe
from isthmus.runs.model import Run, State
from isthmus.runs.store import Store
from isthmus.specs import labels
from isthmus.specs.errors import NotFound, NotReady, Refused
from isthmus.specs.sharing import GpuSharing
from isthmus.specs.workload import WorkloadSpec
from workloads import fit, render, trainjob
from workloads.bindings import Binding

SERVICE = "service"
"""Owner of runs that the training service submits: it alone goes on with one that was interrupted."""

ADVERTISE_SECONDS = 30
"""How long the device plugin may take to advertise the cards of a node that is meant to have some."""

RUNTIME_SECONDS = 20
"""How long Trainer may take to hear of a TrainingRuntime. It watches them, so it is a moment."""


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
    namespace: str = labels.RUNS_NAMESPACE,
    identity: str | None = None,
) -> Run:
    """Submit a workload and return its run.

    Args:
        stack: name of the stack that the cluster belongs to.
        simulated_seconds: only schedule it, on simulated nodes, for so long; nothing is computed.
        growth: nodes that the stack's pools may still add.
        tell: told in a sentence what a person should know (an interrupted submission that is taken up).
        user, project: whose it is, for bills and budgets.
        namespace: where its objects go.
        identity: the run's id, where the training service has given it one: then doing it again, whoever does it, goes on
            with that very run, and one that the cluster has had is left alone.

    Raises:
        Refused: no node can run it, the cluster lacks the operator or the storage class, or it has no simulated nodes.
        InvalidSpec, Refused: the API server or the operator's webhook finds it wrong. Nothing was created.
        NotReady: the cluster cannot be reached; the run stays written down and the same command finishes it.
    """
    if identity and (known := _known(cluster, store, identity, binding)) is not None:
        return known
    check(cluster, spec, stack=stack, binding=binding, simulated_seconds=simulated_seconds, growth=growth, tell=tell)
    marks, notes = pod_marks(simulated_seconds)
    ensure_namespace(cluster, namespace)
    rehearsal = render.render(
        spec, namespace=namespace, binding=binding, run="rehearsal", pod_labels=marks, pod_annotations=notes
    )
    for manifest in rehearsal:
        # Of such a TrainJob, Trainer's webhook would look for the runtime, which is not there yet.
        if not trainjob.brings_runtime(manifest):
            cluster.apply(manifest, dry_run=True)
    interrupted = None if identity else _take_up(store, spec, stack, simulated_seconds, tell)
    run = interrupted or store.begin(
        spec,
        stack=stack,
        namespace=namespace,
        simulated_seconds=simulated_seconds,
        owner=SERVICE if identity else owner(),
        user=user,
        project=project,
        identity=identity,
    )
    if run.state is not State.SUBMITTING:
        return run
    run = store.set_cluster(run, cluster_uid(cluster))
    manifests = render.render(
        spec, namespace=namespace, binding=binding, run=run.id, pod_labels=marks, pod_annotations=notes
    )
    made = [_apply(cluster, manifest) for manifest in manifests]
    _own_claims(cluster, made[-1], manifests)
    return store.record(run, State.PENDING)


def _apply(cluster: Cluster, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Apply one; a TrainJob when Trainer's webhook has heard of its runtime, which came a moment before it."""
    if not trainjob.brings_runtime(manifest):
        return cluster.apply(manifest)

    def look() -> dict[str, Any] | None:
        try:
            return cluster.apply(manifest)
        except Refused as error:
            if "must be created before the TrainJob" not in error.message:
                raise
            return None

    return wait.until(
        look, seconds=RUNTIME_SECONDS, what=f"Trainer to know the runtime of {manifest['metadata']['name']}"
    )


def _own_claims(cluster: Cluster, job: Mapping[str, Any], manifests: Iterable[Mapping[str, Any]]) -> None:
    """A run's claims on cards, and a TrainJob's own runtime, go when its job goes; the job comes after them, so it is told
    afterwards."""
    owner = {key: job[key] for key in ("apiVersion", "kind")} | {key: job["metadata"][key] for key in ("name", "uid")}
    for item in manifests:
        goes = item["apiVersion"] == claims.API or item["kind"] == trainjob.RUNTIME
        if goes and labels.RUN in item["metadata"]["labels"]:
            cluster.apply({**item, "metadata": {**item["metadata"], "ownerReferences": [owner]}})


def adopt(cluster: Cluster, store: Store, spec: WorkloadSpec, *, stack: str) -> Run:
    """The run of a sample that `up` itself deployed, so that it is followed and its metrics are kept like any other.

    Doing it again gives the same run.

    Raises:
        NotFound: the stack has no such job.
    """
    name, namespace = render.job_name(spec, None), labels.RUNS_NAMESPACE
    job = cluster.get(spec.form.api_version, spec.kind, name, namespace)
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
    tell: Callable[[str], None] = lambda text: None,
) -> None:
    """Refuse what cannot run there. Only reads. Arguments and errors as of `submit`."""
    _check_operator(cluster, spec, stack)
    _check_storage(cluster, spec, stack, binding)
    nodes = _nodes_with_cards(cluster, spec, simulated=simulated_seconds is not None)
    simulated = [node for node, only_schedules in nodes if only_schedules]
    if simulated_seconds is None:
        _check_executes(spec, [node for node, schedules in nodes if not schedules], simulated, growth, stack)
        return
    more = list(growth)
    if more and not _fits(spec, simulated):
        tell("not all of its pods fit the nodes that there are: they wait until an autoscaler makes more of a pool")
    simulated += more
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


def capacity(node: Mapping[str, Any], cards: int = 0) -> fit.NodeCapacity:
    """The cards of a node.

    Args:
        cards: those that pods may claim.
    """
    name, marks = str(node["metadata"]["name"]), node["metadata"].get("labels") or {}
    offered = observe.node_of(node, seen=datetime.now(UTC)).advertised
    model = marks.get(labels.GPU_MODEL)
    sharing = GpuSharing.from_config_name(marks.get(labels.DEVICE_PLUGIN_CONFIG, ""))
    return fit.NodeCapacity(
        name=name,
        gpus=offered.get(labels.GPU_RESOURCE, 0),
        model=model,
        parts={key: count for key, count in offered.items() if key != labels.GPU_RESOURCE and count},
        claimable=fit.claimable(catalog.load(), model, cards) if model else {},
        one_each=fit.one_each(sharing) or observe.GKE_CLIENTS in marks,
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


def _check_operator(cluster: Cluster, spec: WorkloadSpec, stack: str) -> None:
    try:
        cluster.list(spec.form.api_version, spec.kind, labels.RUNS_NAMESPACE)
    except NotFound as error:
        operator = spec.form.operator
        raise Refused(
            f"the cluster does not know {spec.kind}: the {operator} is not there",
            subject=f"stack {stack}",
            remedy=f"isthmus up {stack}, with {operator} under isthmus:operators in stacks/Pulumi.{stack}.yaml",
        ) from error


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


def _check_executes(
    spec: WorkloadSpec,
    executing: list[fit.NodeCapacity],
    simulated: list[fit.NodeCapacity],
    growth: Iterable[fit.NodeCapacity],
    stack: str,
) -> None:
    if not simulated:
        fit.check(spec, [*executing, *growth])
        return
    try:
        fit.check(spec, executing)
    except Refused as error:
        # Pods run for real on the local node only; the simulated ones can still show that it would schedule.
        fitting = "" if _fits(spec, simulated) else ", and it fits no simulated node either"
        raise Refused(
            f"{error.message}: only the local node runs containers{fitting}",
            subject=error.subject,
            remedy=f"isthmus run {spec.name} -s {stack} --simulate 90s only schedules it, on the simulated nodes",
        ) from error


def _fits(spec: WorkloadSpec, nodes: list[fit.NodeCapacity]) -> bool:
    try:
        fit.check(spec, nodes)
    except Refused:
        return False
    return True


def _nodes_with_cards(cluster: Cluster, spec: WorkloadSpec, *, simulated: bool) -> list[tuple[fit.NodeCapacity, bool]]:
    """All nodes, each with whether it only schedules, after those that are meant to have cards had a moment to offer them
    (just after `up`)."""
    found: list[tuple[fit.NodeCapacity, bool]] = []

    def look() -> bool:
        cards = _claimable_cards(cluster) if spec.claims else {}
        found[:] = [
            (capacity(node, cards.get(node["metadata"]["name"], 0)), is_simulated(node))
            for node in cluster.list("v1", "Node")
        ]
        meant = [node for node, only_schedules in found if only_schedules == simulated and node.model]
        return not meant or any(node.offers for node in meant)

    if spec.on_cards:
        with contextlib.suppress(NotReady):  # then the check says what there is
            wait.until(look, seconds=ADVERTISE_SECONDS, what="a node to offer its GPUs")
    else:
        look()
    return found


def _claimable_cards(cluster: Cluster) -> dict[str, int]:
    """Node name to the cards that its DRA driver has published."""
    slices = cluster.list(claims.API, "ResourceSlice")
    whole = [
        pool for (pool, _), device in claims.published(slices).items() if claims.attribute(device, "type") == "gpu"
    ]
    return dict(Counter(whole))


def _known(cluster: Cluster, store: Store, identity: str, binding: Binding) -> Run | None:
    """A run that the cluster has, or has had, with what was missing of its record; None where it is still to be submitted."""
    run = store.find(identity)
    if run is None or run.state is not State.SUBMITTING:
        return run
    try:
        job = cluster.get(run.api_version, run.spec.kind, run.job, run.namespace)
    except NotFound:
        return None
    manifests = render.render(run.spec, namespace=run.namespace, binding=binding, run=run.id)
    _own_claims(cluster, job, manifests)  # the one thing that comes after the job
    return store.record(store.set_cluster(run, cluster_uid(cluster)), State.PENDING)


def _take_up(
    store: Store, spec: WorkloadSpec, stack: str, simulated_seconds: float | None, tell: Callable[[str], None]
) -> Run | None:
    """The same request whose command was killed between intent and submission, if there is one."""
    for run, its_owner in store.submitting(spec, stack=stack, simulated_seconds=simulated_seconds):
        ours = run.job == render.job_name(spec, run.id)  # and not a sample's that somebody was about to follow
        if ours and its_owner != SERVICE and not lives(its_owner) and store.own(run, owner(), instead_of=its_owner):
            tell(
                f"run {run.id} was interrupted while it was being submitted at {run.created:%H:%M:%S}: going on with it"
            )
            return run
    return None
