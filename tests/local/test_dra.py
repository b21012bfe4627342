"""Cards on claim, on a real kubelet: the scheduler allocates, the node agent prepares, containers see what was claimed."""

from typing import Any

import pytest

from isthmus.kube import Cluster, claims, wait
from isthmus.kube.claims import API
from isthmus.localcluster import driver, kwok
from isthmus.localcluster.embedded import EmbeddedCluster
from isthmus.sharing import offers, trial
from isthmus.simulation import local, nodes
from isthmus.specs import labels
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import NotReady
from isthmus.specs.sharing import DeviceClaim, GpuSharing
from operators import dra

pytestmark = pytest.mark.local

CLAIMS = [
    {"name": "one"},
    {"name": "a-t4", "selectors": ["device.attributes['gpu.nvidia.com'].productName == 'Tesla T4'"]},
    {"name": "half", "deviceClass": "mig", "profile": "3g.20gb"},
    {"name": "two-of-one-card", "deviceClass": "mig", "profile": "1g.5gb", "count": 2, "sameCard": True},
    {"name": "long", "strategy": "TimeSlicing", "interval": "Long"},
    {"name": "quarter", "strategy": "MPS", "clients": 4},
    {"name": "raw", "deviceClass": "vfio", "count": 2},
]
SHARING = GpuSharing.model_validate({"mode": "dra", "claims": CLAIMS})
LIST = "nvidia-smi -L 2>/dev/null"
SECONDS = 60


class Node:
    """The local node with a T4 and two A100, whose cards pods claim."""

    def __init__(self, cluster: EmbeddedCluster, kube: Cluster) -> None:
        self.cluster, self.kube, self.root = cluster, kube, cluster.paths.driver

    def run(self, pod: dict[str, Any]) -> list[list[str]]:
        """Run a pod to its good end; the lines of each container."""
        name = self.start(pod)
        status = wait.until(lambda: self.ended(name), seconds=SECONDS, what=f"pod {name} to end")
        assert status["phase"] == "Succeeded", status
        names = [container["name"] for container in pod["spec"]["containers"]]
        lines = [list(self.kube.logs(name, trial.NAMESPACE, container=each)) for each in names]
        self.remove(name)
        return lines

    def start(self, pod: dict[str, Any]) -> str:
        name: str = pod["metadata"]["name"]
        self.kube.apply(pod)
        return name

    def remove(self, *names: str) -> None:
        """As a user deletes pods. With a grace of 0 the objects would be gone before the node has their cards back."""
        for name in names:
            self.kube.delete("v1", "Pod", name, trial.NAMESPACE, grace_seconds=1)
        for name in names:
            wait.gone(self.kube, "v1", "Pod", name, trial.NAMESPACE, seconds=SECONDS)

    def ended(self, name: str) -> dict[str, Any] | None:
        status: dict[str, Any] = self.kube.get("v1", "Pod", name, trial.NAMESPACE).get("status", {})
        return status if status.get("phase") in {"Succeeded", "Failed"} else None

    def running(self, name: str) -> None:
        def look() -> bool:
            phase = self.kube.get("v1", "Pod", name, trial.NAMESPACE).get("status", {}).get("phase")
            return bool(phase == "Running")

        wait.until(look, seconds=SECONDS, what=f"pod {name} to run")


@pytest.fixture(scope="module")
def node(embedded_cluster: EmbeddedCluster, kube: Cluster) -> Node:
    trial.install(kube, [SHARING])
    trial.put(embedded_cluster, kube, SHARING, "A100", 2)
    driver.write_cards(embedded_cluster.paths.driver, [GpuCards(model="T4", count=1), GpuCards(model="A100", count=2)])
    found = Node(embedded_cluster, kube)
    wait.until(lambda: len(published(kube, embedded_cluster.local_node())) == 56, seconds=SECONDS, what="the devices")
    return found


def published(kube: Cluster, name: str) -> list[dict[str, Any]]:
    slices = kube.list(API, "ResourceSlice", fields=f"spec.nodeName={name}")
    return [device for item in slices for device in item["spec"].get("devices") or ()]


def test_several_models_of_one_node_are_published_and_no_device_plugin_counts_them(node: Node) -> None:
    found = published(node.kube, node.cluster.local_node())
    names = [item["attributes"]["productName"]["string"] for item in found]
    assert (names.count("Tesla T4"), names.count("NVIDIA A100-SXM4-40GB")) == (2, 2 * 27)
    assert offers.advertised(node.kube.get("v1", "Node", node.cluster.local_node())) == {}


def test_a_selector_takes_the_model_it_names(node: Node) -> None:
    ((line,),) = node.run(trial.claiming("t4", "a-t4", "sh", "-c", LIST))
    assert line == f"GPU 0: Tesla T4 (UUID: {driver.uuids(node.root)[0]})"


def test_a12_two_containers_of_a_time_sliced_claim_see_the_same_card(node: Node) -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#762: strategy TimeSlicing, interval Long, shared by two containers."""
    dra.check_gates(claims.template(SHARING.claims[4], {"name": "long"}), ["TimeSlicingSettings"])
    one, other = node.run(trial.claiming("sliced", "long", "sh", "-c", LIST, containers=2))
    assert len(one) == 1 and one == other


