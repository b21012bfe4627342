"""Manifests become Pulumi resources, created in an order that works the first time.

Everything goes through `objects`. Each object is a resource of its own type (`kubernetes:apps/v1:Deployment`), so that
the provider's own waiting applies: a Deployment is there when it is available, a Service when it has endpoints. The
provider has no such rule for CustomResourceDefinitions and webhooks, so they get its waitFor annotation: whatever depends
on one starts when the API server serves the new type (case A03) or trusts the webhook's certificate, and one that never
gets there fails by its time limit, by name.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from operators import manifests

if TYPE_CHECKING:
    import pulumi

ESTABLISHED_SECONDS = 180
"""How long the API server may take until it serves a new type. It takes less than a second when it is idle."""

WORKLOAD_SECONDS = 600
"""How long the pods of an operator may take, the pull of its image and the start of a node included."""


WAIT_FOR = {
    "CustomResourceDefinition": "condition=Established",
    "ValidatingWebhookConfiguration": "jsonpath={.webhooks[0].clientConfig.caBundle}",
    "MutatingWebhookConfiguration": "jsonpath={.webhooks[0].clientConfig.caBundle}",
}
"""When an object of a kind is there, in the provider's words. The operator writes a webhook's CA once it has made one."""


def objects(
    name: str,
    items: Sequence[Mapping[str, Any]],
    provider: pulumi.ProviderResource,
    *,
    depends_on: Sequence[pulumi.Resource] = (),
) -> pulumi.ComponentResource:
    """Deploy manifests under a provider. What depends on the answer waits for all of them.

    Args:
        name: of the component, unique in the program; the resources' names begin with it.
        items: manifests with apiVersion, kind and metadata.name; values may be outputs.
        depends_on: what must be there before the first of them.
    """
    import pulumi

    component = pulumi.ComponentResource("isthmus:operators:Objects", name, {}, pulumi.ResourceOptions())
    before: list[pulumi.Resource] = list(depends_on)
    for position in range(len(manifests.STAGES) + 1):
        created = [
            _resource(name, item, pulumi.ResourceOptions(parent=component, provider=provider, depends_on=before))
            for item in items
            if manifests.stage(item) == position
        ]
        before = [*before, *created]
    component.register_outputs({})
    return component


def token(item: Mapping[str, Any]) -> str:
    """Pulumi's type of an object: kubernetes:apps/v1:Deployment, kubernetes:core/v1:Secret."""
    version = str(item["apiVersion"])
    return f"kubernetes:{version if '/' in version else f'core/{version}'}:{item['kind']}"


def resource_name(component: str, item: Mapping[str, Any]) -> str:
    """Name of an object's resource: readable, and one for each object of a cluster."""
    metadata = item["metadata"]
    place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{component}:{item['kind']}:{place}{metadata['name']}"


def properties(item: Mapping[str, Any]) -> dict[str, Any]:
    """What is sent to the provider: the manifest, for some kinds with the annotation that makes the provider wait."""
    if item["kind"] not in WAIT_FOR:
        return dict(item)
    result = copy.deepcopy(dict(item))
    result["metadata"].setdefault("annotations", {})["pulumi.com/waitFor"] = WAIT_FOR[item["kind"]]
    return result


def _resource(component: str, item: Mapping[str, Any], options: pulumi.ResourceOptions) -> pulumi.Resource:
    import pulumi

    limit = f"{ESTABLISHED_SECONDS if manifests.stage(item) == 0 else WORKLOAD_SECONDS}s"
    limits = pulumi.ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(create=limit, update=limit))
    return pulumi.CustomResource(
        token(item), resource_name(component, item), properties(item), pulumi.ResourceOptions.merge(options, limits)
    )
