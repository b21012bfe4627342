"""NVIDIA's device plugin v0.18.0, from upstream's own static manifest, and what each way to share cards needs beside it.

The plugin runs on GPU nodes only: those with the label isthmus.dev/gpu-model, except where pods claim devices (DRA), and
never beside its own predecessor (`_alone`). Where
a pool shares its cards, it gets a ConfigMap of configurations and upstream's config-manager beside it, which takes the one
that the node's label nvidia.com/device-plugin.config names. A pool under MPS brings the MPS control daemon (mps.py), one
under MIG the MIG manager (mig_manager.py), both feature discovery (feature_discovery.py). A cluster without sharing has
none of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isthmus.specs import labels
from isthmus.specs.cluster import GpuCards, NodePool
from isthmus.specs.sharing import GpuSharing
from operators import configured, feature_discovery, mig_manager, mps, plugin_config
from operators import manifests as helpers
from operators.manifests import Object

if TYPE_CHECKING:
    import pulumi

TOOL = "nvidia-device-plugin"
IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.18.0"
NAMESPACE = "kube-system"
NAME = "nvidia-device-plugin"
DEFAULT_CONFIG = "default"
"""The configuration of nodes without the label: cards are not shared."""
DISCOVERED = ("mps", "mig")
"""Modes whose nodes feature discovery labels."""


def deploy(
    provider: pulumi.ProviderResource, pools: Sequence[NodePool], *, depends_on: Sequence[pulumi.Resource] = ()
) -> pulumi.ComponentResource:
    """Deploy the plugin for these node pools.

    Raises:
        NotFound: upstream's manifest is not installed; the remedy says how.
    """
    from operators import deploy as deployment

    return deployment.objects(NAME, manifests(pools), provider, depends_on=depends_on)


def installed() -> list[Object]:
    """Upstream's static manifest, from the installed tool.

    Raises:
        NotFound: it is not installed.
    """
    from isthmus.toolchain import home

    return helpers.read(home.share(TOOL) / "static" / "nvidia-device-plugin.yml")


def images() -> list[str]:
    """Images that its pods may need on a machine without cards: all but the MIG manager's, which cuts real ones."""
    return [IMAGE, feature_discovery.MASTER_IMAGE]


def manifests(
    pools: Iterable[NodePool],
    *,
    upstream: Sequence[Mapping[str, Any]] | None = None,
    discovery: Sequence[Mapping[str, Any]] | None = None,
) -> list[Object]:
    """The plugin's objects, and those of what the pools' sharing needs beside it. Pure when both manifests are given.

    Args:
        pools: node pools; those that share their cards decide which configurations there are.
        upstream: the documents of upstream's static manifest; default `installed()`.
        discovery: those of feature discovery (feature_discovery.installed).
    """
    sharings = [pool.sharing for pool in pools]
    (daemon_set,) = helpers.marked(installed() if upstream is None else upstream)
    pod = daemon_set["spec"]["template"]["spec"]
    claimed = (labels.GPU_SHARING, "dra") if any(sharing.mode == "dra" for sharing in sharings) else None
    pod["affinity"] = {
        **configured.on_nodes_with(labels.GPU_MODEL, without=claimed),
        "podAntiAffinity": _alone(daemon_set["spec"]["template"]["metadata"]["labels"]),
    }
    configs = configurations(sharings)
    if len(configs) == 1:
        return [daemon_set]
    configured.add(
        pod,
        config_map=NAME,
        account=NAME,
        label=labels.DEVICE_PLUGIN_CONFIG,
        default=DEFAULT_CONFIG,
        process="nvidia-device-plugin",
    )
    beside = [*configured.access(NAME, NAMESPACE, _reads_nodes()), _config_map(configs)]
    if any(sharing.mode == "mps" for sharing in sharings):
        mps.add_to_plugin(pod)
        beside.append(
            mps.daemon_set(image=IMAGE, namespace=NAMESPACE, config_map=NAME, account=NAME, default=DEFAULT_CONFIG)
        )
    if any(sharing.mode in DISCOVERED for sharing in sharings):
        beside += feature_discovery.manifests(
            image=IMAGE, namespace=NAMESPACE, config_map=NAME, default=DEFAULT_CONFIG, upstream=discovery
        )
    beside += mig_manager.manifests(sharings, namespace=NAMESPACE)
    return [*helpers.marked(beside), daemon_set]


def configurations(sharings: Iterable[GpuSharing]) -> dict[str, str]:
    """Plugin configurations as files: name to YAML text, the default first, the others by name."""
    named = {sharing.config_name: sharing for sharing in sharings if sharing.config_name}
    return {
        DEFAULT_CONFIG: _configuration(GpuSharing()),
        **{name: _configuration(named[name]) for name in sorted(named)},
    }


def advertised(cards: GpuCards | None, sharing: GpuSharing) -> dict[str, int]:
    """What the plugin makes a node with these cards advertise: resource name to count. Empty without cards."""
    return sharing.advertised(cards.count if cards else 0)


def _configuration(sharing: GpuSharing) -> str:
    import yaml

    return yaml.safe_dump(plugin_config.configuration(sharing), sort_keys=False)


def _alone(marks: Mapping[str, str]) -> Object:
    """Not beside a pod of the plugin that is still there. When a DaemonSet is replaced, the pods of the new one are made
    while those of the old one still end. An old plugin that ends after its successor has registered takes the successor
    down with it: it removes the socket they share (internal/plugin/server.go, v0.18.0), and the kubelet closes whichever
    connection it then has (devicemanager/plugin/v1beta1/server.go, runClient, v1.36). The node stays without cards."""
    term = {"labelSelector": {"matchLabels": dict(marks)}, "topologyKey": "kubernetes.io/hostname"}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _config_map(configs: Mapping[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "data": dict(configs),
    }


def _reads_nodes() -> list[Object]:
    """The config-manager reads its node's labels."""
    return [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]
