"""What simulated AWS decides: its refusals, quotas, stock-outs, nodes of a cluster, and case A04."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.simulation import capacity, faults, local, operations, quota
from isthmus.simulation.aws.base import STARTING_GPU_VCPUS, account_number, zone_id
from isthmus.simulation.aws.cloud import CLOUD
from isthmus.simulation.resource import CloudError
from isthmus.specs.errors import NotReady
from tests.unit.simulation.aws_account import CLUSTER, GROUP, NODE_GROUP, ROLE, SUBNET, TEMPLATE, VPC, Aws, trust

GPU_QUOTA = "L-DB2E81BA"


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Aws]:
    before = local.backend()
    yield Aws(tmp_path)
    local.use(before)


def refused(text: str) -> pytest.RaisesExc[CloudError]:
    """The next block is refused with this text."""
    return pytest.raises(CloudError, match=text)


def test_a_cluster_is_a_local_cluster(aws: Aws) -> None:
    made = aws.cluster()
    found = aws.local_cluster()
    assert found.name == "aws-test-us-east-1-training"
    assert made.outputs["endpoint"] == found.endpoint and made.outputs["status"] == "ACTIVE"
    assert made.outputs["identities"][0]["oidcs"][0]["issuer"].startswith(
        "https://oidc.eks.us-east-1.amazonaws.com/id/"
    )
    assert "MutatingAdmissionPolicy/isthmus-executed-pods" in found.document["objects"]
    aws.delete(made)
    assert aws.backend.list() == []
    assert aws.account.rows(GROUP) == []


def test_a_cluster_removed_by_hand_is_seen(aws: Aws) -> None:
    made = aws.cluster()
    aws.local_cluster().delete()
    read = aws.operations.read(CLUSTER, made.id, made.urn, made.outputs, made.inputs)
    assert read is not None and read.outputs["status"] == "FAILED"
    aws.delete(made)  # and can still be deleted


def test_a_second_cluster_of_the_name_has_ids_of_its_own(aws: Aws) -> None:
    first = aws.cluster()
    aws.delete(first)
    second = aws.make(CLUSTER, "training", **{key: value for key, value in first.inputs.items()})
    assert second.outputs["identities"] != first.outputs["identities"]
    assert second.outputs["vpcConfig"]["clusterSecurityGroupId"] != first.outputs["vpcConfig"]["clusterSecurityGroupId"]


def test_a_delete_that_fails_leaves_it_as_it_was(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = aws.cluster()

    def broken(name: str) -> None:
        raise NotReady("the supervisor does not end")

    with monkeypatch.context() as patch, pytest.raises(NotReady):
        patch.setattr(aws.backend, "get", broken)
        aws.delete(cluster)
    assert aws.get(CLUSTER, cluster.id).state == "ready"
    aws.delete(cluster)
    assert aws.backend.list() == []


def test_clusters_of_one_name_in_two_regions(aws: Aws) -> None:
    aws.cluster()
    aws.restart("eu-west-1")
    vpc = aws.make(VPC, "eu", cidrBlock="10.0.0.0/16").id
    subnets = [
        aws.make(
            SUBNET, f"eu-{zone}", vpcId=vpc, cidrBlock=f"10.0.{index}.0/24", availabilityZone=f"eu-west-1{zone}"
        ).id
        for index, zone in enumerate("ab")
    ]
    role = aws.get(ROLE, "plane").outputs["arn"]
    other = aws.make(CLUSTER, "eu-cluster", name="training", roleArn=role, vpcConfig={"subnetIds": subnets})
    assert len(aws.backend.list()) == 2 and other.region == "eu-west-1"
    aws.delete(other)
    assert [row.region for row in aws.account.rows(CLUSTER)] == ["us-east-1"]


def test_local_and_simulated_nodes(aws: Aws) -> None:
    aws.cluster()
    aws.pool("system", "m5.xlarge", 2, labels={"isthmus.dev/pool": "system"})
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}
    gpu = aws.pool(
        "gpu", "g4dn.12xlarge", 3, labels={"isthmus.dev/pool": "gpu", "isthmus.dev/gpu-model": "T4"}, taints=[taint]
    )
    document = aws.local_cluster().document
    assert document["cards"] == {"model": "T4", "count": 4}
    assert document["labels"]["isthmus.dev/pool"] == "gpu" and document["labels"]["isthmus.dev/gpu-model"] == "T4"
    assert document["labels"]["eks.amazonaws.com/nodegroup"] == "gpu"
    assert document["labels"]["topology.kubernetes.io/zone"] == "us-east-1a"
    nodes = document["nodes"].values()
    assert sorted(node["metadata"]["labels"]["isthmus.dev/pool"] for node in nodes) == ["gpu", "gpu", "system"]
    simulated = next(node for node in nodes if node["metadata"]["labels"]["isthmus.dev/pool"] == "gpu")
    assert simulated["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert {taint["key"] for taint in simulated["spec"]["taints"]} == {"isthmus.dev/simulated", "nvidia.com/gpu"}
    assert {node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in nodes} == {"us-east-1a", "us-east-1b"}
    names = set(document["nodes"])
    aws.update(gpu, scalingConfig={"minSize": 0, "desiredSize": 2, "maxSize": 3})
    assert set(aws.local_cluster().document["nodes"]) < names
    aws.delete(gpu)
    document = aws.local_cluster().document
    assert document["cards"] is None and len(document["nodes"]) == 1
    assert "isthmus.dev/gpu-model" not in document["labels"]


def test_shared_cards_are_advertised_as_the_device_plugin_would(aws: Aws) -> None:
    aws.cluster()
    aws.pool("gpu", "g4dn.12xlarge", 2, labels={"nvidia.com/device-plugin.config": "time-slicing-4"})
    (node,) = aws.local_cluster().document["nodes"].values()
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "16"


def test_gpu_quota_0_names_the_quota_and_how_to_raise_it(aws: Aws) -> None:
    aws.cluster()
    quota.set_limit(aws.account, GPU_QUOTA, 0)
    with refused(
        "VcpuLimitExceeded - You have requested more vCPU capacity than your current vCPU limit of 0"
    ) as error:
        aws.pool("gpu", "g4dn.12xlarge", 1)
    assert "Running On-Demand G and VT instances (L-DB2E81BA)" in error.value.message
    assert error.value.remedy == "isthmus sim quota aws-test L-DB2E81BA 48"
    text = CLOUD.render("creating", CLOUD.types[NODE_GROUP], "gpu", error.value)
    assert text.endswith("\n  next: isthmus sim quota aws-test L-DB2E81BA 48")
    assert aws.account.rows(NODE_GROUP) == [] and aws.local_cluster().document["nodes"] == {}
    quota.set_limit(aws.account, GPU_QUOTA, 48)
    assert aws.pool("gpu", "g4dn.12xlarge", 1).outputs["status"] == "ACTIVE"
    with refused("limit of 48"):
        aws.pool("more", "g4dn.xlarge", 1)


def test_spot_counts_against_its_own_quota(aws: Aws) -> None:
    aws.cluster()
    quota.set_limit(aws.account, GPU_QUOTA, 0)
    aws.pool("spot", "g4dn.12xlarge", 1, capacityType="SPOT")
    quota.set_limit(aws.account, "L-3819A6DF", 48)
    with refused("MaxSpotInstanceCountExceeded"):
        aws.pool("more", "g4dn.xlarge", 1, capacityType="SPOT")


def test_a_refused_scaling_leaves_the_pool_as_it_was(aws: Aws) -> None:
    aws.cluster()
    group = aws.pool("gpu", "g4dn.12xlarge", 2)
    nodes = aws.local_cluster().document["nodes"]
    with refused("VcpuLimitExceeded"):
        aws.update(group, scalingConfig={"minSize": 0, "desiredSize": 9, "maxSize": 9})
    assert quota.used(aws.account, GPU_QUOTA, "us-east-1") == 96
    assert aws.local_cluster().document["nodes"] == nodes
    assert aws.get(NODE_GROUP, group.id).inputs == group.inputs


def test_stock_out_in_one_zone_fails_the_whole_group(aws: Aws) -> None:
    aws.cluster()
    capacity.set_available(aws.account, "us-east-1b", "g4dn.12xlarge", 0)
    with refused(r"sufficient g4dn.12xlarge capacity in the Availability Zone you requested \(us-east-1b\)") as error:
        aws.pool("gpu", "g4dn.12xlarge", 2)
    assert "or choosing us-east-1a" in error.value.message
    assert error.value.remedy == "isthmus sim capacity aws-test us-east-1b g4dn.12xlarge 1"
    aws.pool("gpu", "g4dn.12xlarge", 1)  # its one node is in us-east-1a
    capacity.set_available(aws.account, "us-east-1b", "g4dn.12xlarge", None)
    aws.pool("more", "g4dn.12xlarge", 2)


def test_quotas_of_the_network(aws: Aws) -> None:
    for number in range(5):
        aws.make(VPC, f"net-{number}", cidrBlock="10.0.0.0/16")
    with refused("VpcLimitExceeded: The maximum number of VPCs has been reached"):
        aws.make(VPC, "net-5", cidrBlock="10.0.0.0/16")


def test_starting_quotas_let_the_demo_run() -> None:
    assert CLOUD.quotas[GPU_QUOTA].default == 0 and CLOUD.quotas[GPU_QUOTA].start == STARTING_GPU_VCPUS
    assert CLOUD.quotas["L-F678F1CE"].start == CLOUD.quotas["L-F678F1CE"].default == 5


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": "1.30"}, "unsupported Kubernetes version 1.30"),
        ({"name": "-bad"}, "Cluster name"),
    ],
)
def test_clusters_that_eks_refuses(aws: Aws, change: dict[str, str], text: str) -> None:
    with refused(text):
        aws.cluster(**change)  # type: ignore[arg-type]


def test_a_cluster_wants_two_zones_and_a_role_that_trusts_it(aws: Aws) -> None:
    with refused("at least two different AZs"):
        aws.cluster(letters="a")
    aws.restart()
    role = aws.make(ROLE, "wrong", name="wrong", assumeRolePolicy=trust("ec2.amazonaws.com")).outputs["arn"]
    with refused("the trusted entity is not correct"):
        aws.make(CLUSTER, "k", name="k", roleArn=role, vpcConfig={"subnetIds": aws.subnets})


def test_node_groups_that_eks_refuses(aws: Aws) -> None:
    cluster = aws.cluster()
    with refused("do not exist: .m5.huge."):
        aws.pool("bad", "m5.huge", 1)
    with refused("requires an accelerated AMI type"):
        aws.make(NODE_GROUP, "ami", **{**aws.pool_inputs("ami", "g4dn.xlarge", 1), "amiType": "AL2023_x86_64_STANDARD"})
    with refused("Minimum capacity 2 can't be greater"):
        sizes = {"minSize": 2, "desiredSize": 1, "maxSize": 4}
        aws.make(NODE_GROUP, "size", **{**aws.pool_inputs("size", "m5.xlarge", 1), "scalingConfig": sizes})
    with refused("reserved prefixes"):
        aws.pool("label", "m5.xlarge", 1, labels={"kubernetes.io/role": "x"})
    with refused("No cluster found for name: other"):
        aws.pool("other", "m5.xlarge", 1, cluster="other")
    aws.pool("good", "m5.xlarge", 1)
    with refused("Cluster has nodegroups attached"):
        aws.delete(cluster)


def test_a_cluster_with_deletion_protection_stays(aws: Aws) -> None:
    cluster = aws.cluster(deletionProtection=True)
    with refused("deletion protection"):
        aws.delete(cluster)
    assert aws.get(CLUSTER, cluster.id).state == "ready"
    aws.update(cluster, deletionProtection=False)
    aws.delete(aws.get(CLUSTER, cluster.id))
    assert aws.backend.list() == []


def test_the_disk_driver_is_an_add_on(aws: Aws) -> None:
    aws.cluster()
    made = aws.make("aws:eks/addon:Addon", "disks", clusterName="training", addonName="aws-ebs-csi-driver")
    document = aws.local_cluster().document
    assert document["disk_driver"] and "Deployment/ebs-csi-controller" in document["objects"]
    aws.delete(made)
    assert "Deployment/ebs-csi-controller" not in aws.local_cluster().document["objects"]
    again = aws.make("aws:eks/addon:Addon", "disks", clusterName="training", addonName="aws-ebs-csi-driver")
    aws.local_cluster().delete()
    aws.delete(again)  # a cluster that is gone keeps nothing


def test_launch_template_versions(aws: Aws) -> None:
    row = aws.make(TEMPLATE, "lt", namePrefix="lt-", updateDefaultVersion=True)
    assert (row.outputs["latestVersion"], row.outputs["defaultVersion"]) == (1, 1)
    outputs = aws.update(row, metadataOptions={"httpTokens": "required"})
    assert (outputs["latestVersion"], outputs["defaultVersion"]) == (2, 2)
    outputs = aws.update(aws.get(TEMPLATE, row.id), tags={"only": "tags"})
    assert outputs["latestVersion"] == 2


def test_subnets_lie_inside_their_vpc_and_apart(aws: Aws) -> None:
    vpc = aws.make(VPC, "net", cidrBlock="10.0.0.0/16").id
    with refused("InvalidSubnet.Range"):
        aws.make(SUBNET, "outside", vpcId=vpc, cidrBlock="10.1.0.0/24")
    aws.make(SUBNET, "one", vpcId=vpc, cidrBlock="10.0.0.0/20")
    with refused("InvalidSubnet.Conflict"):
        aws.make(SUBNET, "two", vpcId=vpc, cidrBlock="10.0.1.0/24")
    with refused("availabilityZone is invalid"):
        aws.make(SUBNET, "zone", vpcId=vpc, cidrBlock="10.0.64.0/24", availabilityZone="us-east-1q")
    with refused("DependencyViolation"):
        aws.delete(aws.get(VPC, vpc))


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("not json", "invalid Json"),
        ("{}", "Syntax errors"),
        ('{"Statement": [{"Effect": "Maybe"}]}', "Syntax errors"),
        ('{"Statement": [{"Effect": "Allow"}]}', "must contain actions"),
        ('{"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}', "prohibited field Resource"),
    ],
)
def test_malformed_policies(aws: Aws, document: str, text: str) -> None:
    with refused(text):
        aws.make(ROLE, "r", name="r", assumeRolePolicy=document)


def test_a_role_with_policies_is_not_deleted(aws: Aws) -> None:
    role = aws.make(ROLE, "r", name="r", assumeRolePolicy=trust("ec2.amazonaws.com"))
    token = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
    attached = aws.make(token, "a", role="r", policyArn="arn:aws:iam::aws:policy/ReadOnlyAccess")
    with refused("DeleteConflict"):
        aws.delete(role)
    with refused("NoSuchEntity"):
        aws.make(token, "b", role="r", policyArn="arn:aws:iam::123456789012:policy/none")
    aws.delete(attached)
    aws.delete(role)


def test_default_tags_lie_under_the_resource_s_own(aws: Aws) -> None:
    aws.operations.config["defaultTags"] = {"owner": "isthmus", "stage": "test"}
    row = aws.make(VPC, "net", cidrBlock="10.0.0.0/16", tags={"stage": "prod"})
    assert row.outputs["tagsAll"] == {"owner": "isthmus", "stage": "prod"}
    aws.operations.config["defaultTags"] = {"owner": "somebody"}
    news = aws.check(VPC, "net", {"cidrBlock": "10.0.0.0/16", "tags": {"stage": "prod"}}, row.inputs)
    changes, _ = aws.operations.diff(VPC, row.urn, row.inputs, news)
    assert {change.path for change in changes} == {"tags.owner"}


def test_made_up_names_are_kept_and_told_apart(aws: Aws) -> None:
    first = aws.check(ROLE, "r", {"assumeRolePolicy": trust("ec2.amazonaws.com")})
    assert first["name"].startswith("r-") and len(first["name"]) == 9
    assert aws.check(ROLE, "r", {"assumeRolePolicy": trust("ec2.amazonaws.com")}, first)["name"] == first["name"]
    assert (
        aws.check(ROLE, "r", {"assumeRolePolicy": trust("ec2.amazonaws.com")})["name"] != first["name"]
    )  # replacement
    given = aws.check(ROLE, "r", {"assumeRolePolicy": trust("ec2.amazonaws.com"), "namePrefix": "pre-"})
    assert given["name"].startswith("pre-")


def test_a04_interfaces_of_deleted_nodes_are_waited_for(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interfaces stay attached after the node is gone: the delete of their group waits for them, within limits."""
    aws.cluster()
    group = aws.make(GROUP, "nodes", vpcId=aws.get(VPC, aws.account.rows(VPC)[0].id).id, name="nodes")
    template = aws.make(TEMPLATE, "lt", vpcSecurityGroupIds=[group.id])
    pool = aws.pool("system", "m5.xlarge", 2, launchTemplate={"id": template.id, "version": "1"})
    faults.add(aws.account, faults.Fault("detach", seconds=90))
    aws.delete(pool)
    waits: list[float] = []
    now = time.time()

    def pass_time(seconds: float, cancelled: object) -> None:
        waits.append(seconds)
        monkeypatch.setattr(time, "time", lambda: now + 30 * len(waits))

    monkeypatch.setattr(operations.clock, "wait", pass_time)
    aws.delete(group)
    assert len(waits) >= 3
    assert [row.id for row in aws.account.rows(GROUP) if row.urn] == []


def test_a04_an_interface_that_never_leaves_is_named(aws: Aws) -> None:
    aws.cluster()
    group = aws.make(GROUP, "nodes", vpcId=aws.account.rows(VPC)[0].id, name="nodes")
    template = aws.make(TEMPLATE, "lt", vpcSecurityGroupIds=[group.id])
    pool = aws.pool("system", "m5.xlarge", 1, launchTemplate={"id": template.id, "version": "1"})
    faults.add(aws.account, faults.Fault("detach", seconds=1e9))
    aws.delete(pool)
    with refused(r"DependencyViolation: resource sg-\w+ has a dependent object: network interface eni-\w+") as error:
        aws.operations.delete(GROUP, group.id, group.urn, group.outputs, timeout=0.01)
    assert group.id in error.value.message
    assert aws.get(GROUP, group.id).state == "ready"


def test_numbers_and_zone_ids() -> None:
    numbers = {account_number(f"account-{index}") for index in range(200)}
    assert len(numbers) == 200 and all(len(number) == 12 and number[0] != "0" for number in numbers)
    assert zone_id("us-east-1b") == "use1-az2" and zone_id("ap-northeast-2a") == "apne2-az1"
