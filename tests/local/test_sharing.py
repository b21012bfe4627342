"""Every way to share cards on a real node: what pods get, what is refused, and changing from one way to another."""

from collections.abc import Iterator
from typing import Any

import pytest

from isthmus.kube import Cluster, wait
from isthmus.localcluster import driver
from isthmus.localcluster.embedded import EmbeddedCluster
from isthmus.sharing import change, trial
from isthmus.specs import labels
from isthmus.specs.errors import Refused
from isthmus.specs.sharing import GpuSharing

pytestmark = pytest.mark.local

THREE = GpuSharing(mode="mig", layout={"2g.12gb": 1, "1g.6gb": 2})
WHOLE = GpuSharing(mode="mig", layout={"4g.24gb": 1}, strategy="single")
SLICED = GpuSharing(mode="time-slicing", replicas=4)
MPS = GpuSharing(mode="mps", clients=4)
CLAIMED = GpuSharing.model_validate({"mode": "dra", "claims": [{"name": "one"}]})
WAYS = [GpuSharing(), SLICED, THREE, WHOLE, MPS, CLAIMED]
POOL = "cards"


def mode(sharing: GpuSharing) -> str:
    return sharing.config_name or sharing.mode


@pytest.fixture(scope="module")
def node(embedded_cluster: EmbeddedCluster, kube: Cluster) -> Iterator[EmbeddedCluster]:
    """The local node as one of a pool, with the operators of every way."""
    objects = trial.install(kube, WAYS)
    label(kube, embedded_cluster, **{labels.POOL: POOL})
    trial.put(embedded_cluster, kube, GpuSharing(), "A30", 1)
    yield embedded_cluster
    for item in reversed(objects):
        if item["kind"] != "Namespace":
            kube.delete(item["apiVersion"], item["kind"], item["metadata"]["name"], item["metadata"].get("namespace"))
    embedded_cluster.set_cards(None)
    gone = (labels.POOL, labels.GPU_MODEL, labels.GPU_SHARING, labels.DEVICE_PLUGIN_CONFIG, labels.MPS_CAPABLE,
            labels.MIG_CONFIG, labels.MIG_STATE)  # fmt: skip
    label(kube, embedded_cluster, **dict.fromkeys(gone))


def label(kube: Cluster, cluster: EmbeddedCluster, **values: str | None) -> None:
    kube.patch("v1", "Node", cluster.local_node(), {"metadata": {"labels": values}})


def changed(kube: Cluster, wanted: GpuSharing, *, evict: bool = False) -> list[str]:
    """Change the pool, as `isthmus sharing change` does; the steps that it took."""
    steps = change.plan(change.read(kube, POOL), wanted, 1, evict=evict)
    change.run(kube, steps, wanted, 1, say=lambda text: None)
    assert change.plan(change.read(kube, POOL), wanted, 1) == ()
    return [step.action for step in steps]


@pytest.mark.parametrize("sharing", WAYS, ids=mode)
def test_a_pod_gets_a_share_and_one_that_asks_for_too_much_is_refused(
    node: EmbeddedCluster, kube: Cluster, sharing: GpuSharing
) -> None:
    found = trial.run(node, kube, sharing, "A30", 1)
    assert found.node["allocatable"] == sharing.advertised(1)
    assert found.given[0].startswith("Succeeded")
    assert "GPU 0: NVIDIA A30" in found.given[1]
    assert ("MIG 1g.6gb" in found.given[2]) is (sharing == THREE)
    if sharing == MPS:  # a quarter of the threads and of 24576 MiB
        assert found.given[-2:] == ("25", "6144M")
    if sharing in (SLICED, MPS):
        assert "UnexpectedAdmissionError" in found.refused and "request size for shared resources is 1" in found.refused
    else:
        assert "Unschedulable" in found.refused


def test_a10_from_several_profiles_to_the_whole_card(node: EmbeddedCluster, kube: Cluster) -> None:
    """NVIDIA/gpu-operator#460, with a pod that holds an instance. The MIG manager's part is the node agent's here."""
    changed(kube, THREE)
    kube.apply(trial.pod("holder", "nvidia.com/mig-2g.12gb", 1, "sleep", "600"))
    wait.until(lambda: phase(kube, "holder") == "Running", seconds=60, what="the pod to run")
    with pytest.raises(Refused, match=r"isthmus-runs/holder \(nothing makes another: it is lost\)"):
        change.plan(change.read(kube, POOL), WHOLE, 1)
    steps = changed(kube, WHOLE, evict=True)
    assert steps == ["cordon", "drain", "layout", "wait-layout", "configure", "wait-node", "uncordon"]
    found = kube.get("v1", "Node", node.local_node())
    assert trial.advertised(found) == {"nvidia.com/gpu": 1}
    assert not found["spec"].get("unschedulable")


