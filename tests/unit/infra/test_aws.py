"""What infra/aws asks the engine for."""

import json
from typing import Any

import pytest

from infra import cloud as clouds
from isthmus.specs.cluster import NodePool
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.sharing import GpuSharing
from tests.unit.infra.recording import Recording, Registered, record
from tests.unit.infra.stacks import infrastructure, settings

TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}


@pytest.fixture(scope="module")
def made() -> Recording:
    return record(infrastructure(settings("aws")))


def group(made: Recording, pool: str) -> Registered:
    (found,) = [item for item in made.of("aws:eks/nodeGroup:NodeGroup") if item.inputs["nodeGroupName"] == pool]
    return found


def test_three_zones_with_public_and_private_subnets(made: Recording) -> None:
    subnets = made.of("aws:ec2/subnet:Subnet")
    zones: dict[str, set[str]] = {}
    for subnet in subnets:
        kind = "public" if "kubernetes.io/role/elb" in subnet.inputs["tags"] else "private"
        assert kind == "public" or "kubernetes.io/role/internal-elb" in subnet.inputs["tags"]
        assert subnet.inputs["tags"]["kubernetes.io/cluster/isthmus"] == "shared"
        zones.setdefault(kind, set()).add(subnet.inputs["availabilityZone"])
    assert zones["public"] == zones["private"] == {"us-east-1a", "us-east-1b", "us-east-1c"}
    assert len({subnet.inputs["cidrBlock"] for subnet in subnets}) == 6


def test_nodes_have_a_way_out_and_only_a_way_out(made: Recording) -> None:
    assert len(made.of("aws:ec2/natGateway:NatGateway")) == 1
    routes = [route.inputs for route in made.of("aws:ec2/route:Route")]
    assert sum("natGatewayId" in route for route in routes) == 3
    assert sum("gatewayId" in route for route in routes) == 1
    node_subnets = set(group(made, "system").inputs["subnetIds"])
    assert node_subnets and all("private" in subnet for subnet in node_subnets)


def test_nat_per_zone_is_a_setting() -> None:
    made = record(infrastructure(settings("aws", nat_per_zone=True)))
    assert len(made.of("aws:ec2/natGateway:NatGateway")) == 3
    ways = {route.inputs["natGatewayId"] for route in made.of("aws:ec2/route:Route") if "natGatewayId" in route.inputs}
    assert len(ways) == 3


def test_access_is_by_entries_only(made: Recording) -> None:
    cluster = made.one("aws:eks/cluster:Cluster")
    assert cluster.inputs["accessConfig"] == {
        "authenticationMode": "API",
        "bootstrapClusterCreatorAdminPermissions": False,
    }
    entry = made.one("aws:eks/accessEntry:AccessEntry")
    assert entry.inputs["principalArn"] == "arn:aws:iam::111122223333:role/deployer"
    assert entry.ignored == ("principalArn",), "the next person's up must not take the first one's rights"
    policy = made.one("aws:eks/accessPolicyAssociation:AccessPolicyAssociation")
    assert policy.inputs["policyArn"].endswith("/AmazonEKSClusterAdminPolicy")


def test_admins_get_entries_of_their_own() -> None:
    made = record(infrastructure(settings("aws", admins=("arn:aws:iam::111122223333:role/platform",))))
    arns = {entry.inputs["principalArn"] for entry in made.of("aws:eks/accessEntry:AccessEntry")}
    assert "arn:aws:iam::111122223333:role/platform" in arns and len(arns) == 2


def test_the_control_plane_is_encrypted_logged_and_protected(made: Recording) -> None:
    cluster = made.one("aws:eks/cluster:Cluster")
    assert cluster.inputs["encryptionConfig"]["resources"] == ["secrets"]
    assert {"api", "audit", "authenticator"} <= set(cluster.inputs["enabledClusterLogTypes"])
    assert cluster.inputs["vpcConfig"]["endpointPrivateAccess"] and cluster.inputs["vpcConfig"]["endpointPublicAccess"]
    assert cluster.inputs["deletionProtection"] is True and cluster.protect
    assert made.one("aws:cloudwatch/logGroup:LogGroup").urn in cluster.depends_on


