"""From (apiVersion, kind) to the address of a kind of object, without reading every API group.

The dynamic client's own discovery asks for every group before the first request (some thirty requests on a cluster with
operators). Kinds of the table need no request, any other needs one: the list of its own group and version.
"""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from isthmus.specs.kinds import KINDS


@dataclass(frozen=True)
class Resource:
    """A kind of object as the API server serves it."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """Path of the collection, or of one object. A namespaced kind without a namespace: over all namespaces."""
        parts = [group_path(self.api_version)]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{quote(namespace, safe='')}")
        parts.append(self.plural)
        if name is not None:
            # Names of RBAC objects may hold colons: system:node.
            parts.append(quote(name, safe=":"))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


def group_path(api_version: str) -> str:
    """Where a group and version is served: /api/v1 for the core group, else /apis/<group>/<version>."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _table() -> dict[tuple[str, str], Resource]:
    rows = (
        ("v1", "ConfigMap", "configmaps", True),
        ("v1", "Event", "events", True),
        ("v1", "Namespace", "namespaces", False),
        ("v1", "Node", "nodes", False),
        ("v1", "PersistentVolume", "persistentvolumes", False),
        ("v1", "PersistentVolumeClaim", "persistentvolumeclaims", True),
        ("v1", "Pod", "pods", True),
        ("v1", "ResourceQuota", "resourcequotas", True),
        ("v1", "Secret", "secrets", True),
        ("v1", "Service", "services", True),
        ("v1", "ServiceAccount", "serviceaccounts", True),
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", False),
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", False),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", False),
        ("apiregistration.k8s.io/v1", "APIService", "apiservices", False),
        ("apps/v1", "DaemonSet", "daemonsets", True),
        ("apps/v1", "Deployment", "deployments", True),
        ("apps/v1", "StatefulSet", "statefulsets", True),
        ("coordination.k8s.io/v1", "Lease", "leases", True),
        ("kubeflow.org/v1", "PyTorchJob", "pytorchjobs", True),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", False),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", False),
        ("rbac.authorization.k8s.io/v1", "Role", "roles", True),
        ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", True),
        ("resource.k8s.io/v1", "DeviceClass", "deviceclasses", False),
        ("resource.k8s.io/v1", "ResourceClaim", "resourceclaims", True),
        ("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates", True),
        ("resource.k8s.io/v1", "ResourceSlice", "resourceslices", False),
        ("storage.k8s.io/v1", "StorageClass", "storageclasses", False),
        ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", "trainingruntimes", True),
    )
    jobs = ((kind.api_version, kind.name, kind.plural, True) for kind in KINDS.values())
    return {(row[0], row[1]): Resource(*row) for row in (*rows, *jobs)}


KNOWN = _table()
"""Kinds whose address is fixed by their API (kubernetes.io API reference 1.36; isthmus.specs.kinds)."""


def from_discovery(api_version: str, document: dict[str, Any]) -> dict[tuple[str, str], Resource]:
    """The kinds in an APIResourceList, subresources left out."""
    return {
        (api_version, item["kind"]): Resource(api_version, item["kind"], item["name"], bool(item.get("namespaced")))
        for item in document.get("resources") or ()
        if "/" not in item["name"]
    }


def from_aggregated(document: dict[str, Any]) -> list[Resource]:
    """The listable kinds in an APIGroupDiscoveryList, in the server's order of preference."""
    found = []
    for group in document.get("items") or ():
        name = (group.get("metadata") or {}).get("name")
        for version in group.get("versions") or ():
            api_version = f"{name}/{version['version']}" if name else str(version["version"])
            for item in version.get("resources") or ():
                if "list" in (item.get("verbs") or ()):
                    kind, namespaced = item["responseKind"]["kind"], item.get("scope") == "Namespaced"
                    found.append(Resource(api_version, kind, item["resource"], namespaced))
    return found