def test_cards_of_the_vfio_driver_are_no_cards_of_nvidia_s(node: Node) -> None:
    """Two of three cards are given raw: their pod sees no NVIDIA card, and of the rest one pod gets one, another none."""
    node.start(trial.claiming("machine", "raw", "sh", "-c", f"{LIST}; echo [$NVIDIA_VISIBLE_DEVICES]; sleep 300"))
    node.running("machine")
    seen = wait.until(lambda: list(node.kube.logs("machine", trial.NAMESPACE)), seconds=20, what="logs")
    assert seen == ["[void]"]
    node.start(trial.claiming("last", "one", "sleep", "300"))
    node.running("last")
    node.start(trial.claiming("late", "one", "sleep", "300"))
    wait.until(lambda: waits(node, "late"), seconds=SECONDS, what="a pod to find no card")
    node.remove("machine", "last", "late")


def waits(node: Node, name: str) -> bool:
    conditions = node.kube.get("v1", "Pod", name, trial.NAMESPACE).get("status", {}).get("conditions") or ()
    return any(item["type"] == "PodScheduled" and item["status"] == "False" for item in conditions)


def test_two_pods_share_a_claim(node: Node) -> None:
    node.kube.apply(claims.shared(DeviceClaim(name="together"), {"name": "together", "namespace": trial.NAMESPACE}))
    for name in ("first", "second"):
        node.start(trial.claiming(name, "", "sh", "-c", f"{LIST}; sleep 30", claim="together"))
    for name in ("first", "second"):
        node.running(name)
    seen = [wait.until(lambda n=n: list(node.kube.logs(n, trial.NAMESPACE)), seconds=20, what="logs") for n in ("first", "second")]  # type: ignore[misc]  # fmt: skip
    assert seen[0] == seen[1] and len(seen[0]) == 1
    reserved = node.kube.get(API, "ResourceClaim", "together", trial.NAMESPACE)["status"]["reservedFor"]
    assert {item["name"] for item in reserved} == {"first", "second"}
    node.remove("first", "second")
    node.kube.delete(API, "ResourceClaim", "together", trial.NAMESPACE)


def test_mps_limits_the_share_of_a_claim(node: Node) -> None:
    ask = "echo get_default_active_thread_percentage | nvidia-cuda-mps-control; echo $CUDA_MPS_PIPE_DIRECTORY"
    assert node.run(trial.claiming("mps", "quarter", "sh", "-c", ask)) == [["25", "/tmp/nvidia-mps"]]


def test_mig_devices_are_made_on_request_and_taken_back(node: Node) -> None:
    """Two A100 hold four 3g.20gb. A fifth waits, and gets its device when another has ended."""
    names = [f"half-{number}" for number in range(4)]
    for name in names:
        node.start(trial.claiming(name, "half", "sh", "-c", f"{LIST}; sleep 300"))
    for name in names:
        node.running(name)
    assert len(driver.instances(node.root)) == 4
    seen = [wait.until(lambda n=n: list(node.kube.logs(n, trial.NAMESPACE)), seconds=20, what="logs") for n in names]  # type: ignore[misc]  # fmt: skip
    assert len({lines[1] for lines in seen}) == 4 and all("MIG 3g.20gb" in lines[1] for lines in seen)
    node.start(trial.claiming("fifth", "half", "sleep", "300"))
    with pytest.raises(NotReady):
        wait.until(lambda: node.kube.get("v1", "Pod", "fifth", trial.NAMESPACE)["spec"].get("nodeName"), seconds=3, what="a node")  # fmt: skip
    node.remove(names[0])
    node.running("fifth")
    node.remove(*names[1:], "fifth")
    wait.until(lambda: not driver.instances(node.root), seconds=SECONDS, what="the instances to be taken back")


def test_a_constraint_keeps_devices_on_one_card(node: Node) -> None:
    command = f"{LIST}; echo $NVIDIA_VISIBLE_DEVICES"
    ((*cards, visible),) = node.run(trial.claiming("pair", "two-of-one-card", "sh", "-c", command))
    assert len(visible.split(",")) == 2 and all(uuid.startswith("MIG-") for uuid in visible.split(","))
    assert [line.split()[0] for line in cards] == ["GPU", "MIG", "MIG"]


def test_pods_claim_cards_of_simulated_nodes_too(node: Node, kube: Cluster) -> None:
    from isthmus import catalog

    machine = catalog.load().shape("aws", "p4d.24xlarge")
    own = {labels.GPU_MODEL: "A100", **SHARING.node_labels}
    pool = nodes.Pool("g", machine, "us-east-1", ("us-east-1a",), 2, own, node_name=lambda index, zone: "claimed-node")
    wanted = nodes.desired([pool])  # its first node is the local one
    kwok.add(kube, [dict(item) for item in wanted.simulated.values()])
    nodes.publish(local.backend(), node.cluster, wanted, set(wanted.simulated))
    assert len(published(kube, "claimed-node")) == 8 * 27
    pod = trial.claiming("far", "half", "true")
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "claimed-node"}
    pod["spec"]["tolerations"] = [{"operator": "Exists"}]
    node.start(pod)
    wait.until(lambda: node.ended("far") or node.running("far") is None, seconds=SECONDS, what="the pod to be played")
    claim = kube.get("v1", "Pod", "far", trial.NAMESPACE)["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    (result,) = kube.get(API, "ResourceClaim", claim, trial.NAMESPACE)["status"]["allocation"]["devices"]["results"]
    assert result["pool"] == "claimed-node" and "-mig-3g-20gb-" in result["device"]
    node.remove("far")
    kwok.remove(kube, ["claimed-node"])
    wait.until(lambda: not published(kube, "claimed-node"), seconds=SECONDS, what="its devices to go with it")
