"""The DRA driver of the local node: it publishes the cards and serves the kubelet, while the node's label says so."""

import logging
from pathlib import Path

from isthmus import catalog
from isthmus.kube import Cluster
from isthmus.kube.claims import API, DRIVER
from isthmus.localcluster import driver as driver_root
from isthmus.localcluster.agent.claims import Claims
from isthmus.localcluster.agent.plugin import Plugin
from isthmus.localcluster.embedded import EmbeddedCluster
from isthmus.localcluster.resource_slices import devices, resource_slices
from isthmus.specs.cluster import GpuCards

CDI, MPS = Path("/run/cdi"), Path("/run/nvidia/claims")
"""In the cluster's mount namespace."""

_LOG = logging.getLogger(__name__)


class Driver:
    """Serves or does not, as it is told."""

    def __init__(self, kube: Cluster, cluster: EmbeddedCluster) -> None:
        self._kube, self._node, self._root = kube, cluster.local_node(), cluster.paths.driver
        self._plugin: Plugin | None = None
        self._published: tuple[str, ...] = ()
        record = cluster.paths.folder / "claims.json"
        self._claims = Claims(kube, root=self._root, cdi=CDI, mps=MPS, record=record)

    def serve(self, *, wanted: bool) -> None:
        """Publish and serve, or stop both; called again and again."""
        if not wanted:
            self.stop()
            return
        present = tuple(driver_root.uuids(self._root))
        if present != self._published or self._plugin is None:
            self._publish(present)
        self._claims.restore()
        if self._plugin is None:
            _LOG.info("serving claims as %s", DRIVER)
            self._plugin = Plugin(DRIVER, self._claims.prepare, self._claims.unprepare)

    def stop(self) -> None:
        """Serve no more, and take the published devices back."""
        if self._plugin is not None:
            self._plugin.stop()
            self._plugin = None
        if self._published:
            self._withdraw(set())
            self._published = ()

    def _publish(self, present: tuple[str, ...]) -> None:
        cards = [GpuCards(model=model, count=1) for model in driver_root.models(self._root)]
        found = devices(catalog.load(), cards, present)
        self._claims.devices = {device.name: device for device in found}
        cuda = (driver_root.CUDA_VERSION // 1000, driver_root.CUDA_VERSION % 1000 // 10)
        slices = resource_slices(self._node, found, driver_version=driver_root.DRIVER_VERSION, cuda=cuda)
        for item in slices:
            self._kube.apply(item)
        self._withdraw({item["metadata"]["name"] for item in slices})
        self._published = present

    def _withdraw(self, kept: set[str]) -> None:
        for item in self._kube.list(API, "ResourceSlice", fields=f"spec.nodeName={self._node}"):
            if item["spec"]["driver"] == DRIVER and item["metadata"]["name"] not in kept:
                self._kube.delete(API, "ResourceSlice", item["metadata"]["name"])
