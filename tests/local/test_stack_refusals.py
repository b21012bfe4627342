"""What a cloud refuses on the way up, in its own words, and what its slowness does on the way down: whole stacks again.

Each refusal names the command that lifts it; the tests type exactly that, and `up` goes on from where it was.
"""

import json
import re
import time

import pytest

from isthmus.kube import wait
from isthmus.simulation.account import Account
from isthmus.specs import labels
from tests.stacks import Stacks

pytestmark = pytest.mark.local

AWS, GCP = "aws-sim", "gcp-sim"


def refused_and_lifted(stacks: Stacks, stack: str, *says: str) -> None:
    """An `up` that is refused in these words, and the command it names."""
    said = stacks.isthmus("up", stack, "--yes", code=1).stderr
    for words in says:
        assert words in said, said
    command = re.search(r"next: +isthmus (sim [^;\n]+); log:", said)
    assert command and said.count("next:") == 1, said
    stacks.isthmus(*command[1].split())


def test_refusals_of_aws_are_lifted_one_by_one_and_down_waits_for_interfaces(alone: Stacks) -> None:
    alone.settings(AWS, samples=[], costReport="false")
    alone.isthmus("sim", "quota", AWS, "L-DB2E81BA", "0")
    alone.isthmus("sim", "capacity", AWS, "us-east-1a", "g4dn.12xlarge", "0")
    refused_and_lifted(
        alone, AWS, "VcpuLimitExceeded", "current vCPU limit of 0", "Running On-Demand G and VT instances", "L-DB2E81BA"
    )
    refused_and_lifted(
        alone, AWS, "InsufficientInstanceCapacity", "Availability Zone you requested (us-east-1a)",
        "choosing us-east-1b, us-east-1c",
    )  # fmt: skip
    alone.isthmus("up", AWS, "--yes")
    assert json.loads(alone.isthmus("preview", AWS, "--json").stdout)["changes"] == {}
    a04_down_goes_in_order(alone)


def a04_down_goes_in_order(stacks: Stacks) -> None:
    """pulumi/pulumi-eks#194: Services with a load balancer go first, also those that nobody told Pulumi of; then nodes; and
    their groups only when the last interface has left."""
    stacks.isthmus("sim", "fault", "add", AWS, "--kind", "detach", "--seconds", "25")
    service = {
        "metadata": {"name": "mine", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    }
    stacks.cluster(AWS).apply({"apiVersion": "v1", "kind": "Service", **service})
    done = stacks.isthmus("down", AWS, "--yes")
    ended = time.time()
    assert "Service default/mine" in done.stdout
    account = Account(AWS, stacks.home / "accounts" / f"{AWS}.db")
    waited = account.database.execute("SELECT type, until FROM lingering").fetchall()
    assert {row["type"].rpartition(":")[2] for row in waited} == {"SecurityGroup", "Subnet"}
    assert ended >= max(row["until"] for row in waited), "down ended while interfaces were attached"
    assert not stacks.state(AWS).get("resources")
    assert json.loads(stacks.isthmus("sim", "show", AWS, "--json").stdout) == []
    stacks.expect_nothing_left()


@pytest.mark.parametrize(
    ("refusal", "says", "order"),
    [
        (
            ("capacity", GCP, "us-central1-a", "e2-standard-4", "0"),
            ("GCE_STOCKOUT", "us-central1-a' does not have enough resources available"),
            ["gpu-t4", "system"],
        ),
        pytest.param(
            ("quota", GCP, "NVIDIA_T4_GPUS", "0"),
            ("QUOTA_EXCEEDED", "Quota 'NVIDIA_T4_GPUS' exceeded.  Limit: 0.0 in region us-central1"),
            ["system", "gpu-t4"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["GPU pool first", "GPU pool last"],
)
def test_a13_pools_in_either_order_after_a_refusal_of_google_cloud(
    alone: Stacks, refusal: tuple[str, ...], says: tuple[str, ...], order: list[str]
) -> None:
    """terraform-google-modules/terraform-google-kubernetes-engine#703. A stock-out of the plain machines makes the GPU pool
    the first one, a quota of no cards the last one."""
    cards = {"name": "gpu-t4", "gpu": {"model": "T4", "count": 4}, "min": 3, "size": 3, "max": 3}
    alone.settings(GCP, samples=[], costReport="false", gpuPools=[cards])
    alone.isthmus("sim", *refusal)
    refused_and_lifted(alone, GCP, *says)
    alone.isthmus("up", GCP, "--yes")
    assert pools_in_order(alone) == order
    expect_plain_pods_apart(alone)


def pools_in_order(stacks: Stacks) -> list[str]:
    """The node pools as they were made."""
    rows = json.loads(stacks.isthmus("sim", "show", GCP, "--json").stdout)
    return [row["id"].rpartition("/")[2] for row in rows if row["type"] == "NodePool"]


def expect_plain_pods_apart(stacks: Stacks) -> None:
    """GPU nodes have the taint, the real scheduler puts no plain pod on them, and a second preview shows no change."""
    kube = stacks.cluster(GCP)
    here = stacks.local(GCP).local_node()
    gpu = {
        node["metadata"]["name"]: node["spec"].get("taints", [])
        for node in kube.list("v1", "Node", selector={"cloud.google.com/gke-nodepool": "gpu-t4"})
        if node["metadata"]["name"] != here
    }
    assert len(gpu) == 2
    for taints in gpu.values():
        assert {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"} in taints
    marks = {"app": "plain", labels.EXECUTION: labels.EXECUTION_SIMULATED}
    container = {"name": "main", "image": "isthmus.dev/none:1", "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": marks}, "spec": {"containers": [container]}}
    spec = {"replicas": 6, "selector": {"matchLabels": {"app": "plain"}}, "template": template}
    metadata = {"name": "plain", "namespace": "default"}
    kube.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})

    def placed() -> set[str] | None:
        pods = kube.list("v1", "Pod", "default", selector={"app": "plain"})
        names = [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]
        return set(names) if len(names) == 6 else None

    assert wait.until(placed, seconds=60, what="the pods to be placed").isdisjoint(gpu)
    kube.delete("apps/v1", "Deployment", "plain", "default")
    wait.until(
        lambda: not kube.list("v1", "Pod", "default", selector={"app": "plain"}), seconds=60, what="no plain pods"
    )
    assert json.loads(stacks.isthmus("preview", GCP, "--json").stdout)["changes"] == {}
