"""What the simulated Google Cloud decides: names, ranges, refusals, GKE's taint, labels, quota and stock-outs."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.simulation import capacity, local, quota
from isthmus.simulation.account import READY
from isthmus.simulation.gcp import system
from isthmus.simulation.gcp.base import STARTING_GPUS
from isthmus.simulation.gcp.cloud import CLOUD
from isthmus.simulation.resource import CloudError
from isthmus.specs.sharing import GpuSharing
from tests.local_backend import CA
from tests.unit.simulation.gcp_project import (
    ACCOUNT,
    ACCOUNT_MEMBER,
    BUCKET,
    BUCKET_MEMBER,
    CLUSTER,
    FIREWALL,
    NETWORK,
    POOL,
    PROJECT,
    PROJECT_MEMBER,
    REGION,
    REPOSITORY,
    ROUTER,
    ROUTER_NAT,
    SUBNETWORK,
    TAINT,
    Project,
    cluster_inputs,
    pool_inputs,
    subnet_inputs,
)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    before = local.backend()
    yield Project(tmp_path)
    local.use(before)


def refused(code: str, words: str = "") -> Any:
    return pytest.raises(CloudError, match=f"(?s){code}: .*{words}")


# Network


def test_a_network_in_use_is_not_deleted(project: Project) -> None:
    network, outputs = project.make(NETWORK, "n", {"name": "net"})
    project.make(SUBNETWORK, "s", subnet_inputs(network))
    with refused("resourceInUseByAnotherResource", "already being used by 'projects/p-test01/regions"):
        project.drop(NETWORK, network, outputs, "n")


def test_ranges_of_one_network_may_not_overlap(project: Project) -> None:
    network, _ = project.network()
    with refused("invalid", "10.5.0.0/24 conflicts with existing subnetwork 'subnet'"):
        project.make(SUBNETWORK, "t", {"name": "two", "network": network, "ipCidrRange": "10.5.0.0/24"})
    other, _ = project.make(NETWORK, "m", {"name": "other"})
    project.make(SUBNETWORK, "u", {"name": "three", "network": other, "ipCidrRange": "10.5.0.0/24"})


def test_a_network_by_bare_name_and_by_self_link_is_the_same(project: Project) -> None:
    network, outputs = project.make(NETWORK, "n", {"name": "net"})
    for index, way in enumerate((network, outputs["selfLink"], "net")):
        project.make(ROUTER, f"r{index}", {"name": f"r{index}", "network": way, "region": REGION})
    with refused("notFound", "networks/nett' was not found"):
        project.make(ROUTER, "r9", {"name": "r9", "network": "nett", "region": REGION})


def test_names_are_googles(project: Project) -> None:
    with refused("invalid", "Must be a match of regex"):
        project.make(NETWORK, "n", {"name": "Net_1"})


def test_nat_lists_subnets_or_does_not(project: Project) -> None:
    network, subnet = project.network()
    project.make(ROUTER, "r", {"name": "r", "network": network, "region": REGION})
    nat = {"name": "nat", "router": "r", "region": REGION, "sourceSubnetworkIpRangesToNat": "LIST_OF_SUBNETWORKS"}
    with refused("invalid", "must be given"):
        project.make(ROUTER_NAT, "nat", nat)
    project.make(
        ROUTER_NAT, "nat", {**nat, "subnetworks": [{"name": subnet, "sourceIpRangesToNats": ["ALL_IP_RANGES"]}]}
    )


def test_a_firewall_rule_allows_or_denies(project: Project) -> None:
    network, _ = project.network()
    with refused("invalid", "allowed and denied"):
        project.make(FIREWALL, "f", {"name": "f", "network": network})


# Identities


def test_a_grant_names_a_service_account_that_exists(project: Project) -> None:
    member = f"serviceAccount:trainer@{PROJECT}.iam.gserviceaccount.com"
    grant = {"project": PROJECT, "role": "roles/logging.logWriter", "member": member}
    with refused("badRequest", "does not exist"):
        project.make(PROJECT_MEMBER, "g", grant)
    _, made = project.make(ACCOUNT, "a", {"accountId": "trainer"})
    assert made["member"] == member
    project.make(PROJECT_MEMBER, "g", grant)


def test_the_workload_identity_pool_comes_with_the_first_cluster(project: Project) -> None:
    _, account = project.make(ACCOUNT, "a", {"accountId": "trainer"})
    grant = {
        "serviceAccountId": account["name"],
        "role": "roles/iam.workloadIdentityUser",
        "member": f"serviceAccount:{PROJECT}.svc.id.goog[runs/trainer]",
    }
    with refused("badRequest", f"Identity Pool does not exist .{PROJECT}.svc.id.goog"):
        project.make(ACCOUNT_MEMBER, "g", grant)
    project.cluster()
    project.make(ACCOUNT_MEMBER, "g", grant)


@pytest.mark.parametrize("account_id", ["abc", "Trainer", "a" * 31, "1trainer"])
def test_account_ids_are_googles(project: Project, account_id: str) -> None:
    with refused("badRequest", "doesn't match regexp"):
        project.make(ACCOUNT, "a", {"accountId": account_id})


# Storage


def test_a_closed_bucket_takes_no_public_member(project: Project) -> None:
    _, bucket = project.make(
        BUCKET, "b", {"name": "data", "location": "US-CENTRAL1", "publicAccessPrevention": "enforced"}
    )
    assert bucket["url"] == "gs://data"
    assert bucket["effectiveLabels"] == {"goog-pulumi-provisioned": "true", "team": "ml"}
    grant = {"bucket": "data", "role": "roles/storage.objectViewer", "member": "allUsers"}
    with refused("conditionNotMet", "public access prevention"):
        project.make(BUCKET_MEMBER, "g", grant)


def test_a_repository_tells_where_to_push(project: Project) -> None:
    _, made = project.make(REPOSITORY, "r", {"repositoryId": "images", "format": "DOCKER", "location": REGION})
    assert made["registryUri"] == f"{REGION}-docker.pkg.dev/{PROJECT}/images"


# Clusters


def test_a_cluster_is_a_local_cluster_with_what_gke_brings(project: Project) -> None:
    identity = project.cluster()
    assert identity == f"projects/{PROJECT}/locations/{REGION}/clusters/train"
    row = project.account.named(CLUSTER, REGION, "train")
    assert row is not None and row.state == READY
    assert row.outputs["endpoint"] == "192.0.2.1:6443"
    assert base64.b64decode(row.outputs["masterAuth"]["clusterCaCertificate"]).decode() == CA
    assert "StorageClass/standard-rwo" in project.local.document["objects"]
    project.drop(CLUSTER, identity, row.outputs, "c")
    assert project.backend.list() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"location": "us-central9"}, "does not exist"),
        ({"nodeLocations": ["us-west1-a"]}, "not in region"),
        ({"minMasterVersion": "1.31"}, "unsupported"),
        ({"privateClusterConfig": {"masterIpv4CidrBlock": "172.16.0.0/24"}}, "must be /28"),
        ({"ipAllocationPolicy": {"clusterSecondaryRangeName": "pod"}}, 'secondary range "pod" does not exist'),
    ],
)
def test_clusters_that_gke_would_refuse(project: Project, changes: dict[str, Any], words: str) -> None:
    with refused("badRequest", words):
        project.cluster(**changes)
    assert project.backend.list() == [], "nothing may be made before the refusal"


def test_a05_autopilot_is_refused_by_name(project: Project) -> None:
    network, subnet = project.network()
    inputs = {**cluster_inputs(network, subnet), "enableAutopilot": True}
    _, failures = project.operations.check(CLUSTER, project.urn(CLUSTER, "c"), inputs, {}, "seed")
    assert [failure.property for failure in failures] == ["enableAutopilot"]


def test_deletion_protection_refuses_a_delete(project: Project) -> None:
    identity = project.cluster(deletionProtection=True)
    row = project.account.named(CLUSTER, REGION, "train")
    assert row is not None
    with refused("deletionProtection", "Set it to false"):
        project.drop(CLUSTER, identity, row.outputs, "c")
    assert project.backend.list(), "a refused delete deletes nothing"


def test_a_cluster_goes_with_the_pools_it_still_has(project: Project) -> None:
    cluster = project.cluster()
    project.make(POOL, "p", pool_inputs(cluster, "cpu"))
    row = project.account.named(CLUSTER, REGION, "train")
    assert row is not None
    project.drop(CLUSTER, cluster, row.outputs, "c")
    assert project.account.rows(POOL) == []


# Node pools


def test_pools_become_nodes(project: Project) -> None:
    cluster = project.cluster()
    project.make(POOL, "cpu", pool_inputs(cluster, "cpu", nodes=2))
    project.make(POOL, "gpu", pool_inputs(cluster, "gpu", cards=4, nodes=2, spot=True, taints=[TAINT]))
    document = project.local.document
    assert document["cards"] == {"model": "T4", "count": 4}
    assert document["labels"]["cloud.google.com/gke-nodepool"] == "gpu"
    (cpu,), (gpu,) = project.nodes("cpu"), project.nodes("gpu")
    assert cpu["metadata"]["name"].startswith("gke-train-cpu-")
    assert gpu["spec"]["providerID"] == f"gce://{PROJECT}/us-central1-a/{gpu['metadata']['name']}"
    labels = gpu["metadata"]["labels"]
    assert labels["cloud.google.com/gke-accelerator"] == "nvidia-tesla-t4"
    assert labels["cloud.google.com/gke-spot"] == "true" and labels["cloud.google.com/gke-provisioning"] == "spot"
    assert gpu["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    # GKE's rule: 6 % of the first core, 1 % of the second, 0.5 % of two more, 0.25 % of the other four are kept back.
    assert gpu["status"]["allocatable"]["cpu"] == f"{8000 - 60 - 10 - 10 - 10}m"
    assert {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"} in gpu["spec"]["taints"]


def test_a_node_keeps_its_name_whatever_else_changes(project: Project) -> None:
    """Else every change of one pool would replace the nodes of all."""
    cluster = project.cluster()
    project.make(POOL, "cpu", pool_inputs(cluster, "cpu", nodes=3))
    before = {node["metadata"]["name"] for node in project.nodes("cpu")}
    assert len(before) == 2
    project.restart()
    project.make(POOL, "more", pool_inputs(cluster, "more", nodes=1))
    assert {node["metadata"]["name"] for node in project.nodes("cpu")} == before


def test_a_deleted_pool_takes_its_nodes_along(project: Project) -> None:
    cluster = project.cluster()
    project.make(POOL, "cpu", pool_inputs(cluster, "cpu"))
    identity, outputs = project.make(POOL, "more", pool_inputs(cluster, "more", nodes=3))
    assert len(project.nodes("more")) == 3
    project.drop(POOL, identity, outputs, "more")
    assert project.nodes("more") == []


def test_a_resized_pool_has_the_nodes_it_asks_for(project: Project) -> None:
    cluster = project.cluster()
    inputs = pool_inputs(cluster, "cpu")
    identity, outputs = project.make(POOL, "cpu", inputs)
    bigger = {**inputs, "nodeCount": 4}
    changes, _ = project.operations.diff(POOL, project.urn(POOL, "cpu"), inputs, bigger)
    assert [(change.path, change.replaces) for change in changes] == [("nodeCount", False)]
    project.operations.update(POOL, identity, project.urn(POOL, "cpu"), outputs, bigger)
    assert len(project.nodes("cpu")) == 3, "the first node of a pool is the local one"


@pytest.mark.parametrize("turn", range(20))
@pytest.mark.parametrize("written_out", [True, False])
def test_a13_gke_taints_a_gpu_pool_only_after_a_plain_one(project: Project, turn: int, written_out: bool) -> None:
    """terraform-google-modules/terraform-google-kubernetes-engine#703. Written out, the taint is there in every order."""
    cluster = project.cluster()
    taints = {"taints": [TAINT]} if written_out else {}
    plain = ("cpu", pool_inputs(cluster, "cpu"))
    gpu = ("gpu", pool_inputs(cluster, "gpu", cards=1, nodes=2, **taints))
    for name, inputs in (plain, gpu) if turn % 2 else (gpu, plain):
        project.make(POOL, name, inputs)
    row = project.account.named(POOL, REGION, "train/gpu")
    assert row is not None
    tainted = row.outputs["nodeConfig"]["effectiveTaints"]
    assert tainted == ([TAINT] if written_out or turn % 2 else [])
    assert row.inputs["nodeConfig"].get("taints", []) == taints.get("taints", []), "a second preview shows no diff"
    changes, _ = project.operations.diff(POOL, project.urn(POOL, "gpu"), row.inputs, gpu[1])
    assert changes == []
    on_node = [taint for node in project.nodes("gpu") for taint in node["spec"]["taints"]]
    assert sum(taint["key"] == "nvidia.com/gpu" for taint in on_node) == len(tainted)


