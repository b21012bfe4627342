"""The agent's loop: look at each node once a second and do what its labels ask for."""

import contextlib
import logging
import signal
import sys
import threading
from typing import Any

from isthmus.kube import Cluster
from isthmus.localcluster.agent import layouts, nodes
from isthmus.localcluster.agent.driver import Driver
from isthmus.specs import labels
from isthmus.specs.errors import IsthmusError

SECONDS = 1.0
_LOG = logging.getLogger(__name__)


def main() -> None:
    """Run until SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    kubeconfig, found = nodes.of(sys.argv[1])
    kube = Cluster(kubeconfig)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    drivers = [(node, Driver(kube, node)) for node in found]
    told: dict[str, str] = {}
    while not stopping.wait(SECONDS):
        for node, driver in drivers:
            problem = ""
            try:
                look(node, kube, driver)
            except (IsthmusError, OSError) as error:  # the API server restarts, a command holds the cluster: next time
                problem = str(error)
            if problem != told.get(node.name, ""):  # a cluster may be without its engine for days
                _LOG.info("%s: %s", node.name, problem or "well again")
                told[node.name] = problem
    for _, driver in drivers:
        with contextlib.suppress(IsthmusError, OSError):  # the cluster ends too
            driver.stop()


def look(node: nodes.Node, kube: Cluster, driver: Driver) -> None:
    """Bring cards and claims to what the node's labels say."""
    # Cards first: who changes both takes the label away before the cards, so new cards are never met with an old label.
    cards = node.cards()
    item: dict[str, Any] = kube.get("v1", "Node", node.name)
    found = item["metadata"].get("labels") or {}
    layouts.apply(node, kube, found, cards)
    driver.serve(wanted=found.get(labels.GPU_SHARING) == "dra")


if __name__ == "__main__":
    main()
