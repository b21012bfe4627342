"""EKS: control planes that are real local clusters, node groups that become nodes, and who may come in.

Creating a Cluster starts a local cluster (isthmus.localcluster) whose supervisor outlives this provider; endpoint and
CA are its own, so the ordinary Kubernetes provider and kubectl work against it. Add-ons are recorded, not installed:
what they do on a real cluster (DNS, network, disks) the local cluster does itself.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

from isthmus import catalog
from isthmus.simulation import admission, clock, faults, local, nodes
from isthmus.simulation.account import READY, Account, Row, key_of
from isthmus.simulation.aws import iam, network, storage
from isthmus.simulation.aws.base import (
    ARN,
    EKS_DOC,
    REGION,
    TAGS,
    arn,
    common,
    counted,
    quotas,
    region,
    updated,
    zones_of,
)
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
from isthmus.simulation.values import Properties
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.offer import Shape

CLUSTER_TOKEN = "aws:eks/cluster:Cluster"
NODE_GROUP_TOKEN = "aws:eks/nodeGroup:NodeGroup"
LAUNCH_TEMPLATE_TOKEN = "aws:ec2/launchTemplate:LaunchTemplate"
ADMIN_POLICY = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
ACCESS_POLICIES = tuple(
    f"arn:aws:eks::aws:cluster-access-policy/AmazonEKS{name}Policy"
    for name in ("ClusterAdmin", "Admin", "Edit", "View", "AdminView")
)
VERSION = "1.36"
"""The one Kubernetes version of the local clusters (isthmus/localcluster/runtime.py, KUBERNETES_MINOR)."""
PLATFORM_VERSION = "eks.1"
_CLUSTER_NAME = re.compile(r"[0-9A-Za-z][A-Za-z0-9_-]{0,99}")
_TAINT_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}


def invalid(message: str, remedy: str = "") -> CloudError:
    """EKS's refusal of a parameter."""
    return CloudError("InvalidParameterException", message, remedy=remedy)


def _role_missing(value: str) -> CloudError:
    return invalid(
        f"Role with arn: {value}, could not be assumed because it does not exist or the trusted entity is not correct"
    )


def _check_trust(call: Call, property_name: str, service: str) -> None:
    """The role must let the service assume it, or EKS says the trusted entity is not correct."""
    role = call.find(iam.ROLE.token, str(call.inputs.get(property_name)))
    if role is not None and service not in role.inputs["assumeRolePolicy"]:
        raise _role_missing(str(call.inputs[property_name]))


def _subnet_zones(call: Call, subnet_ids: list[str]) -> list[str]:
    """The zones of subnets, in the order given; unknown subnets are left to the reference check."""
    found = (call.find(network.SUBNET.token, item) for item in subnet_ids)
    return [row.outputs["availabilityZone"] for row in found if row is not None]


# Cluster


def local_cluster_name(call: Call) -> str:
    """Name of the local cluster behind a control plane."""
    return local.local_name(call.account.name, region(call), str(call.inputs["name"]))


def _validate_cluster(call: Call) -> None:
    name, version = call.inputs["name"], call.inputs.get("version", VERSION)
    if not _CLUSTER_NAME.fullmatch(name):
        raise invalid("Cluster name must be 1 to 100 of letters, digits, hyphens and underscores")
    if version != VERSION:
        raise invalid(
            f"unsupported Kubernetes version {version}",
            remedy=f'set kubernetesVersion: "{VERSION}" (the simulated cloud runs no other)',
        )
    _check_trust(call, "roleArn", "eks.amazonaws.com")
    zones = _subnet_zones(call, call.inputs["vpcConfig"]["subnetIds"])
    if len(zones) == len(call.inputs["vpcConfig"]["subnetIds"]) and len(set(zones)) < 2:
        raise invalid("Subnets specified must be in at least two different AZs")
    _check_control_plane_zones(call, zones)


def _check_control_plane_zones(call: Call, zones: list[str]) -> None:
    place = region(call)
    known = {zone.name: zone for zone in _catalog_zones(place)}
    for zone in zones:
        if zone in known and not known[zone].control_plane:
            others = ", ".join(name for name, fact in known.items() if fact.control_plane)
            raise CloudError(
                "UnsupportedAvailabilityZoneException",
                f"Cannot create cluster '{call.inputs['name']}' because {zone}, the targeted availability zone, does not "
                "currently have sufficient capacity to support the cluster. Retry and choose from these availability "
                f"zones: {others}",
            )


