"""A cluster's network: a namespace, a pair of interfaces to the host, a way out.

One lock for the whole machine guards the choice of a free range and everything that clusters share (the mount points
in MOUNT_POINTS, the host's forwarding switch), whatever ISTHMUS_HOME they belong to. From outside the machine nothing
of a cluster can be reached, nor from one cluster another; pods reach the host, and through it what the host reaches.
"""

import ipaddress
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from isthmus.localcluster.cgroups import hierarchies
from isthmus.localcluster.locks import exclusive
from isthmus.localcluster.state import POD_RANGE, ClusterState, read_json, write_json
from isthmus.specs.errors import NoCapacity, NotReady

LOCK = Path("/run/lock/isthmus.lock")
LOCK_SECONDS = 30.0

NETNS = Path("/run/netns")
SHARED = Path("/run/isthmus")
"""shared.json: what was changed on this machine for all its clusters, put back with the last of them."""

MOUNT_POINTS = tuple(
    Path(path)
    for path in (
        "/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/var/log/pods", "/var/log/containers", "/run/containerd", "/run/nvidia", "/run/cdi", "/run/netns",
    )
)  # fmt: skip
"""Where each cluster's own folders appear in its mount namespace: constants of the kubelet, containerd and CNI. On the
host they are empty folders."""

FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
INOTIFY_WANTED = 1024
"""A cluster's processes hold some 20 inotify instances, its containers more; the kernel's default for a user is 128,
and the sixth cluster's kubelet ends with "inotify_init: too many open files" (tried 2026-11-30; case A25 of the
reports)."""


@contextmanager
def machine_lock(doing: str) -> Iterator[Callable[[], None]]:
    """Hold the lock on what all clusters of this machine share; yields a function that removes its file."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(LOCK, what="the machine's cluster networks", doing=doing, seconds=LOCK_SECONDS) as remove_lock:
        yield remove_lock


def namespace(state: ClusterState) -> Path:
    """The file that stands for the cluster's network namespace."""
    return NETNS / state.space


def ensure(state: ClusterState) -> bool:
    """Make what is missing of a cluster's network; True when `state.number` was chosen and must be saved.

    Raises:
        NoCapacity: no range is free, or another interface took the range of this cluster while it was down.
    """
    with machine_lock("make a network"):
        chosen = state.number is None
        if chosen:
            state.number = _free_number(state.identity)
        _make_mount_points()
        _raise_limits()
        if not _complete(state):
            _refuse_taken(state)
            _unmake(state)
            _make(state)
        _allow_way_out(state)
        return chosen


def remove(state: ClusterState) -> None:
    """Remove a cluster's network, and what was shared if it was the last. Idempotent."""
    with machine_lock("remove a network") as remove_lock:
        _unmake(state)
        run("nft", "delete", "table", "ip", state.space, check=False)
        if not _clusters_left():
            _remove_shared()
            remove_lock()


def hold_shared(holder: str) -> None:
    """What a cluster without a network of ours needs of this machine: the limits below, kept until `release_shared`."""
    with machine_lock("raise limits"):
        _raise_limits()
        _share()
        (SHARED / holder).touch(mode=0o600)


def release_shared(holder: str) -> None:
    """The opposite; puts back what was shared if it was the last cluster. Idempotent."""
    with machine_lock("put back limits") as remove_lock:
        (SHARED / holder).unlink(missing_ok=True)
        if not _clusters_left():
            _remove_shared()
            remove_lock()


def run(*command: str, check: bool = True, input_text: str | None = None) -> str:
    """Run a short system command; NotReady with its own words when it fails."""
    environment = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL": "C"}
    done = subprocess.run(
        command, input=input_text, capture_output=True, text=True, check=False, timeout=60, env=environment
    )
    if check and done.returncode:
        words = (done.stderr or done.stdout).strip().replace("\n", "; ")
        raise NotReady(f"`{' '.join(command)}` failed: {words}", subject=command[0])
    return done.stdout


def _free_number(identity: str) -> int:
    """A free N of 10.200.N.0/24. The search starts at a place of the cluster's own, so that a cluster which is down for
    a while (after a reboot) seldom finds its range taken."""
    used = _used_networks()
    first = int(identity, 16)
    for step in range(254):
        number = (first + step) % 254 + 1
        if not any(ipaddress.ip_network(f"10.200.{number}.0/24").overlaps(network) for network in used):
            return number
    raise NoCapacity("every range 10.200.N.0/24 is in use on this machine", subject="network", remedy="isthmus clean")


def _used_networks() -> list[ipaddress.IPv4Network]:
    """The networks of every interface and route, default routes aside."""
    used = []
    for link in json.loads(run("ip", "-json", "-4", "address") or "[]"):
        for address in link.get("addr_info", ()):
            used.append(ipaddress.IPv4Network(f"{address['local']}/{address['prefixlen']}", strict=False))
    for route in json.loads(run("ip", "-json", "-4", "route") or "[]"):
        if route["dst"] != "default":
            used.append(ipaddress.IPv4Network(route["dst"], strict=False))
    return used


def _complete(state: ClusterState) -> bool:
    if not _is_namespace(namespace(state)):
        return False
    inside = run("ip", "-netns", state.space, "-json", "-4", "route", check=False)
    outside = run("ip", "-json", "-4", "address", "show", "dev", state.interface, check=False)
    # The default route is made last, so where it is everything is.
    return f'"{state.gateway}"' in inside and f'"{state.gateway}"' in outside


