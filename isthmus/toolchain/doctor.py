"""What this machine has and lacks for the embedded runtime, the engine and the images; each line with its cure.

Read-only: it looks and counts, and starts nothing but `--version` of single programs. What it cannot find out it calls
unknown and does not count against the machine.
"""

import os
import platform
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from isthmus.toolchain import debian, home, state
from isthmus.toolchain.rows import OPTIONAL
from isthmus.toolchain.table import DEBIAN_PACKAGES, TOOLS

Verdict = Literal["found", "missing", "warning"]

NEEDED_DISK_MB = 15_000
NEEDED_MEMORY_MB = 4_000
NEEDED_INOTIFY_INSTANCES = 256
"""Each kubelet, containerd and controller takes some; Debian's default of 128 does not carry two clusters."""
NEEDED_INOTIFY_WATCHES = 65_536
CAP_SYS_RESOURCE = 24
_OVERLAY, _V2 = "overlay", "cgroup.controllers"


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    verdict: Verdict
    detail: str
    remedy: str = ""
    needed: bool = True
    """Whether the embedded runtime needs it; a missing one that is not needed does not fail the machine."""


@dataclass(frozen=True)
class Machine:
    """What is read from the machine; tests give their own."""

    system: str
    root: bool
    capabilities: int
    cgroup: int
    overlay: bool
    disk_mb: int
    memory_mb: int
    inotify_instances: int
    inotify_watches: int
    docker: str
    home_mode: int


def examine() -> list[Check]:
    """Every check of this machine, in the order a person would mend them."""
    return [*machine_checks(read_machine()), *package_checks(), *tool_checks()]


def healthy(checks: list[Check]) -> bool:
    """Whether nothing that the embedded runtime needs is missing."""
    return not any(check.needed and check.verdict == "missing" for check in checks)


def as_rows(checks: list[Check]) -> list[dict[str, Any]]:
    """The checks as plain mappings."""
    return [asdict(check) for check in checks]


def machine_checks(machine: Machine) -> Iterator[Check]:
    """The checks that look at the machine itself."""
    yield _yes_no("Linux", machine.system == "Linux", machine.system, "run isthmus on Linux, or use kind with Docker")
    yield _yes_no("root", machine.root, "root" if machine.root else "not root", "sudo isthmus doctor")
    cgroups = {1: "version 1", 2: "version 2"}.get(machine.cgroup, "not mounted")
    yield _yes_no("cgroups", machine.cgroup > 0, cgroups, "mount -t cgroup2 none /sys/fs/cgroup")
    if machine.capabilities >> CAP_SYS_RESOURCE & 1:
        yield Check("CAP_SYS_RESOURCE", "found", "held")
    else:
        yield Check("CAP_SYS_RESOURCE", "warning", "not held: containers start without it", needed=False)
    yield _yes_no("overlay file system", machine.overlay, "overlay", "modprobe overlay", warn=True)
    yield _amount(
        "disk", machine.disk_mb, NEEDED_DISK_MB, f"at {home.home()}", f"free some space, or set {home.HOME_VARIABLE}"
    )
    yield _amount(
        "memory", machine.memory_mb, NEEDED_MEMORY_MB, "available", "end other programs, or use a larger machine"
    )
    yield _limit("inotify instances", machine.inotify_instances, NEEDED_INOTIFY_INSTANCES, "max_user_instances")
    yield _limit("inotify watches", machine.inotify_watches, NEEDED_INOTIFY_WATCHES, "max_user_watches")
    if machine.docker:
        yield Check("Docker", "found", machine.docker, needed=False)
    else:
        yield Check("Docker", "warning", "no engine: only the kind runtime needs one", needed=False)
    if machine.home_mode & 0o077:
        yield Check(
            "privacy", "warning", f"others may look into {home.home()}", f"chmod 700 {home.home()}", needed=False
        )


def package_checks() -> Iterator[Check]:
    """The distribution's packages."""
    for package in DEBIAN_PACKAGES:
        group = package.groups[0]
        if debian.is_present(package):
            yield Check(package.name, "found", package.about)
        else:
            yield Check(
                package.name, "missing", package.about, f"isthmus install {group}", needed="cluster" in package.groups
            )


def tool_checks() -> Iterator[Check]:
    """The tools of the table."""
    words = {"path": "on PATH", "release": "from its publisher", "build": "built here"}
    for tool in TOOLS:
        how = state.source(tool)
        if how:
            yield Check(tool.name, "found", f"{tool.version}, {words.get(how, how)}")
            continue
        at_work = ", being installed now" if state.is_locked(tool) else ""
        detail = f"{tool.version}: {tool.about}{at_work}"
        yield Check(
            tool.name,
            "missing",
            detail,
            f"isthmus install {tool.group}",
            needed=tool.name != "kind" and tool.group not in OPTIONAL,
        )


def read_machine() -> Machine:
    """This machine."""
    return Machine(
        system=platform.system(),
        root=hasattr(os, "geteuid") and os.geteuid() == 0,
        capabilities=_status_number("CapEff", 16),
        cgroup=_cgroup_version(),
        overlay=_knows_overlay(),
        disk_mb=shutil.disk_usage(home.home()).free >> 20,
        memory_mb=_memory_mb(),
        inotify_instances=_sysctl("max_user_instances"),
        inotify_watches=_sysctl("max_user_watches"),
        docker=_docker(),
        home_mode=stat.S_IMODE(home.home().stat().st_mode),
    )


def _yes_no(name: str, good: bool, detail: str, remedy: str, *, warn: bool = False) -> Check:
    if good:
        return Check(name, "found", detail)
    return Check(
        name, "warning" if warn else "missing", f"{detail} is not there" if warn else detail, remedy, needed=not warn
    )


def _amount(name: str, there: int, needed: int, where: str, remedy: str) -> Check:
    detail = f"{there / 1000:.1f} GB {where}"
    if there >= needed:
        return Check(name, "found", detail)
    return Check(name, "warning", f"{detail}; {needed / 1000:.0f} GB are wanted", remedy, needed=False)


def _limit(name: str, there: int, needed: int, setting: str) -> Check:
    if there == 0:
        return Check(name, "warning", "unknown", needed=False)
    if there >= needed:
        return Check(name, "found", str(there))
    return Check(
        name, "warning", f"{there}; {needed} are wanted", f"sysctl -w fs.inotify.{setting}={needed}", needed=False
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _status_number(key: str, base: int) -> int:
    for line in _read("/proc/self/status").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1], base)
    return 0


def _cgroup_version() -> int:
    root = Path("/sys/fs/cgroup")
    if (root / _V2).exists():
        return 2
    return 1 if any((root / name).is_dir() for name in ("cpu", "cpu,cpuacct", "memory")) else 0


def _knows_overlay() -> bool:
    listed = any(line.split()[-1:] == [_OVERLAY] for line in _read("/proc/filesystems").splitlines())
    return listed or any(Path("/lib/modules", platform.release(), "kernel/fs/overlayfs").glob("overlay.ko*"))


def _memory_mb() -> int:
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) >> 10
    return 0


def _sysctl(name: str) -> int:
    text = _read(f"/proc/sys/fs/inotify/{name}").strip()
    return int(text) if text.isdigit() else 0


def _docker(connectable: Callable[[str], bool] | None = None) -> str:
    """The engine's socket when it can be written to, in words."""
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not address.startswith("unix://"):
        return address
    path = address.removeprefix("unix://")
    usable = connectable or (lambda place: os.access(place, os.W_OK) and stat.S_ISSOCK(os.stat(place).st_mode))
    return path if usable(path) else ""
