"""What GKE itself puts into every cluster: its storage classes, and its device plugin where a pool has cards.

Google's device plugin is not public as a program, so NVIDIA's own runs in its place, under the name of Google's
DaemonSet, on the node that runs containers. COVERAGE.md says so. Pure.
"""

from __future__ import annotations

import hashlib
from typing import Any

import yaml

from isthmus.simulation import admission
from isthmus.specs.labels import GPU_RESOURCE, LOCAL_NODE
from isthmus.specs.sharing import GpuSharing

Object = dict[str, Any]

NAMESPACE = "kube-system"
PLUGIN = "nvidia-gpu-device-plugin"
PLUGIN_IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.18.0"
DEVICE_PLUGINS = "/var/lib/kubelet/device-plugins"
MPS_ROOT = "/run/nvidia/mps"
DISK_DRIVER = "pd.csi.storage.gke.io"
DISK_CONTROLLER = "pdcsi-controller"
MANAGED = {"addonmanager.kubernetes.io/mode": "EnsureExists"}


def storage_classes() -> list[Object]:
    """standard-rwo (the default), premium-rwo and standard, as GKE has them. The first two are served by disks.py.

    The local cluster's own class is called standard too: it stays, and stops being the default.
    """
    return [
        _storage_class("standard-rwo", DISK_DRIVER, {"type": "pd-balanced"}, default=True),
        _storage_class("premium-rwo", DISK_DRIVER, {"type": "pd-ssd"}),
        _storage_class("standard", admission.LOCAL_PROVISIONER, {}),
    ]


def device_plugin(sharing: GpuSharing) -> list[Object]:
    """The device plugin of the local node, with the sharing of its pool; under MPS with its control daemon beside it."""
    selector = {"k8s-app": PLUGIN}
    config = yaml.safe_dump(plugin_config(sharing), sort_keys=False)
    container = _container(PLUGIN, ["--config-file=/config/config.yaml", "--fail-on-init-error=false"])
    container["volumeMounts"].append({"name": "device-plugins", "mountPath": DEVICE_PLUGINS})
    pod: Object = {
        "priorityClassName": "system-node-critical",
        "nodeSelector": {LOCAL_NODE: "true"},
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [
            {"name": "device-plugins", "hostPath": {"path": DEVICE_PLUGINS}},
            {"name": "config", "configMap": {"name": PLUGIN}},
        ],
    }
    if sharing.mode == "mps":
        _add_control_daemon(pod)
    # Another configuration is another pod: the plugin reads it when it starts.
    digest = hashlib.sha256(config.encode()).hexdigest()[:12]
    template = {"metadata": {"labels": selector, "annotations": {"isthmus.dev/configuration": digest}}, "spec": pod}
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": PLUGIN, "namespace": NAMESPACE, "labels": MANAGED},
            "data": {"config.yaml": config},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": PLUGIN, "namespace": NAMESPACE, "labels": {**selector, **MANAGED}},
            "spec": {"selector": {"matchLabels": selector}, "template": template},
        },
    ]


def _container(name: str, arguments: list[str], *, command: str | None = None) -> Object:
    return {
        "name": name,
        "image": PLUGIN_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        **({"command": [command]} if command else {}),
        "args": arguments,
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "config", "mountPath": "/config", "readOnly": True}],
    }


def _add_control_daemon(pod: Object) -> None:
    daemon = _container("mps-control-daemon", ["--config-file=/config/config.yaml"], command="mps-control-daemon")
    mounts = [{"name": "mps-root", "mountPath": "/mps"}, {"name": "mps-shm", "mountPath": "/dev/shm"}]
    for container in (pod["containers"][0], daemon):
        container["volumeMounts"] += mounts
    daemon["env"].append({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    pod["containers"].append(daemon)
    pod["containers"][0]["env"].append({"name": "MPS_ROOT", "value": MPS_ROOT})
    pod["volumes"] += [
        {"name": "mps-root", "hostPath": {"path": MPS_ROOT, "type": "DirectoryOrCreate"}},
        {"name": "mps-shm", "hostPath": {"path": f"{MPS_ROOT}/shm", "type": "DirectoryOrCreate"}},
    ]


def plugin_config(sharing: GpuSharing) -> Object:
    """The plugin's configuration: cards shared as GKE shares them, with one share at most per container."""
    config: Object = {"version": "v1"}
    if sharing.mode == "mig":
        config["flags"] = {"migStrategy": "single"}
    if sharing.mode == "mps":
        config["sharing"] = {"mps": {"resources": [{"name": GPU_RESOURCE, "replicas": sharing.clients}]}}
    elif sharing.replicas > 1:
        shared = {
            "failRequestsGreaterThanOne": True,
            "resources": [{"name": GPU_RESOURCE, "replicas": sharing.replicas}],
        }
        config["sharing"] = {"timeSlicing": shared}
    return config


def _storage_class(name: str, provisioner: str, parameters: dict[str, str], *, default: bool = False) -> Object:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true" if default else "false"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "labels": MANAGED, "annotations": annotations},
        "provisioner": provisioner,
        "parameters": parameters,
        "reclaimPolicy": "Delete",
        "allowVolumeExpansion": True,
        "volumeBindingMode": "WaitForFirstConsumer",
    }
