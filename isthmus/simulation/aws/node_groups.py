"""EKS managed node groups: quota, capacity and machine are checked as EKS does, then they become nodes (nodes.py)."""

from __future__ import annotations

from collections.abc import Mapping

from isthmus import catalog
from isthmus.localcluster import driver
from isthmus.simulation import faults, local, nodes
from isthmus.simulation.account import DELETING, READY, Account, Row, key_of
from isthmus.simulation.aws import iam, network, security_groups
from isthmus.simulation.aws.base import (
    ARN,
    REGION,
    TAGS,
    arn,
    common,
    quotas,
    region,
    seconds,
    timed,
    updated,
    zones_of,
)
from isthmus.simulation.aws.eks_base import (
    CLUSTER_TOKEN,
    LAUNCH_TEMPLATE_TOKEN,
    NODE_GROUP_TOKEN,
    VERSION,
    catalog_zones,
    check_trust,
    digits,
    invalid,
    role_missing,
    subnet_zones,
)
from isthmus.simulation.growth import GROWTH
from isthmus.simulation.resource import (
    Autoname,
    Behaviour,
    Call,
    CloudError,
    Placement,
    Property,
    Ref,
    ResourceType,
    Usage,
)
from isthmus.specs.cluster import cards_of
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.offer import Shape
from isthmus.toolchain.values import Properties

_TAINT_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}


def pools(account: Account, cluster_key: str) -> list[nodes.Pool]:
    """The node groups of a control plane as node pools, in the order they were made; those being deleted left out."""
    found = []
    for row in account.rows(NODE_GROUP_TOKEN):
        if f"{row.region}/{row.inputs['clusterName']}" == cluster_key and row.state != DELETING:
            found.append(_pool(account, row))
    return found


def _pool(account: Account, row: Row) -> nodes.Pool:
    inputs = row.inputs
    subnets = [account.find(network.SUBNET.token, item, row.region) for item in inputs["subnetIds"]]
    zones = tuple(dict.fromkeys(item.outputs["availabilityZone"] for item in subnets if item is not None))
    own = {
        "eks.amazonaws.com/nodegroup": row.id.partition(":")[2],
        "eks.amazonaws.com/capacityType": inputs.get("capacityType", "ON_DEMAND"),
        "eks.amazonaws.com/nodegroup-image": f"ami-0{digits(inputs.get('amiType', DEFAULT_AMI))}",
    }
    machine = catalog.load().shape("aws", machine_type(inputs))
    if machine.gpu_count:
        own["nvidia.com/gpu.present"] = "true"
    return nodes.Pool(
        name=own["eks.amazonaws.com/nodegroup"],
        machine=machine,
        region=row.region,
        zones=zones or zones_of(row.region)[:1],
        size=int(inputs["scalingConfig"]["desiredSize"]),
        labels={**own, **discovered(machine, inputs.get("labels", {})), **inputs.get("labels", {})},
        taints=tuple(_taint(item) for item in inputs.get("taints", ())),
        node_name=lambda index, zone: _node_name(account.name, row, index),
        provider_id=lambda node, zone: f"aws:///{zone}/{node.partition('.')[0]}",
        most=int(inputs["scalingConfig"]["maxSize"]),
        spot=inputs.get("capacityType") == "SPOT",
        resource=(row.type, row.key),
    )


