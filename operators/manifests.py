"""Pure helpers over manifests (dicts), shared by the operators: reading upstream's, marking ours, ordering for creation."""

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from isthmus.specs import labels
from isthmus.specs.errors import InvalidSpec

Object = dict[str, Any]

STAGES = (
    {"Namespace", "CustomResourceDefinition", "PriorityClass", "StorageClass"},
    {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "Secret",
     "PersistentVolumeClaim", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate"},
    {"Deployment", "DaemonSet", "StatefulSet", "Job", "CronJob", "Pod"},
    {"Service", "APIService"},
    {"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"},
)  # fmt: skip
"""Kinds in the order they are created. A Service comes after the pods behind it, since Pulumi waits for its endpoints;
then whoever waits for the Service finds an operator that answers. Webhooks come after what answers them: one whose service
is missing refuses every object of its types, so that an `up` cut short in between could not even be previewed again. What
is in no stage is a custom resource: last."""

_BUILTIN_GROUPS = {"apps", "batch", "autoscaling", "policy"}


def read(path: Path) -> list[Object]:
    """The documents of a YAML file, empty ones left out.

    Raises:
        InvalidSpec: a document is not an object with kind and name.
    """
    import yaml  # here, so that importing the operators costs nothing

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the training operator's CRDs take 8 s without libyaml
    documents = [item for item in yaml.load_all(path.read_text(encoding="utf-8"), Loader=loader) if item]
    for item in documents:
        if not isinstance(item, dict) or "kind" not in item or "name" not in item.get("metadata", {}):
            raise InvalidSpec(f"{path.name} has a document that is not a Kubernetes object", subject=str(path))
    return documents


def marked(objects: Iterable[Mapping[str, Any]]) -> list[Object]:
    """Copies of the objects with our ownership label; pod templates are left as upstream has them."""
    result = [copy.deepcopy(dict(item)) for item in objects]
    for item in result:
        metadata = item["metadata"]
        metadata["labels"] = {**(metadata.get("labels") or {}), labels.MANAGED_BY: labels.OWNER}
    return result


def stage(item: Mapping[str, Any]) -> int:
    """When an object is created: the position of its stage, smaller first."""
    if is_custom(item):
        return len(STAGES)
    for position, kinds in enumerate(STAGES):
        if item["kind"] in kinds:
            return position
    return 1


def is_custom(item: Mapping[str, Any]) -> bool:
    """Whether the object's type comes from a CustomResourceDefinition: its group is none of Kubernetes' own."""
    group = str(item["apiVersion"]).rpartition("/")[0]
    return bool(group) and group not in _BUILTIN_GROUPS and not group.endswith(".k8s.io")


def images(objects: Iterable[Mapping[str, Any]]) -> list[str]:
    """Images that the pods of these objects name, sorted."""
    found: set[str] = set()
    for item in objects:
        spec = item.get("spec", {}).get("template", {}).get("spec", {}) if item["kind"] != "Pod" else item["spec"]
        found |= {c["image"] for field in ("initContainers", "containers") for c in spec.get(field) or []}
    return sorted(found)
