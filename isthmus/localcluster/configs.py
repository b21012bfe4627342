"""The configuration files of a cluster's processes, as text. Pure, except `write`, which puts them in the folder."""

import ipaddress
import json
from pathlib import Path

from isthmus.localcluster import kwok, linux
from isthmus.localcluster.images import HELPER_IMAGE, PAUSE_IMAGE
from isthmus.localcluster.state import (
    DNS_DOMAIN,
    POD_RANGE,
    SERVICE_DNS,
    ClusterState,
    Paths,
    write_file,
)

CNI_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
"""Where distributions put the CNI plugins: Debian's containernetworking-plugins, upstream's own, Fedora's."""

VOLUMES = "/var/lib/kubelet/isthmus-volumes"
"""Provisioned volumes, as the node sees them."""

QUERIES, BURST = 1000, 2000
"""Requests a second that a control plane's program may make; why is with components.QPS."""

NODES_SCORED_PERCENT = 10
"""Of all nodes, at least 100 (the scheduler's own minimum): for how many that fit the scheduler asks which fits best. By its
default it asks for 40 % of 1,250, which cost as much CPU as all else that it does there."""

SHIMS = "system/shims"
"""The cgroup of containers' keepers. They outlive containerd and the supervisor, and containers with them."""


def write(state: ClusterState, paths: Paths, *, mtu: int = 1500) -> None:
    """Write every file that the processes read.

    Args:
        mtu: packet size of the pods' interfaces.
    """
    texts = {
        "containerd.toml": containerd(state, paths),
        "kubelet.json": kubelet(state, paths),
        "Corefile": corefile(state, paths, host_resolvers()),
        "resolv.conf": resolv_conf(host_resolvers()),
        "scheduler.json": scheduler(paths),
        "kwok.yaml": kwok.config(),
        "storage.json": storage(),
        "storage-helper.json": storage_helper(),
    }
    for name, text in texts.items():
        write_file(paths.config / name, text)
    network = paths.config / "cni"
    network.mkdir(mode=0o700, exist_ok=True)
    write_file(network / "10-isthmus.conflist", cni(mtu))
    write_file(
        paths.config / "runc",
        wrapper(paths.driver, drop_capability=not linux.has_capability(linux.CAP_SYS_RESOURCE)),
        mode=0o700,
    )


def containerd(state: ClusterState, paths: Paths) -> str:
    """containerd's configuration. All paths are those inside the cluster's mount namespace."""
    folders = json.dumps([folder for folder in CNI_FOLDERS if Path(folder).is_dir()] or list(CNI_FOLDERS[:1]))
    restrict = "false" if linux.has_capability(linux.CAP_SYS_RESOURCE) else "true"
    return f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.nri.v1.nri"]
  disable = true

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = {restrict}
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = {folders}
  conf_dir = "{paths.config}/cni"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = "{paths.config}/runc"
  SystemdCgroup = false
  ShimCgroup = "/{state.space}/{SHIMS}"
"""


def scheduler(paths: Paths) -> str:
    """The scheduler's configuration (kubescheduler.config.k8s.io/v1)."""
    return json.dumps({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(paths.kubeconfig("scheduler")), "qps": QUERIES, "burst": BURST},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": NODES_SCORED_PERCENT,
    })  # fmt: skip


def kubelet(state: ClusterState, paths: Paths) -> str:
    """The kubelet's configuration (kubelet.config.k8s.io/v1beta1)."""
    pki = paths.pki
    return json.dumps({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "authentication": {
            "anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/kubelet-server.crt",
        "tlsPrivateKeyFile": f"{pki}/kubelet-server.key",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{state.space}",
        "failCgroupV1": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "clusterDNS": [SERVICE_DNS],
        "clusterDomain": DNS_DOMAIN,
        "resolvConf": f"{paths.config}/resolv.conf",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",  # the default is a folder of the host
        "maxPods": 250,
        "serializeImagePulls": False,
        # Nothing can be fetched again, so no image is ever cleaned up; and a full disk of a shared machine is not the
        # node's own, so only memory evicts.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi"},
        "nodeStatusUpdateFrequency": "2s",  # how soon a changed number of cards is seen; only changes are written
        # A pod finds a changed Secret when the kubelet looks at it again. The training operator waits for its own
        # certificate that way: 13 s at most, where the default (1m) took up to 116 s.
        "syncFrequency": "5s",
    }, indent=1)  # fmt: skip


def cni(mtu: int) -> str:
    """The pods' network: a pair of interfaces per pod, routed. Leaving the cluster is network.inside_rules' part."""
    return json.dumps({
        "cniVersion": "0.4.0",
        "name": "isthmus",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "mtu": mtu,
                "ipam": {
                    "type": "host-local", "dataDir": "/var/lib/cni/networks", "ranges": [[{"subnet": POD_RANGE}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
        ],
    }, indent=1)  # fmt: skip


def corefile(state: ClusterState, paths: Paths, resolvers: list[str]) -> str:
    """CoreDNS's configuration. No `loop` plugin: it ends the server where the host's resolver is a local one."""
    forward = f"    forward . {' '.join(resolvers)}\n" if resolvers else ""
    return f"""\
.:53 {{
    bind {state.address}
    errors
    ready {state.address}:8181
    kubernetes {DNS_DOMAIN} in-addr.arpa ip6.arpa {{
        kubeconfig "{paths.kubeconfig("coredns")}"
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 5
    }}
{forward}    cache 5
    loadbalance
}}
"""


def host_resolvers() -> list[str]:
    """The host's name servers that can be reached from another network namespace (a loopback one cannot)."""
    for path in (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf")):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        found = [words[1] for line in lines if len(words := line.split()) > 1 and words[0] == "nameserver"]
        usable = [address for address in found if _reachable(address)]
        if usable:
            return usable[:3]
    return []


def _reachable(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return parsed.version == 4 and not parsed.is_loopback


def resolv_conf(resolvers: list[str]) -> str:
    """resolv.conf of pods with the policy Default."""
    return "".join(f"nameserver {address}\n" for address in resolvers)


def storage() -> str:
    """local-path-provisioner's configuration. The two commands are programs of the helper image, so it needs no
    shell."""
    return json.dumps({
        "nodePathMap": [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": [VOLUMES]}],
        "setupCommand": "/bin/volume-setup",
        "teardownCommand": "/bin/volume-teardown",
        "cmdTimeoutSeconds": 60,
    })  # fmt: skip


def storage_helper() -> str:
    """The pod that makes or removes a volume's folder on the node."""
    container = {"name": "helper-pod", "image": HELPER_IMAGE, "imagePullPolicy": "IfNotPresent"}
    return json.dumps({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "volume"},
        "spec": {
            "priorityClassName": "system-node-critical", "automountServiceAccountToken": False,
            "enableServiceLinks": False, "terminationGracePeriodSeconds": 0, "containers": [container],
        },
    })  # fmt: skip


def wrapper(driver: Path, *, drop_capability: bool) -> str:
    """The OCI runtime that containerd calls: runc, with what the containers of a node need changed.

    Args:
        driver: the driver root, where the node finds it.
        drop_capability: leave out what only CAP_SYS_RESOURCE allows.
    """
    text = (Path(__file__).parent / "containers" / "oci-runtime.sh").read_text(encoding="utf-8")
    values = {"@DRIVER@": str(driver), "@DROP@": "yes" if drop_capability else "no"}
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text
