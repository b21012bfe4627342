"""How the pods of a run end that is being stopped. They may use their grace period to finish: then the run is over, and must not
be done again elsewhere. A watch tells it, since a pod's last state comes with the word that it is gone; a look may be too late.
"""

from __future__ import annotations

import threading
import time

from isthmus.kube.client import Cluster, Object
from isthmus.runs.model import Replica, Run
from isthmus.runs.observe import replica
from isthmus.specs.errors import IsthmusError

WATCH_SECONDS = 30
AGAIN_SECONDS = 0.2


class Endings:
    """The last state of each pod of a run since this was made; to be closed."""

    def __init__(self, cluster: Cluster, run: Run) -> None:
        self._cluster, self._run = cluster, run
        self._last: dict[str, Object] = {}
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name=f"endings-{run.id}", daemon=True).start()

    def close(self) -> None:
        """Take in nothing more."""
        self._closed.set()

    def replicas(self) -> list[Replica]:
        """Each pod as it was last seen."""
        return [replica(pod) for pod in list(self._last.values())]

    def well(self) -> bool:
        """Whether every process of the run has ended by itself, with exit code 0."""
        good = {(item.role, item.rank) for item in self.replicas() if item.exit_code == 0}
        return len(good) == self._run.spec.pods

    def _watch(self) -> None:
        while not self._closed.is_set():
            try:
                events = self._cluster.watch(
                    "v1", "Pod", self._run.namespace, selector=self._run.selector, seconds=WATCH_SECONDS
                )
                for _, pod in events:
                    self._last[str(pod["metadata"]["uid"])] = pod
            except IsthmusError:
                time.sleep(AGAIN_SECONDS)  # the API server is away
