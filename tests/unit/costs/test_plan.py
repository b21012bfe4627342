"""The monthly price of a plan: each resource by its rule, unknowns named, the limit that refuses."""

from decimal import Decimal
from typing import Any

import pytest

from isthmus.catalog import Catalog, load
from isthmus.costs.parts import money
from isthmus.costs.plan import RULES, PlanCost, Step, check_monthly, document, plan_cost
from isthmus.simulation import coverage
from isthmus.specs.errors import Refused

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


def group(size: int = 1, machine: str = "g4dn.12xlarge", **more: Any) -> dict[str, Any]:
    return {"instanceTypes": [machine], "scalingConfig": {"minSize": 0, "desiredSize": size, "maxSize": 9}} | more


def template(gib: int = 100) -> dict[str, Any]:
    return {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeType": "gp3", "volumeSize": gib}}]}


def create(kind: str, inputs: dict[str, Any], name: str = "x") -> Step:
    return Step("create", kind, name, None, inputs)


def priced(*steps: Step, cloud: str = "aws") -> PlanCost:
    region = {"aws": "us-east-1", "gcp": "us-central1"}[cloud]
    return plan_cost(steps, load(), cloud=cloud, region=region)


def amounts(cost: PlanCost) -> dict[str, tuple[Any, Any]]:
    return {
        p.step.name: tuple(None if value is None else str(money(value)) for value in (p.before, p.after))
        for p in cost.resources
    }


def test_a_cluster_with_a_pool_and_a_gateway_by_hand() -> None:
    """EKS 0.1, NAT 0.045 and one g4dn.12xlarge at 3.912, each times 730 h; its boot disk 100 GiB at 0.08."""
    cost = priced(
        create("aws:eks/cluster:Cluster", {}, "cluster"),
        create("aws:ec2/natGateway:NatGateway", {}, "nat"),
        create(NODE_GROUP, group(), "gpu"),
        create(TEMPLATE, template(), "gpu"),
        create("aws:iam/role:Role", {}, "role"),
        create("isthmus:aws:NodeGroup", {}, "component"),
        create("aws:s3/bucket:Bucket", {}, "data"),
    )
    assert amounts(cost) == {
        "cluster": ("0.0000", "73.0000"),
        "nat": ("0.0000", "32.8500"),
        "gpu": ("0.0000", "2863.7600"),
    }
    assert cost.unknown == ()
    assert cost.by_use == ("aws:s3/bucket:Bucket data (objects kept and requests)",)
    assert cost.known("after") == Decimal("2969.61")


def test_spot_pools_and_empty_pools() -> None:
    cost = priced(
        create(NODE_GROUP, group(2, "g4dn.xlarge", capacityType="SPOT"), "spot"),
        create(NODE_GROUP, group(0), "empty"),
        create(NODE_GROUP, group(0, "x9.huge"), "unknown, and empty"),
    )
    assert amounts(cost) == {
        "spot": ("0.0000", "466.6160"),
        "empty": ("0.0000", "0.0000"),
        "unknown, and empty": ("0.0000",) * 2,
    }


def test_gke_pools_are_zones_times_nodes_with_cards_priced_apart() -> None:
    """n1-standard-8 with 4 x T4: 1.779998 USD/h, in two zones with one node each, 100 GiB of pd-balanced each; NAT by the
    machine."""
    pool = {
        "nodeLocations": ["us-central1-a", "us-central1-b"],
        "initialNodeCount": 1,
        "nodeConfig": {
            "machineType": "n1-standard-8",
            "diskSizeGb": 100,
            "spot": False,
            "guestAccelerators": [{"type": "nvidia-tesla-t4", "count": 4}],
        },
    }
    cost = priced(
        create("gcp:container/nodePool:NodePool", pool, "pool"),
        create("gcp:compute/routerNat:RouterNat", {}, "nat"),
        create("gcp:container/cluster:Cluster", {}, "cluster"),
        cloud="gcp",
    )
    assert amounts(cost) == {
        "pool": ("0.0000", str(money(2 * Decimal("1.779998") * 730 + 200 * Decimal("0.1")))),
        "nat": ("0.0000", str(money(2 * Decimal("0.0014") * 730))),
        "cluster": ("0.0000", "73.0000"),
    }


def test_what_changes_and_goes_is_priced_before_and_after() -> None:
    cost = priced(
        Step("update", NODE_GROUP, "grows", group(1, "g4dn.xlarge"), group(3, "g4dn.xlarge")),
        Step("delete", NODE_GROUP, "goes", group(1, "m5.xlarge"), None),
        Step("same", "aws:eks/cluster:Cluster", "stays", {}, {}),
        Step("create-replacement", NODE_GROUP, "new", None, group(1, "g5.xlarge")),
        Step("replace", NODE_GROUP, "new", group(1, "g4dn.xlarge"), group(1, "g5.xlarge")),
        Step("delete-replaced", NODE_GROUP, "old", group(1, "g4dn.xlarge"), None),
    )
    changes = {p.step.name: p.change for p in cost.resources}
    assert changes == {
        "grows": 2 * Decimal("0.526") * 730,
        "goes": -Decimal("0.192") * 730,
        "stays": 0,
        "new": Decimal("1.006") * 730,
        "old": -Decimal("0.526") * 730,
    }
    said = document(cost, stack="aws")
    assert Decimal(said["after"]) - Decimal(said["before"]) == Decimal(said["change"])
    assert sum(Decimal(item["change"]) for item in said["resources"]) == Decimal(said["change"])
    assert said["complete"] is True


@pytest.mark.parametrize(
    ("step", "named"),
    [
        (create("aws:ec2/eip:Eip", {}, "ip"), "aws:ec2/eip:Eip ip (a public IPv4 address)"),
        (
            create("aws:rds/instance:Instance", {}, "db"),
            "aws:rds/instance:Instance db (a type that the catalog does not",
        ),
        (create(NODE_GROUP, group(1, "x9.huge"), "odd"), f"{NODE_GROUP} odd (its machine is not in the catalog)"),
        (
            create("aws:ec2/vpcEndpoint:VpcEndpoint", {"vpcEndpointType": "Interface"}, "door"),
            "aws:ec2/vpcEndpoint:VpcEndpoint door (an interface endpoint)",
        ),
    ],
)
def test_what_is_not_known_is_named_and_is_not_nothing(step: Step, named: str) -> None:
    cost = priced(step)
    assert len(cost.unknown) == 1 and cost.unknown[0].startswith(named)
    said = document(cost, stack="aws")
    assert said["complete"] is False and said["resources"][0]["after"] is None


def test_kubernetes_objects_are_free_but_for_claims_and_load_balancers() -> None:
    claim = {"spec": {"resources": {"requests": {"storage": "10Gi"}}}}
    cost = priced(
        create("kubernetes:core/v1:PersistentVolumeClaim", claim, "claim"),
        create("kubernetes:core/v1:Service", {"spec": {"type": "LoadBalancer"}}, "public"),
        create("kubernetes:core/v1:Service", {"spec": {"type": "ClusterIP"}}, "inner"),
        create("kubernetes:apps/v1:Deployment", {}, "free"),
        create("aws:ec2/vpcEndpoint:VpcEndpoint", {"vpcEndpointType": "Gateway"}, "door"),
    )
    assert amounts(cost) == {"claim": ("0.0000", "0.8000"), "public": ("0.0000", "16.4250")}


def test_the_limit_refuses_what_is_above_it_and_what_cannot_be_shown() -> None:
    known = priced(create("aws:eks/cluster:Cluster", {}, "cluster"))
    check_monthly(known, Decimal(73), allow_unknown=False, subject="stack aws")
    with pytest.raises(Refused, match=r"the stack costs 73\.0000 USD a month, more than 72\.99") as caught:
        check_monthly(known, Decimal("72.99"), allow_unknown=False, subject="stack aws")
    assert caught.value.exit_code == 3
    unknown = priced(create("aws:eks/cluster:Cluster", {}, "cluster"), create("aws:ec2/eip:Eip", {}, "ip"))
    with pytest.raises(Refused, match="it cannot be shown that the stack stays below 100"):
        check_monthly(unknown, Decimal(100), allow_unknown=False, subject="stack aws")
    check_monthly(unknown, Decimal(100), allow_unknown=True, subject="stack aws")
    with pytest.raises(Refused, match="and what is unknown on top"):
        check_monthly(unknown, Decimal(70), allow_unknown=True, subject="stack aws")


def test_every_type_that_the_program_makes_is_in_the_catalog() -> None:
    """Whatever the simulated clouds can make, a plan can price or says it cannot."""
    catalog: Catalog = load()
    types = {token for cloud in coverage.clouds() for token in cloud.types}
    assert len(types) > 40
    missing = sorted(token for token in types if catalog.resource_pricing(token) is None)
    assert missing == []


def test_every_rule_that_the_catalog_names_is_there() -> None:
    from isthmus.catalog.load import DATA

    named = {line.split(",")[1] for line in (DATA / "resources.csv").read_text(encoding="utf-8").splitlines()[1:]}
    assert named - {"free", "use", "unknown"} == set(RULES)
