"""A simulated EKS cluster for real: a local Kubernetes behind the account, its nodes, its admission, its credentials."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.kube import Cluster, wait
from isthmus.simulation import local
from isthmus.simulation.account import Account, Row
from isthmus.simulation.aws.cloud import CLOUD
from isthmus.simulation.operations import Operations
from isthmus.toolchain import home
from tests.clusters import borrow_home
from tests.unit.simulation.aws_account import CLUSTER, Aws

pytestmark = pytest.mark.local

ACCOUNT, REGION, NAME = "aws-real", "us-east-1", "training"


CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "gp3"},
    "provisioner": "ebs.csi.aws.com",
    "parameters": {"type": "gp3", "encrypted": "true"},
    "volumeBindingMode": "WaitForFirstConsumer",
    "allowVolumeExpansion": True,
}


class RealAws(Aws):
    """The account of the unit tests over the machine's own local clusters."""

    def __init__(self, folder: Path) -> None:
        self.account = Account(ACCOUNT, folder / f"{ACCOUNT}.db")
        self.restart()


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealAws]:
    """An account with a cluster, a system pool of two and a GPU pool of two."""
    folder = borrow_home(tmp_path_factory.mktemp("sim") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISTHMUS_HOME", str(folder))
        made = RealAws(home.accounts())
        try:
            made.cluster()
            made.pool("system", "m5.xlarge", 2, labels={"isthmus.dev/pool": "system"})
            labels = {"isthmus.dev/pool": "gpu", "isthmus.dev/gpu-model": "T4"}
            taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}
            made.pool("gpu", "g4dn.12xlarge", 2, labels=labels, taints=[taint])
            yield made
        finally:
            for cluster in local.backend().runtime().list():
                cluster.delete()


@pytest.fixture
def kube(aws: RealAws) -> Cluster:
    """The cluster's API server, as its own administrator."""
    return Cluster(local.backend().runtime().get(local_name()).kubeconfig())


def local_name() -> str:
    return local.local_name(ACCOUNT, REGION, NAME)


def token() -> dict[str, Any]:
    """What `isthmus kube-token` prints, as kubectl runs it."""
    where = ["--cloud", "aws", "--account", ACCOUNT, "--region", REGION, "--cluster", NAME]
    done = subprocess.run(
        [sys.executable, "-m", "isthmus.cli.main", "kube-token", *where], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout)["status"])


def pod(name: str, *, labels: dict[str, str] | None = None, daemon: bool = False, **spec: Any) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "isthmus.dev/none:1",
        "resources": {"requests": {"cpu": "4", "memory": "64Gi"}},
    }
    owners = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "x"}] if daemon else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}, "ownerReferences": owners},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


def placed(kube: Cluster, manifest: dict[str, Any]) -> dict[str, Any]:
    """The pod once it has a node."""
    name = manifest["metadata"]["name"]
    wait.until(
        lambda: kube.list("v1", "ServiceAccount", "default", fields="metadata.name=default"),
        seconds=60,
        what="service account",
    )
    kube.apply(manifest)
    wait.until(
        lambda: kube.get("v1", "Pod", name, "default")["spec"].get("nodeName"), seconds=60, what=f"node of {name}"
    )
    return kube.get("v1", "Pod", name, "default")


