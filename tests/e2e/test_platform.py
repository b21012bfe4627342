"""What a user has after `pulumi up`, the same on both runtimes. Each test names the operator or workload it proves."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from isthmus.kube import Cluster, wait
from isthmus.kube.objects import holds
from isthmus.localcluster import kwok
from isthmus.specs import labels
from tests.clusters import PROBE_IMAGE, Probes, found, probe_archive, succeeded
from tests.e2e.conftest import Platform

pytestmark = [pytest.mark.local, pytest.mark.e2e]

SAMPLE_SECONDS = 420
NAMESPACE = "e2e"
OWN_POOLS = {"embedded": "aws:eks/nodeGroup:NodeGroup", "kind": "isthmus:kind:Cluster"}
"""The type of resource that a pool's nodes are part of."""


@pytest.fixture(scope="module")
def probes(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probes]:
    """Small pods in a namespace of their own."""
    with platform.stacks.as_home():
        platform.local.load_image(probe_archive(tmp_path_factory.mktemp("image")))
    kube = platform.kube
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    wait.until(lambda: found(kube, "ServiceAccount", "default", NAMESPACE), seconds=30, what="the namespace's account")
    yield Probes(platform.local, NAMESPACE)
    kube.delete("v1", "Namespace", NAMESPACE)


def gpu_nodes(kube: Cluster) -> list[dict[str, Any]]:
    """Nodes with containers that advertise cards."""
    return [
        node
        for node in kube.list("v1", "Node")
        if not kwok.is_simulated(node) and int(node["status"]["allocatable"].get(labels.GPU_RESOURCE, 0))
    ]


def pods_of(kube: Cluster, job: str) -> list[dict[str, Any]]:
    return kube.list("v1", "Pod", labels.RUNS_NAMESPACE, selector={"training.kubeflow.org/job-name": job})


def test_cluster_every_node_is_ready_and_named_by_its_pool(platform: Platform) -> None:
    for node in platform.kube.list("v1", "Node"):
        assert holds(node, "Ready") and labels.POOL in node["metadata"]["labels"]


def test_nvidia_device_plugin_advertises_every_node_s_own_cards(platform: Platform) -> None:
    nodes = gpu_nodes(platform.kube)
    counts = sorted(int(node["status"]["allocatable"][labels.GPU_RESOURCE]) for node in nodes)
    assert counts == ([2, 2] if platform.name == "kind" else [4])
    assert {node["metadata"]["labels"][labels.GPU_MODEL] for node in nodes} == {"T4"}


def test_training_operator_trains_the_ddp_digits_sample(platform: Platform) -> None:
    """Deployed by `up` itself: four processes, on two nodes where there are two."""
    kube = platform.kube
    wait.until(lambda: succeeded(kube, "ddp-digits"), seconds=SAMPLE_SECONDS, what="ddp-digits to succeed")
    pods = pods_of(kube, "ddp-digits")
    assert len(pods) == 4 and len({pod["spec"]["nodeName"] for pod in pods}) == len(gpu_nodes(kube))
    lines = [json.loads(x) for x in kube.logs("ddp-digits-master-0", labels.RUNS_NAMESPACE) if x.startswith("{")]
    assert [line["value"] for line in lines if line.get("metric") == "accuracy"][-1] >= 0.95


def test_training_operator_runs_the_sendrecv_sample(platform: Platform) -> None:
    wait.until(lambda: succeeded(platform.kube, "sendrecv"), seconds=SAMPLE_SECONDS, what="sendrecv to succeed")


def test_isthmus_run_follows_ddp_digits_to_its_end(platform: Platform) -> None:
    done = platform.stacks.isthmus(
        "run", "ddp-digits", "-s", platform.stack, "--follow", "--set", "env.EPOCHS=12", "--json"
    )
    result = json.loads(done.stdout)
    assert (result["state"], result["source"]) == ("Succeeded", "measured")


def test_nvidia_device_plugin_gives_a_pod_the_card_it_asked_for(platform: Platform, probes: Probes) -> None:
    """After the training above, which takes all of them."""
    seen = set()
    for node in gpu_nodes(platform.kube):
        name = node["metadata"]["name"]
        text = probes.run(f"card-{len(seen)}", "environment", "NVIDIA_VISIBLE_DEVICES", nodeName=name, cards=1)
        assert text.startswith("GPU-") and "," not in text
        seen.add(text)
    assert len(seen) == len(gpu_nodes(platform.kube)), "two nodes show the same card"


def test_network_pods_of_two_nodes_reach_each_other_by_name(platform: Platform, probes: Probes) -> None:
    """Pod network, kube-proxy and CoreDNS."""
    nodes = [node["metadata"]["name"] for node in platform.kube.list("v1", "Node") if not kwok.is_simulated(node)]
    probes.start("server", "listen", "8080", "here", nodeName=nodes[0], metadata={"labels": {"probe": "server"}})
    wait.until(lambda: probes.phase("server") == "Running", seconds=60, what="the server to run")
    platform.kube.apply({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "server", "namespace": NAMESPACE},
        "spec": {"selector": {"probe": "server"}, "ports": [{"port": 80, "targetPort": 8080}]},
    })  # fmt: skip
    assert "here" in probes.run("client", "fetch", f"server.{NAMESPACE}.svc.cluster.local", "80", nodeName=nodes[-1])


