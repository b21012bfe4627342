"""The real NVIDIA device plugin on a real node: what it advertises, gives and takes back.

The node's cards come from the driver root; everything above NVML is what runs on a node with cards.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isthmus.kube import Cluster, wait
from isthmus.localcluster import driver
from isthmus.localcluster.embedded import EmbeddedCluster
from isthmus.specs import labels
from isthmus.specs.cluster import GpuCards, NodePool
from isthmus.specs.errors import NotReady
from isthmus.specs.sharing import GpuSharing
from operators import device_plugin, training_operator

pytestmark = pytest.mark.local

CARDS = GpuCards(model="T4", count=4)
SHARINGS = [
    GpuSharing(mode="time-slicing", replicas=4),
    GpuSharing(mode="time-slicing", replicas=2, rename=True),
]
SECONDS = 60


class Node:
    """The local node as the scheduler sees it."""

    def __init__(self, cluster: EmbeddedCluster, kube: Cluster) -> None:
        self.kube = kube
        self.name = cluster.local_node()
        self.driver: Path = cluster.paths.driver

    def advertised(self) -> dict[str, int]:
        """Cards that pods can ask for; a kubelet goes on naming a resource that is gone, with 0."""
        allocatable = self.kube.get("v1", "Node", self.name)["status"]["allocatable"]
        return {
            name: int(value) for name, value in allocatable.items() if name.startswith("nvidia.com/") and value != "0"
        }

    def label(self, name: str, value: str | None) -> None:
        self.kube.patch("v1", "Node", self.name, {"metadata": {"labels": {name: value}}})

    def expect(self, wanted: dict[str, int]) -> None:
        wait.until(
            lambda: self.advertised() == wanted, seconds=SECONDS, what=f"the node to advertise {wanted}",
            why=lambda: f"it advertises {self.advertised()}",
        )  # fmt: skip


@pytest.fixture(scope="module")
def node(embedded_cluster: EmbeddedCluster, kube: Cluster) -> Node:
    """The node with four T4 and the plugin for pools that share in different ways."""
    node = Node(embedded_cluster, kube)
    pools = [NodePool(name=f"pool-{index}", gpu=CARDS, sharing=sharing) for index, sharing in enumerate(SHARINGS)]
    embedded_cluster.set_cards(CARDS)
    node.label(labels.GPU_MODEL, CARDS.model)
    for item in device_plugin.manifests(pools):
        kube.apply(item)
    return node


def pod(namespace: str, name: str, cards: int, *words: str) -> dict[str, Any]:
    """A pod that asks for cards."""
    container = {
        "name": "main",
        "image": training_operator.INIT_IMAGE,
        "command": list(words),
        "resources": {"limits": {labels.GPU_RESOURCE: str(cards)}},
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def ended(kube: Cluster, namespace: str, name: str) -> dict[str, Any]:
    """A pod's status once it has ended."""

    def look() -> dict[str, Any] | None:
        status: dict[str, Any] = kube.get("v1", "Pod", name, namespace).get("status", {})
        return status if status.get("phase") in {"Succeeded", "Failed"} else None

    return wait.until(look, seconds=SECONDS, what=f"pod {name} to end")


def test_the_node_advertises_its_cards(node: Node) -> None:
    node.expect({"nvidia.com/gpu": 4})


@pytest.mark.parametrize("sharing", [*SHARINGS, GpuSharing()], ids=lambda sharing: sharing.config_name or "not shared")
def test_advertised_is_what_the_real_plugin_advertises(node: Node, sharing: GpuSharing) -> None:
    """The figure that nodes without a kubelet are given comes from the same function."""
    node.label(labels.DEVICE_PLUGIN_CONFIG, sharing.config_name or None)
    node.expect(device_plugin.advertised(CARDS, sharing))


def test_a_pod_sees_the_cards_it_was_given_and_no_others(node: Node, kube: Cluster, namespace: str) -> None:
    node.expect({"nvidia.com/gpu": 4})
    known = driver.uuids(node.driver)
    command = "nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null; echo $NVIDIA_VISIBLE_DEVICES"
    for name, cards in (("two", 2), ("one", 1)):
        kube.apply(pod(namespace, name, cards, "sh", "-c", command))
        assert ended(kube, namespace, name)["phase"] == "Succeeded"
        *shown, visible = kube.logs(name, namespace)
        assert sorted(shown) == sorted(visible.split(","))
        assert len(shown) == cards
        assert set(shown) <= set(known)


def test_a_pod_without_cards_sees_no_driver(node: Node, kube: Cluster, namespace: str) -> None:
    item = pod(namespace, "none", 0, "sh", "-c", "ls /usr/bin/nvidia-smi /run/isthmus 2>/dev/null; true")
    del item["spec"]["containers"][0]["resources"]
    kube.apply(item)
    assert ended(kube, namespace, "none")["phase"] == "Succeeded"
    assert list(kube.logs("none", namespace)) == []


