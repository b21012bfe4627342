"""What kind is asked for: its configuration file, as text. Pure.

Field names: kind.x-k8s.io/v1alpha4 (kind v0.33). The document is JSON, which is YAML.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from isthmus.localcluster.runtime import LocalNode

POD_SUBNET = "10.244.0.0/16"
"""kind's own default; images/node/default-cni.yaml names it too."""

NODE_FOLDER = "/kind/isthmus"
"""Where a node finds its own folder of the cluster's folder: the OCI runtime and the driver root."""

BUCKETS = "/kind/buckets"
"""Where every node finds the folders that stand for the cluster's buckets."""

VISIBLE = "/var/run/nvidia-container-devices"
"""A mount of /dev/null below it asks NVIDIA's container toolkit for the card of that index."""

OCI_RUNTIME = "oci-runtime"
DRIVER = "driver"

_RUNTIME_SECTIONS = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
"""containerd's two forms of configuration. kind applies a patch of the form that the node's file has."""


def document(
    name: str,
    nodes: Sequence[LocalNode],
    folders: Sequence[Path],
    buckets: Path,
    *,
    devices: Sequence[Sequence[int]],
    cgroup_v1: bool,
    restricted: bool,
) -> str:
    """The configuration of a cluster.

    Args:
        nodes: the first one runs the control plane.
        folders: of each node, on this machine; mounted into the node, and the mark by which it is known as ours.
        buckets: folder of this machine that all of them have mounted.
        devices: of each node, the indexes of this machine's own cards that it gets.
        cgroup_v1: the host has only version 1, which a kubelet refuses unless it is told.
        restricted: the host lacks CAP_SYS_RESOURCE, so that a negative OOM score cannot be set.
    """
    patches = [_yaml({"kind": "KubeletConfiguration", **_kubelet(cgroup_v1=cgroup_v1)})]
    containerd = [_containerd(form, restricted=restricted) for form in _RUNTIME_SECTIONS]
    return json.dumps(
        {
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "name": name,
            "networking": {"kubeProxyMode": "nftables", "podSubnet": POD_SUBNET, "apiServerAddress": "127.0.0.1"},
            "kubeadmConfigPatches": patches,
            "containerdConfigPatches": containerd,
            "nodes": [
                _node(node, [*_mounts(folder, buckets), *map(_card, cards)], first=index == 0, alone=len(nodes) == 1)
                for index, (node, folder, cards) in enumerate(zip(nodes, folders, devices, strict=True))
            ],
        },
        indent=1,
    )


def _mounts(folder: Path, buckets: Path) -> list[dict[str, str]]:
    return [
        {"hostPath": str(folder), "containerPath": NODE_FOLDER},
        {"hostPath": str(buckets), "containerPath": BUCKETS},
    ]


def _card(index: int) -> dict[str, str]:
    return {"hostPath": "/dev/null", "containerPath": f"{VISIBLE}/{index}"}


def _node(node: LocalNode, mounts: list[dict[str, str]], *, first: bool, alone: bool) -> dict[str, Any]:
    registration = {"taints": [dict(taint) for taint in node.taints]}
    kind = "InitConfiguration" if first else "JoinConfiguration"
    # Alone, a control plane gets its usual taint: kind takes it away itself, and fails if it is not there.
    patches = [] if alone else [_yaml({"kind": kind, "nodeRegistration": registration})]
    return {
        "role": "control-plane" if first else "worker",
        "labels": dict(node.labels),
        "extraMounts": mounts,
        "kubeadmConfigPatches": patches,
    }


def _kubelet(*, cgroup_v1: bool) -> dict[str, Any]:
    # A full disk of a shared machine is not the node's own, and images cannot be fetched again: nothing is cleaned up.
    settings = {
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi"},
        "syncFrequency": "5s",
    }
    return settings | ({"failCgroupV1": False} if cgroup_v1 else {})


def _containerd(form: int, *, restricted: bool) -> str:
    section = _RUNTIME_SECTIONS[form]
    scores = f'[plugins."{section}"]\n  restrict_oom_score_adj = true\n' if restricted else ""
    return (
        f'version = {form}\n{scores}[plugins."{section}".containerd.runtimes.runc.options]\n'
        f'  BinaryName = "{NODE_FOLDER}/{OCI_RUNTIME}"\n'
    )


def _yaml(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False)
