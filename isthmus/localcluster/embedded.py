"""The embedded runtime: upstream's own programs as supervised processes, in namespaces and a cgroup of their own.

This module is what other processes call: it holds the cluster's lock, makes what must be there before the supervisor
starts (network, certificates, images, driver root), starts it, and waits until the cluster is usable. What runs is the
supervisor's business. Linux and root only.
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isthmus.localcluster import (
    components,
    device_plugins,
    images,
    linux,
    locks,
    network,
    pki,
    processes,
    space,
    supervisor,
    usable,
)
from isthmus.localcluster.cgroups import Tree
from isthmus.localcluster.configs import CNI_FOLDERS
from isthmus.localcluster.runtime import (
    ClusterStatus,
    LocalCluster,
    LocalClusterConfig,
    Phase,
    ProcessStatus,
    check,
)
from isthmus.localcluster.state import ClusterState, Paths, new_state, read, read_json, write, write_json
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import InvalidSpec, NotFound, NotReady, Refused
from isthmus.toolchain import home

LOCK_SECONDS = 120.0
"""How long a second create, start, stop or delete of the same cluster waits for the first."""

READY_SECONDS = 180.0
"""From the supervisor's start to a usable cluster: 6 to 8 s on an idle machine; the rest is for a loaded one."""

STOP_SECONDS = 60.0
PROGRAMS = ("etcd", "containerd", "containerd-shim-runc-v2", "ctr", "kube-apiserver", "kube-controller-manager",
            "kube-scheduler", "kubelet", "kube-proxy", "coredns", "kwok", "local-path-provisioner")  # fmt: skip
SYSTEM_PROGRAMS = {"ip": "iproute2", "nft": "nftables", "runc": "runc", "jq": "jq", "iptables": "iptables",
                   "conntrack": "conntrack", "nsenter": "util-linux", "setpriv": "util-linux"}  # fmt: skip
"""Programs of the distribution, and the Debian package of each."""

CNI_PLUGINS = ("ptp", "host-local", "portmap", "loopback")


