"""Every sample to its end, with the figures that its README promises: by the command on a simulated stack, and by the library
on an embedded cluster. Each prints a row: time, metric, expected metric. Slow."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.kube import Cluster
from isthmus.localcluster import images, objects, recipes
from isthmus.localcluster.embedded import EmbeddedCluster
from isthmus.runs import compare, watch
from isthmus.runs import submit as submitting
from isthmus.runs.model import Run, Snapshot, State
from isthmus.runs.store import Store
from isthmus.specs import labels
from operators import training
from tests.local.jobs import install
from tests.sample_figures import EXPECTED, expect, row
from tests.stacks import Stacks
from workloads import render
from workloads.bindings import Binding
from workloads.load import samples

pytestmark = [pytest.mark.local, pytest.mark.slow]

OPERATORS = ("training-operator", "mpi-operator")
BINDING = Binding(cloud="kind", storage_class=objects.STORAGE_CLASS)


@pytest.fixture(scope="module")
def stacks(can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stacks]:
    """A simulated stack with both operators and no samples of its own."""
    made = Stacks(tmp_path_factory.mktemp("samples") / "home")
    made.settings("aws-sim", operators=list(OPERATORS), samples=[], costReport=False)
    try:
        made.pulumi("up", "-s", "aws-sim", "--yes", "--skip-preview")
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def operators(embedded_cluster: EmbeddedCluster, kube: Cluster) -> Cluster:
    """The file's embedded cluster with both operators."""
    install(kube, training.manifests(OPERATORS))
    return kube


def test_every_sample_is_expected_to_reach_something() -> None:
    assert sorted(EXPECTED) == samples()


@pytest.mark.parametrize("name", samples())
def test_a_sample_on_a_simulated_stack(stacks: Stacks, capsys: pytest.CaptureFixture[str], name: str) -> None:
    done = stacks.isthmus("run", name, "-s", "aws-sim", "--follow", "--json")
    run = json.loads(done.stdout)
    assert (run["state"], run["source"], run["succeeded"]) == ("Succeeded", "measured", True)
    found = json.loads(stacks.isthmus("metrics", run["run"], "--json").stdout)
    latest = {item["metric"]: item["value"] for item in found}
    row(capsys, "aws-sim", name, run["seconds"], latest)
    expect(name, latest)
    with stacks.as_home():
        stacks.cluster("aws-sim").delete(
            render.load(name).form.api_version, render.load(name).kind, run["job"], labels.RUNS_NAMESPACE
        )


def start(cluster: EmbeddedCluster, kube: Cluster, store: Store, name: str, **changes: str) -> Run:
    """Submit a sample without cards and with little CPU asked for: the session's cluster has no cards and a core or two."""
    bare = render.load(name)
    small = {f"roles.{role}.{field}": value for role in bare.roles for field, value in (("gpus", "0"), ("cpu", "50m"))}
    spec = render.load(name, small | changes)
    recipe = recipes.framework(spec.image)
    if recipe is not None:
        images.bring(cluster, recipes.build_framework(recipe, print), print)
    return submitting.submit(kube, store, spec, stack="local", binding=BINDING)


def finish(kube: Cluster, store: Store, run: Run) -> Snapshot:
    """Follow a run to its good end; its job is then removed."""
    end = watch.follow(kube, store, run, lambda snapshot, fresh: None)
    assert end.run.state is State.SUCCEEDED, (end.run.reason, end.replicas)
    kube.delete(run.api_version, run.spec.kind, run.job, run.namespace)
    return end


def values(snapshot: Snapshot) -> dict[str, float]:
    """The last value of each metric."""
    return {name: metric.value for name, metric in snapshot.latest.items() if metric.value is not None}


@pytest.mark.parametrize("name", samples())
def test_a_sample_on_an_embedded_cluster(
    embedded_cluster: EmbeddedCluster,
    operators: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    store = Store(tmp_path / "runs.db")
    end = finish(operators, store, start(embedded_cluster, operators, store, name))
    row(capsys, "embedded", name, end.run.seconds or 0, values(end))
    expect(name, values(end))


def test_three_ways_of_parallel_training_have_one_loss_curve(
    embedded_cluster: EmbeddedCluster, operators: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "runs.db")
    curves = []
    for name in ("pipeline-parallel", "model-parallel", "data-parallel"):
        run = finish(operators, store, start(embedded_cluster, operators, store, name)).run
        curves.append([metric.value or 0.0 for metric in store.metrics(run, "loss")])
    assert len(curves[0]) == len(curves[1]) == len(curves[2]) == int(render.load("data-parallel").env["EPOCHS"])
    apart = max(max(point) - min(point) for point in zip(*curves, strict=True))
    with capsys.disabled():
        print(f"\nlargest difference of losses between pipeline, model and data parallel: {apart:.2g}")
    assert apart < 0.001


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_all_reduce_beside_a_parameter_server(
    embedded_cluster: EmbeddedCluster,
    operators: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    workers: int,
) -> None:
    """The same losses; a ring moves 2 (n-1) times the weights a step, a server 2 n."""
    store = Store(tmp_path / "runs.db")
    ends = {
        name: finish(
            operators, store, start(embedded_cluster, operators, store, name, **{"roles.Worker.replicas": str(workers)})
        )
        for name in ("allreduce-digits", "ps-digits")
    }
    ring, server = (values(end) for end in ends.values())
    with capsys.disabled():
        print()
        for line, both in compare.rows([compare.side(end, now=end.run.created) for end in ends.values()]):
            print(f"  {line:<24} {compare.words(line, both[0]):<42} {compare.words(line, both[1])}")
    losses = [[metric.value or 0.0 for metric in store.metrics(end.run, "loss")] for end in ends.values()]
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)
    assert ring["accuracy"] == pytest.approx(server["accuracy"], abs=0.01)
    weights = 4 * 9610
    assert ring["bytes_per_step"] == pytest.approx(2 * (workers - 1) * weights, rel=0.01)
    assert server["bytes_per_step"] == pytest.approx(2 * workers * weights, rel=0.01)
    assert ring["workers"] == server["workers"] == workers


