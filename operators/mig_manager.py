"""NVIDIA's MIG manager v0.14.5: cuts the cards of a node as the node's label nvidia.com/mig.config says.

The layouts are those of the node pools, in the manager's own format (nvidia-mig-parted). It stops what uses the cards,
changes them, and reports in the label nvidia.com/mig.config.state. The DaemonSet follows upstream's example
(NVIDIA/mig-parted deployments/container/nvidia-mig-manager-example.yaml, read 2026-11-30), without its list of systemd
services of DGX machines, and with rights on what it reads and writes alone. It runs
where the node pool has set nvidia.com/gpu.deploy.mig-manager, as upstream's does.
"""

from collections.abc import Iterable

from isthmus.specs import labels
from isthmus.specs.sharing import MIG_OFF, GpuSharing
from operators import configured
from operators.manifests import Object

NAME = "nvidia-mig-manager"
IMAGE = "nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.14.5"


def configuration(sharings: Iterable[GpuSharing]) -> str:
    """The manager's file: every layout by name, and one that switches MIG off."""
    import yaml

    layouts = {sharing.layout_name: sharing.layout for sharing in sharings if sharing.mode == "mig"}
    configs: Object = {MIG_OFF: [{"devices": "all", "mig-enabled": False}]}
    for name in sorted(layouts):
        configs[name] = [{"devices": "all", "mig-enabled": True, "mig-devices": dict(layouts[name])}]
    return yaml.safe_dump({"version": "v1", "mig-configs": configs}, sort_keys=False)


def manifests(sharings: Iterable[GpuSharing], *, namespace: str) -> list[Object]:
    """The manager's objects; none where no pool is cut."""
    import yaml

    wanted = [sharing for sharing in sharings if sharing.mode == "mig"]
    if not wanted:
        return []
    clients = yaml.safe_dump({"version": "v1", "systemd-services": []})
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch", "update"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "delete"]},
    ]
    return [
        *configured.access(NAME, namespace, rules),
        _object(
            "v1",
            "ConfigMap",
            namespace,
            data={"config.yaml": configuration(wanted), "clients.yaml": clients},
        ),
        _daemon_set(namespace),
    ]


def _daemon_set(namespace: str) -> Object:
    selector = {"app": NAME}
    values = {
        "CONFIG_FILE": "/mig-parted-config/config.yaml",
        "GPU_CLIENTS_FILE": "/mig-parted-config/clients.yaml",
        "HOST_ROOT_MOUNT": "/host",
        "HOST_NVIDIA_DIR": "/usr/local/nvidia",
        "HOST_KUBELET_SYSTEMD_SERVICE": "kubelet.service",
        "HOST_MIG_MANAGER_STATE_FILE": "/etc/systemd/system/nvidia-mig-manager.service.d/override.conf",
        "DEFAULT_GPU_CLIENTS_NAMESPACE": namespace,
        "WITH_SHUTDOWN_HOST_GPU_CLIENTS": "true",
        "WITH_REBOOT": "false",
    }
    container = {
        "name": NAME,
        "image": IMAGE,
        "env": [
            configured.NODE_NAME,
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
            {
                "name": "POD_NAMESPACE",
                "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            },
            *({"name": name, "value": value} for name, value in values.items()),
        ],
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "host-root", "mountPath": "/host"},
            {"name": "host-sys", "mountPath": "/sys"},
            {"name": "config", "mountPath": "/mig-parted-config"},
        ],
    }
    pod = {
        "hostPID": True,
        "hostIPC": True,
        "serviceAccountName": NAME,
        "priorityClassName": "system-node-critical",
        "nodeSelector": {labels.MIG_MANAGER: "true"},
        "tolerations": [{"operator": "Exists"}],  # also while the node is drained
        "containers": [container],
        "volumes": [
            {"name": "host-root", "hostPath": {"path": "/", "type": "Directory"}},
            {"name": "host-sys", "hostPath": {"path": "/sys", "type": "Directory"}},
            {"name": "config", "configMap": {"name": NAME}},
        ],
    }
    template = {"metadata": {"labels": selector}, "spec": pod}
    return _object(
        "apps/v1", "DaemonSet", namespace, spec={"selector": {"matchLabels": selector}, "template": template}
    )


def _object(version: str, kind: str, namespace: str, **content: object) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": NAME, "namespace": namespace}, **content}
