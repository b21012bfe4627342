"""The agent's loop: look at the node once a second and do what its labels ask for."""

import logging
import signal
import sys
import threading
from typing import Any

from isthmus.kube import Cluster
from isthmus.localcluster.agent import layouts
from isthmus.localcluster.agent.driver import Driver
from isthmus.localcluster.embedded import EmbeddedCluster
from isthmus.specs import labels
from isthmus.specs.errors import IsthmusError

SECONDS = 1.0
_LOG = logging.getLogger(__name__)


def main() -> None:
    """Run until SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    cluster = EmbeddedCluster(sys.argv[1])
    kube = Cluster(cluster.kubeconfig())
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    driver = Driver(kube, cluster)
    while not stopping.wait(SECONDS):
        try:
            look(cluster, kube, driver)
        except (IsthmusError, OSError) as error:  # the API server restarts, a command holds the cluster: next time
            _LOG.info("%s", error)
    driver.stop()


def look(cluster: EmbeddedCluster, kube: Cluster, driver: Driver) -> None:
    """Bring cards and claims to what the node's labels say."""
    # Cards first: who changes both takes the label away before the cards, so new cards are never met with an old label.
    cards = cluster.cards()
    node: dict[str, Any] = kube.get("v1", "Node", cluster.local_node())
    found = node["metadata"].get("labels") or {}
    layouts.apply(cluster, kube, found, cards)
    driver.serve(wanted=found.get(labels.GPU_SHARING) == "dra")


if __name__ == "__main__":
    main()