def test_quota_zero_is_googles_error_with_the_way_out(project: Project) -> None:
    cluster = project.cluster()
    quota.set_limit(project.account, "NVIDIA_T4_GPUS", 0)
    with pytest.raises(CloudError) as error:
        project.make(POOL, "gpu", pool_inputs(cluster, "gpu", cards=4))
    text = CLOUD.render("creating", CLOUD.types[POOL], "gpu", error.value)
    assert "Code: QUOTA_EXCEEDED Message: Quota 'NVIDIA_T4_GPUS' exceeded.  Limit: 0.0 in region us-central1." in text
    assert text.endswith(f"next: isthmus sim quota {PROJECT} NVIDIA_T4_GPUS 4")
    assert project.nodes("gpu") == [] and project.account.rows(POOL) == []


def test_spot_counts_against_the_preemptible_quota(project: Project) -> None:
    cluster = project.cluster()
    quota.set_limit(project.account, "NVIDIA_T4_GPUS", 0)
    project.make(POOL, "gpu", pool_inputs(cluster, "gpu", cards=4, spot=True))
    assert quota.used(project.account, "PREEMPTIBLE_NVIDIA_T4_GPUS", REGION) == 4
    assert quota.used(project.account, "GPUS_ALL_REGIONS", "global") == 4


