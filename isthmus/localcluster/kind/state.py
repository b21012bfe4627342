"""What a kind cluster is, on disk: its folder and kind.json. Which of the engine's containers are ours follows from them:
a node of ours has its folder below the cluster's folder mounted."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from isthmus.localcluster.runtime import LocalClusterConfig, LocalNode
from isthmus.localcluster.state import read_json, write_json
from isthmus.specs.cluster import GpuCards

FILE = "kind.json"


@dataclass(frozen=True)
class Paths:
    """Every path of one cluster."""

    folder: Path

    @property
    def state(self) -> Path:
        return self.folder / FILE

    @property
    def config(self) -> Path:
        """What kind was asked for."""
        return self.folder / "kind-config.json"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's, written by kind; mode 0600."""
        return self.folder / "kubeconfig"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def agent(self) -> Path:
        """Which process is the node agent."""
        return self.folder / "agent.json"

    @property
    def nodes(self) -> Path:
        """The folders that nodes have mounted."""
        return self.folder / "nodes"

    def node(self, index: int) -> Path:
        """The folder that node `index` has mounted."""
        return self.nodes / str(index)


@dataclass
class State:
    """kind.json."""

    name: str
    created: float = 0.0
    made: bool = False
    """Whether create came to its end once."""
    wanted: Literal["running", "stopped", "deleted"] = "running"
    nodes: list[dict[str, Any]] = field(default_factory=list)
    """LocalNode each, as data."""
    devices: list[list[int]] = field(default_factory=list)
    """Of each node, the indexes of those of this machine's own cards that it has (real_cards.py)."""
    image: str = ""
    owner: str = ""
    """URN of the resource that made it; "" when it was not made as one."""

    def ask(self, config: LocalClusterConfig) -> None:
        """Take over what create was asked for."""
        self.nodes = [
            {
                "labels": dict(node.labels),
                "cards": node.cards.model_dump() if node.cards else None,
                "taints": [dict(taint) for taint in node.taints],
            }
            for node in config.nodes
        ]

    def asked(self) -> tuple[LocalNode, ...]:
        """The nodes that were asked for."""
        return tuple(_node(entry) for entry in self.nodes)

    def with_devices(self) -> list[tuple[LocalNode, list[int]]]:
        """The nodes that were asked for, each with its indexes of real cards."""
        asked = self.asked()
        return list(zip(asked, self.devices or [[] for _ in asked], strict=True))

    def node_names(self) -> list[str]:
        """Names of the nodes and their containers, as kind gives them."""
        roles = ["control-plane", *("worker" if n == 1 else f"worker{n}" for n in range(1, len(self.nodes)))]
        return [f"{self.name}-{role}" for role in roles]


def read(paths: Paths) -> State | None:
    """The cluster's state; None where there is no such cluster."""
    document = read_json(paths.state)
    return None if document is None else State(**document)


def write(paths: Paths, state: State) -> None:
    """Replace kind.json in one step."""
    write_json(paths.state, asdict(state))


def _node(entry: Mapping[str, Any]) -> LocalNode:
    cards = entry["cards"]
    return LocalNode(entry["labels"], GpuCards(**cards) if cards else None, tuple(entry["taints"]))
