"""isthmus run: submit a workload to a stack, and with --follow see it to its end."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from isthmus.cli.output import Progress, is_terminal, print_json
from isthmus.specs.errors import InvalidSpec

if TYPE_CHECKING:
    from isthmus.kube import Cluster
    from isthmus.runs.model import Metric, Run, Snapshot
    from isthmus.runs.store import Store
    from workloads.fit import NodeCapacity

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it (128 + SIGINT)."""


def run(
    workload: str,
    *,
    stack: Annotated[str, Parameter(name=["--stack", "-s"])],
    changes: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="")] = False,
    simulate: str | None = None,
    project: str = "default",
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Submit a workload to a stack.

    With --follow the exit code is 0 only when the run succeeded and reached every metric the workload requires.

    Parameters
    ----------
    workload
        Name of a sample, or path of a workload file.
    stack
        Name of the stack, for example aws-sim.
    changes
        Change a field for this run: --set roles.Worker.replicas=1 --set env.EPOCHS=5.
    follow
        Stay and show what happens until the run ends. Ctrl-C leaves the run going.
    simulate
        Only schedule it, on simulated nodes, and let it take so long (90s, 2m, 1h30m). Nothing is computed.
    project
        What it is for: bills and budgets go by it, and by the name you are logged in with.
    json
        Print the run as JSON at the end.
    """
    from isthmus.cli.budget import within_budgets
    from isthmus.cli.migration_world import check_hold
    from isthmus.cli.project import settings
    from isthmus.runs.model import parse_duration
    from isthmus.runs.submit import submit
    from workloads import bindings, render

    spec = render.load(workload, _pairs(changes))
    seconds = parse_duration(simulate) if simulate is not None else None
    stack_settings = settings(stack)
    check_hold(stack)
    cluster, store = cluster_of(stack), open_store()
    progress = Progress(f"run {spec.name}")
    try:
        with within_budgets(
            store, spec, stack=stack, user=user(), project=project, seconds=seconds, tell=progress.note
        ):
            if seconds is None:
                _provide_image(spec.image, cluster, progress)
            progress.update("checking and submitting")
            submitted = submit(
                cluster,
                store,
                spec,
                stack=stack,
                binding=bindings.for_cloud(stack_settings.cloud),
                simulated_seconds=seconds,
                growth=growth(stack, simulated=seconds is not None),
                tell=progress.note,
                user=user(),
                project=project,
            )
    except KeyboardInterrupt:
        progress.note("interrupted; `isthmus runs` says whether it was begun, and the same command goes on with it")
        return INTERRUPTED
    progress.done(f"submitted to {stack} as {submitted.job}, run {submitted.id}")
    if not follow:
        if json:
            from isthmus.runs import summary

            print_json(summary.row(submitted))
        else:
            print(f"next: isthmus runs follow {submitted.id}  or  isthmus logs {submitted.id} --follow")
        return 0
    return follow_to_end(cluster, store, submitted, as_json=json)


def follow_to_end(cluster: "Cluster", store: "Store", run: "Run", *, as_json: bool = False) -> int:
    """Show a run until it ends. Returns the exit code of `isthmus run --follow`."""
    from isthmus.runs import summary, watch

    progress = Progress(f"run {run.id}", every=5.0)
    told = _Teller(progress)
    try:
        snapshot = watch.follow(cluster, store, run, told)
    except KeyboardInterrupt:
        progress.note(f"stopped watching; run {run.id} goes on")
        progress.note(f"next: isthmus runs follow {run.id}  or, to stop it,  isthmus cancel {run.id}")
        return INTERRUPTED
    progress.done(snapshot.run.state.value)
    if as_json:
        print_json(summary.as_dict(snapshot))
    else:
        print("\n".join(summary.ending(snapshot)))
        for line in _evidence(cluster, snapshot):
            print(line)
    return 0 if summary.succeeded(snapshot) else 1


def cluster_of(stack: str) -> "Cluster":
    """The cluster of a stack. NotFound when the stack has none."""
    from isthmus.cli.engine import kubeconfig_of
    from isthmus.kube import Cluster

    return Cluster(kubeconfig_of(stack))


def open_store() -> "Store":
    """runs.db of this ISTHMUS_HOME."""
    from isthmus.runs.store import Store
    from isthmus.toolchain import home

    return Store(home.runs_db())


def user() -> str:
    """Who runs this command: the login name, as bills and budgets know it."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _provide_image(image: str, cluster: "Cluster", progress: Progress) -> None:
    """Build an image that only some samples need, and bring it into the stack's local cluster. A real cloud's cluster pulls
    it from where its name says; workloads/images/README.md tells how it gets there."""
    from isthmus.localcluster import images, recipes
    from isthmus.localcluster.runtime import EveryRuntime

    recipe = recipes.framework(image)
    if recipe is None:
        return
    local = next((one for one in EveryRuntime().list() if one.endpoint == cluster.server), None)
    if local is not None:
        images.bring(local, recipes.build_framework(recipe, progress.note), progress.note)


class _Teller:
    """Tells what changed: states, why pods wait, metrics of rank 0; and keeps the live line going."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._state = ""
        self._waiting: tuple[str, ...] = ()

    def __call__(self, snapshot: "Snapshot", fresh: "list[Metric]") -> None:
        from isthmus.runs import summary

        if snapshot.run.state.value != self._state:
            self._state = snapshot.run.state.value
            self._progress.note(f"{self._state} after {self._progress.elapsed:.0f} s")
        if snapshot.waiting and snapshot.waiting != self._waiting:
            for sentence in snapshot.waiting:
                if sentence not in self._waiting:
                    self._progress.note(f"  {sentence}")
        self._waiting = snapshot.waiting
        for metric in fresh:
            if metric.rank == 0:
                self._progress.note(f"  {summary.show_metric(metric)}")
        if is_terminal():
            self._progress.update(summary.live(snapshot))


def _evidence(cluster: "Cluster", snapshot: "Snapshot") -> Iterator[str]:
    """For a run that failed: the end of the log of the rank that failed first."""
    from isthmus.runs.logs import last_words
    from isthmus.runs.model import State

    run = snapshot.run
    if run.state is State.FAILED:
        bad = [item for item in snapshot.replicas if item.exit_code not in (None, 0)]
        for item in sorted(bad, key=lambda one: (str(one.finished), one.rank))[:1]:
            yield f"  the end of the log of {item.role} rank {item.rank}:"
            yield from (f"    {line}" for line in last_words(cluster, run, item.name))
        if any(item.phase == "Running" for item in snapshot.replicas):
            yield f"  some of its pods still run and hold their GPUs; isthmus cancel {run.id} frees them"
    yield f"next: isthmus metrics {run.id}  or  isthmus logs {run.id}"


def _pairs(changes: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in changes:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise InvalidSpec(f"--set takes field=value, not {text!r}", subject="--set", remedy="--set env.EPOCHS=5")
        pairs[key.strip()] = value
    return pairs


def growth(stack: str, *, simulated: bool) -> "list[NodeCapacity]":
    """Nodes that a stack's pools may still add: its autoscaler makes them when a pod waits. On a simulated stack (where it is
    `isthmus sim autoscale`) they run nothing, so they are none for a run that executes."""
    from isthmus import catalog
    from isthmus.cli.project import settings
    from workloads import fit

    chosen = settings(stack)
    if chosen.mode != "real" and not simulated:
        return []
    facts = catalog.load()
    return [
        node
        for pool in chosen.gpu_pools
        for node in [fit.pool_node(pool, facts, chosen.cloud, chosen.region)] * (pool.max - pool.size)
    ]
