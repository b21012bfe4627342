"""NVIDIA's device plugin v0.18.0, from upstream's own static manifest.

Three changes. It runs on GPU nodes only: those with the label isthmus.dev/gpu-model. It never shares a node with its own
predecessor (`_alone`). And where a pool shares its cards, it
gets a ConfigMap of configurations and upstream's config-manager beside it, which takes the one that the node's label
nvidia.com/device-plugin.config names and makes the plugin read it anew when the label changes (as upstream's Helm chart
has it, v0.18.0). A cluster without sharing has neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isthmus.specs import labels
from isthmus.specs.cluster import GpuCards, NodePool
from isthmus.specs.sharing import GpuSharing
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

_CONFIGS = "available-configs"
_CONFIG = "config"


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
    """Images the plugin's pods need."""
    return [IMAGE]


def manifests(pools: Iterable[NodePool], *, upstream: Sequence[Mapping[str, Any]] | None = None) -> list[Object]:
    """The plugin's objects. Pure when `upstream` is given.

    Args:
        pools: node pools; those that share their cards decide which configurations there are.
        upstream: the documents of upstream's static manifest; default `installed()`.
    """
    (daemon_set,) = helpers.marked(installed() if upstream is None else upstream)
    pod = daemon_set["spec"]["template"]["spec"]
    pod["affinity"] = {
        "nodeAffinity": _on_gpu_nodes(),
        "podAntiAffinity": _alone(daemon_set["spec"]["template"]["metadata"]["labels"]),
    }
    configs = configurations(pool.sharing for pool in pools)
    if len(configs) == 1:
        return [daemon_set]
    _add_config_manager(pod)
    return [*_access(), _config_map(configs), daemon_set]


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

    config: Object = {"version": "v1", "flags": {"migStrategy": "none"}}
    if sharing.mode == "time-slicing":
        config["sharing"] = {
            "timeSlicing": {
                "renameByDefault": sharing.rename,
                "failRequestsGreaterThanOne": sharing.fail_greater_than_one,
                "resources": [{"name": labels.GPU_RESOURCE, "replicas": sharing.replicas}],
            }
        }
    return yaml.safe_dump(config, sort_keys=False)


def _on_gpu_nodes() -> Object:
    term = {"matchExpressions": [{"key": labels.GPU_MODEL, "operator": "Exists"}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}


def _alone(marks: Mapping[str, str]) -> Object:
    """Not beside a pod of the plugin that is still there. When a DaemonSet is replaced, the pods of the new one are made
    while those of the old one still end. An old plugin that ends after its successor has registered takes the successor
    down with it: it removes the socket they share (internal/plugin/server.go, v0.18.0), and the kubelet closes whichever
    connection it then has (devicemanager/plugin/v1beta1/server.go, runClient, v1.36). The node stays without cards."""
    term = {"labelSelector": {"matchLabels": dict(marks)}, "topologyKey": "kubernetes.io/hostname"}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _add_config_manager(pod: Object) -> None:
    """Upstream's config-manager, once before the plugin starts and then beside it; both write /config/config.yaml."""
    mounts = [{"name": _CONFIGS, "mountPath": "/available-configs"}, {"name": _CONFIG, "mountPath": "/config"}]
    plugin = pod["containers"][0]
    plugin["env"] = [*(plugin.get("env") or []), {"name": "CONFIG_FILE", "value": "/config/config.yaml"}]
    plugin["volumeMounts"] = [*plugin["volumeMounts"], *mounts]
    manager = {
        "image": plugin["image"],
        "command": ["config-manager"],
        "securityContext": plugin["securityContext"],
        "volumeMounts": mounts,
    }
    pod["initContainers"] = [{**manager, "name": f"{NAME}-init", "env": _manager_settings(once=True)}]
    pod["containers"] = [plugin, {**manager, "name": f"{NAME}-sidecar", "env": _manager_settings(once=False)}]
    pod["shareProcessNamespace"] = True  # the sidecar sends the plugin a signal
    pod["serviceAccountName"] = NAME
    pod["volumes"] = [
        *pod["volumes"],
        {"name": _CONFIGS, "configMap": {"name": NAME}},
        {"name": _CONFIG, "emptyDir": {}},
    ]


def _manager_settings(*, once: bool) -> list[Object]:
    values = {
        "ONESHOT": str(once).lower(),
        "NODE_LABEL": labels.DEVICE_PLUGIN_CONFIG,
        "CONFIG_FILE_SRCDIR": "/available-configs",
        "CONFIG_FILE_DST": "/config/config.yaml",
        "DEFAULT_CONFIG": DEFAULT_CONFIG,
        "SEND_SIGNAL": str(not once).lower(),
        "SIGNAL": "1",  # SIGHUP: the plugin starts anew with its configuration
        "PROCESS_TO_SIGNAL": "nvidia-device-plugin",
    }
    node = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    return [node, *({"name": name, "value": value} for name, value in values.items())]


def _config_map(configs: Mapping[str, str]) -> Object:
    return _own("v1", "ConfigMap", NAMESPACE, data=dict(configs))


def _access() -> list[Object]:
    """The config-manager reads its node's labels."""
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    return [
        _own("v1", "ServiceAccount", NAMESPACE),
        _own(f"{group}/v1", "ClusterRole", None, rules=[rule]),
        _own(
            f"{group}/v1",
            "ClusterRoleBinding",
            None,
            roleRef={"apiGroup": group, "kind": "ClusterRole", "name": NAME},
            subjects=[subject],
        ),
    ]


def _own(version: str, kind: str, namespace: str | None, **content: Any) -> Object:
    metadata = {"name": NAME, **({"namespace": namespace} if namespace else {})}
    (item,) = helpers.marked([{"apiVersion": version, "kind": kind, "metadata": metadata, **content}])
    return item