def test_a06_a_claim_that_waits_for_its_pod_is_bound_by_it(platform: Platform, probes: Probes) -> None:
    """local-path-provisioner; pulumi/pulumi-kubernetes#895: Pending is no error, and the pod binds it."""
    kube = platform.kube
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "ckpt", "namespace": NAMESPACE},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Mi"}},
                 "storageClassName": "gp3" if platform.name == "embedded" else "standard"},
    }  # fmt: skip
    kube.apply(claim)
    assert kube.get("v1", "PersistentVolumeClaim", "ckpt", NAMESPACE)["status"]["phase"] == "Pending"
    options: dict[str, Any] = {
        "mounts": [{"name": "data", "mountPath": "/data"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "ckpt"}}],
    }
    probes.run("writes", "write", "/data/file", "kept", **options)
    assert kube.get("v1", "PersistentVolumeClaim", "ckpt", NAMESPACE)["status"]["phase"] == "Bound"
    assert probes.run("reads", "read", "/data/file", **options) == "kept"


def test_a09_a_pod_the_kubelet_refuses_is_one_problem_in_status(platform: Platform, probes: Probes) -> None:
    """kubernetes/kubernetes#108152: more cards than the node has, behind the scheduler's back."""
    node = gpu_nodes(platform.kube)[0]["metadata"]["name"]
    probes.start("too-many", "say", "never", nodeName=node, cards=5)
    wait.until(lambda: probes.phase("too-many") == "Failed", seconds=60, what="the kubelet to refuse the pod")
    refused = platform.kube.get("v1", "Pod", "too-many", NAMESPACE)
    assert refused["status"]["reason"] in {"UnexpectedAdmissionError", "OutOfnvidia.com/gpu"}
    shown = json.loads(platform.stacks.isthmus("status", platform.stack, "--json", code=1).stdout)
    assert len([problem for problem in shown["problems"] if "too-many" in problem]) == 1
    platform.kube.delete("v1", "Pod", "too-many", NAMESPACE)


def test_a25_a_loaded_image_is_never_pulled(platform: Platform, probes: Probes) -> None:
    """kubernetes-sigs/kind#328: no tag of ours is `latest`, and each container says IfNotPresent, init containers too."""
    kube = platform.kube
    for pod in kube.list("v1", "Pod", labels.RUNS_NAMESPACE) + kube.list("v1", "Pod", "kubeflow"):
        for container in [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]:
            assert not container["image"].endswith(":latest") and ":" in container["image"]
            assert container["imagePullPolicy"] == "IfNotPresent", container["image"]
    assert not PROBE_IMAGE.endswith(":latest")


def test_kwok_plays_a_node_that_only_schedules(platform: Platform) -> None:
    kube = platform.kube
    name = "e2e-simulated"
    kwok.add(kube, [kwok.simulated_node(name, {"cpu": "8", "memory": "32Gi", "pods": "10", "nvidia.com/gpu": "8"})])
    try:
        wait.until(lambda: holds(kube.get("v1", "Node", name), "Ready"), seconds=60, what="KWOK to take the node")
        kube.apply({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "plays", "namespace": labels.RUNS_NAMESPACE,
                         "labels": {labels.EXECUTION: labels.EXECUTION_SIMULATED}, "annotations": {labels.DURATION: "1s"}},
            "spec": {"nodeName": name, "restartPolicy": "Never", "tolerations": [{"operator": "Exists"}],
                     "containers": [{"name": "c", "image": "none:1", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]},
        })  # fmt: skip
        wait.until(
            lambda: kube.get("v1", "Pod", "plays", labels.RUNS_NAMESPACE)["status"]["phase"] == "Succeeded",
            seconds=60, what="KWOK to play the pod",
        )  # fmt: skip
    finally:
        kube.delete("v1", "Pod", "plays", labels.RUNS_NAMESPACE)
        kwok.remove(kube, [name])


def test_a_second_preview_changes_nothing(platform: Platform) -> None:
    shown = json.loads(platform.stacks.isthmus("preview", platform.stack, "--json").stdout)
    assert shown["changes"] == {}, shown["steps"]


@pytest.mark.parametrize(
    "sharing",
    [{"mode": "time-slicing", "replicas": 4}, {"mode": "mps", "clients": 4}],
    ids=lambda sharing: str(sharing["mode"]),
)
def test_nvidia_device_plugin_another_sharing_mode_keeps_the_cluster(
    platform: Platform, sharing: dict[str, Any]
) -> None:
    """A preview shows the pool's update and what the operators need, nothing deleted and no cluster replaced."""
    asked = platform.asked("gpuPools")
    platform.stacks.settings(platform.stack, gpuPools=[{**pool, "sharing": sharing} for pool in asked])
    try:
        shown = json.loads(platform.stacks.isthmus("preview", platform.stack, "--json").stdout)
    finally:
        platform.stacks.settings(platform.stack, gpuPools=asked)
    steps = {(step["operation"], step["type"]) for step in shown["steps"] if step["operation"] != "same"}
    assert steps
    assert not [kind for operation, kind in steps if "delete" in operation or "replace" in operation], steps
    own = {(operation, kind) for operation, kind in steps if not kind.startswith("kubernetes:")}
    assert own == {("update", OWN_POOLS[platform.name])}, steps
