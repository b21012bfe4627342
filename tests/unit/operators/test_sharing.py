"""What each way to share cards brings into a cluster beside the device plugin."""

from typing import Any

import pytest
import yaml

from isthmus.specs.cluster import GpuCards, NodePool
from isthmus.specs.sharing import GpuSharing
from operators import device_plugin, mig_manager
from tests.unit.operators.test_manifests import PLUGIN_UPSTREAM

MASTER = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "nfd-master", "namespace": "node-feature-discovery"},
    "spec": {"template": {"spec": {"containers": [{"name": "nfd-master"}]}}},
}
WORKER = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nfd-worker"}}
MPS = GpuSharing(mode="mps", clients=10)
MIG = GpuSharing(mode="mig", layout={"3g.20gb": 1, "1g.5gb": 4})
SLICED = GpuSharing(mode="time-slicing", replicas=4)
CLAIMED = GpuSharing.model_validate({"mode": "dra", "claims": [{"name": "one"}]})


def objects(*sharings: GpuSharing) -> dict[str, dict[str, Any]]:
    pools = [
        NodePool(name=f"p{index}", gpu=GpuCards(model="A100", count=8), sharing=sharing)
        for index, sharing in enumerate(sharings)
    ]
    made = device_plugin.manifests(pools, upstream=[PLUGIN_UPSTREAM], discovery=[MASTER, WORKER])
    return {f"{item['kind']}/{item['metadata']['name']}": item for item in made}


def pod(item: dict[str, Any]) -> dict[str, Any]:
    return dict(item["spec"]["template"]["spec"])


def test_a11_mps_brings_its_control_daemon_and_feature_discovery() -> None:
    """NVIDIA/k8s-device-plugin#634: with the setting alone the plugin never became healthy. Nodes get the label by which
    the daemon finds them, and 8 cards with 10 clients are 80."""
    made = objects(MPS)
    assert {"DaemonSet/nvidia-mps-control-daemon", "DaemonSet/gpu-feature-discovery", "Deployment/nfd-master"} <= set(
        made
    )
    assert pod(made["DaemonSet/nvidia-mps-control-daemon"])["nodeSelector"] == {"nvidia.com/mps.capable": "true"}
    assert MPS.node_labels["nvidia.com/mps.capable"] == "true"
    assert device_plugin.advertised(GpuCards(model="A100", count=8), MPS) == {"nvidia.com/gpu": 80}


def test_the_plugin_and_the_daemon_share_a_folder_of_the_node() -> None:
    made = objects(MPS)
    for name in ("DaemonSet/nvidia-device-plugin-daemonset", "DaemonSet/nvidia-mps-control-daemon"):
        specification = pod(made[name])
        paths = {volume["name"]: (volume.get("hostPath") or {}).get("path") for volume in specification["volumes"]}
        assert (paths["mps-root"], paths["mps-shm"]) == ("/run/nvidia/mps", "/run/nvidia/mps/shm")
        mounts = {mount["name"]: mount["mountPath"] for mount in specification["containers"][0]["volumeMounts"]}
        assert (mounts["mps-root"], mounts["mps-shm"]) == ("/mps", "/dev/shm")
    environment = pod(made["DaemonSet/nvidia-device-plugin-daemonset"])["containers"][0]["env"]
    assert {"name": "MPS_ROOT", "value": "/run/nvidia/mps"} in environment


@pytest.mark.parametrize("sharing", [GpuSharing(), SLICED], ids=lambda sharing: sharing.mode)
def test_what_is_not_needed_is_not_there(sharing: GpuSharing) -> None:
    names = {name.partition("/")[2] for name in objects(sharing)}
    assert not names & {"nvidia-mps-control-daemon", "gpu-feature-discovery", "nfd-master", "nvidia-mig-manager"}


def test_mig_brings_the_manager_with_every_layout() -> None:
    other = GpuSharing(mode="mig", layout={"1g.5gb": 7}, strategy="single", replicas=2)
    made = objects(MIG, other, SLICED)
    config = yaml.safe_load(made["ConfigMap/nvidia-mig-manager"]["data"]["config.yaml"])
    assert config["mig-configs"] == {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        MIG.layout_name: [{"devices": "all", "mig-enabled": True, "mig-devices": {"3g.20gb": 1, "1g.5gb": 4}}],
        other.layout_name: [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}],
    }
    assert {"nvidia.com/mig.config": MIG.layout_name}.items() <= MIG.node_labels.items()
    manager = pod(made["DaemonSet/nvidia-mig-manager"])
    assert manager["containers"][0]["image"] == mig_manager.IMAGE
    assert manager["nodeSelector"].items() <= MIG.node_labels.items()


def test_every_manager_beside_a_container_reads_the_nodes_label_and_signals_it() -> None:
    made = objects(MPS, MIG)
    for name, process in (
        ("nvidia-device-plugin-daemonset", "nvidia-device-plugin"),
        ("nvidia-mps-control-daemon", "mps-control-daemon"),
        ("gpu-feature-discovery", "gpu-feature-discovery"),
    ):
        specification = pod(made[f"DaemonSet/{name}"])
        manager = next(item for item in specification["containers"] if item["name"].endswith("-sidecar"))
        values = {item["name"]: item.get("value") for item in manager["env"]}
        assert values["NODE_LABEL"] == "nvidia.com/device-plugin.config"
        assert values["PROCESS_TO_SIGNAL"] == process and specification["shareProcessNamespace"] is True


def test_no_device_plugin_runs_where_pods_claim_cards() -> None:
    affinity = pod(objects(CLAIMED)["DaemonSet/nvidia-device-plugin-daemonset"])["affinity"]
    (term,) = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {"key": "isthmus.dev/gpu-sharing", "operator": "NotIn", "values": ["dra"]} in term["matchExpressions"]
    assert CLAIMED.node_labels == {"isthmus.dev/gpu-sharing": "dra"}


def test_the_master_of_feature_discovery_knows_its_node() -> None:
    """It ended with "resource name may not be empty" without: upstream's base leaves the variable to its overlays."""
    (container,) = pod(objects(MPS)["Deployment/nfd-master"])["containers"]
    assert [item["name"] for item in container["env"]] == ["NODE_NAME"]
    assert "env" not in MASTER["spec"]["template"]["spec"]["containers"][0]


def test_objects_of_ours_carry_our_label_and_no_worker_comes_along() -> None:
    made = objects(MPS, MIG)
    assert all(item["metadata"]["labels"]["isthmus.dev/managed-by"] == "isthmus" for item in made.values())
    assert not any("worker" in name for name in made)
