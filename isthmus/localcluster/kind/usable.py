"""What keeps a kind cluster from being used, in words; and on the way the objects that make it usable."""

from typing import TYPE_CHECKING

from isthmus.kube.objects import holds
from isthmus.localcluster import pod_policies
from isthmus.localcluster.kind import nodes, objects
from isthmus.localcluster.kind.state import State

if TYPE_CHECKING:
    from isthmus.kube import Cluster


def problem(cluster: "Cluster", state: State) -> str:
    """Why pods cannot be made on every node yet; "" when nothing is in the way. Labels and taints of nodes, KWOK and the cap
    on requests are put in place.

    Raises:
        IsthmusError: the API server does not do what it is asked yet.
    """
    waiting = set(state.node_names()) - ready_nodes(cluster)
    if waiting:
        return f"{min(waiting)} is not ready"
    for name, (node, devices) in zip(state.node_names(), state.with_devices(), strict=True):
        nodes.describe(cluster, name, node, real=bool(devices))
    for manifest in objects.manifests():
        cluster.apply(manifest)
    cluster.get("v1", "ServiceAccount", "default", "default")  # pods cannot be made before it is there
    if not pod_policies.is_capped(cluster.apply(pod_policies.probe(), dry_run=True)):
        return "the cap on requests does not act yet"
    for deployment in ("coredns", objects.NAME):
        found = cluster.get("apps/v1", "Deployment", deployment, objects.NAMESPACE)
        if not found.get("status", {}).get("availableReplicas"):
            return f"{deployment} does not run yet"
    return ""


def ready_nodes(cluster: "Cluster") -> set[str]:
    """Names of the nodes that are ready."""
    return {node["metadata"]["name"] for node in cluster.list("v1", "Node") if holds(node, "Ready")}
