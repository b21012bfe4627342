"""The embedded cluster as a user of it sees it: pods, logs, DNS, volumes, services, access, simulated nodes."""

import base64
import subprocess
from pathlib import Path

import pytest

from isthmus.kube import Cluster, wait
from isthmus.localcluster import kwok, objects
from isthmus.localcluster.embedded import EmbeddedCluster
from isthmus.specs.errors import InvalidSpec, NotFound, NotReady, Refused
from isthmus.specs.labels import DURATION, SIMULATED_TAINT
from tests.clusters import PROBE_IMAGE, Probes, pod

pytestmark = pytest.mark.local

TOLERATION = {"key": SIMULATED_TAINT, "operator": "Exists"}


def test_pod_runs_and_its_log_is_readable(probes: Probes) -> None:
    assert probes.run("says", "say", "good morning") == "good morning"


def test_pod_resolves_services_and_reaches_them(probes: Probes) -> None:
    assert probes.run("resolves", "resolve", "kubernetes.default.svc.cluster.local") == "10.96.0.1"
    assert probes.run("short-name", "resolve", "kube-dns.kube-system") == "10.96.0.10"
    assert probes.run("connects", "connect", "kubernetes.default", "443") == "connected"


def test_claim_is_bound_by_the_default_class_and_keeps_data(probes: Probes, embedded_cluster: EmbeddedCluster) -> None:
    probes.kube.apply({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": probes.namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })  # fmt: skip
    volume = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    mounts = [{"name": "data", "mountPath": "/data"}]
    user = {"securityContext": {"runAsUser": 1000}}
    assert probes.run("writes", "write", "/data/word", "kept", mounts=mounts, **volume, **user) == "kept"
    assert probes.run("reads", "read", "/data/word", mounts=mounts, **volume, **user) == "kept"
    claim = probes.kube.get("v1", "PersistentVolumeClaim", "data", probes.namespace)
    assert claim["status"]["phase"] == "Bound" and claim["spec"]["storageClassName"] == objects.STORAGE_CLASS
    folders = list(embedded_cluster.paths.volumes.glob(f"*_{probes.namespace}_data"))
    assert len(folders) == 1
    for name in ("writes", "reads"):
        probes.kube.delete("v1", "Pod", name, probes.namespace)
    probes.kube.delete("v1", "PersistentVolumeClaim", "data", probes.namespace)
    wait.until(lambda: not folders[0].exists(), seconds=60, what="the volume's folder to be removed")


def test_service_address_answers_from_a_pod(probes: Probes) -> None:
    """A webhook of an operator is called like this: over its ClusterIP, by way of kube-proxy's rules."""
    name = "dns-copy"
    probes.kube.apply({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": probes.namespace},
        "spec": {"ports": [{"port": 80, "targetPort": 8181, "protocol": "TCP"}]},
    })  # fmt: skip
    node = probes.kube.list("v1", "Node", fields="metadata.name=shared-local")[0]
    address = next(item["address"] for item in node["status"]["addresses"] if item["type"] == "InternalIP")
    probes.kube.apply({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": probes.namespace, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4", "endpoints": [{"addresses": [address]}], "ports": [{"port": 8181, "protocol": "TCP"}],
    })  # fmt: skip
    assert probes.run("calls", "connect", name, "80") == "connected"


def test_simulated_node_runs_pods_for_their_duration(probes: Probes) -> None:
    node = kwok.simulated_node(
        "sim-1", {"cpu": "96", "memory": "1000Gi", "pods": "110", "nvidia.com/gpu": "8"}, {"pool": "a"}
    )
    kwok.add(probes.kube, [node])
    try:
        on_node = {"nodeSelector": {"pool": "a"}, "tolerations": [TOLERATION]}
        probes.start("short", "say", "never", metadata={"annotations": {DURATION: "2s"}}, **on_node)
        probes.start("long", "say", "never", **on_node)
        wait.until(lambda: probes.phase("short") == "Succeeded", seconds=30, what="the simulated pod to succeed")
        assert probes.phase("long") == "Running"
        status = probes.kube.get("v1", "Pod", "short", probes.namespace)["status"]
        assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
        assert probes.kube.get("v1", "Node", "sim-1")["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    finally:
        kwok.remove(probes.kube, ["sim-1"])


def test_ordinary_pods_stay_off_simulated_nodes(probes: Probes) -> None:
    kwok.add(
        probes.kube, [kwok.simulated_node("sim-2", {"cpu": "96", "memory": "1000Gi", "pods": "110"}, {"pool": "b"})]
    )
    try:
        probes.start("refused", "say", "never", nodeSelector={"pool": "b"})
        wait.until(lambda: _unschedulable(probes, "refused"), seconds=30, what="the scheduler's refusal")
    finally:
        kwok.remove(probes.kube, ["sim-2"])


def _unschedulable(probes: Probes, name: str) -> bool:
    conditions = probes.kube.get("v1", "Pod", name, probes.namespace)["status"].get("conditions", ())
    return any(item["type"] == "PodScheduled" and "untolerated taint" in item.get("message", "") for item in conditions)


def test_namespace_is_deleted_with_all_in_it(kube: Cluster) -> None:
    """Hangs where the aggregation flags of the API server are missing."""
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "short-lived"}})
    kube.delete("v1", "Namespace", "short-lived")
    wait.gone(kube, "v1", "Namespace", "short-lived", seconds=30)


