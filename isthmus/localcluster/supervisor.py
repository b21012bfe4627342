"""The process that keeps a cluster's processes running. It outlives whoever started the cluster.

Started as `python -m isthmus.localcluster.supervisor FOLDER`, it forks away from its parent, takes the cluster's
supervisor lock, enters the cluster's namespaces and cgroup, ends what an earlier supervisor left behind (containers
excepted: they go on), and then starts and restarts the components in dependency order until SIGTERM (SIGHUP: try those
again that were given up). What it knows is in status.json, replaced on every change. One thread; it imports nothing
heavy. It does not decide whether a cluster should exist, makes no network and no certificates: embedded.py does, before
it starts this.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from isthmus.localcluster import components, configs, linux, locks, network, objects, pki, space
from isthmus.localcluster.cgroups import Tree
from isthmus.localcluster.components import OBJECTS, Component, Probe
from isthmus.localcluster.processes import start_time
from isthmus.localcluster.rest import RequestFailed, Rest
from isthmus.localcluster.state import API_PORT, ClusterState, Paths, read, write_json

TICK = 0.05
"""Seconds between two looks while something is not ready; a component's end wakes the loop at once."""

REST_TICK = 1.0
"""Seconds between two looks while all is well."""

RECHECK_SECONDS = 10.0
"""How often a ready component is asked again. One that no longer answers is shown as not ready, and left alone: a slow
machine must not make its cluster restart."""

PROBE_SECONDS = 1.0
BACKOFF = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds before a restart, by how many short lives came before it; the last for all further ones."""

LONG_LIFE = 30.0
"""A component that lived this long has shown that it can: its next restart counts as the first."""

GIVE_UP = 15
"""Short lives in a row after which a component is left down (about two minutes); `start` (SIGHUP) tries again."""

LAUNCH = """while [ "$1" != -- ]; do echo 0 > "$1" || exit 125; shift; done; shift; exec "$@\""""
"""Shell: join the cgroups named before `--`, then become the program. It is the child's part, because each join takes
the kernel some milliseconds, and the parent has others to start."""

CONTAINER_GRACE = 2.0
SUPERVISOR_GROUP = "system/supervisor"
CONTAINERS = (configs.SHIMS, "kubepods")


@dataclass
class Entry:
    """What status.json says of one component."""

    name: str
    pid: int | None = None
    started: int | None = None
    """Start time in clock ticks since boot: with the pid it names one process."""
    ready: bool = False
    restarts: int = 0
    last_exit: int | None = None
    since: float | None = None
    message: str = ""


@dataclass
class Slot:
    """A component with its process."""

    component: Component
    entry: Entry
    process: "subprocess.Popen[bytes] | None" = None
    short_lives: int = 0
    not_before: float = 0.0
    next_probe: float = 0.0
    log: Path = field(default_factory=Path)