def test_nodes(aws: RealAws, kube: Cluster) -> None:
    nodes = {node["metadata"]["name"]: node for node in kube.list("v1", "Node")}
    here = nodes.pop(local.backend().runtime().get(local_name()).local_node())
    assert here["metadata"]["labels"]["isthmus.dev/gpu-model"] == "T4" and "taints" not in here["spec"]
    assert sorted(node["metadata"]["labels"]["isthmus.dev/pool"] for node in nodes.values()) == ["gpu", "system"]
    gpu = next(node for node in nodes.values() if node["metadata"]["labels"]["isthmus.dev/pool"] == "gpu")
    assert gpu["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert {taint["key"] for taint in gpu["spec"]["taints"]} >= {"isthmus.dev/simulated", "nvidia.com/gpu"}


def test_pods_stay_on_the_local_node_and_fit_it(aws: RealAws, kube: Cluster) -> None:
    """Four pods of 4 CPU and 64 GiB each on whatever this machine is."""
    here = local.backend().runtime().get(local_name()).local_node()
    for number in range(4):
        found = placed(kube, pod(f"executed-{number}"))
        assert found["spec"]["nodeName"] == here
        assert found["spec"]["containers"][0]["resources"]["requests"]["cpu"].endswith("m")
    everywhere = placed(kube, pod("tolerant", tolerations=[{"operator": "Exists"}]))
    assert everywhere["spec"]["nodeName"] == here


def test_simulated_pods_go_to_simulated_nodes_only(aws: RealAws, kube: Cluster) -> None:
    simulated = {
        node["metadata"]["name"] for node in kube.list("v1", "Node", selector={"isthmus.dev/simulated-node": "true"})
    }
    label = {"isthmus.dev/execution": "simulated"}
    found = placed(kube, pod("simulated", labels=label, tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}]))
    assert found["spec"]["nodeName"] in simulated
    assert found["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "4", "memory": "64Gi"}
    keys = [item.get("key") for item in found["spec"]["tolerations"]]
    assert "nvidia.com/gpu" in keys and "isthmus.dev/simulated" in keys


def test_pods_of_daemon_sets_are_left_alone(aws: RealAws, kube: Cluster) -> None:
    manifest = pod("daemon", daemon=True, tolerations=[{"operator": "Exists"}])
    manifest["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    created = kube.create(manifest)
    assert created["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "64Gi"}
    assert created["spec"].get("nodeSelector") is None


def test_the_disk_driver_serves_the_program_s_own_class(aws: RealAws, kube: Cluster) -> None:
    """A StorageClass stays as it was written (an engine that reads it back sees no change), and its claims get disks."""
    addon = aws.make("aws:eks/addon:Addon", "disks", clusterName=NAME, addonName="aws-ebs-csi-driver")
    assert addon.state == "ready"
    for _ in range(2):
        assert kube.apply(CLASS)["provisioner"] == "ebs.csi.aws.com"
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk", "namespace": "default"},
        "spec": {
            "storageClassName": "gp3",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    kube.apply(claim)
    volume = {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}
    kube.apply(pod("writer", volumes=[volume]))

    def bound() -> bool:
        return bool(kube.get("v1", "PersistentVolumeClaim", "disk", "default")["status"]["phase"] == "Bound")

    wait.until(bound, seconds=90, what="the claim to be bound")
    kube.delete("v1", "Pod", "writer", "default")
    kube.delete("v1", "PersistentVolumeClaim", "disk", "default")
    wait.until(lambda: not kube.list("v1", "PersistentVolume"), seconds=90, what="the disk to be deleted")


def test_a07_credentials_are_short_lived_and_let_the_caller_in(aws: RealAws) -> None:
    """The kubeconfig names a command; its certificate lives 15 minutes and is the caller's own."""
    status = token()
    assert token() == status, "a kept certificate is used again"
    cluster = local.backend().runtime().get(local_name())
    known = cluster.kubeconfig()
    user = {
        "client-certificate-data": _base64(status["clientCertificateData"]),
        "client-key-data": _base64(status["clientKeyData"]),
    }
    other = {**known, "users": [{"name": known["users"][0]["name"], "user": user}]}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {"name": "me"}}
    who = Cluster(other).create(review)["status"]["userInfo"]
    assert who["username"].endswith(":user/isthmus") and "system:masters" in who["groups"]


def test_a07_a_stopped_cluster_is_revived_by_asking(aws: RealAws, kube: Cluster) -> None:
    cluster = local.backend().runtime().get(local_name())
    cluster.stop()
    token()
    (local_class,) = kube.list("storage.k8s.io/v1", "StorageClass", fields="metadata.name=standard")
    assert local_class["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "false", (
        "EKS has no default"
    )
    assert cluster.status().phase == "running"
    read = aws.operations.read(CLUSTER, NAME, _row(aws).urn, _row(aws).outputs, _row(aws).inputs)
    assert read is not None and read.outputs == _row(aws).outputs


def test_scaling(aws: RealAws, kube: Cluster) -> None:
    group = next(row for row in aws.account.rows() if row.name == f"{NAME}:system")
    aws.update(group, scalingConfig={"minSize": 0, "desiredSize": 4, "maxSize": 4})
    assert len(kube.list("v1", "Node")) == 5
    aws.update(group, scalingConfig={"minSize": 0, "desiredSize": 1, "maxSize": 4})
    assert len(kube.list("v1", "Node")) == 2


def test_taking_it_down_leaves_no_cluster(aws: RealAws) -> None:
    for row in reversed([row for row in aws.account.rows() if row.urn]):
        Operations(CLOUD, aws.account, aws.operations.config).delete(row.type, row.id, row.urn, row.outputs)
    assert aws.account.rows() == [] and local.backend().runtime().list() == []
    assert not (home.clusters() / local_name()).exists()


def _row(aws: RealAws) -> Row:
    return aws.account.rows(CLUSTER)[0]


def _base64(text: str) -> str:
    import base64

    return base64.b64encode(text.encode()).decode()
