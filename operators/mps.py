"""NVIDIA's MPS control daemon v0.18.0, on nodes whose cards serve several processes at once.

Without it the device plugin's own check of the daemon fails and the node offers no card (case A11:
NVIDIA/k8s-device-plugin#634), so the two are deployed together, sharing a folder of the node. The DaemonSet is that of
upstream's Helm chart v0.18.0, which has no static manifest of it. It runs where nvidia.com/mps.capable=true; the node pool
sets that label, and feature discovery too once it has seen the configuration.
"""

from isthmus.specs import labels
from operators import configured
from operators.manifests import Object

NAME = "nvidia-mps-control-daemon"
ROOT = "/run/nvidia/mps"
"""The node's folder for the daemon's pipes and logs, upstream's default (Helm value mps.root)."""

_VOLUMES: list[Object] = [
    {"name": "mps-root", "hostPath": {"path": ROOT, "type": "DirectoryOrCreate"}},
    {"name": "mps-shm", "hostPath": {"path": f"{ROOT}/shm"}},
]
_MOUNTS: list[Object] = [{"name": "mps-shm", "mountPath": "/dev/shm"}, {"name": "mps-root", "mountPath": "/mps"}]


def add_to_plugin(pod: Object) -> None:
    """Let the device plugin reach the daemon, and pods through it."""
    plugin = pod["containers"][0]
    plugin["env"] = [*(plugin.get("env") or []), {"name": "MPS_ROOT", "value": ROOT}]
    plugin["volumeMounts"] = [*plugin["volumeMounts"], *_MOUNTS]
    pod["volumes"] = [*pod["volumes"], *_VOLUMES]


def daemon_set(*, image: str, namespace: str, config_map: str, account: str, default: str) -> Object:
    """The daemon's DaemonSet, with the device plugin's configurations."""
    selector = {"name": NAME}
    privileged = {"privileged": True}
    container = {
        "name": "mps-control-daemon-ctr",
        "image": image,
        "command": ["mps-control-daemon"],
        "env": [
            configured.NODE_NAME,
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"},
        ],
        "securityContext": privileged,
        "volumeMounts": list(_MOUNTS),
    }
    shared_memory = {
        "name": "mps-control-daemon-mounts",
        "image": image,
        "command": ["mps-control-daemon", "mount-shm"],
        "securityContext": privileged,
        "volumeMounts": [{"name": "mps-root", "mountPath": "/mps", "mountPropagation": "Bidirectional"}],
    }
    pod: Object = {
        "priorityClassName": "system-node-critical",
        "nodeSelector": {labels.MPS_CAPABLE: "true"},
        "tolerations": [{"key": labels.GPU_TAINT, "operator": "Exists", "effect": "NoSchedule"}],
        "initContainers": [shared_memory],
        "containers": [container],
        "volumes": list(_VOLUMES),
    }
    configured.add(
        pod,
        config_map=config_map,
        account=account,
        label=labels.DEVICE_PLUGIN_CONFIG,
        default=default,
        process="mps-control-daemon",
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": selector}, "spec": pod},
        },
    }
