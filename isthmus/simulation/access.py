"""Who may come into a simulated cluster, and as whom: what the clouds' own authenticators decide.

Imports nothing heavy: kubectl and the Kubernetes provider ask for credentials again and again. AWS: the caller needs an
access entry with the cluster administrator policy (or must be the creator that EKS let in). Google Cloud: the owner of a
project administers its clusters through IAM. The certificate itself is made by the local cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.simulation.account import READY, Account, Row
from isthmus.simulation.names import local_name
from isthmus.specs.errors import NotFound, Refused

CLUSTER_TOKENS = {"aws": "aws:eks/cluster:Cluster", "gcp": "gcp:container/cluster:Cluster"}
TOKEN_MINUTES = {"aws": 15, "gcp": 60}
"""Life of a credential: EKS tokens 15 minutes, Google access tokens 60 (case A07)."""
ADMINISTRATORS = ("system:masters",)

_ADMIN_POLICY = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
_ENTRY = "aws:eks/accessEntry:AccessEntry"
_ASSOCIATION = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"


@dataclass(frozen=True)
class Access:
    """What a credential for a cluster says."""

    local_cluster: str
    user: str
    groups: tuple[str, ...]
    minutes: int


def clusters(account: Account) -> list[tuple[Row, str]]:
    """The control planes of an account, each with the name of its local cluster."""
    rows = [row for token in CLUSTER_TOKENS.values() for row in account.rows(token)]
    return [(row, local_name(account.name, row.region, row.name or row.id)) for row in rows]


def access(account: Account, cloud: str, region: str, cluster: str) -> Access:
    """As whom the account's owner comes into a cluster.

    Raises:
        NotFound: the account has no such cluster there.
        Refused: it is not ready, or the caller has no access entry.
    """
    row = account.named(CLUSTER_TOKENS[cloud], region, cluster) or account.find(CLUSTER_TOKENS[cloud], cluster, region)
    subject = f"cluster {cluster} in {region} of account {account.name}"
    if row is None:
        raise NotFound(
            f"there is no cluster {cluster} in {region}", subject=subject, remedy=f"isthmus sim show {account.name}"
        )
    if row.state != READY:
        raise Refused(f"the cluster is {row.state}", subject=subject, remedy="run `up` again")
    name = local_name(account.name, row.region, row.name or row.id)
    if cloud == "gcp":
        return Access(name, f"owner@{account.name}.iam.gserviceaccount.com", ADMINISTRATORS, TOKEN_MINUTES[cloud])
    number = row.outputs["arn"].split(":")[4]
    caller = f"arn:aws:iam::{number}:user/isthmus"
    groups = _groups(account, row, caller)
    if groups is None:
        raise Refused(
            f"{caller} has no access entry for the cluster: the server has asked for the client to provide credentials",
            subject=subject,
            remedy="give it one (aws.eks.AccessEntry and AccessPolicyAssociation)",
        )
    return Access(name, caller, groups, TOKEN_MINUTES[cloud])


def _groups(account: Account, cluster: Row, caller: str) -> tuple[str, ...] | None:
    """The caller's Kubernetes groups, or None when nothing lets it in."""
    settings = cluster.outputs.get("accessConfig", {})
    if settings.get("bootstrapClusterCreatorAdminPermissions", True):
        return ADMINISTRATORS
    entry = account.find(_ENTRY, f"{cluster.id}:{caller}", cluster.region)
    if entry is None or entry.state != READY:
        return None
    policy = account.find(_ASSOCIATION, f"{cluster.id}#{caller}#{_ADMIN_POLICY}", cluster.region)
    if policy is not None and policy.state == READY and policy.inputs["accessScope"]["type"] == "cluster":
        return ADMINISTRATORS
    return tuple(entry.outputs.get("kubernetesGroups", ()))
