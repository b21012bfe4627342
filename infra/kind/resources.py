"""The resources of our own provider plugin (isthmus.localcluster.kind.provider), as classes of the program."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

_NAMES = {
    "kubernetes_version": "kubernetesVersion",
    "certificate_authority": "certificateAuthority",
    "node_names": "nodeNames",
    "force_destroy": "forceDestroy",
}
"""Python's names of properties to the engine's, where they differ."""


class _Local(pulumi.CustomResource):
    def translate_input_property(self, prop: str) -> str:
        """The engine's name of a property."""
        return _NAMES.get(prop, prop)

    def translate_output_property(self, prop: str) -> str:
        """The attribute that an output is kept under."""
        return next((name for name, theirs in _NAMES.items() if theirs == prop), prop)


class LocalProvider(pulumi.ProviderResource):
    """The provider of everything here; its version is that of the plugin."""

    def __init__(self, name: str, version: str) -> None:
        super().__init__("isthmus", name, {}, pulumi.ResourceOptions(version=version))


class LocalCluster(_Local):
    """isthmus:kind:Cluster: a cluster in containers. Its nodes are known from the start, so pools are part of it."""

    endpoint: pulumi.Output[str]
    certificate_authority: pulumi.Output[str]
    """PEM in base64."""

    def __init__(
        self,
        name: str,
        *,
        cluster_name: str,
        kubernetes_version: str,
        nodes: Sequence[Mapping[str, Any]],
        opts: pulumi.ResourceOptions,
    ) -> None:
        inputs = {"name": cluster_name, "kubernetes_version": kubernetes_version, "nodes": list(nodes)}
        outputs = dict.fromkeys(("endpoint", "certificate_authority", "node_names"))
        super().__init__("isthmus:kind:Cluster", name, {**inputs, **outputs}, opts)


class LocalBucket(_Local):
    """isthmus:kind:Bucket: a folder that every node sees."""

    url: pulumi.Output[str]

    def __init__(
        self, resource_name: str, *, cluster: str, name: str, force_destroy: bool, opts: pulumi.ResourceOptions
    ) -> None:
        inputs = {"cluster": cluster, "name": name, "force_destroy": force_destroy, "url": None}
        super().__init__("isthmus:kind:Bucket", resource_name, inputs, opts)
