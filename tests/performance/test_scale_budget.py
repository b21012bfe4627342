"""What simulated nodes carry on one machine: 1,250 nodes of eight cards and 10,000 pods of one card each, scheduled by the
real scheduler, kept by real Jobs, with the taints and policies of a simulated cluster (`make bench`, an idle machine).

Rates are measured; that pods compute nothing is the point.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from isthmus.kube import Cluster, wait
from isthmus.kube.objects import holds
from isthmus.localcluster import kwok, runtime
from isthmus.localcluster.runtime import LocalClusterConfig
from isthmus.simulation import local
from isthmus.specs import labels
from tests.clusters import borrow_home

pytestmark = [pytest.mark.performance, pytest.mark.local]

NODES, CARDS, PODS, JOBS = 1250, 8, 10_000, 100
RUNNING_PER_SECOND, FINISHED_PER_SECOND = 150, 60
NAMESPACE = "scale"
MARK = {labels.SIMULATED_NODE: "true"}
"""As the nodes of a simulated cloud carry it: its policies send simulated pods there."""

TOLERATION = {"key": labels.GPU_TAINT, "operator": "Exists"}
TAINT = {"key": labels.GPU_TAINT, "value": "present", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster as a simulated cloud makes it, with all its nodes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISTHMUS_HOME", str(borrow_home(tmp_path_factory.mktemp("scale") / "home", images=False)))
        made = runtime.choose("embedded").create("scale", LocalClusterConfig())
        try:
            local.backend().admit(made)
            kube = Cluster(made.kubeconfig())
            kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            shape = {"cpu": "96", "memory": "1000Gi", "pods": "110", labels.GPU_RESOURCE: str(CARDS)}
            started = time.perf_counter()
            kwok.add(kube, (kwok.simulated_node(f"n{n}", shape, MARK, [TAINT]) for n in range(NODES)))
            wait.until(lambda: ready_nodes(kube) == NODES, seconds=300, what=f"{NODES} nodes to be ready")
            print(f"\n  {NODES} nodes created and ready in {time.perf_counter() - started:.1f} s, measured")
            yield kube
        finally:
            made.delete()


def ready_nodes(kube: Cluster) -> int:
    return sum(kwok.is_simulated(node) and holds(node, "Ready") for node in kube.list("v1", "Node"))


def job(name: str, duration: str) -> dict[str, Any]:
    container = {"name": "work", "image": "none", "resources": {"limits": {labels.GPU_RESOURCE: "1"}}}
    marks = {labels.EXECUTION: labels.EXECUTION_SIMULATED}
    template = {
        "metadata": {"labels": marks, "annotations": {labels.DURATION: duration}},
        "spec": {"restartPolicy": "Never", "containers": [container], "tolerations": [TOLERATION]},
    }
    each = PODS // JOBS
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"parallelism": each, "completions": each, "template": template},
    }


def count(kube: Cluster, field: str) -> int:
    return sum(found.get("status", {}).get(field) or 0 for found in kube.list("batch/v1", "Job", NAMESPACE))


def running(kube: Cluster) -> int:
    """Pods that run, once nearly all do. The pods say it: a Job's count of ready ones stops short of its last pods. They are
    not asked before, since to list thousands of them takes the cores from what is measured."""
    if count(kube, "ready") < 0.95 * PODS:
        return 0
    return PODS - len(kube.list("v1", "Pod", NAMESPACE, fields="status.phase=Pending"))


def rate(kube: Cluster, prefix: str, duration: str, reached: Callable[[], int]) -> float:
    """Pods a second from the first Job to the last pod."""
    started = time.perf_counter()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: kube.create(job(f"{prefix}-{n}", duration)), range(JOBS)))
    wait.until(lambda: reached() >= PODS, seconds=900, what=f"{PODS} pods", why=lambda: f"{reached()} so far")
    return PODS / (time.perf_counter() - started)


def told(what: str, measured: float, budget: int) -> None:
    print(f"\n  {what}: {measured:.0f} a second measured, {measured / budget:.2f} x the budget of {budget}")


def test_pods_scheduled_and_running_on_every_card(cluster: Cluster) -> None:
    told(
        f"{PODS} pods with a card each scheduled and running",
        rate(cluster, "stay", "1h", lambda: running(cluster)),
        RUNNING_PER_SECOND,
    )
    for found in cluster.list("batch/v1", "Job", NAMESPACE):
        cluster.delete("batch/v1", "Job", found["metadata"]["name"], NAMESPACE)
    wait.until(lambda: not cluster.list("v1", "Pod", NAMESPACE), seconds=600, what="the pods to go")


def test_pods_through_their_whole_life(cluster: Cluster) -> None:
    told(
        f"{PODS} pods through their whole life of 1 s",
        rate(cluster, "pass", "1s", lambda: count(cluster, "succeeded")),
        FINISHED_PER_SECOND,
    )