def _catalog_zones(place: str) -> tuple[Any, ...]:
    known = catalog.load()
    return known.zones("aws", place) if place in known.regions("aws") else ()


def _create_cluster(call: Call) -> Properties:
    cluster = nodes.reconcile(call.account, local_cluster_name(call), lambda: pools(call.account, call.key))
    local.backend().apply(cluster, admission.manifests())
    group = _cluster_security_group(call)
    vpc = call.find(network.SUBNET.token, call.inputs["vpcConfig"]["subnetIds"][0])
    settings = call.inputs["vpcConfig"]
    issuer = f"https://oidc.eks.{region(call)}.amazonaws.com/id/{_digits(call, 'oidc', 32).upper()}"
    return common(
        call,
        arn=arn(call, "eks", f"cluster/{call.id}"),
        endpoint=cluster.endpoint,
        certificateAuthority={"data": base64.b64encode(cluster.ca_certificate.encode()).decode()},
        clusterId="",
        createdAt=call.outputs.get("createdAt") or clock.now(call.account),
        identities=[{"oidcs": [{"issuer": issuer}]}],
        platformVersion=PLATFORM_VERSION,
        status="ACTIVE",
        version=VERSION,
        vpcConfig={
            "endpointPrivateAccess": False,
            "endpointPublicAccess": True,
            "publicAccessCidrs": ["0.0.0.0/0"],
            "securityGroupIds": [],
            **settings,
            "clusterSecurityGroupId": group,
            "vpcId": vpc.inputs["vpcId"] if vpc else "",
        },
        kubernetesNetworkConfig={"ipFamily": "ipv4", **call.inputs.get("kubernetesNetworkConfig", {})},
        accessConfig={
            "authenticationMode": "CONFIG_MAP",
            "bootstrapClusterCreatorAdminPermissions": True,
            **call.inputs.get("accessConfig", {}),
        },
        upgradePolicy=call.inputs.get("upgradePolicy", {"supportType": "EXTENDED"}),
    )


def _digits(call: Call, purpose: str, length: int) -> str:
    """Hex digits of a cluster that are the same when its create is repeated."""
    known = call.account.setting(f"{call.key}:{purpose}")
    if not known:
        known = call.account.hexadecimal(f"{call.urn} {purpose}", length)
        call.account.set_setting(f"{call.key}:{purpose}", known)
    return known


def _cluster_security_group(call: Call) -> str:
    """The group that EKS itself makes for control plane and nodes: a resource no program declares."""
    identity = f"sg-0{_digits(call, 'security-group', 16)}"
    kind = network.SECURITY_GROUP
    key = key_of(call.region, identity)
    if call.account.get(kind.token, key) is None:
        subnet = call.find(network.SUBNET.token, call.inputs["vpcConfig"]["subnetIds"][0])
        vpc = subnet.inputs["vpcId"] if subnet else ""
        name, moment = f"eks-cluster-sg-{call.id}-{_digits(call, 'suffix', 9)}", clock.now(call.account)
        outputs = {"name": name, "vpcId": vpc, "arn": arn(call, "ec2", f"security-group/{identity}")}
        row = Row(kind.token, key, identity, "", None, call.region, READY, {"vpcId": vpc}, outputs, "", moment, moment)
        call.account.insert(row)
    return identity


def _read_cluster(call: Call) -> Properties:
    """Where the local cluster is now: its endpoint is fixed, but one that was removed by hand shows as failed."""
    from isthmus.specs.errors import NotFound

    try:
        cluster = local.backend().runtime().get(local_cluster_name(call))
        return {"endpoint": cluster.endpoint, "status": "ACTIVE"}
    except NotFound:
        return {"status": "FAILED"}


def _update_cluster(call: Call) -> Properties:
    settings = {**call.outputs.get("vpcConfig", {}), **call.inputs["vpcConfig"]}
    return {
        **updated(call),
        "vpcConfig": settings,
        **{
            name: {**call.outputs.get(name, {}), **call.inputs.get(name, {})}
            for name in ("kubernetesNetworkConfig", "accessConfig", "upgradePolicy")
        },
    }


