"""The local clusters behind simulated control planes: their names, and how the simulation reaches them.

The one place that touches isthmus.localcluster, so that tests can put a runtime of their own in its place (`use`).
A local cluster outlives the provider process: its supervisor is its own session, found again by its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from isthmus.localcluster.objects import STORAGE_CLASS
from isthmus.simulation import admission
from isthmus.simulation.names import local_name
from isthmus.specs.errors import IsthmusError

ADMISSION_SECONDS = 120.0
"""It takes about a second; the rest is for a machine under load."""

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

    def admit(self, cluster: LocalCluster) -> None:
        """Put the policies of admission.py into a cluster; returns when they act."""
        ...

    def delete(self, cluster: LocalCluster, manifests: Iterable[Mapping[str, Any]]) -> None:
        """Delete the objects of these manifests; those that are gone are no error."""
        ...

    def load_disk_driver(self, cluster: LocalCluster) -> None:
        """Bring the image of disks.py into the cluster."""
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

        return runtime.EveryRuntime()

    def apply(self, cluster: LocalCluster, manifests: Iterable[Mapping[str, Any]]) -> None:
        client = self._client(cluster)
        for manifest in manifests:
            client.apply(manifest)

    def admit(self, cluster: LocalCluster) -> None:
        from isthmus.kube import wait

        self.apply(cluster, admission.manifests())
        client = self._client(cluster)
        # The policy keeps it so when the local cluster applies its own objects again, at the next start.
        no_default = {"metadata": {"annotations": {admission.DEFAULT_CLASS: "false"}}}
        client.patch("storage.k8s.io/v1", "StorageClass", STORAGE_CLASS, no_default)
        answers: list[str] = []

        def act() -> bool:
            try:
                return all(admission.acted_on(client.apply(probe, dry_run=True)) for probe in admission.probes())
            except IsthmusError as error:  # the namespace's service account is made a moment after the namespace
                answers.append(error.message)
                return False

        wait.until(
            act,
            seconds=ADMISSION_SECONDS,
            what="the admission policies to act",
            why=lambda: answers[-1] if answers else "",
            subject=f"local cluster {cluster.name}",
        )

    def delete(self, cluster: LocalCluster, manifests: Iterable[Mapping[str, Any]]) -> None:
        client = self._client(cluster)
        for manifest in manifests:
            metadata = manifest["metadata"]
            client.delete(manifest["apiVersion"], manifest["kind"], metadata["name"], metadata.get("namespace"))

    def load_disk_driver(self, cluster: LocalCluster) -> None:
        from isthmus.simulation import disks

        cluster.load_image(disks.archive())

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