def test_mutating_admission_policies_are_served(kube: Cluster) -> None:
    assert kube.list("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy") == []


def test_client_certificate_is_who_it_says_and_no_more(embedded_cluster: EmbeddedCluster) -> None:
    certificate, key = embedded_cluster.client_certificate("someone", ("isthmus:readers",), 15)
    config = embedded_cluster.kubeconfig()
    config["users"][0]["user"] = {
        "client-certificate-data": base64.b64encode(certificate.encode()).decode(),
        "client-key-data": base64.b64encode(key.encode()).decode(),
    }
    someone = Cluster(config)
    with pytest.raises(Refused, match="someone"):
        someone.list("v1", "Secret", "kube-system")
    with pytest.raises(InvalidSpec):
        embedded_cluster.client_certificate("someone", (), 60 * 24 * 365)


def test_nobody_gets_in_without_a_certificate(embedded_cluster: EmbeddedCluster) -> None:
    config = embedded_cluster.kubeconfig()
    config["users"][0]["user"] = {}
    with pytest.raises(NotReady, match="credential"):
        Cluster(config).list("v1", "Pod", "default")
    node = embedded_cluster.endpoint.removeprefix("https://").removesuffix(":6443")
    answer = subprocess.run(
        ["curl", "--silent", "--insecure", "--noproxy", "*", "--max-time", "5", "--write-out", "%{http_code}", f"https://{node}:10250/pods"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.stdout.endswith("401"), answer


def test_keys_are_readable_by_root_only(embedded_cluster: EmbeddedCluster) -> None:
    keys = [*embedded_cluster.paths.pki.glob("*.key"), *embedded_cluster.paths.config.glob("*.kubeconfig")]
    assert len(keys) > 15
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}
    assert embedded_cluster.paths.folder.stat().st_mode & 0o777 == 0o700


def test_logs_name_what_there_is(embedded_cluster: EmbeddedCluster) -> None:
    assert "etcd" in embedded_cluster.logs("etcd").read_text(encoding="utf-8")
    with pytest.raises(NotFound, match="kube-apiserver"):
        embedded_cluster.logs("apiserver")


def test_load_image_refuses_what_is_no_archive(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        embedded_cluster.load_image(tmp_path / "nothing.tar")
    (tmp_path / "junk.tar").write_bytes(b"junk")
    with pytest.raises(NotReady, match="junk.tar"):
        embedded_cluster.load_image(tmp_path / "junk.tar")


def test_host_port_and_probe_image_are_real(probes: Probes) -> None:
    manifest = pod(probes.namespace, "port", ("stay", "say", "up"))
    manifest["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 18080}]
    probes.kube.apply(manifest)
    wait.until(lambda: probes.phase("port") == "Running", seconds=60, what="a pod with a host port to run")
    status = probes.kube.get("v1", "Pod", "port", probes.namespace)["status"]
    assert status["containerStatuses"][0]["image"] == PROBE_IMAGE
