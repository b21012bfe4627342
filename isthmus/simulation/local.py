"""The local clusters behind simulated control planes: their names, and how the simulation reaches them.

The one place that touches isthmus.localcluster, so that tests can put a runtime of their own in its place (`use`).
A local cluster outlives the provider process: its supervisor is its own session, found again by its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from isthmus.simulation.names import local_name

__all__ = ["Backend", "backend", "local_name", "use"]

if TYPE_CHECKING:
    from isthmus.kube import Cluster
    from isthmus.localcluster.runtime import LocalCluster, Runtime


class Backend(Protocol):
    """Local clusters, and what the simulation does inside them."""

    def runtime(self) -> Runtime:
        """What makes local clusters here."""
        ...

    def apply(self, cluster: LocalCluster, manifests: Iterable[Mapping[str, Any]]) -> None:
        """Bring objects to these manifests (server-side apply)."""
        ...

    def simulated_nodes(self, cluster: LocalCluster) -> dict[str, dict[str, Any]]:
        """The simulated nodes there are, by name."""
        ...

    def add_nodes(self, cluster: LocalCluster, nodes: Iterable[dict[str, Any]]) -> None:
        """Create simulated nodes or bring existing ones to these manifests."""
        ...

    def remove_nodes(self, cluster: LocalCluster, names: Iterable[str]) -> None:
        """Delete simulated nodes; those that are gone are no error."""
        ...


class _Real:
    """The local clusters of this machine, over isthmus.localcluster and isthmus.kube."""

    def runtime(self) -> Runtime:
        from isthmus.localcluster import runtime

        return runtime.choose()

    def apply(self, cluster: LocalCluster, manifests: Iterable[Mapping[str, Any]]) -> None:
        client = self._client(cluster)
        for manifest in manifests:
            client.apply(manifest)

    def simulated_nodes(self, cluster: LocalCluster) -> dict[str, dict[str, Any]]:
        from isthmus.localcluster import kwok

        return {
            node["metadata"]["name"]: node
            for node in self._client(cluster).list("v1", "Node")
            if kwok.is_simulated(node)
        }

    def add_nodes(self, cluster: LocalCluster, nodes: Iterable[dict[str, Any]]) -> None:
        from isthmus.localcluster import kwok

        kwok.add(self._client(cluster), nodes)

    def remove_nodes(self, cluster: LocalCluster, names: Iterable[str]) -> None:
        from isthmus.localcluster import kwok

        kwok.remove(self._client(cluster), names)

    def _client(self, cluster: LocalCluster) -> Cluster:
        from isthmus.kube import Cluster

        return Cluster(cluster.kubeconfig())


_backend: Backend = _Real()


def backend() -> Backend:
    """Where local clusters come from."""
    return _backend


def use(other: Backend) -> Backend:
    """Put another backend in place (tests only); returns the one before."""
    global _backend
    before, _backend = _backend, other
    return before