def test_what_a_lost_worker_does_to_either_strategy(
    embedded_cluster: EmbeddedCluster, operators: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ring ends and begins again from a checkpoint; the server goes on with the others. Both reach their accuracy."""
    store = Store(tmp_path / "runs.db")
    lost = {"roles.Worker.replicas": "3", "env.LOSE_AT": "10"}
    ring = finish(operators, store, start(embedded_cluster, operators, store, "allreduce-digits", **lost))
    server = finish(operators, store, start(embedded_cluster, operators, store, "ps-digits", **lost))
    with capsys.disabled():
        print()
        for line, both in compare.rows([compare.side(end, now=end.run.created) for end in (ring, server)]):
            print(f"  {line:<24} {compare.words(line, both[0]):<42} {compare.words(line, both[1])}")
    for end in (ring, server):
        assert values(end)["accuracy"] >= 0.93
        assert [metric.epoch for metric in store.metrics(end.run, "loss")] == list(range(1, 31))
    assert sum(item.restarts for item in ring.replicas if item.role == "Launcher") >= 1
    assert not any(item.restarts for item in server.replicas if item.role == "PS")
    assert sum(item.restarts for item in server.replicas if item.role == "Worker") == 1


def test_elastic_training_goes_on_when_a_worker_is_killed(
    embedded_cluster: EmbeddedCluster, operators: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three go on as two while there is no room for the lost one's successor, and as three again once there is."""
    store = Store(tmp_path / "runs.db")
    epochs = 150
    run = start(embedded_cluster, operators, store, "ddp-elastic", **{"env.EPOCHS": str(epochs)})
    [node] = operators.list("v1", "Node")
    worlds: list[float] = []
    at: dict[str, int] = {}

    def room(there: bool) -> None:
        bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node["metadata"]["name"]}}
        operators.apply({**bare, "spec": {"unschedulable": not there}})

    def look(snapshot: Snapshot, fresh: list[Any]) -> None:
        worlds.extend(metric.value for metric in fresh if metric.name == "workers")
        reached = max((metric.epoch or 0 for metric in fresh), default=0)
        if reached >= 10 and "killed" not in at:
            at["killed"] = reached
            room(False)
            # Not worker 0, at which the others meet. Its pod is gone at once, as with a lost node.
            operators.delete("v1", "Pod", f"{run.job}-worker-2", run.namespace, grace_seconds=0)
        if worlds[-3:] == [2, 2, 2] and "room" not in at:
            at["room"] = reached
            room(True)

    try:
        end = watch.follow(operators, store, run, look)
    finally:
        room(True)
    assert end.run.state is State.SUCCEEDED, (end.run.reason, end.replicas)
    assert [world for world, _ in itertools.groupby(worlds)] == [3, 2, 3], worlds
    assert sorted({metric.epoch or 0 for metric in store.metrics(run, "loss")}) == list(range(1, epochs + 1))
    assert values(end)["accuracy"] >= 0.95
    with capsys.disabled():
        print(
            f"\na worker was killed after epoch {at['killed']}, there was room again after {at['room']}; {epochs} epochs"
        )


def test_event_files_are_on_the_chief_s_volume(
    embedded_cluster: EmbeddedCluster, operators: Cluster, tmp_path: Path
) -> None:
    store = Store(tmp_path / "runs.db")
    run = start(embedded_cluster, operators, store, "tf-ps-digits", **{"env.EPOCHS": "2"})
    end = watch.follow(operators, store, run, lambda snapshot, fresh: None)
    assert end.run.state is State.SUCCEEDED, (end.run.reason, end.replicas)
    roles = {(item.role, item.rank) for item in end.replicas}
    assert roles == {("Chief", 0), ("PS", 0), ("PS", 1), ("Worker", 0), ("Worker", 1), ("Evaluator", 0)}
    written = list(embedded_cluster.paths.volumes.rglob("events.out.tfevents.*"))
    assert written and all(path.stat().st_size > 100 for path in written)
    assert store.metrics(run, "eval_accuracy")
    operators.delete(run.api_version, run.spec.kind, run.job, run.namespace)
