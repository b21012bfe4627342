"""What cards a node has, as labels: NVIDIA's GPU feature discovery v0.18.0 over node feature discovery v0.18.2.

NVIDIA's program (in the device plugin's image) looks at a node's cards and how they are shared, and writes a NodeFeature
object; the master of node feature discovery puts it on the node as labels. Its worker, which looks at CPUs and kernels, is
left out. The master's manifests are upstream's own; the DaemonSet is that of the device plugin's Helm chart v0.18.0, which
the static manifest follows with a folder of the node in place of the API.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from isthmus.specs import labels
from operators import configured
from operators import manifests as helpers
from operators.manifests import Object

TOOL = "node-feature-discovery"
NAME = "gpu-feature-discovery"
MASTER_IMAGE = "registry.k8s.io/nfd/node-feature-discovery:v0.18.2"
NAMESPACE = "node-feature-discovery"


def installed() -> list[Object]:
    """Upstream's manifests of the master, from the installed tool.

    Raises:
        NotFound: it is not installed.
    """
    from isthmus.toolchain import home

    share = home.share(TOOL)
    return [item for name in ("crds", "rbac", "master") for item in helpers.read(share / f"{name}.yaml")]


def manifests(
    *, image: str, namespace: str, config_map: str, default: str, upstream: Sequence[Mapping[str, Any]] | None = None
) -> list[Object]:
    """The objects of both, with the device plugin's configurations.

    Args:
        image: the device plugin's.
        namespace: of NVIDIA's program and the configurations.
        upstream: documents of the master's manifests; default `installed()`.
    """
    found = installed() if upstream is None else upstream
    master = [copy.deepcopy(dict(item)) for item in found if "worker" not in str(item["metadata"]["name"])]
    for item in master:
        if (
            item["kind"] == "Deployment"
        ):  # upstream's overlays add this: the master labels its own node with its version
            (container,) = item["spec"]["template"]["spec"]["containers"]
            container["env"] = [*(container.get("env") or []), configured.NODE_NAME]
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    return [own, *master, *_access(namespace), _daemon_set(image, namespace, config_map, default)]


def _daemon_set(image: str, namespace: str, config_map: str, default: str) -> Object:
    selector = {"app.kubernetes.io/name": NAME}
    container = {
        "name": f"{NAME}-ctr",
        "image": image,
        "command": [NAME],
        "env": [
            configured.NODE_NAME,
            {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}},
            {"name": "GFD_USE_NODE_FEATURE_API", "value": "true"},
            {"name": "NVIDIA_MIG_MONITOR_DEVICES", "value": "all"},
        ],
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "host-sys", "mountPath": "/sys"}],
    }
    pod: Object = {
        "priorityClassName": "system-node-critical",
        "affinity": configured.on_nodes_with(labels.GPU_MODEL),
        "tolerations": [{"key": labels.GPU_TAINT, "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [container],
        "volumes": [{"name": "host-sys", "hostPath": {"path": "/sys", "type": "Directory"}}],
    }
    configured.add(
        pod,
        config_map=config_map,
        account=NAME,
        label=labels.DEVICE_PLUGIN_CONFIG,
        default=default,
        process=NAME,
    )
    template = {"metadata": {"labels": selector}, "spec": pod}
    spec = {"selector": {"matchLabels": selector}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": spec,
    }


def _access(namespace: str) -> list[Object]:
    """It reads its node's labels and writes its NodeFeature."""
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        {
            "apiGroups": ["nfd.k8s-sigs.io"],
            "resources": ["nodefeatures"],
            "verbs": ["get", "list", "watch", "create", "update"],
        },
    ]
    return configured.access(NAME, namespace, rules)