def test_the_add_ons(made: Recording) -> None:
    addons = {item.inputs["addonName"]: item for item in made.of("aws:eks/addon:Addon")}
    assert set(addons) == {"vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent", "aws-ebs-csi-driver"}
    identities = {name: item.inputs.get("podIdentityAssociations") for name, item in addons.items()}
    assert identities["vpc-cni"][0]["serviceAccount"] == "aws-node"
    assert identities["aws-ebs-csi-driver"][0]["serviceAccount"] == "ebs-csi-controller-sa"


def test_a04_destroy_goes_pods_nodes_cni_cluster_network(made: Recording) -> None:
    """Nodes are gone before the add-on that frees their interfaces, and that before groups, routes and subnets."""
    system = group(made, "system")
    addons = {item.inputs["addonName"]: item.urn for item in made.of("aws:eks/addon:Addon")}
    gone_after_nodes = made.depends(system.urn)
    for name in ("vpc-cni", "kube-proxy", "eks-pod-identity-agent"):
        assert addons[name] in gone_after_nodes
    for token in ("aws:eks/cluster:Cluster", "aws:ec2/securityGroup:SecurityGroup", "aws:ec2/natGateway:NatGateway"):
        assert {item.urn for item in made.of(token)} <= gone_after_nodes
    for token in ("aws:eks/accessPolicyAssociation:AccessPolicyAssociation", "aws:ec2/route:Route"):
        assert {item.urn for item in made.of(token) if "public" not in item.name} <= gone_after_nodes
    for name in ("coredns", "aws-ebs-csi-driver"):
        assert system.urn in made.depends(addons[name])


def test_pools_become_node_groups(made: Recording) -> None:
    system, gpu, spot = (group(made, name) for name in ("system", "gpu-t4", "gpu-t4-spot"))
    assert system.inputs["amiType"] == "AL2023_x86_64_STANDARD" and system.inputs["taints"] == []
    assert gpu.inputs["amiType"] == spot.inputs["amiType"] == "AL2023_x86_64_NVIDIA"
    assert gpu.inputs["instanceTypes"] == spot.inputs["instanceTypes"] == ["g4dn.12xlarge"]
    assert gpu.inputs["labels"] == {"isthmus.dev/pool": "gpu-t4", "isthmus.dev/gpu-model": "T4"}
    assert gpu.inputs["taints"] == spot.inputs["taints"] == [TAINT]
    assert (gpu.inputs["capacityType"], spot.inputs["capacityType"]) == ("ON_DEMAND", "SPOT")
    assert spot.inputs["scalingConfig"] == {"minSize": 0, "desiredSize": 0, "maxSize": 2}


def test_shared_cards_name_the_plugins_configuration() -> None:
    shared = NodePool(name="g", gpu={"model": "T4", "count": 1}, sharing=GpuSharing(mode="time-slicing", replicas=4))
    made = record(infrastructure(settings("aws", gpu_pools=(shared,))))
    assert group(made, "g").inputs["labels"]["nvidia.com/device-plugin.config"] == shared.sharing.config_name
    assert "nvidia.com/device-plugin.config" not in group(made, "system").inputs["labels"]


def test_launch_templates_encrypt_disks_and_close_the_metadata(made: Recording) -> None:
    templates = made.of("aws:ec2/launchTemplate:LaunchTemplate")
    assert len(templates) == 3
    for template in templates:
        disk = template.inputs["blockDeviceMappings"][0]["ebs"]
        assert (disk["volumeType"], disk["encrypted"]) == ("gp3", "true")
        assert template.inputs["metadataOptions"]["httpTokens"] == "required"
        assert template.inputs["metadataOptions"]["httpPutResponseHopLimit"] == 1
        for tags in template.inputs["tagSpecifications"]:
            assert tags["tags"]["isthmus.dev/managed-by"] == "isthmus"


