"""EKS control planes, which are real local clusters.

Creating a Cluster starts a local cluster (isthmus.localcluster) whose supervisor outlives this provider; endpoint and
CA are its own, so the ordinary Kubernetes provider and kubectl work against it.
"""

from __future__ import annotations

import base64
import re

from isthmus.simulation import clock, local, nodes
from isthmus.simulation.account import READY, Row, key_of
from isthmus.simulation.aws import iam, network, security_groups, storage
from isthmus.simulation.aws.base import (
    ARN,
    EKS_DOC,
    REGION,
    TAGS,
    arn,
    common,
    counted,
    region,
    seconds,
    timed,
    updated,
)
from isthmus.simulation.aws.eks_base import (
    CLUSTER_TOKEN,
    NODE_GROUP_TOKEN,
    VERSION,
    catalog_zones,
    check_trust,
    invalid,
    role_missing,
    subnet_zones,
)
from isthmus.simulation.aws.node_groups import pools
from isthmus.simulation.resource import (
    Autoname,
    Behaviour,
    Call,
    CloudError,
    Property,
    Ref,
    ResourceType,
)
from isthmus.specs.errors import NotFound
from isthmus.toolchain.values import Properties

PLATFORM_VERSION = "eks.1"
_CLUSTER_NAME = re.compile(r"[0-9A-Za-z][A-Za-z0-9_-]{0,99}")


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
    check_trust(call, "roleArn", "eks.amazonaws.com")
    zones = subnet_zones(call, call.inputs["vpcConfig"]["subnetIds"])
    if len(zones) == len(call.inputs["vpcConfig"]["subnetIds"]) and len(set(zones)) < 2:
        raise invalid("Subnets specified must be in at least two different AZs")
    _check_control_plane_zones(call, zones)


def _check_control_plane_zones(call: Call, zones: list[str]) -> None:
    place = region(call)
    known = {zone.name: zone for zone in catalog_zones(place)}
    for zone in zones:
        if zone in known and not known[zone].control_plane:
            others = ", ".join(name for name, fact in known.items() if fact.control_plane)
            raise CloudError(
                "UnsupportedAvailabilityZoneException",
                f"Cannot create cluster '{call.inputs['name']}' because {zone}, the targeted availability zone, does not "
                "currently have sufficient capacity to support the cluster. Retry and choose from these availability "
                f"zones: {others}",
            )


def _create_cluster(call: Call) -> Properties:
    cluster = nodes.reconcile(call.account, local_cluster_name(call), lambda: pools(call.account, call.key))
    local.backend().admit(cluster)
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
    kind = security_groups.SECURITY_GROUP
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
    call.account.drop_settings(f"{call.key}:")  # the next cluster of that name has ids of its own
    if group:
        call.account.remove(security_groups.SECURITY_GROUP.token, key_of(call.region, group))


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
        Ref("roleArn", iam.ROLE.token, holds=False, missing=role_missing),
        Ref("vpcConfig.subnetIds", network.SUBNET.token),
        Ref("vpcConfig.securityGroupIds", security_groups.SECURITY_GROUP.token),
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
    create_seconds=seconds("eks-cluster-create"),
    delete_seconds=seconds("eks-cluster-delete"),
    behaviours=(
        timed("eks-cluster-create"),
        timed("eks-cluster-delete"),
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


TYPES = (CLUSTER,)