class Supervisor:
    """Runs one cluster. Only `main` makes one."""

    def __init__(self, state: ClusterState, paths: Paths) -> None:
        self.state, self.paths, self.tree = state, paths, Tree(state.space)
        self.slots = [
            Slot(item, Entry(item.name), log=paths.log(item.name)) for item in components.components(state, paths)
        ]
        self.objects = Entry(OBJECTS)
        self.objects_not_before = 0.0
        self.environment = components.environment()
        self.stopping = False
        self.changed = True

    def prepare(self) -> None:
        """Put this process where the cluster lives, and end what an earlier supervisor left."""
        groups = [f"system/{slot.component.name}" for slot in self.slots]
        self.tree.make(SUPERVISOR_GROUP, configs.SHIMS, *groups)
        self.tree.join(SUPERVISOR_GROUP)
        for slot in reversed(self.slots):
            self._end(slot)
        mtu = network.uplink_mtu()
        space.enter(self.state, self.paths)
        space.prepare_inside()
        configs.write(self.state, self.paths, mtu=mtu)
        os.chdir("/")
        linux.become_subreaper()

    def run(self) -> None:
        """Keep everything running until a signal says to stop."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask_to_stop)
        signal.signal(signal.SIGHUP, self._ask_to_try_again)
        while not self.stopping:
            self._reap()
            self._start_what_can()
            self._probe()
            self._publish()
            _pause(wake_read, REST_TICK if self._all_well() else TICK)
        self._stop_all()

    def _all_well(self) -> bool:
        waiting = [slot for slot in self.slots if not slot.entry.ready and slot.short_lives < GIVE_UP]
        return self.objects.ready and not waiting and not self.changed

    def _ask_to_stop(self, *_: object) -> None:
        self.stopping = True

    def _ask_to_try_again(self, *_: object) -> None:
        for slot in self.slots:
            slot.short_lives, slot.not_before = 0, 0.0

    def _is_ready(self, name: str) -> bool:
        if name == OBJECTS:
            return self.objects.ready
        return any(slot.entry.ready for slot in self.slots if slot.component.name == name)

    def _start_what_can(self) -> None:
        now = time.monotonic()
        for slot in self.slots:
            if slot.process is not None or now < slot.not_before or slot.short_lives >= GIVE_UP:
                continue
            if all(self._is_ready(name) for name in slot.component.after):
                self._start(slot)
        if not self.objects.ready and self._is_ready("kube-apiserver") and now >= self.objects_not_before:
            self._apply_objects()

    def _start(self, slot: Slot) -> None:
        joins = [str(path) for path in self.tree.doors(f"system/{slot.component.name}")]
        command = ["/bin/sh", "-c", LAUNCH, "launch", *joins, "--", *slot.component.command]
        try:
            with slot.log.open("ab") as log:
                os.fchmod(log.fileno(), 0o600)
                slot.process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment, start_new_session=True
                )  # fmt: skip
        except OSError as error:
            self._note_end(slot, None)
            slot.entry.message = f"cannot be started: {error}"
            return
        slot.next_probe = 0.0
        entry = slot.entry
        entry.pid, entry.started = slot.process.pid, start_time(slot.process.pid)
        entry.since, entry.ready, entry.message = time.time(), slot.component.probe is None, ""
        self.changed = True

    def _reap(self) -> None:
        """Take note of ended components; also bury whatever orphans became our children."""
        known = {slot.process.pid: slot for slot in self.slots if slot.process is not None}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in known:
                slot = known[pid]
                code = os.waitstatus_to_exitcode(status)
                if slot.process is not None:
                    slot.process.returncode = code
                self._note_end(slot, code)

    def _note_end(self, slot: Slot, code: int | None) -> None:
        entry = slot.entry
        lived = time.time() - entry.since if entry.since and slot.process is not None else 0.0
        slot.short_lives = 1 if lived >= LONG_LIFE else slot.short_lives + 1
        slot.process = None
        slot.not_before = time.monotonic() + BACKOFF[min(slot.short_lives - 1, len(BACKOFF) - 1)]
        entry.pid = entry.started = None
        entry.ready, entry.last_exit, entry.since = False, code, time.time()
        entry.restarts += 1
        if slot.short_lives >= GIVE_UP:
            entry.message = f"ended {GIVE_UP} times in a row, given up; its log is {slot.log}"
        self.changed = True

    def _probe(self) -> None:
        now = time.monotonic()
        for slot in self.slots:
            probe = slot.component.probe
            if probe is None or slot.process is None or now < slot.next_probe:
                continue
            ready = self._answers(probe)
            slot.next_probe = now + (RECHECK_SECONDS if ready else TICK)
            if ready != slot.entry.ready:
                slot.entry.ready, self.changed = ready, True

    def _answers(self, probe: Probe) -> bool:
        try:
            return PROBES[probe.kind](self, probe.target)
        except (OSError, RequestFailed):
            return False

    def _api_answers(self, path: str) -> bool:
        with self._rest() as rest:
            return rest.text("GET", path) == "ok"

    def _rest(self) -> Rest:
        return Rest(self.state.address, API_PORT, self.paths.pki, pki.ADMIN, seconds=PROBE_SECONDS)

    def _apply_objects(self) -> None:
        try:
            with Rest(self.state.address, API_PORT, self.paths.pki, pki.ADMIN) as rest:
                for manifest in objects.bootstrap(self.state):
                    rest.apply(manifest)
            self.objects.ready, self.objects.message, self.objects.since = True, "", time.time()
        except RequestFailed as error:
            self.objects.message = str(error)
            self.objects_not_before = time.monotonic() + 0.2
        self.changed = True

    def _publish(self) -> None:
        if not self.changed:
            return
        document: dict[str, Any] = {
            "pid": os.getpid(),
            "started": start_time(os.getpid()),
            "objects": asdict(self.objects),
            "processes": [asdict(slot.entry) for slot in self.slots],
        }
        try:
            write_json(self.paths.status, document, durable=False)
            self.changed = False
        except OSError as error:  # a full disk: the processes go on, the file is late
            print(f"cannot write {self.paths.status}: {error}", file=sys.stderr, flush=True)

    def _stop_all(self) -> None:
        """End the node first, then its containers, then what they and the controllers talked to."""
        order = [
            slot for slot in reversed(self.slots) if slot.component.name not in {"containerd", "kube-apiserver", "etcd"}
        ]
        for slot in order:
            self._end(slot)
        self.tree.end("kubepods", grace=CONTAINER_GRACE)
        for name in ("containerd", "kube-apiserver", "etcd"):
            for slot in self.slots:
                if slot.component.name == name:
                    self._end(slot)
        self.tree.end(grace=0.5)
        self._reap()
        self.paths.status.unlink(missing_ok=True)

    def _end(self, slot: Slot) -> None:
        """End a component, but neither containers nor their keepers: those sit in groups of their own, yet where
        version 1 and 2 are mounted side by side they stay in containerd's group of the other hierarchy."""
        self.tree.end(f"system/{slot.component.name}", but=CONTAINERS, grace=slot.component.grace)


