"""What every runtime must do, whatever runs the cluster (isthmus/localcluster/runtime.py). Parametrised: a new runtime
is one more name in RUNTIMES. Skipped where a runtime cannot run, in its own words."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.kube import Cluster
from isthmus.localcluster.runtime import LocalCluster, LocalClusterConfig, LocalNode, Runtime, choose
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import InvalidSpec, NotFound, Refused
from isthmus.toolchain import home
from tests.clusters import Probes, borrow_home, probe_archive

pytestmark = pytest.mark.local

RUNTIMES = ["embedded", pytest.param("kind", marks=pytest.mark.e2e)]
NAME = "conform"


@pytest.fixture(scope="module", params=RUNTIMES)
def runtime(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    try:
        chosen = choose(request.param)
    except Refused as refusal:
        pytest.skip(refusal.message)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            home.HOME_VARIABLE,
            str(borrow_home(tmp_path_factory.mktemp("conform") / "home", images=request.param == "kind")),
        )
        yield chosen


@pytest.fixture(scope="module")
def cluster(runtime: Runtime) -> Iterator[LocalCluster]:
    made = runtime.create(NAME, LocalClusterConfig(nodes=(LocalNode({"isthmus.dev/pool": "system"}),)))
    yield made
    made.delete()


@pytest.fixture(scope="module")
def probes(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Probes:
    cluster.load_image(probe_archive(tmp_path_factory.mktemp("image")))
    return Probes(cluster)


def test_created_cluster_is_usable_at_once(cluster: LocalCluster) -> None:
    assert cluster.status().phase == "running"
    assert all(item.running and item.ready for item in cluster.status().processes)
    assert Cluster(cluster.kubeconfig()).ready()


def test_create_again_finds_the_same_cluster(runtime: Runtime, cluster: LocalCluster) -> None:
    again = runtime.create(NAME, LocalClusterConfig(nodes=(LocalNode({"isthmus.dev/pool": "system"}),)))
    assert (again.endpoint, again.ca_certificate) == (cluster.endpoint, cluster.ca_certificate)
    assert [item.name for item in runtime.list()] == [NAME] and runtime.get(NAME).endpoint == cluster.endpoint


def test_node_has_the_labels_asked_for(cluster: LocalCluster) -> None:
    node = Cluster(cluster.kubeconfig()).get("v1", "Node", cluster.local_node())
    assert node["metadata"]["labels"]["isthmus.dev/pool"] == "system"


def test_loaded_image_runs_and_its_log_is_readable(probes: Probes) -> None:
    assert probes.run("says", "say", "hello") == "hello"
    assert probes.run("resolves", "resolve", "kubernetes.default") == "10.96.0.1"


def test_cards_are_shown_to_who_asks(cluster: LocalCluster, probes: Probes) -> None:
    asks = {"NVIDIA_VISIBLE_DEVICES": "all"}
    cluster.set_cards(GpuCards(model="T4", count=2))
    assert probes.run("with", "libraries", environment=asks) == "driver"
    assert probes.run("shows-two", "read", "/run/isthmus/driver/cards", environment=asks).count("GPU-") == 2
    cluster.set_cards(None)
    assert probes.run("shows-none", "read", "/run/isthmus/driver/cards", environment=asks).count("GPU-") == 0


def test_short_lived_certificate_is_accepted(cluster: LocalCluster) -> None:
    import base64

    certificate, key = cluster.client_certificate("isthmus:tester", ("system:masters",), 15)
    config = cluster.kubeconfig()
    config["users"][0]["user"] = {
        "client-certificate-data": base64.b64encode(certificate.encode()).decode(),
        "client-key-data": base64.b64encode(key.encode()).decode(),
    }
    assert Cluster(config).list("v1", "Namespace")


def test_log_of_each_process_can_be_read(cluster: LocalCluster) -> None:
    for item in cluster.status().processes:
        assert cluster.logs(item.name).is_file()
    with pytest.raises(NotFound):
        cluster.logs("../cluster.json")


def test_stop_and_start_keep_objects(cluster: LocalCluster) -> None:
    mark = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "mark", "namespace": "default"},
        "data": {"a": "b"},
    }
    Cluster(cluster.kubeconfig()).apply(mark)
    endpoint = cluster.endpoint
    cluster.stop()
    assert cluster.status().phase == "stopped" and not [item for item in cluster.status().processes if item.running]
    cluster.start()
    assert cluster.endpoint == endpoint and cluster.status().phase == "running"
    assert Cluster(cluster.kubeconfig()).get("v1", "ConfigMap", "mark", "default")["data"] == {"a": "b"}


def test_bad_requests_change_nothing(runtime: Runtime, cluster: LocalCluster) -> None:
    with pytest.raises(InvalidSpec):
        runtime.create("Not_A_Name", LocalClusterConfig())
    with pytest.raises(InvalidSpec):
        runtime.create("other", LocalClusterConfig(kubernetes_version="1.20"))
    with pytest.raises(NotFound, match=NAME):
        runtime.get("other")
    with pytest.raises(InvalidSpec):
        cluster.set_cards(GpuCards(model="no-such-card", count=1))
    assert [item.name for item in runtime.list()] == [NAME]


def test_deleted_cluster_is_gone(runtime: Runtime, cluster: LocalCluster) -> None:
    cluster.delete()
    assert runtime.list() == []
    with pytest.raises(NotFound):
        runtime.get(NAME)
    cluster.delete()
    assert not (Path(os.environ[home.HOME_VARIABLE]) / "clusters" / NAME).exists()
