"""EC2 launch templates: versions count, contents do nothing, since no machine boots."""

from __future__ import annotations

from isthmus.simulation.aws import security_groups
from isthmus.simulation.aws.base import (
    ARN,
    REGION,
    TAGS,
    arn,
    common,
    updated,
)
from isthmus.simulation.aws.eks_base import (
    LAUNCH_TEMPLATE_TOKEN,
)
from isthmus.simulation.resource import (
    Autoname,
    Behaviour,
    Call,
    CloudError,
    Property,
    Ref,
    ResourceType,
)
from isthmus.toolchain.values import Properties


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
    refs=(Ref("vpcSecurityGroupIds", security_groups.SECURITY_GROUP.token, holds=False),),
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


TYPES = (LAUNCH_TEMPLATE,)