def test_a_deleted_pool_gives_its_quota_back(project: Project) -> None:
    cluster = project.cluster()
    identity, outputs = project.make(POOL, "gpu", pool_inputs(cluster, "gpu", cards=4, nodes=1))
    assert quota.used(project.account, "NVIDIA_T4_GPUS", REGION) == 4 <= STARTING_GPUS
    project.drop(POOL, identity, outputs, "gpu")
    assert quota.used(project.account, "NVIDIA_T4_GPUS", REGION) == 0


def test_a_stock_out_in_one_zone_names_zones_with_room(project: Project) -> None:
    cluster = project.cluster()
    capacity.set_available(project.account, "us-central1-a", "n1-standard-8", 0)
    inputs = pool_inputs(cluster, "gpu", cards=4)
    with pytest.raises(CloudError) as error:
        project.make(POOL, "gpu", inputs)
    text = CLOUD.render("creating", CLOUD.types[POOL], "gpu", error.value)
    assert "[GCE_STOCKOUT]" in text
    assert f"The zone 'projects/{PROJECT}/zones/us-central1-a' does not have enough resources available" in text
    assert "[zones with room: us-central1-b, us-central1-c" in text
    assert text.endswith(f"next: isthmus sim capacity {PROJECT} us-central1-a n1-standard-8 1")
    project.make(POOL, "gpu", {**inputs, "nodeLocations": ["us-central1-b"]})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"machineType": "n1-standard-99"}, "does not exist"),
        ({"machineType": "e2-standard-4"}, "not a valid combination"),
        ({"guestAccelerators": [{"type": "nvidia-tesla-t5", "count": 1}]}, "does not exist"),
        ({"guestAccelerators": [{"type": "nvidia-tesla-t4", "count": 3}]}, "not a valid combination"),
    ],
)
def test_machines_that_do_not_exist(project: Project, changes: dict[str, Any], words: str) -> None:
    cluster = project.cluster()
    with refused("badRequest", words):
        inputs = pool_inputs(cluster, "gpu", cards=4)
        project.make(POOL, "gpu", {**inputs, "nodeConfig": {**inputs["nodeConfig"], **changes}})


