"""What a node offers of its cards, and waiting until it offers what it should."""

import contextlib
from typing import Any

from isthmus.kube import Cluster, wait
from isthmus.specs import labels
from isthmus.specs.errors import NotReady

SECONDS = 120.0
"""For a node to advertise what it should: 3 to 6 s, and 36 s when the device plugin started before the MPS control
daemon, which it looks for every 30 s."""

RESTART_SECONDS = 12.0
"""For a restarted device plugin's cards to be seen gone: the plugin's grace period and the kubelet's next report (every 2 s
on a local node, 10 s elsewhere unless set). Where it came back sooner they never are."""


def advertised(node: dict[str, Any], part: str = "allocatable") -> dict[str, int]:
    """The cards that pods can ask for. A kubelet goes on naming a resource that is gone, with 0."""
    amounts = node["status"].get(part) or {}
    return {name: int(value) for name, value in amounts.items() if name.startswith("nvidia.com/") and value != "0"}


def expect(
    kube: Cluster,
    node: str,
    wanted: dict[str, int],
    *,
    seconds: float = SECONDS,
    remedy: str = "",
) -> None:
    """Wait until a node's allocatable cards are these.

    Raises:
        NotReady: they are not in time; the message says what it advertises instead.
    """
    wait.until(
        lambda: advertised(kube.get("v1", "Node", node)) == wanted,
        seconds=seconds,
        what=f"node {node} to advertise {_shown(wanted)}",
        why=lambda: f"it advertises {_shown(advertised(kube.get('v1', 'Node', node)))}",
        subject=f"node {node}",
        remedy=remedy,
    )


def expect_anew(kube: Cluster, node: str, wanted: dict[str, int], *, remedy: str = "") -> None:
    """Wait until a node's device plugin, which restarts, advertises these cards.

    The plugin before may have advertised the same number, and the node goes on saying so until the kubelet's next report:
    then that is seen to go first.
    """
    found = kube.get("v1", "Node", node)
    restarts = (found["metadata"].get("labels") or {}).get(labels.SIMULATED_NODE) != "true"
    if wanted and restarts and advertised(found) == wanted:
        with contextlib.suppress(NotReady):
            wait.until(
                lambda: advertised(kube.get("v1", "Node", node)) != wanted,
                seconds=RESTART_SECONDS,
                what=f"the device plugin of {node} to restart",
            )
    expect(kube, node, wanted, remedy=remedy)


def _shown(cards: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in cards.items()) or "no cards"