def test_everything_is_tagged_by_the_one_explicit_provider(made: Recording) -> None:
    provider = made.one("pulumi:providers:aws")
    assert json.loads(provider.inputs["defaultTags"])["tags"]["isthmus.dev/managed-by"] == "isthmus"
    assert provider.inputs["profile"] == "default"
    for item in made.resources:
        if item.custom and item.token.startswith("aws:"):
            assert item.provider.startswith(provider.urn), item.urn


def test_the_bucket_is_versioned_encrypted_and_closed(made: Recording) -> None:
    assert made.one("aws:s3/bucket:Bucket").inputs["bucket"] == "isthmus-data-111122223333-us-east-1"
    assert made.one("aws:s3/bucketVersioning:BucketVersioning").inputs["versioningConfiguration"]["status"] == "Enabled"
    block = made.one("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock").inputs
    assert all(
        block[key] for key in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    )
    assert made.of("aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration")


def statements(made: Recording) -> list[dict[str, Any]]:
    return [
        statement
        for item in made.of("aws:iam/rolePolicy:RolePolicy")
        for statement in json.loads(item.inputs["policy"])["Statement"]
    ]


def test_roles_are_least_privilege(made: Recording) -> None:
    for statement in statements(made):
        assert "*" not in statement["Resource"] and "*" not in statement["Action"]
    attached = {
        (item.inputs["role"].rpartition("us-east-1-")[2], item.inputs["policyArn"].rsplit("/", 1)[-1])
        for item in made.of("aws:iam/rolePolicyAttachment:RolePolicyAttachment")
    }
    assert attached == {
        ("control-plane", "AmazonEKSClusterPolicy"),
        ("nodes", "AmazonEKSWorkerNodePolicy"),
        ("nodes", "AmazonEC2ContainerRegistryPullOnly"),
        ("vpc-cni", "AmazonEKS_CNI_Policy"),
        ("ebs-csi", "AmazonEBSCSIDriverPolicy"),
    }


def test_workloads_reach_their_bucket_by_pod_identity(made: Recording) -> None:
    association = made.one("aws:eks/podIdentityAssociation:PodIdentityAssociation").inputs
    assert (association["namespace"], association["serviceAccount"]) == ("isthmus-runs", "trainer")
    resources = {resource for statement in statements(made) for resource in statement["Resource"]}
    assert resources == {"arn:isthmus-data", "arn:isthmus-data/*"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"region": "us-esat-1"}, "us-east-1"),
        ({"zones": ("us-east-1a", "us-east-1z")}, "us-east-1"),
        ({"zones": ("us-east-1a",)}, "at least 2 zones"),
        ({"zones": ("us-east-1a", "us-east-1e")}, "no control plane can be placed in us-east-1e"),
        ({"zones": ("us-east-1a", "us-east-1a")}, "named twice"),
        ({"gpu_pools": (NodePool(name="g", gpu={"model": "T5", "count": 4}),)}, "T4"),
        ({"gpu_pools": (NodePool(name="g", gpu={"model": "T4", "count": 3}),)}, "pool g"),
        ({"gpu_pools": (NodePool(name="g", instanceType="g4dn.12xlarg"),)}, "g4dn.12xlarge"),
        ({"gpu_pools": (NodePool(name="g", instanceType="m5.large"),)}, "has no cards"),
        (
            {"gpu_pools": (NodePool(name="g", instanceType="g5.xlarge", gpu={"model": "T4", "count": 1}),)},
            "g4dn.xlarge",
        ),
        ({"admins": ("me@example.com",)}, "not the ARN"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_created(changes: dict[str, Any], words: str) -> None:
    cloud = clouds.select(settings("aws", **changes))
    with pytest.raises(InvalidSpec) as refused:
        cloud.check()
    assert words in f"{refused.value.message} {refused.value.remedy}"
