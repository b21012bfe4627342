"""What Docker does to a kind cluster, and what isthmus makes of it: refused before anything changes, gone on with, or left
alone. Clusters here have one node, which is quick."""

import json
import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from isthmus.kube import Cluster
from isthmus.localcluster import runtime
from isthmus.localcluster.kind import KindCluster, KindRuntime, docker, machine, resources
from isthmus.localcluster.runtime import LocalClusterConfig, LocalNode
from isthmus.specs import labels
from isthmus.specs.errors import NotReady, Refused
from isthmus.toolchain import home
from tests.clusters import borrow_home
from tests.stacks import Stacks

pytestmark = [pytest.mark.local, pytest.mark.e2e]


@pytest.fixture(scope="module", autouse=True)
def kind_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home for the clusters of this file; none is left."""
    problem = runtime.choose_problem("kind")
    if problem is not None:
        pytest.skip(problem)
    folder = borrow_home(tmp_path_factory.mktemp("kind") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(home.HOME_VARIABLE, str(folder))
        yield folder
        for cluster in KindRuntime().list():
            cluster.delete()
        assert not list((folder / "clusters").glob("*/"))


@pytest.fixture(scope="module")
def cluster() -> KindCluster:
    """One cluster that several tests hurt, one after the other."""
    return KindRuntime().create(f"f{secrets.token_hex(3)}", LocalClusterConfig())


def containers() -> set[str]:
    return set(docker.docker("ps", "--all", "--format", "{{.Names}}").split())


def test_a_node_that_was_stopped_and_started_again_is_whole(cluster: KindCluster) -> None:
    kube = Cluster(cluster.kubeconfig())
    kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": "default"}})
    docker.docker("stop", "--time", "5", cluster.local_node())
    assert cluster.status().phase == "dead" and "does not run" in cluster.status().message
    cluster.start()
    assert cluster.status().phase == "running"
    assert Cluster(cluster.kubeconfig()).get("v1", "ConfigMap", "kept", "default")


def test_a_node_with_a_container_that_stayed_frozen_still_stops(cluster: KindCluster) -> None:
    """A runc inside, killed while it ended a container: with cgroups version 1 nothing there can then be killed."""
    if not machine.cgroup_v1():
        pytest.skip("version 2 kills what is frozen")
    [node] = docker.nodes(cluster.name)
    [top] = Path("/sys/fs/cgroup/freezer").rglob(f"*{node['Id']}")
    inside = next(path for path in top.rglob("cri-containerd-*") if (path / "cgroup.procs").read_text())
    (inside / "freezer.state").write_text("FROZEN")
    cluster.stop()
    assert cluster.status().phase == "stopped"
    cluster.start()
    assert cluster.status().phase == "running"


def test_a_port_that_was_taken_meanwhile_is_named(cluster: KindCluster) -> None:
    cluster.stop()
    port = urlsplit(cluster.endpoint).port
    with socket.create_server(("127.0.0.1", port)), pytest.raises(NotReady, match=f"{port}"):
        cluster.start()
    cluster.start()
    assert cluster.status().phase == "running"


def test_a_cluster_whose_containers_are_gone_is_read_as_gone_and_made_anew(cluster: KindCluster) -> None:
    """The host was wiped, or somebody ran docker rm: the folder alone is no cluster."""
    docker.docker("rm", "--force", "--volumes", *cluster.node_names())
    assert cluster.status().phase == "dead" and "gone" in cluster.status().message
    assert resources.TYPES["isthmus:kind:Cluster"].read(cluster.name) is None
    with pytest.raises(NotReady, match="gone"):
        cluster.start()
    again = KindRuntime().create(cluster.name, LocalClusterConfig())
    assert again.status().phase == "running" and Cluster(again.kubeconfig()).ready()


def test_other_labels_and_taints_change_the_running_node(cluster: KindCluster) -> None:
    taint = {"key": "own", "value": "yes", "effect": "PreferNoSchedule"}
    before = docker.nodes(cluster.name)[0]["Id"]
    KindRuntime().create(cluster.name, LocalClusterConfig(nodes=(LocalNode({"a": "b"}, None, (taint,)),)))
    node = Cluster(cluster.kubeconfig()).get("v1", "Node", cluster.local_node())
    assert node["metadata"]["labels"]["a"] == "b" and taint in node["spec"]["taints"]
    KindRuntime().create(cluster.name, LocalClusterConfig())
    node = Cluster(cluster.kubeconfig()).get("v1", "Node", cluster.local_node())
    assert "a" not in node["metadata"]["labels"] and not node["spec"].get("taints")
    assert docker.nodes(cluster.name)[0]["Id"] == before


def test_another_number_of_nodes_is_refused(cluster: KindCluster) -> None:
    with pytest.raises(Refused, match="nodes"):
        KindRuntime().create(cluster.name, LocalClusterConfig(nodes=(LocalNode(), LocalNode())))
    assert cluster.status().phase == "running"


def test_a_cluster_of_another_resource_is_left_alone(cluster: KindCluster) -> None:
    news = {"name": cluster.name, "nodes": [{}]}
    with pytest.raises(Refused, match="belongs to"):
        resources.TYPES["isthmus:kind:Cluster"].create("urn:other", news, lambda words: None)


def test_import_reads_the_inputs_of_a_cluster_that_is_there(cluster: KindCluster) -> None:
    found = resources.TYPES["isthmus:kind:Cluster"].read(cluster.name)
    assert found is not None
    inputs, outputs = found
    assert inputs["name"] == cluster.name and len(inputs["nodes"]) == 1
    assert outputs["endpoint"] == cluster.endpoint


def test_a_deleted_cluster_leaves_no_container_volume_or_file(cluster: KindCluster) -> None:
    volumes = docker.docker("volume", "ls", "--quiet")
    cluster.delete()
    assert cluster.name not in " ".join(containers())
    assert len(docker.docker("volume", "ls", "--quiet").split()) < len(volumes.split())
    assert not (home.clusters() / cluster.name).exists() and not (home.buckets() / cluster.name).exists()


def test_a_name_taken_by_a_cluster_that_is_not_ours_is_never_touched() -> None:
    name = f"f{secrets.token_hex(3)}"
    image = docker.docker("images", "--quiet", "isthmus/node").split()[0]
    theirs = docker.docker(
        "run", "--detach", "--label", f"{docker.CLUSTER_LABEL}={name}", "--name", f"{name}-control-plane",
        "--entrypoint", "/bin/sleep", image, "600",
    ).strip()  # fmt: skip
    try:
        with pytest.raises(Refused, match="did not make"):
            KindRuntime().create(name, LocalClusterConfig())
        KindCluster(name).delete()
        assert docker.docker("inspect", "--format", "{{.State.Running}}", theirs).strip() == "true"
        assert not (home.clusters() / name).exists()
    finally:
        docker.docker("rm", "--force", theirs)


def test_a_create_that_was_killed_is_gone_on_with_and_deleted() -> None:
    """kill -9 in the middle: the next create finishes it, and so does a delete."""
    import sys
    import time

    name = f"f{secrets.token_hex(3)}"
    code = (
        "import sys\nfrom isthmus.localcluster.kind import KindRuntime\n"
        "from isthmus.localcluster.runtime import LocalClusterConfig\n"
        "KindRuntime().create(sys.argv[1], LocalClusterConfig())\n"
    )
    for then in ("create", "delete"):
        child = subprocess.Popen([sys.executable, "-c", code, name], env=os.environ.copy())
        while f"{name}-control-plane" not in containers():
            assert child.poll() is None
            time.sleep(0.2)
        time.sleep(3)
        child.kill()
        child.wait()
        assert KindCluster(name).status().phase == "creating"
        if then == "create":
            assert KindRuntime().create(name, LocalClusterConfig()).status().phase == "running"
        KindCluster(name).delete()
        assert name not in " ".join(containers())


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("exit 127", "there is no docker command"),
        ("echo 'permission denied while trying to connect' >&2; exit 1", "may not use Docker"),
        ("echo 'Cannot connect to the Docker daemon' >&2; exit 1", "does not answer"),
    ],
)
def test_without_an_engine_that_answers_nothing_is_made(
    said: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if said != "exit 127":
        fake = tmp_path / "docker"
        fake.write_text(f"#!/bin/sh\n{said}\n")
        fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) if said == "exit 127" else f"{tmp_path}{os.pathsep}/usr/bin:/bin")
    name = f"f{secrets.token_hex(3)}"
    with pytest.raises(Refused, match=words):
        KindRuntime().create(name, LocalClusterConfig())
    assert not (home.clusters() / name).exists()


def test_a01_down_of_a_stack_whose_cluster_was_deleted_by_hand(tmp_path: Path) -> None:
    """pulumi/pulumi-kubernetes#2517 on kind."""
    stacks = Stacks(tmp_path / "home")
    name = f"f{secrets.token_hex(3)}"
    pools = {
        "systemPool": {"name": "system", "instanceType": "node"},
        "gpuPools": [],
        "samples": [],
        "costReport": "false",
    }
    stacks.settings("kind", clusterName=name, **pools)
    try:
        stacks.pulumi("up", "-s", "kind", "--yes", "--skip-preview")
        docker.docker("rm", "--force", "--volumes", *(str(n["Name"])[1:] for n in docker.nodes(name)))
        refused = stacks.isthmus("down", "kind", "--yes", code=1)
        assert "--cluster-gone" in refused.stdout + refused.stderr
        assert len(stacks.state("kind")["resources"]) > 5
        stacks.isthmus("down", "kind", "--yes", "--cluster-gone")
        assert not stacks.state("kind").get("resources")
        assert not docker.nodes(name)
    finally:
        stacks.end()