def test_a09_more_shares_than_one_are_refused_by_the_plugin(node: Node, kube: Cluster, namespace: str) -> None:
    """kubernetes/kubernetes#108152: such a pod ends as UnexpectedAdmissionError. Here it is applied behind our back."""
    node.label(labels.DEVICE_PLUGIN_CONFIG, SHARINGS[0].config_name)
    node.expect({"nvidia.com/gpu": 16})
    kube.apply(pod(namespace, "greedy", 2, "true"))
    status = ended(kube, namespace, "greedy")
    assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
    assert "maximum request size for shared resources is 1" in status["message"]
    node.label(labels.DEVICE_PLUGIN_CONFIG, None)
    node.expect({"nvidia.com/gpu": 4})


def test_a_lost_card_is_no_longer_given_out(node: Node, embedded_cluster: EmbeddedCluster) -> None:
    node.expect({"nvidia.com/gpu": 4})
    driver.set_health(node.driver, "1", driver.XID_FALLEN_OFF_BUS)
    node.expect({"nvidia.com/gpu": 3})
    embedded_cluster.set_cards(CARDS)  # writes healthy cards and restarts the plugin
    node.expect({"nvidia.com/gpu": 4})


def plugins(kube: Cluster) -> list[dict[str, Any]]:
    """The plugin's pods, ending ones too."""
    return kube.list("v1", "Pod", device_plugin.NAMESPACE, selector={"name": "nvidia-device-plugin-ds"})


def test_the_node_follows_when_the_cards_change_in_quick_succession(
    node: Node, embedded_cluster: EmbeddedCluster, kube: Cluster, namespace: str
) -> None:
    """Each change restarts the plugin, also one that has only just started."""
    for turn, last in enumerate((3, 4)):
        for count in (1, 2, last):
            embedded_cluster.set_cards(GpuCards(model="T4", count=count))
        node.expect({"nvidia.com/gpu": last})
        kube.apply(pod(namespace, f"all-{turn}", last, "true"))
        assert ended(kube, namespace, f"all-{turn}")["phase"] == "Succeeded"


def delete_pods(kube: Cluster) -> None:
    for item in plugins(kube):
        kube.delete("v1", "Pod", item["metadata"]["name"], device_plugin.NAMESPACE)


def replace_daemon_set(kube: Cluster) -> None:
    """The new one's pods are made while the old one's still end."""
    daemon_set = kube.get("apps/v1", "DaemonSet", "nvidia-device-plugin-daemonset", device_plugin.NAMESPACE)
    kube.delete("apps/v1", "DaemonSet", daemon_set["metadata"]["name"], device_plugin.NAMESPACE)
    metadata = {key: daemon_set["metadata"][key] for key in ("name", "namespace", "labels")}
    wait.until(lambda: _applied(kube, {**daemon_set, "metadata": metadata}), seconds=SECONDS, what="the new DaemonSet")


def _applied(kube: Cluster, daemon_set: dict[str, Any]) -> bool:
    """Whether it is there and stays: an apply of one that is being deleted only changes that."""
    daemon_set.pop("status", None)
    return "deletionTimestamp" not in kube.apply(daemon_set)["metadata"]


@pytest.mark.parametrize("replace", [delete_pods, replace_daemon_set], ids=["pod", "set"])
def test_a_deleted_plugin_comes_back_with_cards(
    node: Node, kube: Cluster, namespace: str, replace: Callable[[Cluster], None]
) -> None:
    """An old plugin that ends beside its successor takes it down: so at no time may two be on one node."""
    for turn, count in enumerate((3, 4)):
        before = {item["metadata"]["uid"] for item in plugins(kube)}
        driver.write_cards(node.driver, GpuCards(model="T4", count=count))
        replace(kube)

        def replaced(before: set[str] = before) -> bool:
            here = [item for item in plugins(kube) if item["spec"].get("nodeName")]
            phases = {item["metadata"]["uid"]: item["status"].get("phase") for item in here}
            living = [uid for uid, phase in phases.items() if phase not in {"Succeeded", "Failed"}]
            assert len(living) <= 1, "two plugins on one node"
            return any(phase == "Running" for uid, phase in phases.items() if uid not in before)

        wait.until(replaced, seconds=SECONDS, what="a new plugin")
        node.expect({"nvidia.com/gpu": count})
        kube.apply(pod(namespace, f"all-{turn}", count, "true"))
        assert ended(kube, namespace, f"all-{turn}")["phase"] == "Succeeded"


def test_more_cards_than_the_node_has_stay_pending(node: Node, kube: Cluster, namespace: str) -> None:
    node.expect({"nvidia.com/gpu": 4})
    kube.apply(pod(namespace, "huge", 5, "true"))
    with pytest.raises(NotReady):
        wait.until(lambda: kube.get("v1", "Pod", "huge", namespace)["spec"].get("nodeName"), seconds=3, what="a node")