def _delete_cluster(call: Call) -> None:
    from isthmus.specs.errors import NotFound

    if call.inputs.get("deletionProtection"):
        raise CloudError(
            "InvalidRequestException",
            "Cluster has deletion protection enabled. Disable deletion protection before deleting the cluster.",
            remedy="set isthmus:deletionProtection to false and run `up` first",
        )
    try:
        local.backend().runtime().get(local_cluster_name(call)).delete()
    except NotFound:
        pass  # removed by hand, or never made: what counts is that it is gone
    group = call.outputs.get("vpcConfig", {}).get("clusterSecurityGroupId")
    if group:
        call.account.remove(network.SECURITY_GROUP.token, key_of(call.region, group))


_VPC_CONFIG = (
    Property("subnetIds", "list", required=True, unordered=True),
    Property("securityGroupIds", "list", unordered=True),
    Property("endpointPrivateAccess", "bool", default=False),
    Property("endpointPublicAccess", "bool", default=True),
    Property("publicAccessCidrs", "list", unordered=True),
)

CLUSTER = ResourceType(
    token=CLUSTER_TOKEN,
    noun="EKS Cluster",
    properties=(
        Property("name", replaces=True),
        Property("roleArn", required=True, replaces=True),
        Property("vpcConfig", "object", required=True, fields=_VPC_CONFIG),
        Property("version", filled=True),
        Property(
            "accessConfig",
            "object",
            filled=True,
            fields=(
                Property("authenticationMode", choices=("API", "API_AND_CONFIG_MAP", "CONFIG_MAP")),
                Property("bootstrapClusterCreatorAdminPermissions", "bool", replaces=True),
            ),
        ),
        Property("bootstrapSelfManagedAddons", "bool", default=True, replaces=True),
        Property("deletionProtection", "bool", default=False),
        Property("enabledClusterLogTypes", "list", unordered=True),
        Property(
            "encryptionConfig",
            "object",
            replaces=True,
            fields=(
                Property("provider", "object", required=True, fields=(Property("keyArn", required=True),)),
                Property("resources", "list", required=True, unordered=True),
            ),
        ),
        Property(
            "kubernetesNetworkConfig",
            "object",
            filled=True,
            fields=(
                Property("ipFamily", replaces=True, choices=("ipv4", "ipv6")),
                Property("serviceIpv4Cidr", replaces=True),
            ),
        ),
        Property(
            "upgradePolicy", "object", filled=True, fields=(Property("supportType", choices=("STANDARD", "EXTENDED")),)
        ),
        REGION,
        *TAGS,
        ARN,
        Property("endpoint", computed=True),
        Property("certificateAuthority", "object", computed=True),
        Property("clusterId", computed=True),
        Property("createdAt", computed=True),
        Property("identities", "objects", computed=True),
        Property("platformVersion", computed=True, volatile=True),
        Property("status", computed=True),
    ),
    make_id=lambda call: str(call.inputs["name"]),
    create=_create_cluster,
    update=_update_cluster,
    read=_read_cluster,
    delete=_delete_cluster,
    validate=_validate_cluster,
    name=lambda inputs: inputs.get("name"),
    aliases=lambda call: (call.outputs["arn"],),
    autoname=Autoname(max_length=100),
    refs=(
        Ref("roleArn", iam.ROLE.token, holds=False, missing=_role_missing),
        Ref("vpcConfig.subnetIds", network.SUBNET.token),
        Ref("vpcConfig.securityGroupIds", network.SECURITY_GROUP.token),
        Ref("encryptionConfig.provider.keyArn", storage.KEY.token, holds=False),
    ),
    usage=counted("clusters"),
    exists=lambda name: CloudError("ResourceInUseException", f"Cluster already exists with name: {name}", status=409),
    missing=lambda name: CloudError("ResourceNotFoundException", f"No cluster found for name: {name}.", status=404),
    busy=lambda name, user: CloudError(
        "ResourceInUseException",
        f"Cluster has nodegroups attached. ({user.id})"
        if user.type == NODE_GROUP_TOKEN
        else f"Cluster is used by {user.id}",
        status=409,
    ),
    create_seconds=(480.0, 560.0),
    delete_seconds=(150.0, 210.0),
    behaviours=(
        Behaviour("creates and deletes take 8 min 33 s and about 3 min", "recorded", "catalog latencies.csv"),
        Behaviour("endpoint and CA are those of a real local Kubernetes, which outlives the provider", "assumed"),
        Behaviour(f"Kubernetes {VERSION} only; control plane updates are refused", "assumed"),
        Behaviour("subnets in two zones at least", "documented", "EKS user guide, network requirements"),
        Behaviour(
            "UnsupportedAvailabilityZoneException for zones without control planes", "recorded", "eksctl issue 252"
        ),
        Behaviour("a cluster with node groups is not deleted, ResourceInUseException", "documented", EKS_DOC),
        Behaviour("a cluster with deletion protection is not deleted", "documented", EKS_DOC),
        Behaviour("EKS clusters per region quota", "documented", "EKS service quotas"),
        Behaviour(
            "OIDC issuer is an address that nobody serves; secrets are not encrypted with the KMS key", "assumed"
        ),
        Behaviour("control plane logs stay in the local cluster's folder", "assumed"),
    ),
)