def _unix_answers(_: Supervisor, target: str) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PROBE_SECONDS)
        connection.connect(target)
    return True


def _http_answers(_: Supervisor, target: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through the user's proxy
    try:
        with opener.open(target, timeout=PROBE_SECONDS) as response:
            return bool(response.status == 200)
    except urllib.error.HTTPError:
        return False


PROBES: dict[str, Callable[[Supervisor, str], bool]] = {
    "api": Supervisor._api_answers,
    "http": _http_answers,
    "unix": _unix_answers,
}


def _pause(wake_read: int, seconds: float) -> None:
    if select.select([wake_read], [], [], seconds)[0]:
        try:
            os.read(wake_read, 4096)
        except BlockingIOError:
            pass


def spawn(paths: Paths, environment: dict[str, str]) -> None:
    """Start a supervisor for a cluster. Returns as soon as it has forked away; it may still find it is not needed."""
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-m", __name__, str(paths.folder)]
    with paths.log("supervisor").open("ab") as log:
        os.fchmod(log.fileno(), 0o600)
        subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", check=True, timeout=60,
            env={**environment, "PYTHONPATH": root}, start_new_session=True,
        )  # fmt: skip


def main(folder: Path) -> int:
    """The supervisor process. Exit code 0 also when another one runs already."""
    if os.fork():
        return 0
    os.setsid()
    if os.fork():  # no longer the leader of a session, and its parent is gone: nobody's child
        os._exit(0)
    os.umask(0o022)  # for files that containers see; what is secret has its own mode, below a folder of mode 0700
    paths = Paths(folder)
    if not locks.hold_forever(paths.supervisor_lock):
        return 0
    state = read(paths)  # after taking the lock: who deletes first says so here, then looks for a holder
    if state is None or state.wanted != "running":
        return 0
    supervisor = Supervisor(state, paths)
    supervisor.prepare()
    supervisor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
