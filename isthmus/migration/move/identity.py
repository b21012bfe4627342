"""What must be there before a pod can use the bucket (case A27), read from the destination's own state. Pure.

On GKE four things, each of which alone does nothing: the cluster's workload pool, the metadata server on the nodes, an IAM
binding of the Kubernetes service account, the bucket's role for the identity. On EKS: the agent, the association, the role's
policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Resource = Mapping[str, Any]
"""A resource of the engine's state: type, inputs, outputs."""


def missing(cloud: str, resources: Iterable[Resource], namespace: str, account: str) -> list[str]:
    """What is missing, each in a sentence; empty when all is there."""
    found = list(resources)
    return _gcp(found, namespace, account) if cloud == "gcp" else _aws(found, namespace, account)


def _gcp(resources: list[Resource], namespace: str, account: str) -> list[str]:
    problems = []
    clusters = _of(resources, "gcp:container/cluster:Cluster")
    pools = [str((_values(one).get("workloadIdentityConfig") or {}).get("workloadPool") or "") for one in clusters]
    if not any(pools):
        problems.append("the cluster has no workload pool")
    for pool in _of(resources, "gcp:container/nodePool:NodePool"):
        config = _values(pool).get("nodeConfig") or {}
        if (config.get("workloadMetadataConfig") or {}).get("mode") != "GKE_METADATA":
            problems.append(f"node pool {_name(pool)} does not run the metadata server (mode GKE_METADATA)")
    member = f"[{namespace}/{account}]"
    bound = [
        one for one in _of(resources, "gcp:serviceaccount/iAMMember:IAMMember")
        if _values(one).get("role") == "roles/iam.workloadIdentityUser" and str(_values(one).get("member", "")).endswith(member)
    ]  # fmt: skip
    if not bound:
        problems.append(f"no IAM binding lets {namespace}/{account} act as a service account")
    if not any(
        str(_values(one).get("member", "")).startswith("serviceAccount:")
        for one in _of(resources, "gcp:storage/bucketIAMMember:BucketIAMMember")
    ):
        problems.append("the bucket gives no service account a role")
    return problems


def _aws(resources: list[Resource], namespace: str, account: str) -> list[str]:
    problems = []
    addons = {str(_values(one).get("addonName")) for one in _of(resources, "aws:eks/addon:Addon")}
    if "eks-pod-identity-agent" not in addons:
        problems.append("the cluster has no add-on eks-pod-identity-agent")
    bound = [
        one for one in _of(resources, "aws:eks/podIdentityAssociation:PodIdentityAssociation")
        if (_values(one).get("namespace"), _values(one).get("serviceAccount")) == (namespace, account)
    ]  # fmt: skip
    if not bound:
        problems.append(f"no pod identity association is for {namespace}/{account}")
    roles = {str(_values(one).get("roleArn", "")).rpartition("/")[2] for one in bound}
    policies = [one for one in _of(resources, "aws:iam/rolePolicy:RolePolicy") if _values(one).get("role") in roles]
    if bound and not any("s3:GetObject" in str(_values(one).get("policy", "")) for one in policies):
        problems.append("the role of the association may not read the bucket")
    return problems


def _of(resources: list[Resource], kind: str) -> list[Resource]:
    return [one for one in resources if one.get("type") == kind]


def _values(resource: Resource) -> Mapping[str, Any]:
    return {**(resource.get("inputs") or {}), **(resource.get("outputs") or {})}


def _name(resource: Resource) -> str:
    return str(resource.get("urn", "")).rpartition("::")[2]


def missing_annotation(cloud: str, account: Resource) -> list[str]:
    """What the Kubernetes service account itself lacks: on GKE it names whom it acts as; on EKS nothing is on it."""
    marks = (account.get("metadata") or {}).get("annotations") or {}
    if cloud == "gcp" and not marks.get("iam.gke.io/gcp-service-account"):
        return ["the service account does not carry iam.gke.io/gcp-service-account"]
    return []
