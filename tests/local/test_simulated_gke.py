"""A simulated GKE cluster for real: a local Kubernetes behind the project, its pools, its taints, its device plugin."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from isthmus.kube import Cluster, wait
from isthmus.localcluster.runtime import LocalCluster
from isthmus.simulation import local
from isthmus.simulation.account import Account
from isthmus.simulation.gcp.container import local_cluster_name
from isthmus.specs import labels
from isthmus.toolchain import home
from tests.clusters import borrow_home
from tests.unit.simulation.gcp_project import CLUSTER, POOL, PROJECT, REGION, TAINT, Project, pool_inputs

pytestmark = pytest.mark.local

GPU_NODES, PLAIN_NODES, REPLICAS = 3, 2, 6


class RealProject(Project):
    """The project of the unit tests over the machine's own local clusters."""

    def __init__(self, folder: Path) -> None:
        self.account = Account(PROJECT, folder / f"{PROJECT}.db")
        self.restart()

    @property
    def real(self) -> LocalCluster:
        """The local cluster behind the only GKE cluster."""
        return local.backend().runtime().get(local_cluster_name(self.account, REGION, "train"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealProject]:
    """A project with a cluster, its GPU pool made before the plain one: GKE's own taint would be missing (case A13)."""
    folder = borrow_home(tmp_path_factory.mktemp("sim") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(home.HOME_VARIABLE, str(folder))
        made = RealProject(home.accounts())
        try:
            cluster = made.cluster()
            gpu = pool_inputs(cluster, "gpu", cards=4, nodes=GPU_NODES, taints=[TAINT])
            gpu["nodeConfig"]["labels"] = {labels.POOL: "gpu", labels.GPU_MODEL: "T4"}
            made.make(POOL, "gpu", gpu)
            made.make(POOL, "cpu", pool_inputs(cluster, "cpu", nodes=PLAIN_NODES))
            yield made
        finally:
            for found in local.backend().runtime().list():
                found.delete()


@pytest.fixture
def kube(project: RealProject) -> Cluster:
    """The cluster's API server, as its own administrator."""
    return Cluster(project.real.kubeconfig())


def plain_deployment() -> dict[str, Any]:
    """Pods that ask for CPU only and tolerate nothing; they only schedule."""
    marks = {"app": "plain", labels.EXECUTION: labels.EXECUTION_SIMULATED}
    container = {"name": "main", "image": "isthmus.dev/none:1", "resources": {"requests": {"cpu": "100m"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "plain", "namespace": "default"},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": {"app": "plain"}},
            "template": {"metadata": {"labels": marks}, "spec": {"containers": [container]}},
        },
    }


def test_a13_plain_pods_land_on_no_gpu_node(project: RealProject, kube: Cluster) -> None:
    """terraform-google-modules/terraform-google-kubernetes-engine#703, with the real scheduler."""
    nodes = {node["metadata"]["name"]: node for node in kube.list("v1", "Node")}
    gpu = {
        name for name, node in nodes.items() if node["metadata"]["labels"].get("cloud.google.com/gke-nodepool") == "gpu"
    }
    only_scheduling = gpu - {project.real.local_node()}
    assert len(only_scheduling) == GPU_NODES - 1
    for name in only_scheduling:
        assert {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"} in nodes[name]["spec"]["taints"]
    kube.apply(plain_deployment())

    def placed() -> list[str]:
        pods = kube.list("v1", "Pod", "default", selector={"app": "plain"})
        return [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]

    wait.until(lambda: len(placed()) == REPLICAS, seconds=60, what="the pods to be placed")
    assert set(placed()).isdisjoint(gpu)


def test_the_local_node_advertises_the_pools_cards(project: RealProject, kube: Cluster) -> None:
    """By NVIDIA's plugin, in place of Google's, deployed by the far side."""

    def advertised() -> str:
        status = kube.get("v1", "Node", project.real.local_node())["status"]
        return str(status["allocatable"].get(labels.GPU_RESOURCE, "0"))

    wait.until(lambda: advertised() == "4", seconds=120, what="the device plugin")
    (daemon,) = kube.list("apps/v1", "DaemonSet", "kube-system", fields="metadata.name=nvidia-gpu-device-plugin")
    assert daemon["status"]["desiredNumberScheduled"] == 1


def test_there_is_one_default_storage_class_and_it_is_googles(kube: Cluster) -> None:
    mark = "storageclass.kubernetes.io/is-default-class"
    found = {item["metadata"]["name"]: item for item in kube.list("storage.k8s.io/v1", "StorageClass")}
    default = [name for name, item in found.items() if item["metadata"].get("annotations", {}).get(mark) == "true"]
    assert default == ["standard-rwo"]
    assert found["standard-rwo"]["provisioner"] == "pd.csi.storage.gke.io"


def test_a_claim_of_googles_class_is_served(kube: Cluster) -> None:
    """By a stand-in under the driver's name; the claim waits for its first pod."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    kube.apply(claim)
    mount = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "user", "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "isthmus.dev/none:1",
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
            "volumes": [mount],
        },
    }
    kube.apply(pod)
    wait.until(
        lambda: kube.get("v1", "PersistentVolumeClaim", "data", "default")["status"]["phase"] == "Bound",
        seconds=90,
        what="the claim to be bound",
    )
    assert kube.get("v1", "PersistentVolumeClaim", "data", "default")["spec"]["storageClassName"] == "standard-rwo"


def test_a07_a_credential_lives_an_hour(project: RealProject) -> None:
    where = ["--cloud", "gcp", "--account", PROJECT, "--region", REGION, "--cluster", "train"]
    done = subprocess.run(
        [sys.executable, "-m", "isthmus.cli.main", "kube-token", *where], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    expires = datetime.fromisoformat(json.loads(done.stdout)["status"]["expirationTimestamp"])
    assert timedelta(minutes=50) < expires - datetime.now(UTC) <= timedelta(minutes=60)


def test_a_resized_pool_keeps_its_nodes(project: RealProject, kube: Cluster) -> None:
    row = project.account.named(POOL, REGION, "train/cpu")
    assert row is not None
    before = {node["metadata"]["name"] for node in kube.list("v1", "Node")}
    project.operations.update(POOL, row.id, row.urn, row.outputs, {**row.inputs, "nodeCount": PLAIN_NODES + 1})
    after = {node["metadata"]["name"] for node in kube.list("v1", "Node")}
    assert before < after and len(after - before) == 1


def test_the_cluster_goes_with_everything(project: RealProject) -> None:
    row = project.account.named(CLUSTER, REGION, "train")
    assert row is not None
    project.drop(CLUSTER, row.id, row.outputs, "c")
    assert local.backend().runtime().list() == []
    assert project.account.rows(POOL) == []