def test_pulumi_import_takes_over_a_cluster_that_is_there(tmp_path: Path) -> None:
    """By the command, and the program's own resource is then the one that is there: nothing is made or replaced."""
    stacks = Stacks(tmp_path / "home")
    name = f"f{secrets.token_hex(3)}"
    settings = {"systemPool": {"name": "system", "instanceType": "node"}, "gpuPools": [], "samples": []}
    stacks.settings("kind", clusterName=name, costReport="false", **settings)
    try:
        with stacks.as_home():
            KindRuntime().create(name, LocalClusterConfig(nodes=(LocalNode({labels.POOL: "system"}),)))
        stacks.pulumi("import", "isthmus:kind:Cluster", name, name, "-s", "kind", "--yes", "--protect=false",
                      "--generate-code=false")  # fmt: skip
        [imported] = [item for item in stacks.state("kind")["resources"] if item["type"] == "isthmus:kind:Cluster"]
        assert imported["inputs"]["name"] == name and imported["outputs"]["nodeNames"] == [f"{name}-control-plane"]
        steps = json.loads(stacks.pulumi("preview", "-s", "kind", "--json", "--show-sames").stdout)["steps"]
        assert {step["op"] for step in steps if step["urn"] == imported["urn"]} == {"same"}
    finally:
        stacks.end()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_twenty_creations_leave_nothing() -> None:
    """Of theirs: other clusters may come and go meanwhile. A volume that a container is gone from is in use by nobody."""
    names = [f"f{secrets.token_hex(3)}" for _ in range(20)]
    before = unused_volumes()
    for name in names:
        KindRuntime().create(name, LocalClusterConfig()).delete()
    assert not [found for found in containers() if found.startswith(tuple(names))]
    assert unused_volumes() <= before
    assert not {path.name for folder in (home.clusters(), home.home()) for path in folder.iterdir()} & set(names)


def unused_volumes() -> set[str]:
    return set(docker.docker("volume", "ls", "--quiet", "--filter", "dangling=true").split())