# Launch templates


def _next_version(call: Call) -> Properties:
    """Any change makes a new version; the default version follows when the program says so."""
    last = int(call.outputs.get("latestVersion", 0))
    only_tags = all(name == "tags" or not call.changed(name) for name in _TEMPLATE_NAMES)
    latest = last if call.outputs and only_tags else last + 1
    default = (
        latest if call.inputs.get("updateDefaultVersion") or latest == 1 else call.outputs.get("defaultVersion", 1)
    )
    return {**updated(call), "latestVersion": latest, "defaultVersion": call.inputs.get("defaultVersion", default)}


_EBS = (
    Property("volumeType"),
    Property("volumeSize", "int"),
    Property("encrypted"),
    Property("deleteOnTermination"),
    Property("iops", "int"),
    Property("throughput", "int"),
    Property("kmsKeyId"),
)
_METADATA = (
    Property("httpEndpoint", choices=("enabled", "disabled")),
    Property("httpTokens", choices=("optional", "required")),
    Property("httpPutResponseHopLimit", "int"),
    Property("instanceMetadataTags", choices=("enabled", "disabled")),
)

LAUNCH_TEMPLATE = ResourceType(
    token=LAUNCH_TEMPLATE_TOKEN,
    noun="EC2 Launch Template",
    properties=(
        Property("name", replaces=True),
        Property("namePrefix", replaces=True),
        Property("description"),
        Property("updateDefaultVersion", "bool"),
        Property("defaultVersion", "int", filled=True),
        Property("imageId"),
        Property("instanceType"),
        Property("keyName"),
        Property("userData"),
        Property("vpcSecurityGroupIds", "list", unordered=True),
        Property("metadataOptions", "object", fields=_METADATA),
        Property(
            "blockDeviceMappings",
            "objects",
            fields=(Property("deviceName"), Property("ebs", "object", fields=_EBS)),
        ),
        Property("tagSpecifications", "objects", fields=(Property("resourceType"), Property("tags", "map"))),
        Property("monitoring", "object", fields=(Property("enabled", "bool"),)),
        REGION,
        *TAGS,
        ARN,
        Property("latestVersion", "int", computed=True, volatile=True),
    ),
    make_id=lambda call: f"lt-0{call.account.hexadecimal(call.urn, 16)}",
    create=lambda call: common(call, arn=arn(call, "ec2", f"launch-template/{call.id}"), **_next_version(call)),
    update=_next_version,
    name=lambda inputs: inputs.get("name"),
    autoname=Autoname("name", "namePrefix", 128),
    refs=(Ref("vpcSecurityGroupIds", network.SECURITY_GROUP.token, holds=False),),
    exists=lambda name: CloudError(
        "InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use."
    ),
    missing=lambda value: CloudError(
        "InvalidLaunchTemplateId.NotFound", f"The specified launch template, with template ID {value}, does not exist."
    ),
    behaviours=(
        Behaviour("every change but one of tags makes a new version", "documented", "EC2 user guide, launch templates"),
        Behaviour("a template in use can be deleted", "documented", "EC2 API reference, DeleteLaunchTemplate"),
    ),
)
_TEMPLATE_NAMES = tuple(item.name for item in LAUNCH_TEMPLATE.inputs)

# Node groups


