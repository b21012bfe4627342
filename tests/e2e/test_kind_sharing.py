"""Cards of a node in Docker that are cut while it runs, and cards that pods claim: the node agent of a kind cluster."""

import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.kube import Cluster, claims, wait
from isthmus.localcluster import driver, processes, runtime
from isthmus.localcluster.kind import KindCluster, KindRuntime, agent, docker
from isthmus.localcluster.runtime import LocalClusterConfig, LocalNode
from isthmus.localcluster.state import read_json
from isthmus.sharing import change, offers, trial
from isthmus.specs import labels
from isthmus.specs.cluster import GpuCards
from isthmus.specs.sharing import GpuSharing
from isthmus.toolchain import home
from tests.clusters import borrow_home

pytestmark = [pytest.mark.local, pytest.mark.e2e]

POOL = "cards"
LIST = "nvidia-smi -L 2>/dev/null"
"""A line for each card, and below it one for each instance: what the pod sees."""

CUT = GpuSharing(mode="mig", layout={"3g.20gb": 1, "1g.5gb": 4})
CLAIMED = GpuSharing.model_validate(
    {
        "mode": "dra",
        "claims": [
            {"name": "one"},
            {"name": "half", "deviceClass": "mig", "profile": "3g.20gb"},
            {"name": "quarter", "strategy": "MPS", "clients": 4},
        ],
    }
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KindCluster]:
    """One node with an A100; nothing of it is left at the end."""
    problem = runtime.choose_problem("kind")
    if problem is not None:
        pytest.skip(problem)
    folder = borrow_home(tmp_path_factory.mktemp("kind") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(home.HOME_VARIABLE, str(folder))
        node = LocalNode(labels={labels.POOL: POOL, labels.GPU_MODEL: "A100"}, cards=GpuCards(model="A100", count=1))
        made = KindRuntime().create(f"s{secrets.token_hex(3)}", LocalClusterConfig(nodes=(node,)))
        try:
            yield made
        finally:
            shell = running_agent(made)
            made.delete()
            assert not alive(shell)


@pytest.fixture(scope="module")
def kube(cluster: KindCluster) -> Cluster:
    found = Cluster(cluster.kubeconfig())
    trial.install(found, [GpuSharing(), CUT, CLAIMED])
    offers.expect(found, cluster.local_node(), {"nvidia.com/gpu": 1})
    return found


def running_agent(cluster: KindCluster) -> int:
    found = read_json(cluster.paths.agent)
    assert found is not None and processes.alive(found["pid"], found["started"])
    pid: int = found["pid"]
    return pid


def alive(pid: int) -> bool:
    return processes.start_time(pid) is not None


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def changed(kube: Cluster, wanted: GpuSharing) -> list[str]:
    steps = change.plan(change.read(kube, POOL), wanted, 1)
    change.run(kube, steps, wanted, 1, say=lambda text: None)
    assert change.plan(change.read(kube, POOL), wanted, 1) == ()
    return [step.action for step in steps]


def lines(kube: Cluster, pod: dict[str, Any]) -> list[str]:
    """Run a pod to its good end; what it said."""
    name = pod["metadata"]["name"]
    kube.apply(pod)

    def ended() -> str | None:
        phase = kube.get("v1", "Pod", name, trial.NAMESPACE).get("status", {}).get("phase")
        return phase if phase in {"Succeeded", "Failed"} else None

    assert wait.until(ended, seconds=90, what=f"pod {name} to end") == "Succeeded"
    said = list(kube.logs(name, trial.NAMESPACE))
    kube.delete("v1", "Pod", name, trial.NAMESPACE, grace_seconds=1)
    wait.gone(kube, "v1", "Pod", name, trial.NAMESPACE, seconds=60)
    return said


def test_cards_are_cut_while_the_node_runs_and_made_whole_again(cluster: KindCluster, kube: Cluster) -> None:
    steps = changed(kube, CUT)
    assert steps == ["cordon", "layout", "wait-layout", "configure", "wait-node", "uncordon"]
    found = offers.advertised(kube.get("v1", "Node", cluster.local_node()))
    assert found == {"nvidia.com/mig-1g.5gb": 4, "nvidia.com/mig-3g.20gb": 1}
    changed(kube, GpuSharing())
    assert driver.instances(cluster.paths.node(0) / "driver") == []


def test_pods_get_the_cards_that_they_claim(cluster: KindCluster, kube: Cluster) -> None:
    changed(kube, CLAIMED)
    found = trial.run(cluster, kube, CLAIMED, "A100", 1)
    assert found.given[0].startswith("Succeeded") and "A100" in found.given[1]
    assert "cannot allocate" in found.refused or "Unschedulable" in found.refused
    _, half = lines(kube, trial.claiming("half", "half", "sh", "-c", LIST))
    assert "MIG 3g.20gb" in half
    share = "echo get_default_active_thread_percentage | nvidia-cuda-mps-control"
    assert lines(kube, trial.claiming("quarter", "quarter", "sh", "-c", share)) == ["25"]
    assert driver.instances(cluster.paths.node(0) / "driver") == []


def test_claims_outlive_a_node_that_was_stopped_and_started_again(cluster: KindCluster, kube: Cluster) -> None:
    docker.docker("stop", "--time", "5", cluster.local_node())
    cluster.start()
    again = Cluster(cluster.kubeconfig())
    _, half = lines(again, trial.claiming("again", "half", "sh", "-c", LIST))
    assert "MIG 3g.20gb" in half


def test_an_agent_that_was_killed_comes_back_by_itself_or_by_start(cluster: KindCluster, kube: Cluster) -> None:
    shell = running_agent(cluster)
    [program] = children(shell)
    os.kill(program, signal.SIGKILL)
    wait.until(lambda: children(shell) not in ([], [program]), seconds=30, what="the agent to be started again")
    os.kill(shell, signal.SIGKILL)
    wait.until(lambda: not any(map(alive, [shell])), seconds=10, what="the shell to be gone")
    assert cluster.status().phase == "degraded" and f"{agent.NAME}: does not run" in cluster.status().message
    cluster.start()
    assert running_agent(cluster) != shell and cluster.status().phase == "running"
    assert claims.published(kube.list(claims.API, "ResourceSlice", fields=f"spec.nodeName={cluster.local_node()}"))
