"""Simulated nodes: real Node objects that KWOK keeps alive and whose pods it plays, so that thousands fit one machine.

The real scheduler, controllers and quotas see them as any node; no container runs. KWOK manages only nodes with the
annotation below, so the local node stays the kubelet's. What pods on them do is data: stages.yaml.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from isthmus.specs.labels import MANAGED_BY, OWNER, SIMULATED_TAINT

if TYPE_CHECKING:
    from isthmus.kube import Cluster

ANNOTATION = "kwok.x-k8s.io/node"
ANNOTATION_VALUE = "fake"

LEASE_SECONDS = 40
"""The kubelet's own lease duration (kubelet.config.k8s.io/v1beta1 nodeLeaseDurationSeconds)."""

WORKERS = 8
"""Requests at once when many nodes are made."""

STAGES = Path(__file__).parent / "stages.yaml"

Object = dict[str, Any]


def config() -> str:
    """KWOK's configuration file: its options, then the stages."""
    options = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": {
            "manageAllNodes": False,
            "manageNodesWithAnnotationSelector": f"{ANNOTATION}={ANNOTATION_VALUE}",
            "nodeLeaseDurationSeconds": LEASE_SECONDS,
            "cidr": "10.248.0.0/14",
            # Enough workers for a thousand nodes and ten thousand pods; with KWOK's default of 4 they wait for each
            # other.
            "podPlayStageParallelism": 32,
            "nodePlayStageParallelism": 16,
            "nodeLeaseParallelism": 16,
        },
    }
    return yaml.safe_dump(options, sort_keys=False) + "---\n" + STAGES.read_text(encoding="utf-8")


def simulated_node(
    name: str,
    allocatable: Mapping[str, str],
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, str]] = (),
    *,
    capacity: Mapping[str, str] | None = None,
) -> Object:
    """The manifest of a simulated node.

    Args:
        allocatable: resource name to quantity: what pods may use, cards included ("nvidia.com/gpu": "4").
        labels: the pool's labels. kubernetes.io/hostname, os and arch are added.
        taints: the pool's taints. The taint isthmus.dev/simulated (NoSchedule) is added, so that only pods meant for
            simulated nodes land there.
        capacity: what the machine has; default: the same as allocatable.
    """
    always = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        MANAGED_BY: OWNER,
    }
    own_taint = {"key": SIMULATED_TAINT, "value": "true", "effect": "NoSchedule"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**always, **(labels or {})},
            "annotations": {ANNOTATION: ANNOTATION_VALUE},
        },
        "spec": {"taints": [own_taint, *(dict(taint) for taint in taints)]},
        "status": {"allocatable": dict(allocatable), "capacity": dict(capacity or allocatable)},
    }


def is_simulated(node: Mapping[str, Any]) -> bool:
    """Whether KWOK plays a node."""
    return bool((node["metadata"].get("annotations") or {}).get(ANNOTATION) == ANNOTATION_VALUE)


def add(cluster: "Cluster", nodes: Iterable[Object]) -> None:
    """Create simulated nodes, or bring existing ones to the same labels, taints and resources. Idempotent."""
    with ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(_add, cluster, node) for node in nodes]:
            done.result()


def remove(cluster: "Cluster", names: Iterable[str]) -> None:
    """Delete simulated nodes. Idempotent; Kubernetes then removes their pods."""
    with ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(cluster.delete, "v1", "Node", name) for name in names]:
            done.result()


def _add(cluster: "Cluster", node: Object) -> None:
    """One request for a new node: the API server takes a Node's status when it is created, and ignores it later."""
    held = cluster.apply(node).get("status") or {}
    change = {part: _difference(held.get(part) or {}, wanted) for part, wanted in node["status"].items()}
    if any(change.values()):
        cluster.patch("v1", "Node", node["metadata"]["name"], {"status": change}, subresource="status")


def _difference(held: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """The merge patch that makes `held` into `wanted`; empty when nothing is to be done."""
    gone: dict[str, str | None] = dict.fromkeys(held.keys() - wanted.keys())
    return gone | {name: value for name, value in wanted.items() if held.get(name) != value}
