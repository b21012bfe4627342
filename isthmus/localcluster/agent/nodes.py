"""The nodes that an agent looks after: the one of an embedded cluster, in whose namespaces it runs, or every node of a kind
cluster, which it reaches from this machine."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from isthmus.localcluster import driver, processes
from isthmus.localcluster.embedded import EmbeddedCluster
from isthmus.localcluster.kind import KindCluster, docker
from isthmus.localcluster.kind.config import DRIVER, NODE_FOLDER
from isthmus.localcluster.runtime import EveryRuntime
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import NotReady

CONTROL_SECONDS = 20.0


class Node(Protocol):
    """What the agent needs of a node."""

    name: str
    driver: Path
    """Its driver root, as this process sees it."""
    record: Path
    """Where the agent notes which claims are prepared."""

    def root(self) -> Path:
        """Its file system, as this process sees it.

        Raises:
            NotReady: it does not run, or cannot be reached.
        """
        ...

    def cards(self) -> GpuCards | None:
        """What its driver root shows."""
        ...

    def set_cards(self, cards: GpuCards) -> None:
        """Change that, and restart its device plugin."""
        ...

    def control_mps(self, *words: str, environment: Mapping[str, str], text: str = "") -> bool:
        """Run the MPS control program there; whether it succeeded.

        Args:
            environment: paths in it are the node's own.
            text: for its standard input.
        """
        ...


class EmbeddedNode:
    """The node of an embedded cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.name = cluster.local_node()
        self.driver, self.record = cluster.paths.driver, cluster.paths.folder / "claims.json"

    def root(self) -> Path:
        """See Node.root: the supervisor has put this process into the cluster's mount namespace."""
        return Path("/")

    def cards(self) -> GpuCards | None:
        """See Node.cards."""
        return self._cluster.cards()

    def set_cards(self, cards: GpuCards) -> None:
        """See Node.set_cards."""
        self._cluster.set_cards(cards)

    def control_mps(self, *words: str, environment: Mapping[str, str], text: str = "") -> bool:
        """See Node.control_mps."""
        return _run([str(self.driver / driver.MPS), *words], text, environment)


class KindNode:
    """A node of a kind cluster: a container, whose files are below /proc/PID/root of its first process."""

    def __init__(self, cluster: KindCluster, index: int) -> None:
        self._cluster, self._index = cluster, index
        self._process: tuple[int, int] | None = None
        self.name = cluster.node_names()[index]
        folder = cluster.paths.node(index)
        self.driver, self.record = folder / DRIVER, folder / "claims.json"

    def root(self) -> Path:
        """See Node.root."""
        if self._process is None or not processes.alive(*self._process):
            self._process = self._find()
        return Path(f"/proc/{self._process[0]}/root")

    def cards(self) -> GpuCards | None:
        """See Node.cards."""
        return self._cluster.nodes()[self._index].cards

    def set_cards(self, cards: GpuCards) -> None:
        """See Node.set_cards."""
        self._cluster.set_cards(cards, node=self._index)

    def control_mps(self, *words: str, environment: Mapping[str, str], text: str = "") -> bool:
        """See Node.control_mps. It is the container's process, and ends with it."""
        program = f"{NODE_FOLDER}/{DRIVER}/{driver.MPS}"
        variables = [f"--env={name}={value}" for name, value in environment.items()]
        return _run(["docker", "exec", "--interactive", *variables, self.name, program, *words], text)

    def _find(self) -> tuple[int, int]:
        pid = int(docker.docker("inspect", "--format", "{{.State.Pid}}", self.name).strip() or 0)
        started = processes.start_time(pid) if pid else None
        if started is None:
            raise NotReady(f"{self.name} does not run", subject=self.name)
        # An engine in a machine of its own (Docker Desktop) gives a number that is some other process's here.
        try:
            ours = (Path(f"/proc/{pid}/root{NODE_FOLDER}")).samefile(self._cluster.paths.node(self._index))
        except OSError:
            ours = False
        if not ours:
            raise NotReady(
                f"the files of {self.name} cannot be reached from here: that needs root and an engine on this machine",
                subject=self.name,
            )
        return pid, started


def of(cluster_name: str) -> tuple[dict[str, Any], list[Node]]:
    """The kubeconfig of a cluster and those of its nodes that have a driver root."""
    cluster = EveryRuntime().get(cluster_name)
    if isinstance(cluster, EmbeddedCluster):
        return cluster.kubeconfig(), [EmbeddedNode(cluster)]
    if not isinstance(cluster, KindCluster):
        raise TypeError(f"{cluster_name} is run by a runtime that the agent does not know")
    nodes = [KindNode(cluster, index) for index in range(len(cluster.node_names()))]
    return cluster.kubeconfig(), [node for node in nodes if node.driver.exists()]


def _run(command: list[str], text: str, environment: Mapping[str, str] | None = None) -> bool:
    try:
        done = subprocess.run(
            command, env=environment, input=text, text=True, timeout=CONTROL_SECONDS, check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