class EmbeddedCluster:
    """One embedded cluster (the LocalCluster protocol). Holds no state of its own: everything is read from disk."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.paths = Paths(home.clusters() / name)

    @property
    def endpoint(self) -> str:
        return pki.endpoint(self._state())

    @property
    def ca_certificate(self) -> str:
        return (self.paths.pki / "ca.crt").read_text(encoding="ascii")

    def start(self) -> None:
        with self._lock("start"):
            state = self._state()
            if state.wanted == "deleted":
                raise Refused(
                    "this cluster is half deleted",
                    subject=f"local cluster {self.name}",
                    remedy="delete it again, or create it",
                )
            state.wanted = "running"
            write(self.paths, state)
            self.bring_up(state)

    def stop(self) -> None:
        with self._lock("stop"):
            state = self._state()
            state.wanted = "stopped"
            write(self.paths, state)
            self._end_supervisor()
            Tree(state.space).end()
            self.paths.status.unlink(missing_ok=True)

    def delete(self) -> None:
        with self._lock("delete") as remove_lock:
            state = read(self.paths) or new_state(home.home(), self.name)
            if self.paths.folder.exists():
                state.wanted = "deleted"
                write(self.paths, state)
            self._remove(state)
            remove_lock()

    def status(self) -> ClusterStatus:
        state = self._state()
        document = read_json(self.paths.status)
        supervised = locks.held(self.paths.supervisor_lock)
        if document is None or not supervised:
            return ClusterStatus(self.name, _phase_at_rest(state, supervised=supervised))
        found = tuple(_process(entry) for entry in document["processes"])
        objects = document["objects"]
        ready = objects["ready"] and all(item.ready for item in found)
        phase: Phase = "running" if ready else "degraded" if any(item.restarts for item in found) else "starting"
        if not state.made:
            phase = "creating"
        words = [f"{item.name}: {item.message}" for item in found if item.message]
        if objects["message"]:
            words.append(objects["message"])
        return ClusterStatus(self.name, phase, found, "; ".join(words))

    def kubeconfig(self) -> dict[str, Any]:
        return pki.kubeconfig(self._state(), self.paths, pki.ADMIN)

    def client_certificate(self, user: str, groups: tuple[str, ...], minutes: int) -> tuple[str, str]:
        self._state()
        authority, key = ((self.paths.pki / name).read_bytes() for name in ("ca.crt", "ca.key"))
        return pki.client_certificate(authority, key, user, groups, minutes)

    def load_image(self, archive: Path) -> None:
        state = self._state()
        witness = space.inhabitant(state, self.paths)
        if witness is None:
            raise NotReady("the cluster does not run", subject=f"local cluster {self.name}", remedy="start it")
        images.import_archive(archive.absolute(), images.ctr_inside(witness), log=self.paths.log("images"))

    def logs(self, component: str) -> Path:
        path = self.paths.log(component)
        if "/" in component or not path.exists():
            known = ", ".join(sorted(found.stem for found in self.paths.logs.glob("*.log"))) or "none yet"
            raise NotFound(
                f"there is no log of {component!r}; there are: {known}", subject=f"local cluster {self.name}"
            )
        return path

    def set_cards(self, cards: GpuCards | None) -> None:
        with self._lock("set cards"):
            state = self._state()
            self._write_driver(cards)
            state.set_cards(cards)
            write(self.paths, state)
        if self.status().phase in {"running", "degraded"}:
            self._restart_device_plugins(state)

    def local_node(self) -> str:
        return self._state().node

    def cards(self) -> GpuCards | None:
        """The cards that the node's driver root shows."""
        return self._state().cards

    def make(self, config: LocalClusterConfig) -> None:
        """Create, or go on with what is there (EmbeddedRuntime.create)."""
        with self._lock("create"):
            state = read(self.paths)
            if state is None or state.wanted == "deleted":
                self._remove(state or new_state(home.home(), self.name))
                state = new_state(home.home(), self.name)
            self.paths.folder.mkdir(mode=0o700, exist_ok=True)
            cards = config.nodes[0].cards
            cards_changed = state.cards != cards
            state.ask(config)
            state.wanted = "running"
            write(self.paths, state)
            if cards_changed or cards is not None:
                self._write_driver(cards)
            self.bring_up(state)
        if cards_changed:
            self._restart_device_plugins(state)

    def bring_up(self, state: ClusterState) -> None:
        """From whatever there is to a usable cluster. The caller holds the lock.

        Raises:
            NotReady: it did not become usable in READY_SECONDS.
        """
        for folder in (self.paths.logs, self.paths.kubelet, self.paths.run, self.paths.volumes):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if network.ensure(state):
            write(self.paths, state)
        if not locks.held(self.paths.supervisor_lock):
            pki.ensure(state, self.paths)
            if not self.paths.containerd.exists():
                write_json(self.paths.images, images.ensure_store())
                images.clone(self.paths.containerd)
            self.paths.status.unlink(missing_ok=True)
            Tree(state.space).thaw()  # what was killed with its supervisor may have been freezing a container
            supervisor.spawn(self.paths, components.environment())
        elif self._signal_supervisor(signal.SIGHUP):  # what it had given up may work now
            time.sleep(2 * supervisor.TICK)
        self._await_usable(state)
        self._load_new_images()
        if not state.made:
            state.made = True
            write(self.paths, state)

    def _load_new_images(self) -> None:
        """Import the archives of <home>/images that were made or replaced since this cluster got its images."""
        held = read_json(self.paths.images) or {}
        for name, stamp in images.archives().items():
            if held.get(name) != stamp:
                self.load_image(home.images() / name)
                held[name] = stamp
                write_json(self.paths.images, held)

    def _await_usable(self, state: ClusterState) -> None:
        end = time.monotonic() + READY_SECONDS
        grace = time.monotonic() + 5
        problem = "its supervisor did not start"
        while time.monotonic() < end:
            document = read_json(self.paths.status)
            if document is None and time.monotonic() > grace and not locks.held(self.paths.supervisor_lock):
                problem = f"its supervisor ended: {usable.last_line(self.paths.log('supervisor'))}"
                break
            if document is not None:
                problem = usable.problem(state, self.paths, document)
                if not problem:
                    return
                if "given up" in problem:
                    break
            time.sleep(0.1)
        remedy = f"see {self.paths.logs}; try again, or delete it"
        raise NotReady(
            f"the cluster did not become usable: {problem}", subject=f"local cluster {self.name}", remedy=remedy
        )

    def _write_driver(self, cards: GpuCards | None) -> None:
        if cards is None and not self.paths.driver.exists():
            return
        from isthmus.localcluster import driver  # needs the catalog; a cluster without cards does not

        driver.build(self.paths.driver)
        driver.write_cards(self.paths.driver, cards)

    def _restart_device_plugins(self, state: ClusterState) -> None:
        from isthmus.kube import Cluster

        device_plugins.restart(Cluster(self.kubeconfig()), state.node)

    def _end_supervisor(self) -> None:
        """SIGTERM to the supervisor and wait: it ends everything in order. If it does not, the caller ends all."""
        self._signal_supervisor(signal.SIGTERM)
        end = time.monotonic() + STOP_SECONDS
        while locks.held(self.paths.supervisor_lock) and time.monotonic() < end:
            time.sleep(0.05)

    def _signal_supervisor(self, number: int) -> bool:
        """Signal the supervisor, if it is there and past its preparations; whether it was."""
        document = read_json(self.paths.status)
        if document is None or not processes.alive(document["pid"], document["started"]):
            return False
        os.kill(document["pid"], number)
        return True

    def _remove(self, state: ClusterState) -> None:
        tree = Tree(state.space)
        end = time.monotonic() + STOP_SECONDS
        tree.end()
        while locks.held(self.paths.supervisor_lock):  # one that has just started, and is not in its cgroup yet
            if time.monotonic() > end:
                raise NotReady("its supervisor does not end", subject=f"local cluster {self.name}", remedy="try again")
            time.sleep(0.05)
            tree.end()
        tree.remove()
        network.remove(state)
        if self.paths.folder.exists():
            _remove_folder(self.paths)

    def _state(self) -> ClusterState:
        state = read(self.paths)
        if state is None:
            raise _not_found(self.name)
        return state

    @contextmanager
    def _lock(self, doing: str) -> Iterator[Callable[[], None]]:
        if doing not in {"create", "delete"}:
            self._state()  # before a lock file is made for what does not exist
        what = f"local cluster {self.name}"
        with locks.exclusive(
            home.clusters() / f".{self.name}.lock", what=what, doing=doing, seconds=LOCK_SECONDS
        ) as remove:
            yield remove


