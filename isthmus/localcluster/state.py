"""What a cluster is, on disk: its folder, its names outside the folder, and cluster.json.

Names outside the folder (network namespace, interface, cgroup, nftables table) come from ISTHMUS_HOME and the cluster's
name, so that two homes with a cluster of the same name do not collide. cluster.json is replaced in one step; whoever
reads it sees a whole one. Nothing here starts or changes anything but that file.
"""

import hashlib
import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from isthmus.localcluster.runtime import LocalClusterConfig
from isthmus.specs.cluster import GpuCards

API_PORT = 6443
POD_RANGE = "10.244.0.0/22"
"""Pod addresses; each cluster has a network of its own, so all use the same."""
SERVICE_RANGE = "10.96.0.0/16"
SERVICE_API = "10.96.0.1"
SERVICE_DNS = "10.96.0.10"
DNS_DOMAIN = "cluster.local"


@dataclass(frozen=True)
class Paths:
    """Every path of one cluster."""

    folder: Path

    @property
    def state(self) -> Path:
        return self.folder / "cluster.json"

    @property
    def status(self) -> Path:
        """Written by the supervisor on every change."""
        return self.folder / "status.json"

    @property
    def images(self) -> Path:
        """Which archives of <home>/images the cluster has, with their size and date."""
        return self.folder / "images.json"

    @property
    def supervisor_lock(self) -> Path:
        return self.folder / "supervisor.lock"

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def config(self) -> Path:
        return self.folder / "config"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def etcd(self) -> Path:
        return self.folder / "etcd"

    @property
    def containerd(self) -> Path:
        return self.folder / "containerd"

    @property
    def kubelet(self) -> Path:
        return self.folder / "kubelet"

    @property
    def run(self) -> Path:
        """What containerd keeps while it runs: sockets, bundles of running containers."""
        return self.folder / "run"

    @property
    def cni(self) -> Path:
        """Pod addresses given out."""
        return self.folder / "cni"

    @property
    def nvidia(self) -> Path:
        """What NVIDIA's programs keep while they run: pipes of the MPS control daemon."""
        return self.folder / "nvidia"

    @property
    def cdi(self) -> Path:
        """Devices that the container runtime may give to containers (Container Device Interface)."""
        return self.folder / "cdi"

    @property
    def pod_logs(self) -> Path:
        return self.folder / "pod-logs"

    @property
    def container_logs(self) -> Path:
        return self.folder / "container-logs"

    @property
    def volumes(self) -> Path:
        """Data of dynamically provisioned volumes (seen by the node as below /var/lib/kubelet)."""
        return self.kubelet / "isthmus-volumes"

    @property
    def sysctl(self) -> Path:
        """Files shown to the kubelet instead of the host's kernel settings, so that it does not change those."""
        return self.folder / "sysctl"

    @property
    def driver(self) -> Path:
        """The driver root: what containers with cards get mounted."""
        return self.folder / "driver"

    def kubeconfig(self, user: str) -> Path:
        return self.config / f"{user}.kubeconfig"

    def log(self, component: str) -> Path:
        return self.logs / f"{component}.log"


@dataclass
class ClusterState:
    """cluster.json."""

    name: str
    identity: str
    """Eight hexadecimal digits that stand for (ISTHMUS_HOME, name)."""
    number: int | None = None
    """N of the cluster's network 10.200.N.0/24; None until one was found free."""
    made: bool = False
    """Whether create came to its end once."""
    wanted: Literal["running", "stopped", "deleted"] = "running"
    node_labels: dict[str, str] = field(default_factory=dict)
    cards_model: str | None = None
    cards_count: int = 0
    cards_layout: dict[str, int] = field(default_factory=dict)
    """MIG profile to instances on each card; empty for whole cards."""
    kubernetes_version: str = ""
    created: float = 0.0

    @property
    def space(self) -> str:
        """Name of the network namespace, the cgroup and the nftables table."""
        return f"isthmus-{self.identity}"

    @property
    def interface(self) -> str:
        """Name of the host's end of the network (at most 15 characters)."""
        return f"isth{self.identity}"

    @property
    def network(self) -> str:
        return f"10.200.{self._number}.0/24"

    @property
    def gateway(self) -> str:
        """The host's address in the cluster's network."""
        return f"10.200.{self._number}.1"

    @property
    def address(self) -> str:
        """The cluster's own address: API server, node, DNS."""
        return f"10.200.{self._number}.2"

    @property
    def node(self) -> str:
        """Name of the local node."""
        return f"{self.name}-local"

    @property
    def cards(self) -> GpuCards | None:
        if self.cards_model is None:
            return None
        return GpuCards(model=self.cards_model, count=self.cards_count, layout=self.cards_layout)

    @property
    def _number(self) -> int:
        if self.number is None:
            raise ValueError(f"cluster {self.name} has no network yet")
        return self.number

    def ask(self, config: LocalClusterConfig) -> None:
        """Take over what create was asked for."""
        (node,) = config.nodes
        self.node_labels = dict(node.labels)
        self.set_cards(node.cards)
        self.kubernetes_version = config.kubernetes_version

    def set_cards(self, cards: GpuCards | None) -> None:
        self.cards_model = cards.model if cards else None
        self.cards_count = cards.count if cards else 0
        self.cards_layout = dict(cards.layout) if cards else {}


def new_state(home: Path, name: str) -> ClusterState:
    """The state of a cluster that does not exist yet."""
    identity = hashlib.sha256(f"{home.resolve()}\0{name}".encode()).hexdigest()[:8]
    return ClusterState(name=name, identity=identity, created=time.time())


def read(paths: Paths) -> ClusterState | None:
    """The cluster's state; None where there is no such cluster."""
    document = read_json(paths.state)
    if document is None:
        return None
    known = {item.name for item in fields(ClusterState)}  # a later version may have written more
    return ClusterState(**{key: value for key, value in document.items() if key in known})


def write(paths: Paths, state: ClusterState) -> None:
    """Replace cluster.json in one step."""
    write_json(paths.state, asdict(state))


def read_json(path: Path) -> Any:
    """A JSON file's document; None where there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def write_json(path: Path, document: Any, *, durable: bool = True) -> None:
    """Replace a JSON file in one step."""
    write_file(path, json.dumps(document, indent=1), durable=durable)


def write_file(path: Path, text: str, *, mode: int = 0o600, durable: bool = False) -> None:
    """Replace a file in one step: readers see the old or the new text, after a crash too if `durable`."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(handle, mode)
            if durable:
                os.fsync(handle)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
