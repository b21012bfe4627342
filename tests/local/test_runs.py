"""Runs on a real cluster: the real training operator, real containers, their own logs.

The programs here are shell scripts: what is under test is the way from a workload file to its metrics, not training.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.kube import Cluster, wait
from isthmus.kube.explain import cluster_problems, why_pending
from isthmus.localcluster import kwok, objects
from isthmus.localcluster.embedded import EmbeddedCluster
from isthmus.runs import logs, parity, summary, watch
from isthmus.runs.cancel import cancel
from isthmus.runs.model import Metric, Run, Snapshot, State
from isthmus.runs.store import Store
from isthmus.runs.submit import ensure_namespace, submit
from isthmus.simulation import admission
from isthmus.specs import labels
from isthmus.specs.errors import Refused
from isthmus.specs.workload import WorkloadSpec
from isthmus.toolchain import home
from operators import training_operator
from tests.local.jobs import install
from workloads import render
from workloads.bindings import Binding, declared

pytestmark = pytest.mark.local

FOLLOW_SECONDS = 180

BINDING = Binding(cloud="kind", storage_class=objects.STORAGE_CLASS)

METRICS = r"""
echo "rank $RANK of $WORLD_SIZE"
for i in 1 2 3; do
  echo "{\"metric\": \"loss\", \"value\": 0.$((9-i)), \"epoch\": $i, \"step\": $((i*10))}"
  sleep 1
done
echo "{\"metric\": \"accuracy\", \"value\": 0.97, \"epoch\": 3}"
"""


OPENS_PORT = "nc -ll -p 23456 -e /bin/true &"
"""Workers wait until the master's port is open, as a training program's is."""

MEET = """
if [ "$RANK" = 0 ]; then
  i=1; while [ $i -lt $WORLD_SIZE ]; do nc -l -p 23457 -e /bin/true; i=$((i+1)); done
else
  until nc -w 2 $MASTER_ADDR 23457 -e /bin/true; do sleep 0.2; done
fi
"""
"""At the end the master waits for each worker, as the last all-reduce of a training does."""


def spec(script: str, *, workers: int = 1, **change: Any) -> WorkloadSpec:
    """A workload of small shell programs; the master opens its port first."""
    opens = f'if [ "$RANK" = 0 ]; then {OPENS_PORT} fi\n{script}'
    roles: dict[str, Any] = {"Master": {"replicas": 1, "cpu": "50m", "memory": "32Mi"}}
    if workers:
        roles["Worker"] = {"replicas": workers, "cpu": "50m", "memory": "32Mi"}
    values = {
        "apiVersion": "isthmus.dev/v1",
        "kind": "PyTorchJob",
        "name": "count",
        "image": training_operator.INIT_IMAGE,
        "command": ["/bin/sh", "-c", opens],
        "roles": roles,
    }
    return WorkloadSpec.model_validate(values | change)


@pytest.fixture(scope="module")
def operator(embedded_cluster: EmbeddedCluster, kube: Cluster) -> Cluster:
    """The file's cluster with the training operator in it."""
    for name in ("busybox", "training-operator"):
        archive = home.images() / f"{name}.tar"
        if not archive.is_file():
            pytest.skip(f"the image {name} is not built: isthmus install images")
        embedded_cluster.load_image(archive)
    install(kube, training_operator.manifests())
    return kube


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.db")


@pytest.fixture(autouse=True)
def clean(kube: Cluster) -> Iterator[None]:
    yield
    for job in kube.list("kubeflow.org/v1", "PyTorchJob") if _served(kube) else ():
        kube.delete("kubeflow.org/v1", "PyTorchJob", job["metadata"]["name"], job["metadata"]["namespace"])


def _served(kube: Cluster) -> bool:
    return any(resource.kind == "PyTorchJob" for resource in kube.kinds())


def start(cluster: Cluster, store: Store, workload: WorkloadSpec, **more: Any) -> Run:
    return submit(cluster, store, workload, stack="local", binding=BINDING, **more)


def follow(cluster: Cluster, store: Store, run: Run) -> tuple[Snapshot, list[Snapshot]]:
    seen: list[Snapshot] = []
    end = time.monotonic() + FOLLOW_SECONDS

    def tell(snapshot: Snapshot, fresh: list[Metric]) -> None:
        seen.append(snapshot)
        assert time.monotonic() < end, f"not over after {FOLLOW_SECONDS} s: {snapshot}"

    return watch.follow(cluster, store, run, tell), seen


