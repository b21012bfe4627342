"""Clusters in Docker by kind (the two protocols of isthmus.localcluster.runtime).

kind makes and joins the nodes; this module decides when, keeps the cluster's folder, gives nodes their cards, and touches
no container that does not have that folder mounted.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from isthmus.localcluster import device_plugins, locks, processes
from isthmus.localcluster.kind import agent, docker, image, machine, nodes, real_cards, usable
from isthmus.localcluster.kind import config as kind_config
from isthmus.localcluster.kind.state import FILE, Paths, State, read, write
from isthmus.localcluster.runtime import (
    ClusterStatus,
    LocalCluster,
    LocalClusterConfig,
    LocalNode,
    check,
)
from isthmus.localcluster.state import write_file
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import IsthmusError, NotFound, NotReady, Refused
from isthmus.specs.labels import GPU_SHARING
from isthmus.toolchain import home

if TYPE_CHECKING:
    from isthmus.kube import Cluster

LOCK_SECONDS = 300.0
"""How long a second create, start, stop or delete of the same cluster waits for the first."""

CREATE_SECONDS = 600.0
"""Three nodes took 27 s on two cores at a load of 3 (2026-11-30); the rest is for a busier machine."""

READY_SECONDS = 300.0
STOP_SECONDS = 120.0
IMPORT_SECONDS = 900.0

Progress = Callable[[str], None]


class KindCluster:
    """One cluster in Docker. Holds no state of its own: everything is read from disk and from the engine."""

    def __init__(self, name: str, progress: Progress = lambda words: None) -> None:
        self.name = name
        self.paths = Paths(home.clusters() / name)
        self._progress = progress

    @property
    def endpoint(self) -> str:
        return str(self._admin()["clusters"][0]["cluster"]["server"])

    @property
    def ca_certificate(self) -> str:
        import base64

        return base64.b64decode(self._admin()["clusters"][0]["cluster"]["certificate-authority-data"]).decode()

    def start(self) -> None:
        with self._lock("start"):
            state = self._state()
            state.wanted = "running"
            write(self.paths, state)
            self._start(state)

    def stop(self) -> None:
        with self._lock("stop"):
            state = self._state()
            state.wanted = "stopped"
            write(self.paths, state)
            agent.stop(self.paths)
            running = [node for node in self._ours() if node["State"]["Running"]]
            if running:
                machine.end(running, "stop", "--time", "20", seconds=STOP_SECONDS)

    def delete(self) -> None:
        with self._lock("delete") as remove_lock:
            state = read(self.paths)
            if state is not None:
                state.wanted = "deleted"
                write(self.paths, state)
                agent.stop(self.paths)
                self._remove_containers()
                self._remove_folders()
                machine.release(self.name)
            remove_lock()

    def status(self) -> ClusterStatus:
        state = self._state()
        problem = docker.problem()
        if problem is not None:
            return ClusterStatus(self.name, "dead", (), problem)
        found = {nodes.name_of(node): node for node in self._ours()}
        ready = self._ready() if any(node["State"]["Running"] for node in found.values()) else set()
        containers = tuple(nodes.process(name, found.get(name), ready=name in ready) for name in state.node_names())
        beside = agent.process(self.paths) if any(item.running for item in containers) else None
        everything = (*containers, *((beside,) if beside else ()))
        words = "; ".join(f"{item.name}: {item.message}" for item in everything if item.message)
        if not state.made:
            return ClusterStatus(self.name, "creating", containers, words)
        if not found:
            return ClusterStatus(self.name, "dead", containers, "its containers are gone")
        if not any(item.running for item in containers):
            return ClusterStatus(self.name, "dead" if state.wanted == "running" else "stopped", containers, words)
        well = all(item.ready for item in everything)
        return ClusterStatus(self.name, "running" if well else "degraded", everything, words)

    def kubeconfig(self) -> dict[str, Any]:
        return self._admin()

    def client_certificate(self, user: str, groups: tuple[str, ...], minutes: int) -> tuple[str, str]:
        from isthmus.localcluster import pki  # costs an import of cryptography

        first = self._state().node_names()[0]
        authority, key = (
            docker.docker("exec", first, "cat", f"/etc/kubernetes/pki/ca.{kind}").encode() for kind in ("crt", "key")
        )
        return pki.client_certificate(authority, key, user, groups, minutes)

    def load_image(self, archive: Path) -> None:
        if not archive.is_file():
            raise NotFound(
                f"there is no image archive {archive}", subject=str(archive), remedy="isthmus install images"
            )
        for node in self._state().node_names():
            docker.feed(archive, "exec", "--interactive", node, *_CTR, "images", "import", "--all-platforms", "-",
                        seconds=IMPORT_SECONDS)  # fmt: skip

    def logs(self, component: str) -> Path:
        state = self._state()
        if component in state.node_names():
            return self._node_log(component)
        path = self.paths.logs / f"{component}.log"
        if "/" in component or not path.exists():
            known = ", ".join([*state.node_names(), *sorted(found.stem for found in self.paths.logs.glob("*.log"))])
            raise NotFound(
                f"there is no log of {component!r}; there are: {known}", subject=f"local cluster {self.name}"
            )
        return path

    def set_cards(self, cards: GpuCards | None, *, node: int = 0) -> None:
        with self._lock("set cards"):
            state = self._state()
            self._refuse_real(state, node)
            nodes.write_folder(self.paths.node(node), LocalNode(cards=cards))
            state.nodes[node]["cards"] = cards.model_dump() if cards else None
            write(self.paths, state)
            running = self.status().phase in {"running", "degraded"}
            if running:
                agent.start(self.name, self.paths)
        if running:
            self._restart_device_plugins(state.node_names()[node])

    def local_node(self) -> str:
        return self._state().node_names()[0]

    def exists(self) -> bool:
        """Whether its containers are there; the folder alone is what a wiped engine leaves."""
        return read(self.paths) is not None and bool(self._ours())

    def owner(self) -> str | None:
        """URN of the resource that made it, "" for none; None where there is no such cluster."""
        state = read(self.paths)
        return None if state is None or state.wanted == "deleted" else state.owner

    def nodes(self) -> tuple[LocalNode, ...]:
        """The nodes as they were asked for."""
        return self._state().asked()

    def node_names(self) -> list[str]:
        """Names of the nodes, the control plane's first."""
        return self._state().node_names()

    def make(self, asked: LocalClusterConfig, *, owner: str = "") -> None:
        """Create, or go on with what is there (KindRuntime.create)."""
        with self._lock("create"):
            state = read(self.paths)
            if state is not None and state.wanted == "deleted":
                agent.stop(self.paths)
                self._remove_containers()
                self._remove_folders()
                state = None
            if state is None:
                state = State(self.name, created=time.time(), owner=owner)
                self._refuse_foreign()
            elif len(state.nodes) != len(asked.nodes):
                raise Refused(
                    f"it has {len(state.nodes)} nodes and {len(asked.nodes)} are asked for: kind cannot change that",
                    subject=f"local cluster {self.name}",
                    remedy="delete it, then create it again",
                )
            before = state.asked()
            for folder in (self.paths.folder, self.paths.logs):
                folder.mkdir(mode=0o700, exist_ok=True)
            state.ask(asked)
            state.wanted = "running"
            write(self.paths, state)
            if not (state.made and self._ours()):
                self._create(state)
            else:
                self._start(state)
            for index, node in enumerate(asked.nodes):
                if before and before[index].cards != node.cards:
                    self._refuse_real(state, index)
                    nodes.write_folder(self.paths.node(index), node)
                    self._restart_device_plugins(state.node_names()[index])
            agent.start(self.name, self.paths)

    def _create(self, state: State) -> None:
        self._remove_containers()  # kind cannot go on with half a cluster
        machine.hold(self.name)
        state.made = False
        state.image = image.ensure(self._progress)
        write(self.paths, state)
        asked = state.asked()
        state.devices = real_cards.choose(asked, self._progress)
        write(self.paths, state)
        for index, (node, devices) in enumerate(zip(asked, state.devices, strict=True)):
            nodes.write_folder(self.paths.node(index), node, real=bool(devices))
        folders = [self.paths.node(index) for index in range(len(asked))]
        buckets = home.buckets() / self.name
        buckets.mkdir(mode=0o755, exist_ok=True)
        text = kind_config.document(
            self.name,
            [replace(node, labels=nodes.labels(node, real=bool(cards))) for node, cards in state.with_devices()],
            folders,
            buckets,
            devices=state.devices,
            cgroup_v1=machine.cgroup_v1(),
            restricted=machine.lacks_resource_capability(),
        )
        write_file(self.paths.config, text)
        self._progress(f"local cluster {self.name}: {len(asked)} node(s) in Docker, about {20 + 4 * len(asked)} s")
        self._run_kind("create", "cluster", "--name", self.name, "--config", str(self.paths.config), "--image",
                       state.image, "--kubeconfig", str(self.paths.kubeconfig), "--retain")  # fmt: skip
        self._bring_up(state)

    def _start(self, state: State) -> None:
        containers = self._ours()
        if not containers:
            raise NotReady(
                "its containers are gone, and with them all it held",
                subject=f"local cluster {self.name}",
                remedy="isthmus refresh and up make it anew; isthmus down --cluster-gone deletes what is left",
            )
        stopped = [nodes.name_of(node) for node in containers if not node["State"]["Running"]]
        for name in sorted(stopped, key=state.node_names().index):  # the control plane first: others ask it
            docker.docker("start", name)
        self._bring_up(state)

    def _bring_up(self, state: State) -> None:
        """Wait until pods can be made on every node; labels, taints and KWOK on the way."""
        from isthmus.kube import wait

        for name, devices in zip(state.node_names(), state.devices, strict=False):
            if devices:
                real_cards.prepare(name, devices)

        said = ""

        def nothing_missing() -> bool:
            nonlocal said
            try:
                said = usable.problem(self._client(), state)
            except IsthmusError as error:
                said = error.message
            return not said

        wait.until(
            nothing_missing,
            seconds=READY_SECONDS,
            what=f"local cluster {self.name} to become usable",
            why=lambda: said,
            subject=f"local cluster {self.name}",
            remedy=f"see {self.paths.logs}; try again, or delete it",
        )
        agent.start(self.name, self.paths)
        if not state.made:
            state.made = True
            write(self.paths, state)

    def _ready(self) -> set[str]:
        try:
            return usable.ready_nodes(self._client())
        except (IsthmusError, OSError):
            return set()

    def _refuse_real(self, state: State, index: int) -> None:
        """The cards that a container was started with are its own for life."""
        if any(state.devices[index : index + 1]):
            raise Refused(
                f"node {state.node_names()[index]} has this machine's own cards, which cannot be changed",
                subject=f"local cluster {self.name}",
                remedy="delete it, then create it again",
            )

    def _restart_device_plugins(self, node: str) -> None:
        device_plugins.restart(self._client(), node)

    def _run_kind(self, *arguments: str) -> None:
        log = self.paths.logs / "kind.log"
        # A kind whose caller was killed must not go on making nodes behind the next create.
        command = [*processes.ENDS_WITH_PARENT, str(home.tool("kind")), *arguments]
        environment = {**os.environ, "KIND_EXPERIMENTAL_PROVIDER": "docker"}
        with log.open("ab") as output:
            try:
                done = subprocess.run(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, check=False,
                                      timeout=CREATE_SECONDS, env=environment)  # fmt: skip
                code = done.returncode
            except subprocess.TimeoutExpired:
                code = -1
        if code:
            raise NotReady(
                f"kind could not make the cluster: {_last_error(log)}",
                subject=f"local cluster {self.name}",
                remedy=f"see {log}; try again, or delete it",
            )

    def _node_log(self, node: str) -> Path:
        self.paths.logs.mkdir(mode=0o700, exist_ok=True)
        path = self.paths.logs / f"{node}.log"
        found = {nodes.name_of(item): item for item in self._ours()}.get(node)
        if found is not None and found["State"]["Running"]:
            text = docker.docker("exec", node, "journalctl", "--no-pager", "--lines", "20000")
        else:
            text = docker.docker("logs", node) if found is not None else ""
        write_file(path, text)
        return path

    def _ours(self) -> list[dict[str, Any]]:
        return [node for node in docker.nodes(self.name) if docker.mounted_from(node, self.paths.folder)]

    def _refuse_foreign(self) -> None:
        if docker.nodes(self.name):
            raise Refused(
                f"Docker has a kind cluster {self.name!r} that isthmus did not make; it is left alone",
                subject=f"local cluster {self.name}",
                remedy="choose another name (setting clusterName)",
            )

    def _remove_containers(self) -> None:
        ours = self._ours()
        if ours:
            machine.end(ours, "rm", "--force", "--volumes", seconds=STOP_SECONDS)

    def _remove_folders(self) -> None:
        shutil.rmtree(self.paths.folder)
        buckets = home.buckets() / self.name
        if buckets.is_dir() and not any(buckets.iterdir()):  # buckets are resources of their own
            buckets.rmdir()

    def _client(self) -> "Cluster":
        from isthmus.kube import Cluster

        return Cluster(self._admin())

    def _admin(self) -> dict[str, Any]:
        self._state()
        try:
            document: dict[str, Any] = yaml.safe_load(self.paths.kubeconfig.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise NotReady(
                "the cluster was not made yet", subject=f"local cluster {self.name}", remedy="create it again"
            ) from error
        return document

    def _state(self) -> State:
        state = read(self.paths)
        if state is None:
            raise _not_found(self.name)
        return state

    @contextmanager
    def _lock(self, doing: str) -> Iterator[Callable[[], None]]:
        if doing not in {"create", "delete"}:
            self._state()  # before a lock file is made for what does not exist
        what = f"local cluster {self.name}"
        path = home.clusters() / f".{self.name}.lock"
        with locks.exclusive(path, what=what, doing=doing, seconds=LOCK_SECONDS) as remove:
            yield remove


class KindRuntime:
    """Makes and finds clusters in Docker (the Runtime protocol)."""

    name = "kind"

    def __init__(self, progress: Progress = lambda words: None) -> None:
        """`progress` hears, in a line each, what takes long."""
        self._progress = progress

    def available(self) -> str | None:
        problem = docker.problem()
        if problem is not None:
            return problem
        try:
            home.tool("kind")
        except NotFound:
            return "kind is missing (isthmus install cluster)"
        return machine.problem()

    def create(self, name: str, config: LocalClusterConfig, *, owner: str = "") -> KindCluster:
        """See Runtime.create. `owner` is the URN of the resource it is made for."""
        check(name, config)
        problem = self.available() or _claims_problem(config)
        if problem is not None:
            raise Refused(f"kind cannot run here: {problem}", subject=f"local cluster {name}", remedy="isthmus doctor")
        cluster = KindCluster(name, self._progress)
        cluster.make(config, owner=owner)
        return cluster

    def get(self, name: str) -> KindCluster:
        cluster = KindCluster(name, self._progress)
        if not cluster.paths.state.exists():
            raise _not_found(name)
        return cluster

    def list(self) -> list[LocalCluster]:
        return [KindCluster(path.parent.name) for path in sorted(home.clusters().glob(f"*/{FILE}"))]


_CTR = ("ctr", "--namespace", "k8s.io")


def _claims_problem(config: LocalClusterConfig) -> str | None:
    claimed = any(node.labels.get(GPU_SHARING) == "dra" for node in config.nodes)
    if claimed and os.geteuid() != 0:
        return "the DRA driver of nodes whose cards are claimed (sharing mode dra) puts its sockets into them as root"
    return None


def _last_error(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    told = [line for line in lines if line.startswith("ERROR")]
    return (told or lines or ["it took too long"])[-1][:400]


def _not_found(name: str) -> NotFound:
    known = ", ".join(path.parent.name for path in sorted(home.clusters().glob(f"*/{FILE}"))) or "none"
    return NotFound(
        f"there is no kind cluster {name!r}; there are: {known}", subject=f"local cluster {name}", remedy="isthmus up"
    )
