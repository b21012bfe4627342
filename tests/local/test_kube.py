"""The client on a real API server: what only a real one can show."""

import json
import threading
import time
from pathlib import Path

import pytest

from isthmus.kube import Cluster, explain, wait
from isthmus.kube.transport import ApiError
from isthmus.localcluster.embedded import EmbeddedCluster
from isthmus.specs.errors import InvalidSpec, NotFound, NotReady

pytestmark = pytest.mark.local


def config_map(name: str, namespace: str, **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


def test_apply_get_patch_list_delete(kube: Cluster, namespace: str) -> None:
    made = kube.apply(config_map("a", namespace, x="1"))
    assert [entry["manager"] for entry in made["metadata"]["managedFields"]] == ["isthmus"]
    kube.patch("v1", "ConfigMap", "a", {"data": {"y": "2"}}, namespace)
    kube.patch("v1", "ConfigMap", "a", [{"op": "remove", "path": "/data/x"}], namespace, how="json")
    assert kube.get("v1", "ConfigMap", "a", namespace)["data"] == {"y": "2"}
    assert "a" in [item["metadata"]["name"] for item in kube.list("v1", "ConfigMap", namespace)]
    with pytest.raises(ApiError) as caught:
        kube.create(config_map("a", namespace))
    assert caught.value.reason == "AlreadyExists"
    assert kube.delete("v1", "ConfigMap", "a", namespace)
    wait.gone(kube, "v1", "ConfigMap", "a", namespace, seconds=10)
    assert not kube.delete("v1", "ConfigMap", "a", namespace)


def test_a_rehearsal_changes_nothing_and_bad_names_are_refused(kube: Cluster, namespace: str) -> None:
    kube.apply(config_map("a", namespace), dry_run=True)
    with pytest.raises(NotFound):
        kube.get("v1", "ConfigMap", "a", namespace)
    with pytest.raises(InvalidSpec, match="lowercase RFC 1123"):
        kube.apply(config_map("A", namespace))


def test_a_list_of_more_than_a_page_is_whole(kube: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.kube.client.PAGE", 3)
    for number in range(8):
        kube.apply(config_map(f"c{number}", namespace))
    names = [item["metadata"]["name"] for item in kube.list("v1", "ConfigMap", namespace)]
    assert {f"c{number}" for number in range(8)} <= set(names)
    assert len(names) == len(set(names))


def test_a_watch_sees_what_is_there_and_what_happens(kube: Cluster, namespace: str) -> None:
    kube.apply(config_map("before", namespace))

    def later() -> None:
        time.sleep(1)
        kube.apply(config_map("during", namespace))
        kube.delete("v1", "ConfigMap", "during", namespace)

    worker = threading.Thread(target=later)
    worker.start()
    seen = [
        (kind, item["metadata"]["name"])
        for kind, item in kube.watch("v1", "ConfigMap", namespace, seconds=4)
        if item["metadata"]["name"] in {"before", "during"}
    ]
    worker.join()
    assert seen == [("ADDED", "before"), ("ADDED", "during"), ("DELETED", "during")]


def test_a_credential_program_is_asked_again_when_its_credential_ends(
    embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """A certificate of 15 minutes ends while a run of an hour is followed (simulated EKS)."""
    count = tmp_path / "count"
    certificate, key = embedded_cluster.client_certificate("ada", ("system:masters",), 15)
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {
            "clientCertificateData": certificate, "clientKeyData": key, "expirationTimestamp": "2020-01-01T00:00:00Z",
        },
    }  # fmt: skip
    program = tmp_path / "credential"
    program.write_text(f"#!/bin/sh\necho once >> {count}\ncat {tmp_path}/answer\n")
    program.chmod(0o700)

    (tmp_path / "answer").write_text(json.dumps(answer))
    kubeconfig = embedded_cluster.kubeconfig()
    user = {"exec": {"apiVersion": answer["apiVersion"], "command": str(program), "interactiveMode": "Never"}}
    kubeconfig["users"] = [{**entry, "user": user} for entry in kubeconfig["users"]]
    cluster = Cluster(kubeconfig)
    for _ in range(3):
        cluster.list("v1", "Namespace")
    assert count.read_text().splitlines() == ["once"] * 3


def test_a_wrong_authority_and_a_wrong_address_are_told(embedded_cluster: EmbeddedCluster) -> None:
    kubeconfig = embedded_cluster.kubeconfig()
    entry = kubeconfig["clusters"][0]["cluster"]
    entry.pop("certificate-authority-data")
    with pytest.raises(NotReady, match="cannot be reached: its certificate is not the one that the kubeconfig trusts"):
        Cluster(kubeconfig).version()
    entry["server"] = "https://127.0.0.1:1"
    with pytest.raises(NotReady, match="https://127.0.0.1:1 cannot be reached: connection refused"):
        Cluster(kubeconfig).version()
    assert explain.cluster_problems(Cluster(kubeconfig))[0].startswith("the API server at https://127.0.0.1:1")


def test_kinds_are_each_there_once(kube: Cluster) -> None:
    kinds = kube.kinds()
    places = [(kind.api_version.rpartition("/")[0], kind.plural) for kind in kinds]
    assert len(places) == len(set(places))
    assert ("apps", "deployments") in places
    assert ("", "pods") in places
    assert kube.version().startswith("v1.")
