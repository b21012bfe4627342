"""A simulated stack whose pool grows by shares of cards: case A14 on a real scheduler, with Karpenter."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from isthmus.kube import wait
from isthmus.simulation import growth
from isthmus.specs import labels
from isthmus.specs.errors import NotFound, NotReady
from isthmus.toolchain import home
from tests.stacks import Stacks

pytestmark = [pytest.mark.local, pytest.mark.slow]

SECONDS = 120


@dataclass(frozen=True)
class Cloud:
    """A simulated cloud whose pool grows."""

    stack: str
    """Of its account too."""
    instance_type: str
    machine: str
    """As a bill names it."""
    usd_per_hour: float
    quota: str
    used_by_two: float
    """Of the quota, by two machines."""
    counted: str
    """What the quota counts."""


CLOUDS = [
    Cloud(
        "aws-sim",
        "g4dn.xlarge",
        "g4dn.xlarge",
        0.526,
        "L-DB2E81BA",
        8,
        "Running On-Demand G and VT instances, in cores",
    ),
    Cloud("gcp-sim", "n1-standard-4", "n1-standard-4 + 1 x T4", 0.539999, "NVIDIA_T4_GPUS", 2, "T4 cards of a region"),
]


class Growing(Stacks):
    """The stacks of one cloud, with a pool of T4 in four slices of which there is no node yet."""

    cloud: Cloud


@pytest.fixture(scope="module", params=CLOUDS, ids=lambda cloud: cloud.stack)
def stacks(
    request: pytest.FixtureRequest, can_run: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Growing]:
    try:
        home.tool("karpenter")
    except NotFound:
        pytest.skip("Karpenter is not installed: isthmus install autoscaler")
    made = Growing(tmp_path_factory.mktemp("growth") / "home")
    made.cloud = request.param
    pool = {
        "name": "slices", "instanceType": made.cloud.instance_type, "gpu": {"model": "T4", "count": 1},
        "min": 0, "size": 0, "max": 4, "sharing": {"mode": "time-slicing", "replicas": 4},
    }  # fmt: skip
    try:
        made.settings(made.cloud.stack, gpuPools=[pool], samples=[], costReport="false")
        made.isthmus("up", made.cloud.stack, "--yes")
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def autoscaler(stacks: Growing) -> Iterator[None]:
    """Somebody lets the account's pools grow."""
    process = stacks.start(sys.executable, "-m", "isthmus.cli.main", "sim", "autoscale", stacks.cloud.stack)
    yield
    assert process.poll() is None, process.communicate()[0]
    process.kill()
    process.wait(30)


def grown(stacks: Growing) -> list[dict[str, Any]]:
    return stacks.cluster(stacks.cloud.stack).list("v1", "Node", selector=labels.GROWN)


def submitted(stacks: Growing, pods: int) -> str:
    """A job of so many pods, each asking for one slice; its run."""
    done = stacks.isthmus(
        "run",
        "small-inference",
        "-s",
        stacks.cloud.stack,
        "--simulate",
        "30m",
        "--set",
        f"roles.Worker.replicas={pods}",
        "--json",
    )
    return str(json.loads(done.stdout)["run"])


def running(stacks: Growing, run: str) -> list[str]:
    """Nodes of a run's running pods."""
    pods = stacks.cluster(stacks.cloud.stack).list("v1", "Pod", labels.RUNS_NAMESPACE, selector={labels.RUN: run})
    return [pod["spec"]["nodeName"] for pod in pods if pod["status"].get("phase") == "Running"]


def test_a14_four_slices_start_one_node_and_a_fifth_pod_the_second(stacks: Growing, autoscaler: None) -> None:
    """Azure/AKS#3427: counted by cards, four pods start four nodes, of which three stay empty and are billed."""
    first = submitted(stacks, 4)
    wait.until(lambda: len(running(stacks, first)) == 4, seconds=SECONDS, what="four pods to run")
    (node,) = grown(stacks)
    wait.until(lambda: grown(stacks)[0]["status"]["capacity"].get("cpu") == "4", seconds=30, what="its capacity")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert node["metadata"]["labels"][labels.POOL] == "slices"
    assert set(running(stacks, first)) == {node["metadata"]["name"]}
    second = submitted(stacks, 1)
    wait.until(lambda: len(running(stacks, second)) == 1, seconds=SECONDS, what="the fifth pod to run")
    assert len(grown(stacks)) == 2

    billed = json.loads(stacks.isthmus("cost", "run", first, "--json").stdout)
    assert [item["machine"] for item in billed["nodes"]] == [stacks.cloud.machine], "one node, and all of it was used"
    assert float(billed["nodes"][0]["usdPerHour"]) == pytest.approx(stacks.cloud.usd_per_hour)
    quotas = json.loads(stacks.isthmus("sim", "quota", stacks.cloud.stack, "--json").stdout)
    used = {item["code"]: float(item["used"]) for item in quotas}
    assert used[stacks.cloud.quota] == stacks.cloud.used_by_two, stacks.cloud.counted


def test_quota_stops_the_growth(stacks: Growing, autoscaler: None) -> None:
    stacks.isthmus("sim", "quota", stacks.cloud.stack, stacks.cloud.quota, f"{stacks.cloud.used_by_two:g}")
    kube = stacks.cluster(stacks.cloud.stack)
    wait.until(  # it looks at the account every few seconds
        lambda: kube.get(growth.API, "NodePool", "slices")["spec"]["limits"]["nodes"] == "2",
        seconds=60, what="the autoscaler to know the quota",
    )  # fmt: skip
    third = submitted(stacks, 4)  # three find room on the second node
    wait.until(lambda: len(running(stacks, third)) == 3, seconds=SECONDS, what="three pods to run")
    with pytest.raises(NotReady):  # Karpenter looks every ten seconds at the latest
        wait.until(lambda: len(running(stacks, third)) == 4, seconds=30, what="the fourth pod to run")
    assert len(grown(stacks)) == 2
    stacks.isthmus("sim", "quota", stacks.cloud.stack, stacks.cloud.quota, "64")
    wait.until(lambda: len(running(stacks, third)) == 4, seconds=SECONDS, what="the fourth pod to run")
    assert len(grown(stacks)) == 3


def test_an_up_leaves_the_nodes_that_it_made(stacks: Growing) -> None:
    before = {node["metadata"]["name"] for node in grown(stacks)}
    stacks.isthmus("up", stacks.cloud.stack, "--yes")
    assert {node["metadata"]["name"] for node in grown(stacks)} == before
