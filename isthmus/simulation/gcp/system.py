"""What GKE itself puts into every cluster: its storage classes, and its device plugin where a pool has cards.

Google's device plugin is not public as a program, so NVIDIA's own runs in its place, under the name of Google's
DaemonSet, on the node that runs containers. COVERAGE.md says so. Pure.
"""

from __future__ import annotations

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
    """The device plugin of the local node, with the sharing of its pool."""
    selector = {"k8s-app": PLUGIN}
    container = {
        "name": PLUGIN,
        "image": PLUGIN_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": ["--config-file=/config/config.yaml", "--fail-on-init-error=false"],
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "device-plugins", "mountPath": DEVICE_PLUGINS},
            {"name": "config", "mountPath": "/config", "readOnly": True},
        ],
    }
    template = {
        "metadata": {"labels": selector},
        "spec": {
            "priorityClassName": "system-node-critical",
            "nodeSelector": {LOCAL_NODE: "true"},
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            "volumes": [
                {"name": "device-plugins", "hostPath": {"path": DEVICE_PLUGINS}},
                {"name": "config", "configMap": {"name": PLUGIN}},
            ],
        },
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": PLUGIN, "namespace": NAMESPACE, "labels": MANAGED},
            "data": {"config.yaml": yaml.safe_dump(plugin_config(sharing), sort_keys=False)},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": PLUGIN, "namespace": NAMESPACE, "labels": {**selector, **MANAGED}},
            "spec": {"selector": {"matchLabels": selector}, "template": template},
        },
    ]


def plugin_config(sharing: GpuSharing) -> Object:
    """The plugin's configuration: cards shared as GKE shares them, with one share at most per container."""
    if sharing.mode == "none":
        return {"version": "v1"}
    shared = {
        "failRequestsGreaterThanOne": True,
        "resources": [{"name": GPU_RESOURCE, "replicas": sharing.replicas}],
    }
    return {"version": "v1", "sharing": {"timeSlicing": shared}}


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