def pools(account: Account, cluster_key: str) -> list[nodes.Pool]:
    """The node groups of a control plane as node pools, in the order they were made; those being deleted left out."""
    found = []
    for row in account.rows(NODE_GROUP_TOKEN):
        if f"{row.region}/{row.inputs['clusterName']}" == cluster_key and row.state != "deleting":
            found.append(_pool(account, row))
    return found


def _pool(account: Account, row: Row) -> nodes.Pool:
    inputs = row.inputs
    subnets = [account.find(network.SUBNET.token, item, row.region) for item in inputs["subnetIds"]]
    zones = tuple(dict.fromkeys(item.outputs["availabilityZone"] for item in subnets if item is not None))
    own = {
        "eks.amazonaws.com/nodegroup": row.id.partition(":")[2],
        "eks.amazonaws.com/capacityType": inputs.get("capacityType", "ON_DEMAND"),
        "eks.amazonaws.com/nodegroup-image": f"ami-0{_hex(inputs.get('amiType', DEFAULT_AMI))}",
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
        labels={**own, **inputs.get("labels", {})},
        taints=tuple(_taint(item) for item in inputs.get("taints", ())),
        node_name=lambda index, zone: _node_name(account.name, row, index),
        provider_id=lambda node, zone: f"aws:///{zone}/{node.partition('.')[0]}",
    )


def _hex(text: str) -> str:
    """Sixteen hex digits of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _node_name(account: str, row: Row, index: int) -> str:
    """A resource-based host name, i-0123456789abcdef0.ec2.internal: stable for the n-th node of a group."""
    domain = "ec2.internal" if row.region == "us-east-1" else f"{row.region}.compute.internal"
    return f"i-0{_hex(f'{account} {row.key} {row.created_at} {index}')}.{domain}"


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
    _check_trust(call, "nodeRoleArn", "ec2.amazonaws.com")
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
    offered = {zone.name for zone in _catalog_zones(region(call)) if zone.has(machine)}
    wanted = _subnet_zones(call, call.inputs["subnetIds"])
    if offered and not offered & set(wanted):
        raise invalid(
            f"The requested instance type {machine.instance_type} is not supported in your requested Availability Zones "
            f"({', '.join(wanted)}). Please retry your request by choosing {', '.join(sorted(offered))}."
        )


def _zone_counts(call: Call) -> list[tuple[str, int]]:
    zones = list(dict.fromkeys(_subnet_zones(call, call.inputs["subnetIds"])))
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
    suffix = _hex(call.key)
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
        interface = f"eni-0{_hex(call.key + group)}"
        faults.linger(call.account, network.SECURITY_GROUP.token, key_of(call.region, group), interface, seconds)
    for subnet in call.inputs["subnetIds"]:
        interface = f"eni-0{_hex(call.key + subnet)}"
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
        Ref("nodeRoleArn", iam.ROLE.token, holds=False, missing=_role_missing),
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
    create_seconds=(120.0, 240.0),
    delete_seconds=(150.0, 210.0),
    behaviours=(
        Behaviour("node groups take 2 to 4 min", "assumed", "catalog latencies.csv"),
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
    ),
)

# Add-ons and access


def _addon_version(name: str) -> str:
    known = {"vpc-cni": "v1.21.1", "coredns": "v1.13.2", "kube-proxy": "v1.36.0", "eks-pod-identity-agent": "v1.3.10"}
    return f"{known.get(name, 'v1.0.0')}-eksbuild.1"


ADDONS = (
    "vpc-cni",
    "coredns",
    "kube-proxy",
    "aws-ebs-csi-driver",
    "aws-efs-csi-driver",
    "aws-mountpoint-s3-csi-driver",
    "eks-pod-identity-agent",
    "eks-node-monitoring-agent",
    "metrics-server",
    "snapshot-controller",
)


def _validate_addon(call: Call) -> None:
    if call.inputs["addonName"] not in ADDONS:
        raise invalid(f"Addon specified is not supported: {call.inputs['addonName']}")


def _in_cluster(noun: str, missing_text: str, exists_text: str) -> dict[str, Any]:
    """The errors of something that belongs to a cluster."""
    return {
        "noun": noun,
        "exists": lambda name: CloudError("ResourceInUseException", exists_text.format(name), status=409),
        "missing": lambda name: CloudError("ResourceNotFoundException", missing_text.format(name), status=404),
    }


ADDON = ResourceType(
    token="aws:eks/addon:Addon",
    properties=(
        Property("clusterName", required=True, replaces=True),
        Property("addonName", required=True, replaces=True),
        Property("addonVersion", filled=True),
        Property("configurationValues", filled=True, json=True),
        Property("resolveConflictsOnCreate", choices=("NONE", "OVERWRITE")),
        Property("resolveConflictsOnUpdate", choices=("NONE", "OVERWRITE", "PRESERVE")),
        Property("serviceAccountRoleArn"),
        Property("preserve", "bool"),
        Property(
            "podIdentityAssociations",
            "objects",
            unordered=True,
            fields=(Property("roleArn", required=True), Property("serviceAccount", required=True)),
        ),
        REGION,
        *TAGS,
        ARN,
        Property("createdAt", computed=True),
        Property("modifiedAt", computed=True, volatile=True),
    ),
    make_id=lambda call: f"{call.inputs['clusterName']}:{call.inputs['addonName']}",
    create=lambda call: common(
        call,
        arn=arn(call, "eks", f"addon/{call.id.replace(':', '/')}/{_hex(call.key)[:8]}"),
        addonVersion=call.inputs.get("addonVersion") or _addon_version(call.inputs["addonName"]),
        configurationValues=call.inputs.get("configurationValues", ""),
        createdAt=clock.now(call.account),
        modifiedAt=clock.now(call.account),
    ),
    update=lambda call: {**updated(call), "modifiedAt": clock.now(call.account)},
    validate=_validate_addon,
    name=lambda inputs: f"{inputs.get('clusterName')}:{inputs.get('addonName')}",
    refs=(
        Ref("clusterName", CLUSTER_TOKEN, holds=False),
        Ref("serviceAccountRoleArn", iam.ROLE.token, holds=False),
        Ref("podIdentityAssociations.roleArn", iam.ROLE.token, holds=False),
    ),
    create_seconds=(20.0, 60.0),
    behaviours=(
        Behaviour("recorded only: the local cluster brings DNS, network and disks itself", "assumed"),
        Behaviour(f"names understood: {', '.join(ADDONS)}", "documented", "EKS user guide, AWS add-ons"),
        Behaviour("default versions are made up", "assumed"),
    ),
    **_in_cluster("EKS Add-On", "No addon: {} found.", "Addon already exists. ({})"),
)


def _principal_foreign(value: str) -> bool:
    """Principals the account does not hold as resources: users, service roles, the caller's own role."""
    return re.fullmatch(r"arn:aws:iam::\d{12}:(user|role)/.+", value) is not None


