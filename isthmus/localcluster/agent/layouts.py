"""Cutting a local node's cards as its label says: what NVIDIA's MIG manager does on nodes with real ones.

As there, cards that a pod holds are not cut: the state is `failed` until the pods are gone.
"""

import logging
from collections.abc import Mapping
from typing import Any

from isthmus.kube import Cluster
from isthmus.localcluster.agent.nodes import Node
from isthmus.specs import labels
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.sharing import layout_named

_LOG = logging.getLogger(__name__)


def apply(node: Node, kube: Cluster, found: Mapping[str, str], cards: GpuCards | None) -> None:
    """Cut the cards as the node's labels ask for, if they are not yet, and report.

    Args:
        found: the node's labels.
        cards: what the node had before its labels were read.
    """
    name = found.get(labels.MIG_CONFIG, "")
    if not name:
        return
    layout = layout_named(name)
    if cards is None or layout is None:
        _report(node, kube, found, "failed")
        return
    if dict(cards.layout) == dict(layout):
        _report(node, kube, found, "success")
        return
    if holders(kube, node.name):
        _report(node, kube, found, "failed")
        return
    _report(node, kube, found, "pending")
    _LOG.info("cutting the cards of %s: %s", node.name, name)
    try:
        node.set_cards(GpuCards(model=cards.model, count=cards.count, layout=layout))
    except InvalidSpec as error:
        _LOG.info("%s", error.message)
        _report(node, kube, {}, "failed")
        return
    _report(node, kube, {}, "success")


def holders(kube: Cluster, node: str) -> list[dict[str, Any]]:
    """Pods of a node that hold cards of the device plugin and have not ended."""
    return [
        pod
        for pod in kube.list("v1", "Pod", fields=f"spec.nodeName={node}")
        if pod.get("status", {}).get("phase") in {"Pending", "Running"} and asks_for_cards(pod)
    ]


def asks_for_cards(pod: Mapping[str, Any]) -> bool:
    """Whether a container of a pod asks for a resource of the device plugin."""
    containers = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
    limits = (((container.get("resources") or {}).get("limits") or {}) for container in containers)
    return any(name.startswith("nvidia.com/") for limit in limits for name in limit)


def _report(node: Node, kube: Cluster, found: Mapping[str, str], state: str) -> None:
    if found.get(labels.MIG_STATE) != state:
        kube.patch("v1", "Node", node.name, {"metadata": {"labels": {labels.MIG_STATE: state}}})