def test_a_zone_without_the_cards_is_refused(project: Project) -> None:
    cluster = project.cluster(nodeLocations=["us-central1-a", "us-central1-f"])
    inputs = pool_inputs(cluster, "gpu")
    settings = {"machineType": "g2-standard-4", "guestAccelerators": [{"type": "nvidia-l4", "count": 1}]}
    with refused("badRequest", "does not exist in zone us-central1-f"):
        project.make(POOL, "gpu", {**inputs, "nodeConfig": settings, "nodeLocations": ["us-central1-f"]})


def test_gke_runs_the_device_plugin_itself(project: Project) -> None:
    cluster = project.cluster()
    project.make(POOL, "cpu", pool_inputs(cluster, "cpu"))
    assert "DaemonSet/nvidia-gpu-device-plugin" not in project.local.document["objects"]
    project.make(POOL, "gpu", pool_inputs(cluster, "gpu", cards=1))
    assert "DaemonSet/nvidia-gpu-device-plugin" in project.local.document["objects"]


def test_time_sharing_multiplies_what_nodes_offer(project: Project) -> None:
    cluster = project.cluster()
    inputs = pool_inputs(cluster, "gpu", nodes=2)
    sharing = {"gpuSharingStrategy": "TIME_SHARING", "maxSharedClientsPerGpu": 4}
    cards = [{"type": "nvidia-tesla-t4", "count": 1, "gpuSharingConfig": sharing}]
    settings = {"machineType": "n1-standard-2", "guestAccelerators": cards}
    project.make(POOL, "gpu", {**inputs, "nodeConfig": settings})
    (node,) = project.nodes("gpu")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert node["metadata"]["labels"]["cloud.google.com/gke-max-shared-clients-per-gpu"] == "4"
    assert system.plugin_config(GpuSharing(mode="time-slicing", replicas=4))["sharing"]["timeSlicing"]["resources"] == [
        {"name": "nvidia.com/gpu", "replicas": 4}
    ]