def discovered(machine: Shape, labels: Mapping[str, str]) -> dict[str, str]:
    """What GPU feature discovery adds to a node, where it runs: on cards under MPS or MIG (operators/device_plugin.py)."""
    sharing = nodes.sharing_of(labels)
    if not machine.gpu_model or sharing.mode not in ("mps", "mig"):
        return {}
    cards = cards_of(machine.gpu_model, machine.gpu_count, sharing)
    cuda = (driver.CUDA_VERSION // 1000, driver.CUDA_VERSION % 1000 // 10)
    found = catalog.feature_labels(catalog.load(), cards, sharing, driver=driver.DRIVER_VERSION, cuda=cuda)
    return {**found, "nvidia.com/gpu.machine": machine.instance_type, "nvidia.com/gpu.mode": "compute"}


def _node_name(account: str, row: Row, index: int) -> str:
    """A resource-based host name, i-0123456789abcdef0.ec2.internal: stable for the n-th node of a group."""
    domain = "ec2.internal" if row.region == "us-east-1" else f"{row.region}.compute.internal"
    return f"i-0{digits(f'{account} {row.key} {row.created_at} {index}')}.{domain}"


def _taint(item: Properties) -> dict[str, str]:
    return {"key": item["key"], "value": item.get("value", ""), "effect": _TAINT_EFFECTS[item["effect"]]}


DEFAULT_AMI = "AL2023_x86_64_STANDARD"
DEFAULT_MACHINE = "t3.medium"


def machine_type(inputs: Properties) -> str:
    """The first instance type of a group: the simulated cloud always gets the first choice."""
    types = inputs.get("instanceTypes") or [DEFAULT_MACHINE]
    return str(types[0])


def _machine(call: Call) -> Shape:
    name = machine_type(call.inputs)
    try:
        return catalog.load().shape("aws", name)
    except InvalidSpec as error:
        raise invalid(f"The following supplied instance types do not exist: [{name}]", remedy=error.message) from error


def _validate_group(call: Call) -> None:
    cluster = call.find(CLUSTER_TOKEN, call.inputs["clusterName"])
    if cluster is None:
        return  # the reference check says so
    if cluster.state != READY:
        raise CloudError("ResourceInUseException", f"Cluster '{cluster.id}' is not in ACTIVE status", status=409)
    check_trust(call, "nodeRoleArn", "ec2.amazonaws.com")
    sizes = call.inputs["scalingConfig"]
    low, size, high = (int(sizes[name]) for name in ("minSize", "desiredSize", "maxSize"))
    if not 0 <= low <= size <= high or high < 1:
        raise invalid(f"Minimum capacity {low} can't be greater than desired size {size} or maximum capacity {high}")
    _check_machine(call, _machine(call))
    for label in call.inputs.get("labels", {}):
        if label.startswith(("kubernetes.io/", "k8s.io/", "eks.amazonaws.com/")):
            raise invalid(
                f"Label cannot contain reserved prefixes [kubernetes.io/, k8s.io/, eks.amazonaws.com/]: {label}"
            )


def _check_machine(call: Call, machine: Shape) -> None:
    ami = call.inputs.get("amiType", DEFAULT_AMI)
    if machine.gpu_count and ami not in {"AL2023_x86_64_NVIDIA", "BOTTLEROCKET_x86_64_NVIDIA", "CUSTOM"}:
        raise invalid(f"Instance type {machine.instance_type} requires an accelerated AMI type, not {ami}")
    if not machine.gpu_count and "NVIDIA" in ami:
        raise invalid(f"The requested instance type {machine.instance_type} is not supported by AMI type {ami}")
    offered = {zone.name for zone in catalog_zones(region(call)) if zone.has(machine)}
    wanted = subnet_zones(call, call.inputs["subnetIds"])
    if offered and not offered & set(wanted):
        raise invalid(
            f"The requested instance type {machine.instance_type} is not supported in your requested Availability Zones "
            f"({', '.join(wanted)}). Please retry your request by choosing {', '.join(sorted(offered))}."
        )


def _zone_counts(call: Call) -> list[tuple[str, int]]:
    zones = list(dict.fromkeys(subnet_zones(call, call.inputs["subnetIds"])))
    size = int(call.inputs["scalingConfig"]["desiredSize"])
    counts = [(zone, len(range(index, size, len(zones)))) for index, zone in enumerate(zones)]
    return [(zone, count) for zone, count in counts if count]


def _group_usage(call: Call) -> tuple[Usage, ...]:
    machine, purchase = _machine(call), "spot" if _spot(call) else "on-demand"
    size = int(call.inputs["scalingConfig"]["desiredSize"])
    found = []
    for fact in catalog.load().quotas("aws"):
        amount = fact.amount(machine, "spot" if purchase == "spot" else "on-demand") * size
        if amount and fact.code in quotas():
            found.append(Usage(fact.code, float(amount), region(call)))
    return tuple(found)


def _group_placements(call: Call) -> tuple[Placement, ...]:
    machine = machine_type(call.inputs)
    return tuple(Placement(zone, machine, count, _spot(call)) for zone, count in _zone_counts(call))


def _spot(call: Call) -> bool:
    return bool(call.inputs.get("capacityType") == "SPOT")


def _reconcile(call: Call, *, without: bool = False) -> None:
    """Bring the local cluster to the account's node groups, this one as it is asked for now."""
    cluster = call.find(CLUSTER_TOKEN, call.inputs["clusterName"])
    if cluster is None:
        return
    if not without:
        call.account.store(call.type.token, call.key, inputs=call.stored_inputs)
    name = local.local_name(call.account.name, cluster.region, cluster.id)
    nodes.reconcile(call.account, name, lambda: pools(call.account, cluster.key))


def _create_group(call: Call) -> Properties:
    _reconcile(call)
    suffix = digits(call.key)
    return common(
        call,
        arn=arn(call, "eks", f"nodegroup/{call.id.replace(':', '/')}/{suffix[:8]}"),
        status="ACTIVE",
        amiType=call.inputs.get("amiType", DEFAULT_AMI),
        capacityType=call.inputs.get("capacityType", "ON_DEMAND"),
        diskSize=call.inputs.get("diskSize", 0 if "launchTemplate" in call.inputs else 20),
        instanceTypes=call.inputs.get("instanceTypes", [DEFAULT_MACHINE]),
        version=call.inputs.get("version", VERSION),
        releaseVersion=call.inputs.get("releaseVersion", f"{VERSION}.0-20260101"),
        updateConfig=call.inputs.get("updateConfig", {"maxUnavailable": 1}),
        resources=[{"autoscalingGroups": [{"name": f"eks-{call.id.partition(':')[2]}-{suffix}"}]}],
    )


def _update_group(call: Call) -> Properties:
    _reconcile(call)
    return updated(call)


def _delete_group(call: Call) -> None:
    _reconcile(call, without=True)
    seconds = faults.detach_seconds(call.account)
    if not seconds:
        return
    cluster = call.find(CLUSTER_TOKEN, call.inputs["clusterName"])
    template = call.inputs.get("launchTemplate", {}).get("id", "")
    found = call.find(LAUNCH_TEMPLATE_TOKEN, template) if template else None
    groups = list(found.inputs.get("vpcSecurityGroupIds", ())) if found else []
    own = cluster.outputs.get("vpcConfig", {}).get("clusterSecurityGroupId") if cluster else None
    for group in {*groups, *([own] if own else [])}:
        interface = f"eni-0{digits(call.key + group)}"
        faults.linger(
            call.account, security_groups.SECURITY_GROUP.token, key_of(call.region, group), interface, seconds
        )
    for subnet in call.inputs["subnetIds"]:
        interface = f"eni-0{digits(call.key + subnet)}"
        faults.linger(call.account, network.SUBNET.token, key_of(call.region, subnet), interface, seconds)


NODE_GROUP = ResourceType(
    token=NODE_GROUP_TOKEN,
    noun="EKS Node Group",
    properties=(
        Property("clusterName", required=True, replaces=True),
        Property("nodeGroupName", replaces=True),
        Property("nodeGroupNamePrefix", replaces=True),
        Property("nodeRoleArn", required=True, replaces=True),
        Property("subnetIds", "list", required=True, replaces=True, unordered=True),
        Property(
            "scalingConfig",
            "object",
            required=True,
            fields=tuple(Property(name, "int", required=True) for name in ("desiredSize", "maxSize", "minSize")),
        ),
        Property("amiType", filled=True, replaces=True),
        Property("capacityType", filled=True, replaces=True, choices=("ON_DEMAND", "SPOT")),
        Property("diskSize", "int", filled=True, replaces=True),
        Property("instanceTypes", "list", filled=True, replaces=True),
        Property("labels", "map"),
        Property(
            "taints",
            "objects",
            unordered=True,
            fields=(
                Property("key", required=True),
                Property("value"),
                Property("effect", required=True, choices=tuple(_TAINT_EFFECTS)),
            ),
        ),
        Property(
            "launchTemplate",
            "object",
            fields=(Property("id", replaces=True), Property("name", replaces=True), Property("version", required=True)),
        ),
        Property(
            "updateConfig",
            "object",
            filled=True,
            fields=(Property("maxUnavailable", "int"), Property("maxUnavailablePercentage", "int")),
        ),
        Property("forceUpdateVersion", "bool"),
        Property("version", filled=True),
        Property("releaseVersion", filled=True),
        REGION,
        *TAGS,
        ARN,
        Property("resources", "objects", computed=True),
        Property("status", computed=True),
    ),
    make_id=lambda call: f"{call.inputs['clusterName']}:{call.inputs['nodeGroupName']}",
    create=_create_group,
    update=_update_group,
    delete=_delete_group,
    validate=_validate_group,
    name=lambda inputs: f"{inputs.get('clusterName')}:{inputs['nodeGroupName']}" if "nodeGroupName" in inputs else None,
    aliases=lambda call: (call.outputs["arn"],),
    autoname=Autoname("nodeGroupName", "nodeGroupNamePrefix", 63),
    refs=(
        Ref("clusterName", CLUSTER_TOKEN),
        Ref("nodeRoleArn", iam.ROLE.token, holds=False, missing=role_missing),
        Ref("subnetIds", network.SUBNET.token),
        Ref("launchTemplate.id", LAUNCH_TEMPLATE_TOKEN, holds=False),
    ),
    usage=_group_usage,
    placements=_group_placements,
    exists=lambda name: CloudError(
        "ResourceInUseException",
        f"NodeGroup already exists with name {name.split(':')[1]} and cluster name {name.split(':')[0]}",
        status=409,
    ),
    missing=lambda name: CloudError("ResourceNotFoundException", f"No node group found for name: {name}.", status=404),
    create_seconds=seconds("eks-nodegroup-create"),
    delete_seconds=seconds("eks-nodegroup-delete"),
    behaviours=(
        timed("eks-nodegroup-create"),
        timed("eks-nodegroup-delete"),
        Behaviour(
            "vCPU quota and stock-outs fail the group, with the text of its health issue",
            "recorded",
            "eksctl issue 4732",
        ),
        Behaviour("a group that fails is gone; the real one stays as CREATE_FAILED until it is deleted", "assumed"),
        Behaviour("one zone without capacity fails the whole group", "recorded", "containers-roadmap issue 2204"),
        Behaviour("nodes are spread over the subnets' zones in turn", "assumed"),
        Behaviour("the first instance type is always had", "assumed"),
        Behaviour(
            "one node of the first group without GPUs and one of the first with GPUs are the same local node: both "
            "groups' labels (the GPU group's win), no taints",
            "assumed",
        ),
        Behaviour(
            "allocatable of simulated nodes is Karpenter's figure or the AMI's formula",
            "recorded",
            "catalog aws_node_limits.csv",
        ),
        Behaviour(
            "node names are resource based (i-...); no AMI boots, launch template contents do nothing", "assumed"
        ),
        Behaviour("AMI type must fit the machine's cards", "assumed"),
        Behaviour(GROWTH, "assumed"),
    ),
)


TYPES = (NODE_GROUP,)
