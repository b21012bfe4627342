"""What every local cluster has in its API server from the start: roles of our processes, DNS, the default storage
class.

Pure: manifests as dicts. The supervisor applies them as soon as the API server serves, before anything that needs them.
"""

from typing import Any

from isthmus.localcluster.state import SERVICE_DNS, ClusterState
from isthmus.specs.labels import MANAGED_BY, OWNER

Object = dict[str, Any]

STORAGE_CLASS = "standard"
"""The default storage class (the name kind gives its own)."""

PROVISIONER = "rancher.io/local-path"
"""The provisioner of that class; further classes may name it too."""

RBAC = "rbac.authorization.k8s.io"


def bootstrap(state: ClusterState) -> list[Object]:
    """Every such object, in the order to apply them."""
    return [
        *_role("isthmus:apiserver", bound_role="system:kubelet-api-admin"),
        *_role("isthmus:coredns", rules=COREDNS_RULES),
        *_role("isthmus:kwok", rules=KWOK_RULES),
        *_role("isthmus:storage", rules=STORAGE_RULES),
        _kwok_priority(),
        *_dns(state),
        *_storage(),
    ]


def _rule(groups: str, resources: str, verbs: str) -> Object:
    return {
        "apiGroups": ["" if group == "core" else group for group in groups.split()],
        "resources": resources.split(),
        "verbs": verbs.split(),
    }


COREDNS_RULES = [
    _rule("core", "services pods namespaces", "list watch"),
    _rule("discovery.k8s.io", "endpointslices", "list watch"),
]
"""What CoreDNS's kubernetes plugin reads (its README, v1.15)."""

KWOK_RULES = [
    _rule("core", "events", "create patch update get list watch delete"),
    _rule("core", "nodes", "get list watch"),
    _rule("core", "nodes/status pods/status", "patch update"),
    _rule("core", "pods", "get list watch patch update delete"),
    _rule("coordination.k8s.io", "leases", "get list watch create patch update"),
]
"""What KWOK needs for nodes and pods (kustomize/rbac of sigs.k8s.io/kwok v0.8.0, its own resources left out: stages
come from a file)."""

STORAGE_RULES = [
    _rule("core", "nodes persistentvolumeclaims configmaps", "get list watch"),
    _rule("core", "persistentvolumes", "get list watch create patch update delete"),
    _rule("core", "pods", "get list watch create patch update delete"),
    _rule("core", "pods/log", "get"),
    _rule("core", "events", "create patch update"),
    _rule("storage.k8s.io", "storageclasses", "get list watch"),
]
"""What local-path-provisioner needs (its deploy/local-path-storage.yaml, v0.0.30)."""


def _labels() -> dict[str, str]:
    return {MANAGED_BY: OWNER}


def _role(user: str, *, rules: list[Object] | None = None, bound_role: str = "") -> list[Object]:
    """A role for one of our users, or the binding of an existing role to it."""
    found: list[Object] = []
    if rules is not None:
        metadata = {"name": user, "labels": _labels()}
        found.append({"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules})
    found.append({
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user, "labels": _labels()},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": bound_role or user},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    })  # fmt: skip
    return found


def _kwok_priority() -> Object:
    """KWOK's requests are never queued behind others: a thousand leases late would look like a thousand dead nodes."""
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": "isthmus-kwok", "labels": _labels()},
        "spec": {
            "priorityLevelConfiguration": {"name": "exempt"},
            "matchingPrecedence": 1000,
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": "isthmus:kwok"}}],
                "resourceRules": [
                    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
                ],
            }],
        },
    }  # fmt: skip


def _dns(state: ClusterState) -> list[Object]:
    """The service that pods' resolv.conf names. CoreDNS runs beside the kubelet, so its endpoint is the node's
    address."""
    labels = {**_labels(), "k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"}
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": labels},
        "spec": {"clusterIP": SERVICE_DNS, "ports": ports},
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns-isthmus",
            "namespace": "kube-system",
            "labels": {
                **labels,
                "kubernetes.io/service-name": "kube-dns",
                "endpointslice.kubernetes.io/managed-by": OWNER,
            },
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [state.address], "conditions": {"ready": True}}],
        "ports": ports,
    }
    return [service, endpoints]


def _storage() -> list[Object]:
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "isthmus-storage", "namespace": "kube-system", "labels": _labels()},
    }
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "labels": _labels(),
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Delete",
    }
    return [account, storage_class]
