"""Upstream's config-manager beside a container, which takes the configuration that the node's label names; and what else
the operators of GPU nodes have in common.

The label nvidia.com/device-plugin.config names a key of a ConfigMap. The manager writes that configuration into a shared
folder, once before the container starts and then whenever the label changes, and sends the container's process a signal to
read it anew (NVIDIA/k8s-device-plugin, Helm chart v0.18.0).
"""

from operators.manifests import Object

CONFIGS, CONFIG = "available-configs", "config"
FILE = "/config/config.yaml"


def add(pod: Object, *, config_map: str, account: str, label: str, default: str, process: str) -> None:
    """Put the manager into a pod's specification, for its one container.

    Args:
        config_map: the ConfigMap of configurations.
        account: a service account that may read nodes.
        label: the node's label.
        default: the configuration of nodes without it.
        process: the first word of the container's command line.
    """
    mounts = [{"name": CONFIGS, "mountPath": "/available-configs"}, {"name": CONFIG, "mountPath": "/config"}]
    (container,) = pod["containers"]
    container["env"] = [*(container.get("env") or []), {"name": "CONFIG_FILE", "value": FILE}]
    container["volumeMounts"] = [*container["volumeMounts"], *mounts]
    manager = {
        "image": container["image"],
        "command": ["config-manager"],
        "securityContext": container["securityContext"],
        "volumeMounts": mounts,
    }

    def settings(*, once: bool) -> list[Object]:
        values = {
            "ONESHOT": str(once).lower(),
            "NODE_LABEL": label,
            "CONFIG_FILE_SRCDIR": "/available-configs",
            "CONFIG_FILE_DST": FILE,
            "DEFAULT_CONFIG": default,
            "SEND_SIGNAL": str(not once).lower(),
            "SIGNAL": "1",  # SIGHUP: start anew with the configuration
            "PROCESS_TO_SIGNAL": process,
        }
        return [NODE_NAME, *({"name": name, "value": value} for name, value in values.items())]

    name = container["name"].removesuffix("-ctr")
    once = {**manager, "name": f"{name}-init", "env": settings(once=True)}
    beside = {**manager, "name": f"{name}-sidecar", "env": settings(once=False)}
    pod["initContainers"] = [*(pod.get("initContainers") or []), once]
    pod["containers"] = [container, beside]
    pod["shareProcessNamespace"] = True  # the manager sends the container a signal
    pod["serviceAccountName"] = account
    pod["volumes"] = [
        *pod["volumes"],
        {"name": CONFIGS, "configMap": {"name": config_map}},
        {"name": CONFIG, "emptyDir": {}},
    ]


NODE_NAME: Object = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}}
"""With the version that the server would fill in: a field that it completes cannot be applied by two (`sharing change` may
bring an operator before the program does)."""


def on_nodes_with(label: str, *, without: tuple[str, str] | None = None) -> Object:
    """Affinity to nodes that have a label, whatever its value, and not another one with a value."""
    words: list[Object] = [{"key": label, "operator": "Exists"}]
    if without is not None:
        words.append({"key": without[0], "operator": "NotIn", "values": [without[1]]})
    term = {"matchExpressions": words}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def access(name: str, namespace: str, rules: list[Object]) -> list[Object]:
    """A service account with rights in the whole cluster; all three objects have the same name."""
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    ]
