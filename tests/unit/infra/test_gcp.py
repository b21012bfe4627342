"""What infra/gcp asks the engine for."""

from typing import Any

import pytest

from infra import cloud as clouds
from infra.gcp.nodes import spread
from isthmus.specs.cluster import NodePool
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.sharing import GpuSharing
from tests.unit.infra.recording import Recording, Registered, record
from tests.unit.infra.stacks import infrastructure, settings

TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}
POOL = "gcp:container/nodePool:NodePool"


@pytest.fixture(scope="module")
def made() -> Recording:
    return record(infrastructure(settings("gcp")))


def pool(made: Recording, name: str) -> Registered:
    (found,) = [item for item in made.of(POOL) if item.inputs["name"] == name]
    return found


def test_a_vpc_native_network_with_ranges_and_one_way_out(made: Recording) -> None:
    subnet = made.one("gcp:compute/subnetwork:Subnetwork").inputs
    assert {item["rangeName"] for item in subnet["secondaryIpRanges"]} == {"pods", "services"}
    assert subnet["privateIpGoogleAccess"] is True
    assert made.one("gcp:compute/network:Network").inputs["autoCreateSubnetworks"] is False
    assert made.one("gcp:compute/routerNat:RouterNat").inputs["natIpAllocateOption"] == "AUTO_ONLY"


def test_webhooks_are_reachable_from_a_private_control_plane(made: Recording) -> None:
    firewall = made.one("gcp:compute/firewall:Firewall").inputs
    cluster = made.one("gcp:container/cluster:Cluster").inputs
    assert firewall["sourceRanges"] == [cluster["privateClusterConfig"]["masterIpv4CidrBlock"]]
    assert "9443" in firewall["allows"][0]["ports"], "the training operator serves its webhook there"
    assert firewall["targetTags"] == pool(made, "system").inputs["nodeConfig"]["tags"]


def test_a_regional_private_standard_cluster(made: Recording) -> None:
    cluster = made.one("gcp:container/cluster:Cluster")
    inputs = cluster.inputs
    assert inputs["location"] == "us-central1" and len(inputs["nodeLocations"]) == 3
    assert inputs["privateClusterConfig"]["enablePrivateNodes"] is True
    assert inputs["workloadIdentityConfig"] == {"workloadPool": "your-project-id.svc.id.goog"}
    assert inputs["releaseChannel"] == {"channel": "REGULAR"}
    assert inputs["deletionProtection"] is True and cluster.protect


def test_a05_the_default_pool_plans_no_replacement_and_there_is_no_autopilot(made: Recording) -> None:
    cluster = made.one("gcp:container/cluster:Cluster")
    assert "enableAutopilot" not in cluster.inputs
    assert cluster.inputs["removeDefaultNodePool"] is True
    assert {"nodeConfig", "initialNodeCount"} <= set(cluster.ignored)
    with pytest.raises(InvalidSpec, match="no setting 'autopilot'"):
        from isthmus.specs import stack

        stack.parse({**settings("gcp").model_dump(by_alias=True), "autopilot": True}, origin="a test")


def test_pools_have_cards_drivers_and_narrow_accounts(made: Recording) -> None:
    config = pool(made, "gpu-t4").inputs["nodeConfig"]
    assert config["machineType"].startswith("n1-standard-")
    (cards,) = config["guestAccelerators"]
    assert (cards["type"], cards["count"]) == ("nvidia-tesla-t4", 4)
    assert cards["gpuDriverInstallationConfig"] == {"gpuDriverVersion": "LATEST"}
    assert config["labels"] == {"isthmus.dev/pool": "gpu-t4", "isthmus.dev/gpu-model": "T4"}
    assert config["workloadMetadataConfig"] == {"mode": "GKE_METADATA"}
    assert pool(made, "gpu-t4-spot").inputs["nodeConfig"]["spot"] is True
    roles = {item.inputs["role"] for item in made.of("gcp:projects/iAMMember:IAMMember")}
    assert roles == {"roles/logging.logWriter", "roles/monitoring.metricWriter", "roles/artifactregistry.reader"}


def test_a13_the_taint_is_an_input_that_nothing_hides(made: Recording) -> None:
    """So neither the order of creation nor GKE's own rule decides about it; see tests/conformance/test_clouds.py."""
    assert [item.inputs["nodeConfig"]["taints"] for item in made.of(POOL)] == [[TAINT], [TAINT], []]
    assert not any("nodeConfig" in ignored for item in made.of(POOL) for ignored in item.ignored)


def test_sizes_are_of_the_whole_pool(made: Recording) -> None:
    system, gpu, spot = (pool(made, name).inputs for name in ("system", "gpu-t4", "gpu-t4-spot"))
    assert len(system["nodeLocations"]) * system["nodeCount"] == 2
    assert len(gpu["nodeLocations"]) * gpu["nodeCount"] == 1
    assert "nodeCount" not in spot and spot["initialNodeCount"] == 0
    assert (spot["autoscaling"]["totalMinNodeCount"], spot["autoscaling"]["totalMaxNodeCount"]) == (0, 2)


