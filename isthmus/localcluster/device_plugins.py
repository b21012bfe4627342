"""Restarting device plugins and MPS control daemons on a local node, so that they count the node's cards anew."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isthmus.kube import Cluster

FOLDERS = {"/var/lib/kubelet/device-plugins", "/run/nvidia/mps"}
"""Where the kubelet listens for device plugins, and where MPS control daemons have their pipes: a pod that mounts one of
them counts cards when it starts."""


def restart(cluster: "Cluster", node: str) -> None:
    """Restart every device plugin of a node.

    A deleted pod is made anew by its DaemonSet at once, where a killed container would wait out the kubelet's back-off. It is
    deleted in good order, whatever that takes: its successor is made only when it is gone, and an old plugin that ends
    beside a new one leaves the node without cards.
    """
    for pod in cluster.list("v1", "Pod", fields=f"spec.nodeName={node}"):
        folders = [(volume.get("hostPath") or {}).get("path", "") for volume in pod["spec"].get("volumes") or ()]
        if any(folder.rstrip("/") in FOLDERS for folder in folders):
            cluster.delete("v1", "Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
