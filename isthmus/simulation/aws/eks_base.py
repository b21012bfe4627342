"""What EKS's types share: tokens, its errors, the zones of subnets."""

from __future__ import annotations

import hashlib
from typing import Any

from isthmus import catalog
from isthmus.localcluster.runtime import KUBERNETES_MINOR
from isthmus.simulation.aws import iam, network
from isthmus.simulation.resource import (
    Call,
    CloudError,
)

CLUSTER_TOKEN = "aws:eks/cluster:Cluster"
NODE_GROUP_TOKEN = "aws:eks/nodeGroup:NodeGroup"
LAUNCH_TEMPLATE_TOKEN = "aws:ec2/launchTemplate:LaunchTemplate"
VERSION = KUBERNETES_MINOR
"""The one Kubernetes version there is: that of the local clusters."""


def invalid(message: str, remedy: str = "") -> CloudError:
    """EKS's refusal of a parameter."""
    return CloudError("InvalidParameterException", message, remedy=remedy)


def role_missing(value: str) -> CloudError:
    return invalid(
        f"Role with arn: {value}, could not be assumed because it does not exist or the trusted entity is not correct"
    )


def check_trust(call: Call, property_name: str, service: str) -> None:
    """The role must let the service assume it, or EKS says the trusted entity is not correct."""
    role = call.find(iam.ROLE.token, str(call.inputs.get(property_name)))
    if role is not None and service not in role.inputs["assumeRolePolicy"]:
        raise role_missing(str(call.inputs[property_name]))


def subnet_zones(call: Call, subnet_ids: list[str]) -> list[str]:
    """The zones of subnets, in the order given; unknown subnets are left to the reference check."""
    found = (call.find(network.SUBNET.token, item) for item in subnet_ids)
    return [row.outputs["availabilityZone"] for row in found if row is not None]


def catalog_zones(place: str) -> tuple[Any, ...]:
    known = catalog.load()
    return known.zones("aws", place) if place in known.regions("aws") else ()


def digits(text: str) -> str:
    """Sixteen hex digits of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
