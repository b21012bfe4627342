"""Command lines and files: the rules that must hold whatever else changes."""

import json
import tomllib
from pathlib import Path

import pytest
import yaml

from isthmus.localcluster import components, configs, kwok, linux, objects, pki
from isthmus.localcluster.components import OBJECTS, Component
from isthmus.localcluster.state import ClusterState, Paths
from isthmus.specs.labels import DURATION
from isthmus.toolchain import home

STATE = ClusterState(name="demo", identity="0123abcd", number=7)


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Component]:
    monkeypatch.setattr(home, "tool", lambda program: Path("/tools") / program)
    return {item.name: item for item in components.components(STATE, Paths(tmp_path))}


def test_every_dependency_comes_first(parts: dict[str, Component]) -> None:
    seen = {OBJECTS}
    for item in parts.values():
        assert set(item.after) <= seen, item.name
        seen.add(item.name)
    assert tuple(parts) == components.NAMES


def test_etcd_keeps_its_promises(parts: dict[str, Component]) -> None:
    assert not [word for word in parts["etcd"].command if "unsafe" in word]
    assert "--client-cert-auth" in parts["etcd"].command


def test_api_server_lets_nobody_in_unknown(parts: dict[str, Component]) -> None:
    command = parts["kube-apiserver"].command
    assert "--anonymous-auth=false" in command and "--authorization-mode=Node,RBAC" in command
    assert not [word for word in command if "token-auth" in word or "AlwaysAllow" in word or "insecure" in word]
    for flag in (
        "client-ca-file",
        "requestheader-client-ca-file",
        "proxy-client-cert-file",
        "kubelet-certificate-authority",
    ):
        assert [word for word in command if word.startswith(f"--{flag}=")], flag


def test_no_process_is_given_a_secret_on_its_command_line(parts: dict[str, Component], tmp_path: Path) -> None:
    pki.ensure(STATE, Paths(tmp_path))
    secrets = [path.read_text().splitlines()[1] for path in Paths(tmp_path).pki.glob("*.key")]
    assert secrets and not [
        word for item in parts.values() for word in item.command for secret in secrets if secret in word
    ]


def test_kubelet_checks_who_asks(tmp_path: Path) -> None:
    config = json.loads(configs.kubelet(STATE, Paths(tmp_path)))
    assert config["authentication"]["anonymous"] == {"enabled": False} and config["authorization"] == {
        "mode": "Webhook"
    }
    assert config["cgroupRoot"] == "/isthmus-0123abcd" and config["clusterDNS"] == ["10.96.0.10"]


def test_containerd_reads_its_file(tmp_path: Path) -> None:
    config = tomllib.loads(configs.containerd(STATE, Paths(tmp_path)))
    runc = config["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]["runc"]["options"]
    assert runc["BinaryName"] == f"{tmp_path}/config/runc" and runc["ShimCgroup"] == "/isthmus-0123abcd/system/shims"
    sandbox = config["plugins"]["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"]
    assert sandbox == "registry.k8s.io/pause:3.10.2"


@pytest.mark.parametrize("lacking", [True, False])
def test_capability_is_dropped_only_where_the_host_lacks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: bool
) -> None:
    monkeypatch.setattr(linux, "has_capability", lambda number: not lacking)
    (tmp_path / "config").mkdir()
    configs.write(STATE, Paths(tmp_path))
    assert f"drop='{'yes' if lacking else 'no'}'" in (tmp_path / "config" / "runc").read_text()
    restricted = tomllib.loads((tmp_path / "config" / "containerd.toml").read_text())
    assert restricted["plugins"]["io.containerd.cri.v1.runtime"]["restrict_oom_score_adj"] is lacking


def test_dns_has_no_loop_plugin_and_forwards_only_where_it_can(tmp_path: Path) -> None:
    text = configs.corefile(STATE, Paths(tmp_path), ["192.0.2.53"])
    words = [line.split() for line in text.splitlines() if line.strip()]
    assert ["forward", ".", "192.0.2.53"] in words and ["bind", "10.200.7.2"] in words
    assert "loop" not in [line[0] for line in words]
    assert "forward" not in configs.corefile(STATE, Paths(tmp_path), [])


@pytest.mark.parametrize(
    ("address", "usable"),
    [("192.0.2.53", True), ("127.0.0.53", False), ("::1", False), ("fe80::1%eth0", False), ("junk", False)],
)
def test_only_resolvers_that_another_namespace_reaches_are_used(address: str, usable: bool) -> None:
    assert configs._reachable(address) is usable


def test_every_user_of_ours_has_a_role_and_no_more_than_that() -> None:
    bound = {item["subjects"][0]["name"] for item in objects.bootstrap(STATE) if item["kind"] == "ClusterRoleBinding"}
    users = {
        item.user for item in pki.certificates(STATE) if item.authority == "ca" and item.user.startswith("isthmus:")
    }
    assert bound == users
    for item in objects.bootstrap(STATE):
        for rule in item.get("rules", ()):
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]


def test_the_default_class_waits_for_a_consumer() -> None:
    found = [item for item in objects.bootstrap(STATE) if item["kind"] == "StorageClass"]
    assert [item["volumeBindingMode"] for item in found] == ["WaitForFirstConsumer"]
    assert found[0]["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true"


def test_kwok_manages_only_nodes_marked_for_it() -> None:
    options, *stages = yaml.safe_load_all(kwok.config())
    assert options["options"]["manageAllNodes"] is False
    assert options["options"]["manageNodesWithAnnotationSelector"] == "kwok.x-k8s.io/node=fake"
    assert {stage["metadata"]["name"] for stage in stages} == {
        "node-ready",
        "pod-running",
        "pod-succeeded",
        "pod-deleted",
    }
    done = next(stage for stage in stages if stage["metadata"]["name"] == "pod-succeeded")
    assert f'.metadata.annotations["{DURATION}"]' in done["spec"]["delay"]["durationFrom"]["expressionFrom"]


def test_simulated_node_is_tainted_and_labelled() -> None:
    node = kwok.simulated_node(
        "n", {"cpu": "8"}, {"pool": "gpu"}, [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    )
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["isthmus.dev/simulated", "nvidia.com/gpu"]
    assert node["metadata"]["labels"]["pool"] == "gpu" and node["status"]["capacity"] == {"cpu": "8"}
    assert kwok.is_simulated(node) and not kwok.is_simulated({"metadata": {}})


def test_a_changed_node_is_brought_to_what_is_wanted() -> None:
    assert kwok._difference({"cpu": "8", "nvidia.com/gpu": "4"}, {"cpu": "16"}) == {"cpu": "16", "nvidia.com/gpu": None}
    assert kwok._difference({"cpu": "8"}, {"cpu": "8"}) == {}
