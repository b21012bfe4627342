"""What kind is asked for."""

import json
from pathlib import Path
from typing import Any

import yaml

from isthmus.localcluster.kind import config
from isthmus.localcluster.runtime import LocalNode
from isthmus.specs.cluster import GpuCards

TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
NODES = (LocalNode({"pool": "system"}), LocalNode({"pool": "gpu"}, GpuCards(model="T4", count=2), (TAINT,)))


def made(nodes: tuple[LocalNode, ...] = NODES, **options: Any) -> dict[str, Any]:
    folders = [Path(f"/home/{index}") for index in range(len(nodes))]
    chosen = {"cgroup_v1": False, "restricted": False, "devices": [[] for _ in nodes], **options}
    return dict(json.loads(config.document("one", nodes, folders, Path("/buckets"), **chosen)))


def registration(node: dict[str, Any]) -> Any:
    (patch,) = node["kubeadmConfigPatches"]
    return yaml.safe_load(patch)["nodeRegistration"]


def test_the_first_node_runs_the_control_plane_and_takes_pods() -> None:
    first, second = made()["nodes"]
    assert (first["role"], second["role"]) == ("control-plane", "worker")
    assert registration(first) == {"taints": []}


def test_a_node_has_its_labels_and_taints_from_the_start() -> None:
    second = made()["nodes"][1]
    assert second["labels"] == {"pool": "gpu"}
    assert registration(second) == {"taints": [TAINT]}
    assert yaml.safe_load(second["kubeadmConfigPatches"][0])["kind"] == "JoinConfiguration"


def test_alone_the_control_plane_keeps_the_taint_that_kind_takes_away() -> None:
    assert made((LocalNode(),))["nodes"][0]["kubeadmConfigPatches"] == []


def test_every_node_has_its_own_folder_and_the_buckets() -> None:
    mounts = [[mount["hostPath"] for mount in node["extraMounts"]] for node in made()["nodes"]]
    assert mounts == [["/home/0", "/buckets"], ["/home/1", "/buckets"]]


def test_what_a_host_needs_is_asked_for_only_there() -> None:
    assert "failCgroupV1" not in made()["kubeadmConfigPatches"][0]
    assert "failCgroupV1: false" in made(cgroup_v1=True)["kubeadmConfigPatches"][0]
    assert not any("oom" in patch for patch in made()["containerdConfigPatches"])
    assert all("restrict_oom_score_adj = true" in patch for patch in made(restricted=True)["containerdConfigPatches"])


def test_both_forms_of_containerd_s_configuration_get_the_same_oci_runtime() -> None:
    patches = made()["containerdConfigPatches"]
    assert [patch.splitlines()[0] for patch in patches] == ["version = 2", "version = 3"]
    assert all('BinaryName = "/kind/isthmus/oci-runtime"' in patch for patch in patches)


def test_a_node_asks_for_its_own_real_cards() -> None:
    first, second = made(devices=[[], [1, 2]])["nodes"]
    asked = [[mount["containerPath"] for mount in node["extraMounts"][2:]] for node in (first, second)]
    assert asked == [[], [f"{config.VISIBLE}/1", f"{config.VISIBLE}/2"]]
    assert {mount["hostPath"] for mount in second["extraMounts"][2:]} == {"/dev/null"}
