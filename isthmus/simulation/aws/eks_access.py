"""EKS add-ons, and who may come in: access entries, access policies, pod identities.

Add-ons are recorded, not installed: what they do on a real cluster (DNS, network) the local cluster does itself. The one
exception is aws-ebs-csi-driver, which puts something into the cluster that serves its disks (disks.py).
"""

from __future__ import annotations

import re
from typing import Any

from isthmus.localcluster.runtime import LocalCluster
from isthmus.simulation import clock, disks, local
from isthmus.simulation.aws import iam
from isthmus.simulation.aws.base import (
    ARN,
    EKS_DOC,
    REGION,
    TAGS,
    arn,
    common,
    updated,
)
from isthmus.simulation.aws.eks_base import (
    CLUSTER_TOKEN,
    check_trust,
    digits,
    invalid,
    role_missing,
)
from isthmus.simulation.resource import (
    Behaviour,
    Call,
    CloudError,
    Property,
    Ref,
    ResourceType,
)
from isthmus.specs.errors import NotFound, NotReady
from isthmus.toolchain.values import Properties

ADMIN_POLICY = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
ACCESS_POLICIES = tuple(
    f"arn:aws:eks::aws:cluster-access-policy/AmazonEKS{name}Policy"
    for name in ("ClusterAdmin", "Admin", "Edit", "View", "AdminView")
)


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


DISK_DRIVER, DISK_ADDON, DISK_CONTROLLER = "ebs.csi.aws.com", "aws-ebs-csi-driver", "ebs-csi-controller"


def _create_addon(call: Call) -> Properties:
    if call.inputs["addonName"] == DISK_ADDON:
        backend, cluster = local.backend(), _local_cluster(call)
        backend.load_disk_driver(cluster)
        backend.apply(cluster, disks.manifests(DISK_DRIVER, DISK_CONTROLLER))
    return common(
        call,
        arn=arn(call, "eks", f"addon/{call.id.replace(':', '/')}/{digits(call.key)[:8]}"),
        addonVersion=call.inputs.get("addonVersion") or _addon_version(call.inputs["addonName"]),
        configurationValues=call.inputs.get("configurationValues", ""),
        createdAt=clock.now(call.account),
        modifiedAt=clock.now(call.account),
    )


def _delete_addon(call: Call) -> None:
    if call.inputs["addonName"] != DISK_ADDON or call.inputs.get("preserve"):
        return
    try:
        local.backend().delete(_local_cluster(call), disks.manifests(DISK_DRIVER, DISK_CONTROLLER))
    except (NotFound, NotReady):
        pass  # a cluster that is gone or does not answer takes its objects with it; EKS deletes the add-on all the same


def _local_cluster(call: Call) -> LocalCluster:
    name = local.local_name(call.account.name, call.region, call.inputs["clusterName"])
    return local.backend().runtime().get(name)


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
    create=_create_addon,
    delete=_delete_addon,
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
        Behaviour(
            "recorded only, except aws-ebs-csi-driver: the local cluster brings DNS and network itself", "assumed"
        ),
        Behaviour(
            "aws-ebs-csi-driver serves ebs.csi.aws.com by folders of the local node; without it claims wait", "assumed"
        ),
        Behaviour(f"names understood: {', '.join(ADDONS)}", "documented", "EKS user guide, AWS add-ons"),
        Behaviour("default versions are made up; an add-on takes 20 to 60 s", "assumed"),
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
        accessEntryArn=arn(call, "eks", f"access-entry/{call.inputs['clusterName']}/{digits(call.key)}"),
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
    validate=lambda call: check_trust(call, "roleArn", "pods.eks.amazonaws.com"),
    name=lambda inputs: "/".join(str(inputs.get(name)) for name in ("clusterName", "namespace", "serviceAccount")),
    refs=(
        Ref("clusterName", CLUSTER_TOKEN, holds=False),
        Ref("roleArn", iam.ROLE.token, holds=False, missing=role_missing),
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

TYPES = (ADDON, ACCESS_ENTRY, ACCESS_POLICY_ASSOCIATION, POD_IDENTITY_ASSOCIATION)
