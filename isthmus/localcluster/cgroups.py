"""A cgroup per cluster, in every hierarchy there is (version 1, version 2, or both mounted side by side).

The tree `/isthmus-<id>` holds `system/<component>` for our processes and `kubepods` for what the kubelet starts. It is
also how a cluster's processes are found again after a crash: a process belongs to a cluster when it sits in its tree,
whatever its name and whoever started it.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from isthmus.specs.errors import NotReady

CPU_SHARES = 10
"""How many ordinary processes a cluster weighs when the CPU is short: it has about that many, and without this a whole
cluster gets the share of one process of the host."""

SYSTEM_SHARES = 4
"""Weight of our own processes against that of the containers, which the kubelet sets to one per CPU: containers that
take all they can get must not keep the API server from answering."""

KILL_SECONDS = 20.0
"""How long killed processes may take to be gone; only one stuck in the kernel takes longer."""


def hierarchies() -> list[tuple[Path, bool]]:
    """Mount point of every cgroup hierarchy, and whether it is version 2."""
    found = []
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, where, kind, *_ = line.split(" ")
        if kind in {"cgroup", "cgroup2"}:
            found.append((Path(where), kind == "cgroup2"))
    return found


def thaw(group: Path) -> None:
    """Let go on what is frozen in a group of version 1 and those below it.

    runc freezes a container while it ends it or changes its limits. Where runc is killed meanwhile, the container stays frozen,
    and a process frozen by version 1 cannot even be killed (by version 2 it can).
    """
    for folder, _, files in os.walk(group):
        if "freezer.state" in files:
            with contextlib.suppress(OSError):  # the group went away meanwhile
                (Path(folder) / "freezer.state").write_text("THAWED", encoding="ascii")


class Tree:
    """The cgroup tree of one cluster."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def roots(self) -> list[Path]:
        """The tree's top folder in every hierarchy, existing or not."""
        return [where / self.name for where, _ in hierarchies()]

    def make(self, *children: str) -> None:
        """Create the tree and the groups below it. Idempotent."""
        for where, version2 in hierarchies():
            group = where
            for part in ("", self.name):
                group = group / part
                group.mkdir(exist_ok=True)
                _prepare(group, version2, is_root=part == "")
            _weigh(group, CPU_SHARES)
            for child in children:
                below = group
                for part in child.split("/"):
                    below = below / part
                    below.mkdir(exist_ok=True)
                    _prepare(below, version2, is_root=False, leaf=True)
            if (group / "system").is_dir():
                _weigh(group / "system", SYSTEM_SHARES)

    def join(self, child: str, pid: int = 0) -> None:
        """Move a process (0: the caller) into a group of this tree, in every hierarchy."""
        for door in self.doors(child):
            door.write_text(str(pid), encoding="ascii")

    def doors(self, child: str) -> list[Path]:
        """The files that move a process into a group when its pid (0: the writer's own) is written to them."""
        return [root / child / "cgroup.procs" for root in self.roots]

    def processes(self, below: str = "", *, but: Iterable[str] = ()) -> set[int]:
        """Every process in the tree (or in one group of it and those below), except those in the groups `but`."""
        skipped = tuple(but)
        found: set[int] = set()
        for root in self.roots:
            for folder, _, _ in os.walk(root / below):
                inside = os.path.relpath(folder, root)
                if any(inside == group or inside.startswith(group + "/") for group in skipped):
                    continue
                found |= _members(Path(folder))
        if skipped:
            for group in skipped:
                found -= self.processes(group)
        return found

    def end(self, below: str = "", *, but: Iterable[str] = (), grace: float = 0.0) -> None:
        """End the processes of the tree or of one group: SIGTERM and `grace` seconds first, then SIGKILL until none is
        left.

        The caller itself is never signalled.

        Raises:
            NotReady: some are still there after KILL_SECONDS.
        """
        skipped = tuple(but)
        if grace:
            self._signal(signal.SIGTERM, below, skipped)
            limit = time.monotonic() + grace
            while self._others(below, skipped) and time.monotonic() < limit:
                time.sleep(0.02)
        limit = time.monotonic() + KILL_SECONDS
        while left := self._others(below, skipped):
            if time.monotonic() > limit:
                raise NotReady(
                    f"processes {sorted(left)} of cgroup {self.name} do not end", subject=self.name,
                    remedy="look at them with ps; they wait in the kernel",
                )  # fmt: skip
            self._signal(signal.SIGKILL, below, skipped)
            self.thaw(below)
            time.sleep(0.02)

    def thaw(self, below: str = "") -> None:
        """Let go on what is frozen in the tree or in one group of it (see `thaw`)."""
        for root in self.roots:
            thaw(root / below)

    def remove(self) -> None:
        """Remove the tree; all its processes must have ended. Idempotent."""
        for root in self.roots:
            for folder, _, _ in os.walk(root, topdown=False):
                _remove_group(Path(folder))

    def exists(self) -> bool:
        """Whether anything of the tree is there."""
        return any(root.is_dir() for root in self.roots)

    def _others(self, below: str, skipped: tuple[str, ...]) -> set[int]:
        return {pid for pid in self.processes(below, but=skipped) if pid != os.getpid() and not _zombie(pid)}

    def _signal(self, number: int, below: str, skipped: tuple[str, ...]) -> None:
        for pid in self._others(below, skipped):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue


def _prepare(group: Path, version2: bool, *, is_root: bool, leaf: bool = False) -> None:
    """Make a group usable: version 1 wants its CPU set filled in, version 2 wants the controllers handed down."""
    if version2:
        if leaf:
            return
        available = (group / "cgroup.controllers").read_text(encoding="ascii").split()
        if available:
            (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in available), encoding="ascii")
        return
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = group / name
        if not is_root and file.exists() and not file.read_text(encoding="ascii").strip():
            file.write_text((group.parent / name).read_text(encoding="ascii"), encoding="ascii")


def _weigh(group: Path, shares: int) -> None:
    """Give a group the weight of so many ordinary processes (version 1: 1024 each; version 2: 100)."""
    for name, unit in (("cpu.shares", 1024), ("cpu.weight", 100)):
        if (group / name).exists():
            (group / name).write_text(str(shares * unit), encoding="ascii")


def _members(group: Path) -> set[int]:
    try:
        return {int(line) for line in (group / "cgroup.procs").read_text(encoding="ascii").split()}
    except OSError:  # the group went away between the walk and the read
        return set()


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] in {"Z", "X"}
    except OSError:
        return True


def _remove_group(folder: Path) -> None:
    """rmdir, tried for a second: a group stays busy for a moment after its last process has ended."""
    for _ in range(100):
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)
    folder.rmdir()