def test_a_run_succeeds_with_the_metrics_of_its_own_logs(operator: Cluster, store: Store) -> None:
    run = start(operator, store, spec(METRICS + MEET, workers=3, metrics={"accuracy": 0.95}))
    end, seen = follow(operator, store, run)
    assert end.run.state is State.SUCCEEDED, end
    assert summary.succeeded(end)
    assert State.RUNNING in {snapshot.run.state for snapshot in seen}
    assert [(item.role, item.rank, item.exit_code) for item in end.replicas] == [
        ("Master", 0, 0), ("Worker", 1, 0), ("Worker", 2, 0), ("Worker", 3, 0),
    ]  # fmt: skip
    losses = [(m.rank, m.epoch, m.value) for m in store.metrics(run, "loss")]
    assert sorted(losses) == [(rank, epoch, (9 - epoch) / 10) for rank in range(4) for epoch in (1, 2, 3)]
    seconds = end.run.seconds
    assert seconds is not None
    assert 3 <= seconds < 60
    assert "measured" in summary.ending(end)[1]
    assert next(line.text for line in logs.stream(operator, end.run, rank=2)) == "rank 2 of 4"


def test_a_restarted_container_resumes_and_no_metric_counts_twice(operator: Cluster, store: Store) -> None:
    script = r"""
      n=$(cat /ckpt/n 2>/dev/null || echo 0)
      while [ $n -lt 4 ]; do
        n=$((n+1))
        echo "{\"metric\": \"loss\", \"value\": $n, \"epoch\": $n}"
        if [ $n = 2 ] && [ ! -e /ckpt/died ]; then echo > /ckpt/died; exit 1; fi
        echo $n > /ckpt/n; sleep 1
      done
    """
    volumes = [{"name": "ckpt", "size": "16Mi", "mountPath": "/ckpt", "role": "Master"}]
    run = start(operator, store, spec(script, workers=0, volumes=volumes))
    end, _ = follow(operator, store, run)
    assert end.run.state is State.SUCCEEDED, end
    assert end.replicas[0].restarts == 1
    assert [(m.epoch, m.value) for m in store.metrics(run, "loss")] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    repeated = next(m for m in store.metrics(run, "loss") if m.epoch == 2)
    assert repeated.restart == 1, "the repeated epoch counts once, as it was printed last"


def test_a_run_that_fails_names_the_rank_and_keeps_its_log(operator: Cluster, store: Store) -> None:
    script = 'sleep 1; if [ "$RANK" = 1 ]; then echo "out of luck"; exit 3; fi; trap "exit 0" TERM; sleep 600 & wait'
    run = start(operator, store, spec(script, restartPolicy="Never"))
    end, _ = follow(operator, store, run)
    assert (end.run.state, end.run.reason) == (State.FAILED, "Worker rank 1 ended with exit code 3")
    assert logs.last_words(operator, end.run, f"{run.job}-worker-0")[-1] == "out of luck"
    assert cancel(operator, store, end.run).state is State.FAILED, (
        "frees the master that still runs; evidence stays in runs.db"
    )
    assert not operator.list("v1", "Pod", run.namespace, selector={labels.RUN: run.id})


FOLLOWER = """
import json, sys
from pathlib import Path
from isthmus.kube import Cluster
from isthmus.runs import watch
from isthmus.runs.store import Store
from isthmus.runs.submit import ensure_namespace, submit
from isthmus.specs.workload import WorkloadSpec
from workloads.bindings import Binding
from tests.local.jobs import install
cluster = Cluster(json.loads(Path(sys.argv[1]).read_text()))
store = Store(Path(sys.argv[2]))
spec = WorkloadSpec.model_validate_json(Path(sys.argv[3]).read_text())
run = submit(cluster, store, spec, stack="local", binding=Binding(cloud="kind", storage_class="standard"))
print(run.id, flush=True)
watch.follow(cluster, store, run, lambda snapshot, fresh: print(len(store.metrics(run)), flush=True))
"""


