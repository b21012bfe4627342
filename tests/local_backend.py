"""A stand-in for local clusters that keeps them as files, for tests of the simulated clouds.

It knows nothing of processes and networks: a cluster is a JSON file in a folder, so that several processes see the same
clusters and a kill -9 in the middle of a create leaves what a real one would: a half-made cluster.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.localcluster.runtime import ClusterStatus, LocalClusterConfig
from isthmus.simulation import admission
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import NotFound

CA = "-----BEGIN CERTIFICATE-----\ntest\n-----END CERTIFICATE-----\n"


@dataclass
class FileCluster:
    """One cluster, as a file."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def endpoint(self) -> str:
        return "https://192.0.2.1:6443"

    @property
    def ca_certificate(self) -> str:
        return CA

    @property
    def document(self) -> dict[str, Any]:
        """Everything there is of it."""
        return dict(json.loads(self.path.read_text()))

    def change(self, **values: Any) -> None:
        """Write some of it."""
        self.rewrite(lambda document: {**document, **values})

    def rewrite(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Read, change and write it as one step, also between processes; readers always see a whole document."""
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            temporary = self.path.with_suffix(".new")
            temporary.write_text(json.dumps(change(self.document)))
            temporary.replace(self.path)

    def start(self) -> None:
        self.change(running=True)

    def stop(self) -> None:
        self.change(running=False)

    def delete(self) -> None:
        self.path.unlink(missing_ok=True)
        self.path.with_suffix(".lock").unlink(missing_ok=True)

    def status(self) -> ClusterStatus:
        return ClusterStatus(self.name, "running" if self.document["running"] else "stopped")

    def kubeconfig(self) -> dict[str, Any]:
        return {}

    def client_certificate(self, user: str, groups: tuple[str, ...], minutes: int) -> tuple[str, str]:
        return f"certificate {user} {','.join(groups)} {minutes}", "key"

    def load_image(self, archive: Path) -> None: ...

    def logs(self, component: str) -> Path:
        return self.path

    def set_cards(self, cards: GpuCards | None) -> None:
        self.change(cards=cards.model_dump() if cards else None)

    def local_node(self) -> str:
        return f"{self.name}-node"


class FileBackend:
    """isthmus.simulation.local.Backend over a folder; also the runtime it gives out."""

    name = "file"

    def __init__(self, folder: Path, create_seconds: float = 0.0) -> None:
        self.folder = folder
        self.create_seconds = create_seconds
        folder.mkdir(parents=True, exist_ok=True)

    def runtime(self) -> FileBackend:
        return self

    def available(self) -> str | None:
        return None

    def create(self, name: str, config: LocalClusterConfig) -> FileCluster:
        cluster = FileCluster(self.folder / f"{name}.json")
        if not cluster.path.exists():
            cluster.path.write_text(json.dumps({"running": False, "made": 0, "nodes": {}, "objects": []}))
            time.sleep(self.create_seconds)
        made = cluster.document["made"] if cluster.document["running"] else cluster.document["made"] + 1
        (node,) = config.nodes
        cards = node.cards.model_dump() if node.cards else None
        cluster.change(labels=dict(node.labels), cards=cards, running=True, made=made)
        return cluster

    def get(self, name: str) -> FileCluster:
        cluster = FileCluster(self.folder / f"{name}.json")
        if not cluster.path.exists():
            raise NotFound(f"there is no local cluster {name!r}")
        return cluster

    def list(self) -> list[FileCluster]:
        return [FileCluster(path) for path in sorted(self.folder.glob("*.json"))]

    def apply(self, cluster: FileCluster, manifests: Iterable[Mapping[str, Any]]) -> None:
        names = [f"{item['kind']}/{item['metadata']['name']}" for item in manifests]
        cluster.rewrite(lambda old: {**old, "objects": sorted({*old["objects"], *names})})

    def admit(self, cluster: FileCluster) -> None:
        self.apply(cluster, admission.manifests())

    def delete(self, cluster: FileCluster, manifests: Iterable[Mapping[str, Any]]) -> None:
        gone = {f"{item['kind']}/{item['metadata']['name']}" for item in manifests}
        cluster.rewrite(lambda old: {**old, "objects": sorted(set(old["objects"]) - gone)})

    def load_disk_driver(self, cluster: FileCluster) -> None:
        cluster.change(disk_driver=True)

    def simulated_nodes(self, cluster: FileCluster) -> dict[str, dict[str, Any]]:
        return dict(cluster.document["nodes"])

    def add_nodes(self, cluster: FileCluster, nodes: Iterable[dict[str, Any]]) -> None:
        added = {node["metadata"]["name"]: node for node in nodes}
        cluster.rewrite(lambda old: {**old, "nodes": {**old["nodes"], **added}})

    def remove_nodes(self, cluster: FileCluster, names: Iterable[str]) -> None:
        gone = set(names)
        cluster.rewrite(
            lambda old: {**old, "nodes": {name: node for name, node in old["nodes"].items() if name not in gone}}
        )
