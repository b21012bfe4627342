"""What kind clusters need of the machine: limits that nodes meet first, checked before anything is made (kind's own page
"Known issues": "Pod errors due to too many open files", disk space), and what is shared and put back with the last."""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.localcluster import cgroups, linux, network
from isthmus.localcluster.kind import docker
from isthmus.localcluster.kind.state import FILE
from isthmus.specs.errors import NotReady
from isthmus.toolchain import home

INOTIFY = Path("/proc/sys/fs/inotify")
WANTED = {"max_user_instances": 512, "max_user_watches": 65536}
"""kind's page names 512 instances and 524288 watches. The kernel's default for watches grows with the memory (192536 on the
24 GiB where three nodes ran, 2026-11-30), so the floor for them is lower: assumed, not measured."""

NETWORK = "kind"
"""The engine's network that kind puts all its nodes in."""

DISK_GIB = 4.0
"""A node image takes 1.0 GB (measured 2026-11-30); what is left for the nodes of a cluster is assumed."""


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


def lacks_resource_capability() -> bool:
    """Containers get what the engine has; where root itself lacks CAP_SYS_RESOURCE, runc fails to give it on."""
    return os.geteuid() == 0 and not linux.has_capability(linux.CAP_SYS_RESOURCE)


def hold(name: str) -> None:
    """Before the first node: note whether the network is ours to remove, and raise the machine's limits where we may."""
    if not docker.has_network(NETWORK):
        (home.clusters() / ".kind-network").touch(mode=0o600)
    if os.geteuid() == 0:
        network.hold_shared(f"kind-{_holder(name)}")


def release(name: str) -> None:
    """After the last node: the opposite. Idempotent."""
    if os.geteuid() == 0:
        network.release_shared(f"kind-{_holder(name)}")
    made = home.clusters() / ".kind-network"
    if made.exists() and not list(home.clusters().glob(f"*/{FILE}")) and docker.remove_network(NETWORK):
        made.unlink()


def end(nodes: Sequence[Mapping[str, Any]], *command: str, seconds: float) -> None:
    """Stop or remove nodes (as `docker inspect` shows them) with this docker command.

    A node that was killed while a runc inside froze a container cannot end before that is thawed (cgroups.thaw).

    Raises:
        NotReady: as docker.docker.
    """
    names = [str(node["Name"]).removeprefix("/") for node in nodes]
    try:
        docker.docker(*command, *names, seconds=seconds)
    except NotReady:
        for node in nodes:
            for where, _ in cgroups.hierarchies():
                for group in where.rglob(f"*{node['Id']}*"):
                    cgroups.thaw(group)
        docker.docker(*command, *names, seconds=seconds)


def _holder(name: str) -> str:
    return hashlib.sha256(f"{home.home().resolve()}\0{name}".encode()).hexdigest()[:8]


def _now(name: str) -> int | None:
    try:
        return int((INOTIFY / name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
