"""Limits of the machine that kind's nodes meet first, checked before anything is made (kind's own page "Known issues":
"Pod errors due to too many open files", disk space)."""

import os
import shutil
from pathlib import Path

from isthmus.localcluster.kind import docker

INOTIFY = Path("/proc/sys/fs/inotify")
WANTED = {"max_user_instances": 512, "max_user_watches": 65536}
"""kind's page names 512 instances and 524288 watches; three nodes here used under 3,000 watches (2026-11-30), and the
kernel's own default grows with the memory, so the floor is lower."""

DISK_GIB = 4.0
"""A node image takes 1.0 GiB, each node of a cluster about 0.6 GiB (measured 2026-11-30)."""


def problem() -> str | None:
    """None, or a sentence saying which limit is too low and how to raise it."""
    if os.geteuid() != 0:  # as root we raise the instances ourselves
        for name, wanted in WANTED.items():
            now = _now(name)
            if now is not None and now < wanted:
                return f"fs.inotify.{name} is {now}, nodes need {wanted} (sudo sysctl fs.inotify.{name}={wanted})"
    folder = Path(docker.docker("info", "--format", "{{.DockerRootDir}}").strip() or "/")
    try:
        free = shutil.disk_usage(folder).free / 2**30
    except OSError:  # an engine in a machine of its own (Docker Desktop)
        return None
    if free < DISK_GIB:
        return f"{free:.1f} GiB are free in {folder}, a cluster needs {DISK_GIB:.0f} (docker system prune)"
    return None


def cgroup_v1() -> bool:
    """Whether the engine's machine has only control groups version 1, which kubelets refuse unless told."""
    return docker.docker("info", "--format", "{{.CgroupVersion}}").strip() == "1"


def _now(name: str) -> int | None:
    try:
        return int((INOTIFY / name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
