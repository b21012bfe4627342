"""Simulated AWS as one `Cloud`: all its types and functions, the provider's arguments, and how its errors read."""

from __future__ import annotations

from collections.abc import Callable

from isthmus.simulation.aws import (
    eks,
    eks_access,
    functions,
    iam,
    launch_templates,
    network,
    node_groups,
    security_groups,
    storage,
)
from isthmus.simulation.aws.base import account_number, quotas, zones_of
from isthmus.simulation.quota import Quota
from isthmus.simulation.resource import Call, Cloud, CloudError, Placement, Property, ResourceType, registry
from isthmus.specs.stack import SIMULATED_PLUGIN_VERSION
from isthmus.toolchain.values import Properties

DEFAULT_ACCOUNT = "default"
_LIMIT_CODES = {
    "aws:ec2/vpc:Vpc": ("VpcLimitExceeded", "The maximum number of VPCs has been reached."),
    "aws:ec2/eip:Eip": ("AddressLimitExceeded", "The maximum number of addresses has been reached."),
    "aws:ec2/natGateway:NatGateway": (
        "NatGatewayLimitExceeded",
        "Performing this operation would exceed the limit of {limit:g} NAT gateways",
    ),
    "aws:eks/cluster:Cluster": ("ResourceLimitExceededException", "Cluster limit of {limit:g} exceeded"),
}


def _configure(values: Properties, account: str) -> Properties:
    if "region" not in values:
        raise CloudError("InvalidConfiguration", "missing region configuration: set `region` on the aws provider")
    tags = (values.get("defaultTags") or {}).get("tags") or {}
    return {"region": values["region"], "accountNumber": account_number(account), "defaultTags": tags}


def _region_of(inputs: Properties, config: Properties) -> str:
    return str(inputs.get("region") or config["region"])


def _defaults(kind: ResourceType, inputs: Properties, config: Properties) -> Properties:
    """The provider's default tags under the resource's own, as pulumi-aws does at check."""
    tags = inputs.get("tags", {})
    if kind.property("tags") is None or not config["defaultTags"] or not isinstance(tags, dict):
        return inputs
    return {**inputs, "tags": {**config["defaultTags"], **tags}}


def _over_quota(call: Call) -> Callable[[Quota, float, float, float], CloudError]:
    def refuse(quota: Quota, limit: float, used: float, asked: float) -> CloudError:
        fact = f"quota {quota.name} ({quota.code}): limit {limit:g} {quota.unit}, in use {used:g}, asked for {asked:g}"
        remedy = f"isthmus sim quota {call.account.name} {quota.code} {used + asked:g}"
        if call.type.token == node_groups.NODE_GROUP.token:
            return _launch_failure(call, _vcpu_text(call, limit), fact, remedy)
        code, text = _LIMIT_CODES[call.type.token]
        return CloudError(code, f"{text.format(limit=limit)} [{fact}]", remedy=remedy)

    return refuse


def _vcpu_text(call: Call, limit: float) -> str:
    if call.inputs.get("capacityType") == "SPOT":
        return "MaxSpotInstanceCountExceeded - Max spot instance count exceeded"
    return (
        f"VcpuLimitExceeded - You have requested more vCPU capacity than your current vCPU limit of {limit:g} allows for "
        "the instance bucket that the specified instance type belongs to. Please visit "
        "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit."
    )


def _out_of_capacity(call: Call) -> Callable[[Placement, list[str]], CloudError]:
    def refuse(wanted: Placement, others: list[str]) -> CloudError:
        advice = f" or choosing {', '.join(others)}" if others else ""
        text = (
            f"InsufficientInstanceCapacity - We currently do not have sufficient {wanted.machine} capacity in the "
            f"Availability Zone you requested ({wanted.zone}). Our system will be working on provisioning additional "
            f"capacity. You can currently get {wanted.machine} capacity by not specifying an Availability Zone in your "
            f"request{advice}."
        )
        fact = f"zone {wanted.zone}: {wanted.count} x {wanted.machine} asked for"
        remedy = f"isthmus sim capacity {call.account.name} {wanted.zone} {wanted.machine} {wanted.count}"
        return _launch_failure(call, text, fact, remedy)

    return refuse


def _launch_failure(call: Call, text: str, fact: str, remedy: str) -> CloudError:
    """A node group that does not stabilize, with the health issue that says why (eksctl issue 4732)."""
    kind = "Spot" if call.inputs.get("capacityType") == "SPOT" else "On-Demand"
    group = call.inputs.get("nodeGroupName", "")
    return CloudError(
        "AsgInstanceLaunchFailures",
        f"Nodegroup {group} failed to stabilize: [{{Code: AsgInstanceLaunchFailures,Message: Could not launch {kind} "
        f"Instances. {text} Launching EC2 instance failed.,ResourceIds: [eks-{group}]}}] [{fact}]",
        remedy=remedy,
    )


def _still_attached(kind: ResourceType, identity: str, interface: str) -> CloudError:
    what = f"resource {identity}" if kind.token == security_groups.SECURITY_GROUP.token else f"The subnet '{identity}'"
    return CloudError(
        "DependencyViolation",
        f"{what} has a dependent object: network interface {interface} of a deleted node is still attached",
    )


def _render(verb: str, kind: ResourceType | None, name: str, error: CloudError) -> str:
    noun = kind.noun if kind else ""
    subject = " ".join(part for part in (verb, noun, f"({name})" if name else "") if part)
    text = f"{subject}: https response error StatusCode: {error.status}, api error {error.code}: {error.message}"
    return f"{text}\n  next: {error.remedy}" if error.remedy else text


_TAGS = Property("defaultTags", "object", fields=(Property("tags", "map"),))

CLOUD = Cloud(
    name="aws",
    version=SIMULATED_PLUGIN_VERSION,
    types=registry(
        *network.TYPES,
        *iam.TYPES,
        *storage.TYPES,
        *security_groups.TYPES,
        *launch_templates.TYPES,
        *eks.TYPES,
        *node_groups.TYPES,
        *eks_access.TYPES,
    ),
    functions={function.token: function for function in functions.FUNCTIONS},
    configuration=(
        Property("profile"),
        Property("region"),
        _TAGS,
        Property("skipCredentialsValidation", "bool"),
        Property("skipMetadataApiCheck", "bool"),
        Property("skipRegionValidation", "bool"),
        Property("skipRequestingAccountId", "bool"),
        Property("maxRetries", "int"),
    ),
    account_of=lambda values: str(values.get("profile") or DEFAULT_ACCOUNT),
    configure=_configure,
    region_of=_region_of,
    render=_render,
    quotas=quotas(),
    over_quota=_over_quota,
    out_of_capacity=_out_of_capacity,
    zones=zones_of,
    still_attached=_still_attached,
    defaults=_defaults,
)
