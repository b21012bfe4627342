"""The DRA driver of a local node: it publishes the cards and serves the kubelet, while the node's label says so."""

import logging
import time

from isthmus import catalog
from isthmus.kube import Cluster
from isthmus.kube.claims import API, DRIVER
from isthmus.localcluster import driver as driver_root
from isthmus.localcluster.agent.claims import Claims
from isthmus.localcluster.agent.nodes import Node
from isthmus.localcluster.agent.plugin import Plugin
from isthmus.localcluster.resource_slices import devices, resource_slices
from isthmus.specs.cluster import GpuCards

RESTORE_SECONDS = 5.0
"""Between two looks whether all that claims hold is still there: in Docker, asking a control daemon costs 50 ms of a core."""

_LOG = logging.getLogger(__name__)


class Driver:
    """Serves or does not, as it is told."""

    def __init__(self, kube: Cluster, node: Node) -> None:
        self._kube, self._node = kube, node
        self._plugin: Plugin | None = None
        self._published: tuple[str, ...] = ()
        self._restore_at = 0.0
        self._claims = Claims(kube, node)

    def serve(self, *, wanted: bool) -> None:
        """Publish and serve, or stop both; called again and again."""
        if not wanted:
            self.stop()
            return
        root = self._node.root()
        if (
            self._plugin is not None and self._plugin.root != root
        ):  # the node was started again: its sockets went with it
            self._plugin.stop()
            self._plugin = None
        present = tuple(driver_root.uuids(self._node.driver))
        if present != self._published or self._plugin is None:
            self._publish(present)
            self._restore_at = 0.0
        if time.monotonic() >= self._restore_at:
            self._claims.restore()
            self._restore_at = time.monotonic() + RESTORE_SECONDS
        if self._plugin is None:
            _LOG.info("serving claims on %s as %s", self._node.name, DRIVER)
            self._plugin = Plugin(root, DRIVER, self._claims.prepare, self._claims.unprepare)

    def stop(self) -> None:
        """Serve no more, and take the published devices back."""
        if self._plugin is not None:
            self._plugin.stop()
            self._plugin = None
        if self._published:
            self._withdraw(set())
            self._published = ()

    def _publish(self, present: tuple[str, ...]) -> None:
        cards = [GpuCards(model=model, count=1) for model in driver_root.models(self._node.driver)]
        found = devices(catalog.load(), cards, present)
        self._claims.devices = {device.name: device for device in found}
        cuda = (driver_root.CUDA_VERSION // 1000, driver_root.CUDA_VERSION % 1000 // 10)
        slices = resource_slices(self._node.name, found, driver_version=driver_root.DRIVER_VERSION, cuda=cuda)
        for item in slices:
            self._kube.apply(item)
        self._withdraw({item["metadata"]["name"] for item in slices})
        self._published = present

    def _withdraw(self, kept: set[str]) -> None:
        for item in self._kube.list(API, "ResourceSlice", fields=f"spec.nodeName={self._node.name}"):
            if item["spec"]["driver"] == DRIVER and item["metadata"]["name"] not in kept:
                self._kube.delete(API, "ResourceSlice", item["metadata"]["name"])