ACCESS_ENTRY = ResourceType(
    token="aws:eks/accessEntry:AccessEntry",
    properties=(
        Property("clusterName", required=True, replaces=True),
        Property("principalArn", required=True, replaces=True),
        Property("kubernetesGroups", "list", filled=True, unordered=True),
        Property(
            "type",
            default="STANDARD",
            replaces=True,
            choices=("STANDARD", "EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "EC2"),
        ),
        Property("userName", filled=True),
        REGION,
        *TAGS,
        Property("accessEntryArn", computed=True),
        Property("createdAt", computed=True),
        Property("modifiedAt", computed=True, volatile=True),
    ),
    make_id=lambda call: f"{call.inputs['clusterName']}:{call.inputs['principalArn']}",
    create=lambda call: common(
        call,
        accessEntryArn=arn(call, "eks", f"access-entry/{call.inputs['clusterName']}/{_hex(call.key)}"),
        kubernetesGroups=call.inputs.get("kubernetesGroups", []),
        userName=call.inputs.get("userName", call.inputs["principalArn"]),
        createdAt=clock.now(call.account),
        modifiedAt=clock.now(call.account),
    ),
    update=lambda call: {**updated(call), "modifiedAt": clock.now(call.account)},
    name=lambda inputs: f"{inputs.get('clusterName')}:{inputs.get('principalArn')}",
    refs=(
        Ref("clusterName", CLUSTER_TOKEN, holds=False),
        Ref(
            "principalArn",
            iam.ROLE.token,
            holds=False,
            foreign=_principal_foreign,
            missing=lambda value: invalid("The specified principalArn is invalid: invalid principal."),
        ),
    ),
    behaviours=(
        Behaviour("a principal that is no ARN of a role or user is refused", "documented", EKS_DOC),
        Behaviour("`isthmus kube-token` gives out certificates by these entries", "assumed"),
    ),
    **_in_cluster(
        "EKS Access Entry",
        "The specified principalArn could not be found. You can view your available access entries with 'list-access-entries'. ({})",
        "The specified access entry resource is already in use on this cluster. ({})",
    ),
)


def _validate_association(call: Call) -> None:
    entry = f"{call.inputs['clusterName']}:{call.inputs['principalArn']}"
    if call.find(ACCESS_ENTRY.token, entry) is None:
        raise ACCESS_ENTRY.missing(call.inputs["principalArn"])
    if call.inputs["policyArn"] not in ACCESS_POLICIES:
        raise invalid(f"The policyArn parameter format is not valid: {call.inputs['policyArn']}")


ACCESS_POLICY_ASSOCIATION = ResourceType(
    token="aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
    properties=(
        Property("clusterName", required=True, replaces=True),
        Property("principalArn", required=True, replaces=True),
        Property("policyArn", required=True, replaces=True),
        Property(
            "accessScope",
            "object",
            required=True,
            replaces=True,
            fields=(
                Property("type", required=True, choices=("cluster", "namespace")),
                Property("namespaces", "list", unordered=True),
            ),
        ),
        REGION,
        Property("associatedAt", computed=True),
        Property("modifiedAt", computed=True),
    ),
    make_id=lambda call: "#".join(call.inputs[name] for name in ("clusterName", "principalArn", "policyArn")),
    create=lambda call: common(call, associatedAt=clock.now(call.account), modifiedAt=clock.now(call.account)),
    validate=_validate_association,
    name=lambda inputs: "#".join(str(inputs.get(name)) for name in ("clusterName", "principalArn", "policyArn")),
    refs=(Ref("clusterName", CLUSTER_TOKEN, holds=False),),
    behaviours=(
        Behaviour("needs an access entry of the principal, ResourceNotFoundException", "documented", EKS_DOC),
        Behaviour(
            "AmazonEKSClusterAdminPolicy for the whole cluster gives system:masters; others give no rights", "assumed"
        ),
    ),
    **_in_cluster("EKS Access Policy Association", "No association {} found.", "Association {} already exists."),
)

POD_IDENTITY_ASSOCIATION = ResourceType(
    token="aws:eks/podIdentityAssociation:PodIdentityAssociation",
    properties=(
        Property("clusterName", required=True, replaces=True),
        Property("namespace", required=True, replaces=True),
        Property("serviceAccount", required=True, replaces=True),
        Property("roleArn", required=True),
        Property("disableSessionTags", "bool", filled=True),
        REGION,
        *TAGS,
        Property("associationArn", computed=True),
        Property("associationId", computed=True),
    ),
    make_id=lambda call: f"a-{call.account.hexadecimal(call.urn, 17)}",
    create=lambda call: common(
        call,
        associationId=call.id,
        associationArn=arn(call, "eks", f"podidentityassociation/{call.inputs['clusterName']}/{call.id}"),
        disableSessionTags=call.inputs.get("disableSessionTags", False),
    ),
    update=updated,
    validate=lambda call: _check_trust(call, "roleArn", "pods.eks.amazonaws.com"),
    name=lambda inputs: "/".join(str(inputs.get(name)) for name in ("clusterName", "namespace", "serviceAccount")),
    refs=(
        Ref("clusterName", CLUSTER_TOKEN, holds=False),
        Ref("roleArn", iam.ROLE.token, holds=False, missing=_role_missing),
    ),
    behaviours=(
        Behaviour("one per namespace and service account, ResourceInUseException", "documented", EKS_DOC),
        Behaviour("the role must trust pods.eks.amazonaws.com", "documented", "EKS user guide, pod identity roles"),
        Behaviour("no credentials reach a pod", "assumed"),
    ),
    **_in_cluster(
        "EKS Pod Identity Association", "The association {} was not found.", "Association already exists: {}"
    ),
)

TYPES = (CLUSTER, LAUNCH_TEMPLATE, NODE_GROUP, ADDON, ACCESS_ENTRY, ACCESS_POLICY_ASSOCIATION, POD_IDENTITY_ASSOCIATION)