def _is_namespace(path: Path) -> bool:
    """Whether a namespace is mounted there; after a reboot an empty file may be left."""
    try:
        return path.stat().st_dev != path.parent.stat().st_dev
    except FileNotFoundError:
        return False


def _refuse_taken(state: ClusterState) -> None:
    wanted = ipaddress.ip_network(state.network)
    for link in json.loads(run("ip", "-json", "-4", "address") or "[]"):
        for address in link.get("addr_info", ()):
            if link["ifname"] != state.interface and ipaddress.ip_address(address["local"]) in wanted:
                raise NoCapacity(
                    f"interface {link['ifname']} now has an address in {state.network}, the network of this cluster",
                    subject=f"local cluster {state.name}",
                    remedy=f"remove that interface, or `isthmus down` and `isthmus up` to get another network (was on {state.network})",
                )


def _make(state: ClusterState) -> None:
    name, link = state.space, state.interface
    mtu = uplink_mtu()
    run("ip", "netns", "add", name)
    run("ip", "-batch", "-", input_text=f"""\
link add {link} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {name}
address add {state.gateway}/24 dev {link}
link set {link} up
""")  # fmt: skip
    run("ip", "-netns", name, "-batch", "-", input_text=f"""\
link set lo up
address add {state.address}/24 dev eth0
link set eth0 up
route add default via {state.gateway}
""")  # fmt: skip


def uplink_mtu() -> int:
    """The packet size of the host's way out, so that what pods send need not be cut there; at most 1500."""
    for route in json.loads(run("ip", "-json", "-4", "route", "show", "default") or "[]"):
        try:
            return min(1500, int(Path("/sys/class/net", route["dev"], "mtu").read_text(encoding="ascii")))
        except (OSError, KeyError):
            continue
    return 1500


def _unmake(state: ClusterState) -> None:
    run("ip", "link", "delete", state.interface, check=False)
    if _is_namespace(namespace(state)):
        run("ip", "netns", "delete", state.space)
    namespace(state).unlink(missing_ok=True)


def inside_rules() -> str:
    """nftables rules for the cluster's own namespace: pods leave it under the node's address."""
    return f"""\
table ip isthmus
delete table ip isthmus
table ip isthmus {{
  chain postrouting {{
    type nat hook postrouting priority srcnat;
    ip saddr {POD_RANGE} ip daddr != {POD_RANGE} oifname "eth0" masquerade
  }}
}}
"""


def _allow_way_out(state: ClusterState) -> None:
    """Let the cluster out under the host's address, and nobody in but the host. A host that cannot do that (no NAT in
    its kernel) still has a working cluster, so a failure is not one of create."""
    _note_forwarding()
    run("nft", "-f", "-", check=False, input_text=f"""\
table ip {state.space}
delete table ip {state.space}
table ip {state.space} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat;
    ip saddr {state.network} oifname != "{state.interface}" masquerade
  }}
  chain forward {{
    type filter hook forward priority filter;
    oifname "{state.interface}" ct state new drop
  }}
}}
""")  # fmt: skip


def _note_forwarding() -> None:
    if FORWARD.read_text(encoding="ascii").strip() == "0":
        _share(forwarding_was_off=True)
        _set(FORWARD, "1")


def _raise_limits() -> None:
    now = int(INOTIFY.read_text(encoding="ascii"))
    if now < INOTIFY_WANTED:
        _share(inotify_was=now)
        _set(INOTIFY, str(INOTIFY_WANTED))


def _set(setting: Path, value: str) -> None:
    """Change a kernel setting where this machine lets us. Where it does not (/proc/sys mounted read-only), the cluster has
    no way out, or its kubelet says which limit it met."""
    try:
        setting.write_text(value, encoding="ascii")
    except OSError:
        return


def _make_mount_points() -> None:
    missing = [path for path in MOUNT_POINTS if not path.is_dir()]
    if missing:
        made = (read_json(SHARED / "shared.json") or {}).get("made", [])
        _share(made=[*made, *(str(path) for path in missing)])
    for path in missing:
        path.mkdir(parents=True, exist_ok=True)


def _share(**values: object) -> None:
    SHARED.mkdir(mode=0o700, exist_ok=True)
    write_json(SHARED / "shared.json", {**(read_json(SHARED / "shared.json") or {}), **values})


def _clusters_left() -> bool:
    """Whether this machine has any other cluster: each has a network namespace or, while it runs, a cgroup; one in
    Docker has a file in SHARED."""
    if any(NETNS.glob("isthmus-*")) or any(SHARED.glob("kind-*")):
        return True
    return any(any(where.glob("isthmus-*")) for where, _ in hierarchies())


def _remove_shared() -> None:
    shared = read_json(SHARED / "shared.json") or {}
    if shared.get("forwarding_was_off"):
        _set(FORWARD, "0")
    if "inotify_was" in shared and INOTIFY.read_text(encoding="ascii").strip() == str(INOTIFY_WANTED):
        _set(INOTIFY, str(shared["inotify_was"]))
    for path in shared.get("made", ()):
        try:
            if Path(path) == NETNS and not any(NETNS.iterdir()):
                run("umount", path, check=False)  # `ip netns add` mounts the folder on itself
            Path(path).rmdir()
        except OSError:  # something of another program is in it, or it is a mount point: not ours
            continue
    (SHARED / "shared.json").unlink(missing_ok=True)
    try:
        SHARED.rmdir()
    except OSError:
        pass