@pytest.mark.parametrize("wanted", [SLICED, THREE, CLAIMED, GpuSharing(), MPS, WHOLE], ids=mode)
def test_one_way_after_the_other(node: EmbeddedCluster, kube: Cluster, wanted: GpuSharing) -> None:
    assert changed(kube, wanted)[-1] == "uncordon"
    assert trial.advertised(kube.get("v1", "Node", node.local_node())) == wanted.advertised(1)


def test_a_change_that_was_cut_short_is_taken_up(node: EmbeddedCluster, kube: Cluster) -> None:
    changed(kube, GpuSharing())
    steps = change.plan(change.read(kube, POOL), THREE, 1)
    change.run(kube, steps[:2], THREE, 1, say=lambda text: None)  # cordoned, and the layout asked for
    changed(kube, THREE)
    assert not kube.get("v1", "Node", node.local_node())["spec"].get("unschedulable")


def test_cards_that_a_pod_holds_are_not_cut(node: EmbeddedCluster, kube: Cluster) -> None:
    """As NVIDIA's MIG manager: it reports `failed`, and cuts once the pod is gone."""
    changed(kube, GpuSharing())
    kube.apply(trial.pod("holder", "nvidia.com/gpu", 1, "sleep", "600"))
    wait.until(lambda: phase(kube, "holder") == "Running", seconds=60, what="the pod to run")
    label(kube, node, **{labels.MIG_CONFIG: THREE.layout_name})
    wait.until(lambda: state(kube, node) == "failed", seconds=30, what="the layout to be refused")
    assert driver.instances(node.paths.driver) == []
    kube.delete("v1", "Pod", "holder", trial.NAMESPACE, grace_seconds=0)
    wait.until(lambda: state(kube, node) == "success", seconds=30, what="the cards to be cut")
    assert len(driver.instances(node.paths.driver)) == 3
    changed(kube, GpuSharing())


def test_a_pod_on_a_lost_card_is_replaced_on_another(node: EmbeddedCluster, kube: Cluster) -> None:
    """A card that falls off the bus: the node offers one less, the program on it ends, and its Job makes another pod, which
    gets a healthy card. The program plays one whose card has gone: it ends when the driver says so."""
    trial.put(node, kube, GpuSharing(), "T4", 2)
    watch = 'echo $NVIDIA_VISIBLE_DEVICES; while ! grep -A12 "$NVIDIA_VISIBLE_DEVICES" /run/isthmus/driver/cards | grep -q "^state: xid"; do sleep 0.3; done; exit 1'
    pod = trial.pod("train", "nvidia.com/gpu", 1, "sh", "-c", watch)
    template = {"metadata": {"labels": {"job": "train"}}, "spec": pod["spec"]}
    metadata = {"name": "train", "namespace": trial.NAMESPACE}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"template": template, "backoffLimit": 4},
    }
    kube.apply(job)
    first = wait.until(lambda: holding(kube), seconds=60, what="the pod to run")
    (card,) = wait.until(lambda: list(kube.logs(first, trial.NAMESPACE)), seconds=20, what="its card")
    driver.set_health(node.paths.driver, card, driver.XID_FALLEN_OFF_BUS)
    trial.expect(kube, node.local_node(), {"nvidia.com/gpu": 1})
    second = wait.until(lambda: (found := holding(kube)) and found != first and found, seconds=90, what="another pod")
    (other,) = wait.until(lambda: list(kube.logs(second, trial.NAMESPACE)), seconds=20, what="its card")
    assert other != card
    kube.delete("batch/v1", "Job", "train", trial.NAMESPACE)


def holding(kube: Cluster) -> str | None:
    """Name of the running pod of the job."""
    pods = kube.list("v1", "Pod", trial.NAMESPACE, selector={"job": "train"})
    names = [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]
    return names[0] if names else None


def phase(kube: Cluster, name: str) -> str:
    return str(kube.get("v1", "Pod", name, trial.NAMESPACE).get("status", {}).get("phase", ""))


def state(kube: Cluster, cluster: EmbeddedCluster) -> str:
    found: dict[str, Any] = kube.get("v1", "Node", cluster.local_node())["metadata"]["labels"]
    return str(found.get(labels.MIG_STATE, ""))
