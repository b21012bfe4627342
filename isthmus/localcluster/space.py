"""A cluster's mount namespace: every fixed path of the kubelet, containerd and CNI shows the cluster's own folder.

The device plugin folder of the kubelet and the socket folder of containerd's shims are constants, so clusters side by
side need a mount namespace each. The host sees none of these mounts, and they go when the last process in the namespace
ends. It has no name: after a crash it is found through a process that still lives in it.
"""

from pathlib import Path

from isthmus.localcluster import linux, network
from isthmus.localcluster.cgroups import Tree
from isthmus.localcluster.state import ClusterState, Paths

SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""Kernel settings that a kubelet writes to the whole machine (pkg/kubelet/cm/container_manager_linux.go, v1.36). It
finds them as it wants them, in files of ours, and leaves the machine's alone."""

INSIDE = ("net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding")


def enter(state: ClusterState, paths: Paths) -> None:
    """Put the calling process (one thread) into the cluster's network and mount namespaces, making the latter if
    needed."""
    witness = inhabitant(state, paths)
    linux.setns(network.namespace(state), linux.CLONE_NEWNET)
    if witness is not None:
        linux.setns(Path(f"/proc/{witness}/ns/mnt"), linux.CLONE_NEWNS)
        return
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    _forget_other_namespaces()
    for source, target in _binds(paths):
        source.mkdir(mode=0o755, parents=True, exist_ok=True)
        linux.bind(source, Path(target))
    linux.mount("tmpfs", "/run/netns", "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755")
    _show_settings(paths)
    # Shared among our own copies of this namespace, so that mounts of one container can appear in another.
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_SHARED)


def prepare_inside() -> None:
    """Kernel settings and rules of the cluster's own network namespace; the caller is in it."""
    for name in INSIDE:
        (Path("/proc/sys") / name).write_text("1", encoding="ascii")
    network.run("nft", "-f", "-", input_text=network.inside_rules())


def inhabitant(state: ClusterState, paths: Paths) -> int | None:
    """Pid of some living process in the cluster's mount namespace; None when it does not exist."""
    here = Path("/proc/self/ns/mnt").readlink()
    for pid in sorted(Tree(state.space).processes("system")):
        try:
            if Path(f"/proc/{pid}/ns/mnt").readlink() != here and _shows(pid, paths) and _in_network(pid, state):
                return pid
        except OSError:
            continue
    return None


def _shows(pid: int, paths: Paths) -> bool:
    """Whether a process sees the cluster's own folder at containerd's place: a process of a container does not."""
    for line in Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8").splitlines():
        source, target = line.split(" ")[3:5]
        if target == "/run/containerd":
            return str(paths.run.resolve()).endswith(source)
    return False


def _in_network(pid: int, state: ClusterState) -> bool:
    """Whether a process is in the network that is there now, not in one that was since made anew."""
    return Path(f"/proc/{pid}/ns/net").stat().st_ino == network.namespace(state).stat().st_ino


def _binds(paths: Paths) -> list[tuple[Path, str]]:
    return [
        (paths.kubelet, "/var/lib/kubelet"),
        (paths.containerd, "/var/lib/containerd"),
        (paths.cni, "/var/lib/cni"),
        (paths.pod_logs, "/var/log/pods"),
        (paths.container_logs, "/var/log/containers"),
        (paths.run, "/run/containerd"),
        (paths.nvidia, "/run/nvidia"),
        (paths.cdi, "/run/cdi"),
    ]


def _forget_other_namespaces() -> None:
    """Drop our copies of mounted namespaces of other clusters, which would keep those alive."""
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()[::-1]:
        where = line.split(" ")[1]
        if where.startswith("/run/netns/"):
            linux.unmount(where, lazy=True)


def _show_settings(paths: Paths) -> None:
    paths.sysctl.mkdir(mode=0o755, exist_ok=True)
    for name, value in SETTINGS.items():
        real = Path("/proc/sys") / name
        if not real.exists():
            continue
        shown = paths.sysctl / name.replace("/", "-")
        shown.write_text(value + "\n", encoding="ascii")
        linux.bind(shown, real)
