"""The few kernel calls that Python 3.11 lacks: namespaces, mounts, death of the parent.

Thin: every function is one call and raises OSError with the call's own errno.
"""

import ctypes
import os
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_SHARED = 0x100000

MNT_DETACH = 2

PR_SET_CHILD_SUBREAPER = 36

CAP_NET_ADMIN = 12
CAP_SYS_ADMIN = 21
CAP_SYS_RESOURCE = 24


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """unshare(2). The process must have one thread."""
    _check(_libc().unshare(flags), "unshare")


def setns(path: Path, kind: int) -> None:
    """Enter the namespace that `path` stands for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc().setns(descriptor, kind), f"setns {path}")
    finally:
        os.close(descriptor)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    arguments = [value.encode() if value else None for value in (source, target, kind)]
    result = _libc().mount(*arguments, ctypes.c_ulong(flags), data.encode() if data else None)
    _check(result, f"mount {source} on {target}")


def bind(source: Path, target: Path, *, read_only: bool = False) -> None:
    """Make `target` show `source`."""
    mount(str(source), str(target), flags=MS_BIND)
    if read_only:
        mount("", str(target), flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def unmount(target: str, *, lazy: bool = False) -> None:
    """umount2(2)."""
    _check(_libc().umount2(target.encode(), MNT_DETACH if lazy else 0), f"umount {target}")


def become_subreaper() -> None:
    """Orphaned descendants become children of this process, so that it reaps them."""
    _check(_libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def has_capability(number: int) -> bool:
    """Whether this process has a capability in its effective set, and could therefore give it on."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False