@pytest.mark.parametrize(
    ("size", "zones", "each"), [(0, 3, 0), (1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 2, 2), (5, 1, 5), (6, 3, 2)]
)
def test_spread_adds_up(size: int, zones: int, each: int) -> None:
    used, per_zone = spread(size, ("a", "b", "c"))
    assert (len(used), per_zone) == (zones, each)
    assert len(used) * per_zone == size


def test_a_gpu_pool_upgrades_without_spare_cards(made: Recording) -> None:
    assert pool(made, "gpu-t4").inputs["upgradeSettings"] == {"maxSurge": 0, "maxUnavailable": 1}


@pytest.mark.parametrize(
    ("model", "sharing", "fields"),
    [
        ("T4", {}, {}),
        (
            "T4",
            {"mode": "time-slicing", "replicas": 4},
            {"gpuSharingConfig": {"gpuSharingStrategy": "TIME_SHARING", "maxSharedClientsPerGpu": 4}},
        ),
        (
            "T4",
            {"mode": "mps", "clients": 8},
            {"gpuSharingConfig": {"gpuSharingStrategy": "MPS", "maxSharedClientsPerGpu": 8}},
        ),
        ("A100", {"mode": "mig", "strategy": "single", "layout": {"1g.5gb": 7}}, {"gpuPartitionSize": "1g.5gb"}),
        (
            "A100",
            {"mode": "mig", "strategy": "single", "layout": {"1g.5gb": 7}, "replicas": 3},
            {
                "gpuPartitionSize": "1g.5gb",
                "gpuSharingConfig": {"gpuSharingStrategy": "TIME_SHARING", "maxSharedClientsPerGpu": 3},
            },
        ),
    ],
)
def test_sharing_is_gkes_own(model: str, sharing: dict[str, Any], fields: dict[str, Any]) -> None:
    shared = NodePool(name="g", gpu={"model": model, "count": 1}, sharing=GpuSharing.model_validate(sharing))
    made = record(infrastructure(settings("gcp", gpu_pools=(shared,))))
    (cards,) = pool(made, "g").inputs["nodeConfig"]["guestAccelerators"]
    assert {name: cards.get(name) for name in ("gpuSharingConfig", "gpuPartitionSize") if cards.get(name)} == fields


def test_nodes_are_gone_before_their_account_and_their_way_out(made: Recording) -> None:
    needs = made.depends(pool(made, "gpu-t4").urn)
    for token in (
        "gcp:compute/routerNat:RouterNat",
        "gcp:compute/firewall:Firewall",
        "gcp:projects/iAMMember:IAMMember",
    ):
        assert {item.urn for item in made.of(token)} <= needs


def test_the_bucket_is_closed_and_versioned(made: Recording) -> None:
    bucket = made.one("gcp:storage/bucket:Bucket").inputs
    assert bucket["name"] == "your-project-id-isthmus-data"
    assert bucket["publicAccessPrevention"] == "enforced" and bucket["uniformBucketLevelAccess"] is True
    assert bucket["versioning"] == {"enabled": True} and bucket["forceDestroy"] is False


def test_workloads_reach_their_bucket_by_workload_identity(made: Recording) -> None:
    member = made.one("gcp:serviceaccount/iAMMember:IAMMember")
    assert member.inputs["member"] == "serviceAccount:your-project-id.svc.id.goog[isthmus-runs/trainer]"
    assert made.one("gcp:container/cluster:Cluster").urn in member.depends_on, "the pool comes with the first cluster"
    assert made.one("gcp:storage/bucketIAMMember:BucketIAMMember").inputs["role"] == "roles/storage.objectUser"


def test_everything_goes_through_the_one_explicit_provider(made: Recording) -> None:
    provider = made.one("pulumi:providers:gcp")
    assert provider.inputs["project"] == "your-project-id"
    for item in made.resources:
        if item.custom and item.token.startswith("gcp:"):
            assert item.provider.startswith(provider.urn), item.urn


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"region": "us-centrall"}, "us-central1"),
        ({"zones": ("us-central1-e",)}, "us-central1"),
        ({"gpu_pools": (NodePool(name="g", gpu={"model": "A10G", "count": 1}),)}, "pool g"),
        (
            {"gpu_pools": (NodePool(name="g", instanceType="e2-standard-4", gpu={"model": "T4", "count": 1}),)},
            "n1-standard",
        ),
        (
            {"gpu_pools": (NodePool(name="g", gpu={"model": "L4", "count": 1}),), "zones": ("us-central1-f",)},
            "us-central1-a",
        ),
        ({"nat_per_zone": True}, "regional"),
        ({"admins": ("me@example.com",)}, "user:"),
        (
            {
                "gpu_pools": (
                    NodePool(
                        name="g",
                        gpu={"model": "T4", "count": 1},
                        sharing=GpuSharing(mode="time-slicing", replicas=2, rename=True),
                    ),
                )
            },
            "sharing.rename",
        ),
    ],
)
def test_bad_settings_are_refused_before_anything_is_created(changes: dict[str, Any], words: str) -> None:
    cloud = clouds.select(settings("gcp", **changes))
    with pytest.raises(InvalidSpec) as refused:
        cloud.check()
    assert words in f"{refused.value.message} {refused.value.remedy}"
