"""Every way to share cards on a real node: what pods get, what is refused, and changing from one way to another."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from isthmus.kube import Cluster, wait
from isthmus.kube.claims import API
from isthmus.localcluster import driver
from isthmus.localcluster.embedded import EmbeddedCluster
from isthmus.runs.model import State
from isthmus.runs.store import Store
from isthmus.runs.submit import submit
from isthmus.runs.watch import follow
from isthmus.sharing import change, offers, trial
from isthmus.specs import labels
from isthmus.specs.errors import Refused
from isthmus.specs.sharing import GpuSharing
from workloads import bindings, render

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
def node(embedded_cluster: EmbeddedCluster, kube: Cluster) -> EmbeddedCluster:
    """The local node as one of a pool, with the operators of every way."""
    trial.install(kube, WAYS)
    label(kube, embedded_cluster, **{labels.POOL: POOL})
    trial.put(embedded_cluster, kube, GpuSharing(), "A30", 1)
    return embedded_cluster


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


@pytest.mark.slow
@pytest.mark.parametrize("sharing", WAYS, ids=mode)
def test_the_inference_sample_runs_in_every_mode(
    node: EmbeddedCluster, kube: Cluster, sharing: GpuSharing, tmp_path: Path
) -> None:
    """As its README says it for each mode; as many pods as the card gives shares."""
    trial.put(node, kube, sharing, "A30", 1)
    offered = sharing.advertised(1) or {"claims": 4}
    resource, shares = list(offered.items())[-1]
    asks: dict[str, str] = {"roles.Worker.resource": resource}
    if sharing.mode == "dra":
        asks = {"roles.Worker.gpus": "0", "roles.Worker.claims": "[card]", "claims": "[{name: card, scope: run}]"}
    seconds = "20" if sharing.mode == "dra" else "1"  # all four are to hold the claim at once
    spec = render.load(
        "small-inference",
        {**asks, "roles.Worker.replicas": str(shares), "roles.Worker.cpu": "100m", "env.SECONDS": seconds},
    )
    store = Store(tmp_path / "runs.db")
    run = submit(kube, store, spec, stack="local", binding=bindings.for_cloud("kind"))
    seen = follow(kube, store, run, lambda snapshot, fresh: None)
    assert seen.run.state is State.SUCCEEDED, seen
    assert seen.latest["accuracy"].value is not None and seen.latest["accuracy"].value >= spec.metrics["accuracy"]
    held = {Fraction(item.card_parts, item.card_whole) for item in seen.replicas}
    profile = {THREE.config_name: Fraction(1, 4)}.get(sharing.config_name, Fraction(1, shares))
    assert held == {profile}, (
        "what the bill counts: a quarter of four slices, a quarter of a claim that four pods share"
    )
    started = [line for pod in pods(kube, run.id) for line in kube.logs(pod, run.namespace) if "cards" in line]
    assert len(started) == shares and all("A30" in line for line in started)
    assert all(("MIG 1g.6gb" in line) == (sharing == THREE) for line in started)
    kube.delete("batch/v1", "Job", run.job, run.namespace, propagation="Foreground")
    if sharing.mode == "dra":
        wait.until(
            lambda: not kube.list(API, "ResourceClaim", run.namespace), seconds=60, what="its claim to go with it"
        )


def pods(kube: Cluster, run: str) -> list[str]:
    return [pod["metadata"]["name"] for pod in kube.list("v1", "Pod", trial.NAMESPACE, selector={labels.RUN: run})]


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
    assert offers.advertised(found) == {"nvidia.com/gpu": 1}
    assert not found["spec"].get("unschedulable")


@pytest.mark.parametrize("wanted", [SLICED, THREE, CLAIMED, GpuSharing(), MPS, WHOLE], ids=mode)
def test_one_way_after_the_other(node: EmbeddedCluster, kube: Cluster, wanted: GpuSharing) -> None:
    assert changed(kube, wanted)[-1] == "uncordon"
    assert offers.advertised(kube.get("v1", "Node", node.local_node())) == wanted.advertised(1)


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
    offers.expect(kube, node.local_node(), {"nvidia.com/gpu": 1})
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