def test_killing_the_command_leaves_the_run_and_following_again_loses_nothing(
    operator: Cluster, embedded_cluster: EmbeddedCluster, store: Store, tmp_path: Path
) -> None:
    kubeconfig, workload = tmp_path / "kubeconfig", tmp_path / "spec.json"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(json.dumps(embedded_cluster.kubeconfig()))
    workload.write_text(spec(METRICS.replace("1 2 3", "1 2 3 4 5 6"), workers=0).model_dump_json(by_alias=True))
    command = [sys.executable, "-c", FOLLOWER, str(kubeconfig), str(tmp_path / "runs.db"), str(workload)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as follower:
        assert follower.stdout is not None
        identity = follower.stdout.readline().strip()
        for line in follower.stdout:
            if int(line) >= 2:
                break
        follower.send_signal(signal.SIGKILL)
    run = store.get(identity)
    assert not run.state.final
    end, _ = follow(operator, store, run)
    assert end.run.state is State.SUCCEEDED, end
    assert [m.epoch for m in store.metrics(run, "loss")] == [1, 2, 3, 4, 5, 6]
    jobs = operator.list("kubeflow.org/v1", "PyTorchJob", run.namespace, selector={labels.WORKLOAD: "count"})
    assert [job["metadata"]["name"] for job in jobs] == [run.job], "never submitted twice"


def test_the_operators_webhook_refuses_before_anything_is_created(operator: Cluster, store: Store) -> None:
    ensure_namespace(operator, labels.RUNS_NAMESPACE)
    manifests = render.render(spec(METRICS), namespace=labels.RUNS_NAMESPACE, binding=BINDING, run="r1")
    manifests[-1]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["name"] = "other"
    with pytest.raises(Refused, match="at least one container with name pytorch"):
        operator.apply(manifests[-1], dry_run=True)
    assert not store.runs()


def test_what_waits_is_told_in_words(operator: Cluster, store: Store) -> None:
    run = start(operator, store, spec(METRICS, workers=0, image="docker.io/isthmus/absent:1"))
    watcher = watch.Watcher(operator, store, run)

    def told() -> str | None:
        words = watcher.look()[0].waiting
        return words[0] if words and "absent" in words[0] else None

    sentence = wait.until(told, seconds=60, what="the image to be missed")
    assert sentence.startswith(f"pod {run.job}-master-0: image docker.io/isthmus/absent:1 cannot be had")
    assert any("absent" in problem for problem in cluster_problems(operator))
    after = cancel(operator, store, run)
    assert after.state is State.CANCELLED
    assert why_pending(operator, run.namespace, {labels.RUN: run.id}) == []


def test_more_cards_than_there_are_run_on_simulated_nodes_only(operator: Cluster, store: Store) -> None:
    roles = {"Master": {"replicas": 1, "gpus": 8}, "Worker": {"replicas": 3, "gpus": 8}}
    workload = spec(METRICS, roles=roles)
    with pytest.raises(Refused, match="no node has any"):
        start(operator, store, workload)
    for item in admission.manifests():
        operator.apply(item)
    wait.until(lambda: _tolerates(operator), seconds=60, what="the policies to be in force")
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
    marks = {labels.SIMULATED_NODE: "true", labels.GPU_MODEL: "A100"}
    taint = {"key": labels.GPU_TAINT, "value": "present", "effect": "NoSchedule"}
    nodes = [kwok.simulated_node(f"big-{index}", amounts, marks, [taint]) for index in range(4)]
    kwok.add(operator, nodes)
    try:
        with pytest.raises(Refused, match="only the local node runs containers") as caught:
            start(operator, store, workload)
        assert "--simulate" in caught.value.remedy
        run = start(operator, store, workload, simulated_seconds=4.0)
        end, _ = follow(operator, store, run)
        assert end.run.state is State.SUCCEEDED, end
        assert {item.node for item in end.replicas} == {f"big-{index}" for index in range(4)}
        assert summary.succeeded(end)
        assert end.run.source == "simulated"
        assert store.metrics(run) == []
        seconds = end.run.seconds
        assert seconds is not None
        assert 3 <= seconds <= 20
    finally:
        kwok.remove(operator, [node["metadata"]["name"] for node in nodes])
        for item in reversed(admission.manifests()):
            operator.delete(item["apiVersion"], item["kind"], item["metadata"]["name"])


def _tolerates(cluster: Cluster) -> bool:
    """Whether the API server already lets a pod of a simulated run onto simulated nodes."""
    marks = {labels.EXECUTION: labels.EXECUTION_SIMULATED}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "rehearsal", "namespace": "default", "labels": marks},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = cluster.apply(pod, dry_run=True)["spec"]
    return any(toleration.get("key") == labels.SIMULATED_TAINT for toleration in spec.get("tolerations") or ())


def test_parity_finds_a_hand_edit_of_one_deployment_at_its_path(operator: Cluster) -> None:
    rules = declared(["aws"])
    rendered = training_operator.manifests()
    before = parity.side("before", parity.read(operator), rules)
    assert parity.missing(rendered, before, rules) == [], "what is there is what the program renders"
    assert parity.compare(before.objects, parity.side("again", parity.read(operator), rules).objects) == []
    name, namespace = training_operator.NAME, training_operator.NAMESPACE
    edit = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 11}}}}
    old = operator.get("apps/v1", "Deployment", name, namespace)["spec"]["template"]["spec"][
        "terminationGracePeriodSeconds"
    ]
    paused = {"spec": {"paused": True}}  # so that the edit starts no new pod
    operator.patch("apps/v1", "Deployment", name, paused | {"spec": {**paused["spec"], **edit["spec"]}}, namespace)
    try:
        after = parity.side("after", parity.read(operator), rules)
        found = parity.compare(before.objects, after.objects)
        assert [(item.object, item.path, item.left, item.right) for item in found if "paused" not in item.path] == [
            ("Deployment.apps kubeflow/training-operator", "spec.template.spec.terminationGracePeriodSeconds", old, 11)
        ]
        assert [item.path for item in found if "paused" in item.path] == ["spec.paused"]
        assert [item.path for item in parity.missing(rendered, after, rules)] == [
            "spec.template.spec.terminationGracePeriodSeconds"
        ]
    finally:
        change = {"spec": {"paused": None, "template": {"spec": {"terminationGracePeriodSeconds": old}}}}
        operator.patch("apps/v1", "Deployment", name, change, namespace)