class EmbeddedRuntime:
    """Makes and finds embedded clusters (the Runtime protocol)."""

    name = "embedded"

    def available(self) -> str | None:
        if not sys.platform.startswith("linux"):
            return f"it needs Linux, this is {sys.platform}"
        if os.geteuid() != 0:
            return "it needs root"
        for number, word in ((linux.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"), (linux.CAP_NET_ADMIN, "CAP_NET_ADMIN")):
            if not linux.has_capability(number):
                return f"root lacks {word} here"
        packages = sorted({package for program, package in SYSTEM_PROGRAMS.items() if not _on_path(program)})
        if not any(all((Path(folder) / plugin).exists() for plugin in CNI_PLUGINS) for folder in CNI_FOLDERS):
            packages.append("containernetworking-plugins")
        if packages:
            return f"these packages are missing: {' '.join(packages)} (isthmus install cluster)"
        missing = [program for program in PROGRAMS if not _installed(program)]
        if missing:
            return f"these programs are missing: {' '.join(missing)} (isthmus install cluster)"
        return None

    def create(self, name: str, config: LocalClusterConfig) -> EmbeddedCluster:
        check(name, config)
        if len(config.nodes) != 1 or config.nodes[0].taints:
            raise InvalidSpec(
                f"an embedded cluster has one local node without taints, not {len(config.nodes)}",
                subject=f"local cluster {name}",
                remedy="choose the runtime kind",
            )
        problem = self.available()
        if problem is not None:
            raise Refused(
                f"the embedded runtime cannot run here: {problem}",
                subject=f"local cluster {name}",
                remedy="isthmus doctor",
            )
        cluster = EmbeddedCluster(name)
        cluster.make(config)
        return cluster

    def get(self, name: str) -> EmbeddedCluster:
        cluster = EmbeddedCluster(name)
        if not cluster.paths.state.exists():
            raise _not_found(name)
        return cluster

    def list(self) -> list[LocalCluster]:
        return [EmbeddedCluster(path.parent.name) for path in sorted(home.clusters().glob("*/cluster.json"))]


def _not_found(name: str) -> NotFound:
    known = ", ".join(path.parent.name for path in sorted(home.clusters().glob("*/cluster.json"))) or "none"
    return NotFound(
        f"there is no local cluster {name!r}; there are: {known}", subject=f"local cluster {name}", remedy="isthmus up"
    )


def _phase_at_rest(state: ClusterState, *, supervised: bool) -> Phase:
    if not state.made:
        return "creating"
    if supervised:
        return "starting"
    return "dead" if state.wanted == "running" else "stopped"


def _process(entry: dict[str, Any]) -> ProcessStatus:
    pid = entry["pid"]
    running = pid is not None and processes.alive(pid, entry["started"])
    return ProcessStatus(
        entry["name"], running, running and entry["ready"], pid if running else None, entry["restarts"],
        entry["last_exit"], entry["since"], entry["message"],
    )  # fmt: skip


def _remove_folder(paths: Paths) -> None:
    """Everything first, cluster.json and the folder last, so that what a crash leaves is still known as a cluster.

    Nothing is mounted below it in this mount namespace; if something is, it is not ours to empty.
    """
    mounts = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    below = [where for where in mounts if Path(where).is_relative_to(paths.folder.resolve())]
    if below:
        raise Refused(
            f"{below[0]} is a mount point inside the cluster's folder",
            subject=str(paths.folder),
            remedy=f"umount {below[0]}",
        )
    for path in sorted(paths.folder.iterdir(), key=lambda found: found == paths.state):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    paths.folder.rmdir()


def _on_path(program: str) -> bool:
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin") is not None


def _installed(program: str) -> bool:
    try:
        home.tool(program)
    except NotFound:
        return False
    return True
