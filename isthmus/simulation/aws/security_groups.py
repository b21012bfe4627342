"""EC2 security groups and their rules. Rules are checked and kept; no packet is filtered."""

from __future__ import annotations

import ipaddress

from isthmus.simulation.aws.base import (
    ARN,
    EC2_DOC,
    OWNER,
    REGION,
    TAGS,
    arn,
    common,
    ec2_missing,
    identity,
    updated,
)
from isthmus.simulation.aws.network import ABSENT, VPC
from isthmus.simulation.resource import Autoname, Behaviour, Call, CloudError, Property, Ref, ResourceType
from isthmus.toolchain.values import Properties

_INLINE_RULE = (
    Property("fromPort", "int", required=True),
    Property("toPort", "int", required=True),
    Property("protocol", required=True),
    Property("cidrBlocks", "list", unordered=True),
    Property("description"),
    Property("securityGroups", "list", unordered=True),
    Property("self", "bool"),
)


def _validate_group(call: Call) -> None:
    if "vpcId" not in call.inputs:
        raise CloudError("VPCIdNotSpecified", "No default VPC for this user")
    if str(call.inputs.get("name", "")).startswith("sg-"):
        raise CloudError(
            "InvalidParameterValue",
            f"Value ({call.inputs['name']}) for parameter GroupName is invalid. "
            "Group names may not be in the format sg-*.",
        )


SECURITY_GROUP = ResourceType(
    token="aws:ec2/securityGroup:SecurityGroup",
    noun="EC2 Security Group",
    properties=(
        Property("name", filled=True, replaces=True),
        Property("namePrefix", replaces=True),
        Property("description", default="Managed by Pulumi", replaces=True),
        Property("vpcId", filled=True, replaces=True),
        Property("ingress", "objects", fields=_INLINE_RULE, unordered=True),
        Property("egress", "objects", fields=_INLINE_RULE, unordered=True),
        Property("revokeRulesOnDelete", "bool", default=False),
        REGION,
        *TAGS,
        ARN,
        OWNER,
    ),
    make_id=identity("sg"),
    create=lambda call: common(call, arn=arn(call, "ec2", f"security-group/{call.id}")),
    update=updated,
    name=lambda inputs: f"{inputs.get('vpcId')} {inputs['name']}" if "name" in inputs else None,
    autoname=Autoname("name", "namePrefix"),
    validate=_validate_group,
    refs=(Ref("vpcId", VPC.token), Ref("ingress.securityGroups", "aws:ec2/securityGroup:SecurityGroup")),
    exists=lambda name: CloudError(
        "InvalidGroup.Duplicate",
        f"The security group '{name.split()[1]}' already exists for VPC '{name.split()[0]}'",
    ),
    missing=ec2_missing("InvalidGroup.NotFound", "The security group '{}' does not exist"),
    busy=lambda name, user: CloudError(
        "DependencyViolation", f"resource {name.split()[-1]} has a dependent object (held by {user.id})"
    ),
    behaviours=(
        ABSENT,
        Behaviour("deleting a group that an interface uses is refused with DependencyViolation", "documented", EC2_DOC),
        Behaviour(
            "interfaces of deleted nodes may stay attached (`isthmus sim fault add --kind detach`)",
            "recorded",
            "pulumi/pulumi-eks#194",
        ),
        Behaviour("no packet is filtered", "assumed"),
    ),
)

_RULE = (
    Property("securityGroupId", required=True, replaces=True),
    Property("ipProtocol", required=True),
    Property("cidrIpv4"),
    Property("cidrIpv6"),
    Property("referencedSecurityGroupId"),
    Property("description"),
    Property("fromPort", "int"),
    Property("toPort", "int"),
    REGION,
    *TAGS,
    ARN,
    Property("securityGroupRuleId", computed=True),
)


def _validate_rule(call: Call) -> None:
    sources = [name for name in ("cidrIpv4", "cidrIpv6", "referencedSecurityGroupId") if name in call.inputs]
    if len(sources) != 1:
        raise CloudError("InvalidParameterCombination", "exactly one source or destination must be given for a rule")
    if "cidrIpv4" in call.inputs:
        try:
            ipaddress.IPv4Network(call.inputs["cidrIpv4"])
        except ValueError as error:
            raise CloudError("InvalidParameterValue", f"CIDR block {call.inputs['cidrIpv4']} is malformed") from error


def _rule_name(inputs: Properties) -> str:
    parts = ("securityGroupId", "ipProtocol", "fromPort", "toPort", "cidrIpv4", "cidrIpv6", "referencedSecurityGroupId")
    return " ".join(str(inputs.get(part, "-")) for part in parts)


def _rule(way: str) -> ResourceType:
    return ResourceType(
        token=f"aws:vpc/securityGroup{way}Rule:SecurityGroup{way}Rule",
        noun=f"VPC Security Group {way} Rule",
        properties=_RULE,
        make_id=identity("sgr"),
        create=lambda call: common(
            call, arn=arn(call, "ec2", f"security-group-rule/{call.id}"), securityGroupRuleId=call.id
        ),
        update=updated,
        validate=_validate_rule,
        name=_rule_name,
        refs=(
            Ref("securityGroupId", SECURITY_GROUP.token, holds=False),
            Ref("referencedSecurityGroupId", SECURITY_GROUP.token, holds=False),
        ),
        exists=lambda name: CloudError("InvalidPermission.Duplicate", f'the specified rule "{name}" already exists'),
        missing=ec2_missing("InvalidSecurityGroupRuleId.NotFound", "The security group rule ID '{}' does not exist"),
        behaviours=(
            ABSENT,
            Behaviour("a second equal rule is refused, InvalidPermission.Duplicate", "documented", EC2_DOC),
            Behaviour("a rule does not keep the group it names from being deleted", "assumed"),
        ),
    )


INGRESS_RULE, EGRESS_RULE = _rule("Ingress"), _rule("Egress")


TYPES = (SECURITY_GROUP, INGRESS_RULE, EGRESS_RULE)