@pytest.mark.parametrize(
    ("model", "machine", "sharing", "partition", "offered"),
    [
        ("nvidia-tesla-t4", "n1-standard-2", ("MPS", 8), None, "8"),
        ("nvidia-tesla-a100", "a2-highgpu-1g", None, "1g.5gb", "7"),
        ("nvidia-tesla-a100", "a2-highgpu-1g", ("TIME_SHARING", 3), "1g.5gb", "21"),
    ],
)
def test_shares_of_a_card_are_what_gke_gives(
    project: Project, model: str, machine: str, sharing: tuple[str, int] | None, partition: str | None, offered: str
) -> None:
    """With MIG, clients multiply: seven instances of an A100 and three clients each are 21 (facts/capacity.md)."""
    card: dict[str, Any] = {"type": model, "count": 1, "gpuPartitionSize": partition}
    if sharing:
        card["gpuSharingConfig"] = dict(zip(("gpuSharingStrategy", "maxSharedClientsPerGpu"), sharing, strict=True))
    inputs = pool_inputs(project.cluster(), "gpu", nodes=2)
    settings = {"machineType": machine, "guestAccelerators": [{k: v for k, v in card.items() if v is not None}]}
    project.make(POOL, "gpu", {**inputs, "nodeConfig": settings})
    (node,) = project.nodes("gpu")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == offered
    assert node["metadata"]["labels"].get("cloud.google.com/gke-gpu-partition-size") == partition
    strategy = node["metadata"]["labels"].get("cloud.google.com/gke-gpu-sharing-strategy")
    assert strategy == (sharing[0].lower().replace("_", "-") if sharing else None)
    cards = project.local.document["cards"]
    assert cards.get("layout") == ({partition: 7} if partition else None)


@pytest.mark.parametrize(
    ("card", "says"),
    [
        ({"gpuSharingConfig": {"gpuSharingStrategy": "MPS", "maxSharedClientsPerGpu": 49}}, "between 2 and 48"),
        ({"gpuPartitionSize": "3g.40gb"}, "GPU partition size 3g.40gb is not supported for nvidia-tesla-a100"),
        (
            {
                "gpuPartitionSize": "1g.5gb",
                "gpuSharingConfig": {"gpuSharingStrategy": "MPS", "maxSharedClientsPerGpu": 2},
            },
            "MPS is not supported with multi-instance GPU partitions",
        ),
    ],
)
def test_impossible_shares_are_refused(project: Project, card: dict[str, Any], says: str) -> None:
    inputs = pool_inputs(project.cluster(), "gpu", nodes=2)
    accelerator = {"type": "nvidia-tesla-a100", "count": 1, **card}
    settings = {"machineType": "a2-highgpu-1g", "guestAccelerators": [accelerator]}
    with refused("badRequest", says):
        project.make(POOL, "gpu", {**inputs, "nodeConfig": settings})


def test_a_changed_configuration_is_another_pod() -> None:
    """The plugin reads its configuration when it starts; under MPS its control daemon runs beside it."""
    one, other = (system.device_plugin(GpuSharing(mode="mps", clients=clients))[1] for clients in (4, 8))
    templates = [item["spec"]["template"] for item in (one, other)]
    assert templates[0]["metadata"]["annotations"] != templates[1]["metadata"]["annotations"]
    assert [c["name"] for c in templates[0]["spec"]["containers"]] == ["nvidia-gpu-device-plugin", "mps-control-daemon"]


def test_a_pool_names_its_cluster_by_name_or_by_id(project: Project) -> None:
    project.cluster()
    identity, _ = project.make(POOL, "p", pool_inputs("train", "cpu", nodes=2))
    assert identity == f"projects/{PROJECT}/locations/{REGION}/clusters/train/nodePools/cpu"
    assert len(project.nodes("cpu")) == 1


# The provider


def test_a_project_id_is_checked() -> None:
    with refused("badRequest", "Invalid project id"):
        CLOUD.configure({"project": "P"}, "P")


def test_every_type_says_how_it_is_known() -> None:
    for kind in CLOUD.types.values():
        for behaviour in kind.behaviours:
            assert behaviour.what and (behaviour.source or behaviour.fidelity == "assumed"), kind.token
