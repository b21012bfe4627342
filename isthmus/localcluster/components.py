"""The processes of a local cluster: command lines, what each waits for, how it shows that it is ready.

Data only; supervisor.py runs it, configs.py writes the files it names. Every flag that is not a plain path or address
says why it is there.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from isthmus.localcluster import configs
from isthmus.localcluster.state import API_PORT, POD_RANGE, SERVICE_RANGE, ClusterState, Paths
from isthmus.toolchain import home

OBJECTS = "objects"
"""Not a process: the point at which the cluster's own roles and services are in the API server."""

QPS = (f"--kube-api-qps={configs.QUERIES}", f"--kube-api-burst={configs.BURST}")
"""With the default of 20 requests a second a thousand simulated nodes wait for the client, not for the CPU (tried
2026-11-30: 5,000 pods of 50 Jobs running in 29 s with these)."""


@dataclass(frozen=True)
class Probe:
    """How a process shows that it is ready. kind: `api` (GET with the administrator's certificate), `http`,
    or `unix` (something accepts connections at `target`)."""

    kind: str
    target: str


@dataclass(frozen=True)
class Component:
    """One supervised process."""

    name: str
    command: tuple[str, ...]
    after: tuple[str, ...] = ()
    """What must be ready before it is started."""
    probe: Probe | None = None
    """None: it is ready when it runs."""
    grace: float = 2.0
    """Seconds it gets between SIGTERM and SIGKILL."""


def components(state: ClusterState, paths: Paths) -> tuple[Component, ...]:
    """All processes of a cluster, in the order of their start."""
    return (
        _etcd(paths),
        _containerd(paths),
        _api_server(state, paths),
        _kubelet(state, paths),
        _controller_manager(paths),
        _scheduler(paths),
        _proxy(state, paths),
        _coredns(state, paths),
        _kwok(paths),
        _storage(paths),
        _node_agent(state, paths),
    )


NAMES = (
    "etcd", "containerd", "kube-apiserver", "kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns",
    "kwok", "local-path-provisioner", "node-agent",
)  # fmt: skip


COLLECTION = {"GOGC": "400", "GOMEMLIMIT": "2GiB"}
"""How often the programs, all in Go, collect garbage: at five times what is live and not at twice, since two cores are scarcer
here than memory. From 2 GiB on they collect as ever."""


def environment() -> dict[str, str]:
    """The environment of every process: ours and nothing of whoever started the cluster (a proxy variable, a token)."""
    system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    folders = [str(home.tools_bin()), str(home.tool("containerd").resolve().parent), system]
    kept = {name: os.environ[name] for name in ("HOME", "LANG", home.HOME_VARIABLE) if name in os.environ}
    return {**kept, **COLLECTION, "PATH": os.pathsep.join(folders)}


def _program(name: str) -> str:
    return str(home.tool(name))


def _etcd(paths: Paths) -> Component:
    pki = paths.pki
    tls = [f"--{kind}{option}" for kind in ("", "peer-") for option in (
        f"cert-file={pki}/etcd.crt", f"key-file={pki}/etcd.key", f"trusted-ca-file={pki}/etcd-ca.crt", "client-cert-auth",
    )]  # fmt: skip
    command = (
        _program("etcd"), "--name=local", f"--data-dir={paths.etcd}", *tls,
        "--listen-client-urls=https://127.0.0.1:2379", "--advertise-client-urls=https://127.0.0.1:2379",
        "--listen-peer-urls=https://127.0.0.1:2380", "--initial-advertise-peer-urls=https://127.0.0.1:2380",
        "--initial-cluster=local=https://127.0.0.1:2380",
        "--listen-metrics-urls=http://127.0.0.1:2381",  # health and metrics without a certificate, on the loopback only
        "--quota-backend-bytes=8589934592",
    )  # fmt: skip
    return Component("etcd", command, probe=Probe("http", "http://127.0.0.1:2381/readyz"), grace=10.0)


def _containerd(paths: Paths) -> Component:
    command = (_program("containerd"), "--config", str(paths.config / "containerd.toml"))
    return Component("containerd", command, probe=Probe("unix", "/run/containerd/containerd.sock"), grace=5.0)


def _api_server(state: ClusterState, paths: Paths) -> Component:
    pki = paths.pki
    command = (
        _program("kube-apiserver"), "--bind-address=0.0.0.0", f"--advertise-address={state.address}", f"--secure-port={API_PORT}",
        "--etcd-servers=https://127.0.0.1:2379", f"--etcd-cafile={pki}/etcd-ca.crt",
        f"--etcd-certfile={pki}/apiserver-etcd.crt", f"--etcd-keyfile={pki}/apiserver-etcd.key",
        f"--tls-cert-file={pki}/apiserver.crt", f"--tls-private-key-file={pki}/apiserver.key", f"--client-ca-file={pki}/ca.crt",
        "--authorization-mode=Node,RBAC", "--anonymous-auth=false", "--allow-privileged=true",
        "--enable-admission-plugins=NodeRestriction",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki}/sa.pub", f"--service-account-signing-key-file={pki}/sa.key",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt", f"--kubelet-client-key={pki}/apiserver-kubelet.key",
        f"--kubelet-certificate-authority={pki}/ca.crt", "--kubelet-preferred-address-types=InternalIP",
        # Aggregated API servers (and so the deletion of namespaces) need the front proxy's certificates.
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt", "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={pki}/front-proxy.crt", f"--proxy-client-key-file={pki}/front-proxy.key",
        # A thousand simulated nodes ask at once.
        "--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000",
    )  # fmt: skip
    return Component("kube-apiserver", command, ("etcd",), Probe("api", "/readyz"), grace=5.0)


def _kubelet(state: ClusterState, paths: Paths) -> Component:
    command = (
        _program("kubelet"), f"--config={paths.config}/kubelet.json", f"--kubeconfig={paths.kubeconfig('kubelet')}",
        "--root-dir=/var/lib/kubelet", f"--hostname-override={state.node}", f"--node-ip={state.address}",
    )  # fmt: skip
    probe = Probe("http", "http://127.0.0.1:10248/healthz")
    return Component("kubelet", command, ("containerd", "kube-apiserver"), probe)


def _controller_manager(paths: Paths) -> Component:
    config, pki = paths.kubeconfig("controller-manager"), paths.pki
    command = (
        _program("kube-controller-manager"), f"--kubeconfig={config}", f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}", "--bind-address=127.0.0.1", "--leader-elect=false",
        "--use-service-account-credentials=true", f"--service-account-private-key-file={pki}/sa.key",
        f"--root-ca-file={pki}/ca.crt", f"--cluster-signing-cert-file={pki}/ca.crt", f"--cluster-signing-key-file={pki}/ca.key",
        "--flex-volume-plugin-dir=/var/lib/kubelet/volume-plugins",  # the default is made on the host
        "--concurrent-job-syncs=20", *QPS,
    )  # fmt: skip
    return Component("kube-controller-manager", command, ("kube-apiserver",))


def _scheduler(paths: Paths) -> Component:
    config = paths.kubeconfig("scheduler")
    command = (
        _program("kube-scheduler"), f"--config={paths.config}/scheduler.json", f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}", "--bind-address=127.0.0.1",
    )  # fmt: skip
    return Component("kube-scheduler", command, ("kube-apiserver",))


def _proxy(state: ClusterState, paths: Paths) -> Component:
    command = (
        _program("kube-proxy"), f"--kubeconfig={paths.kubeconfig('proxy')}", f"--hostname-override={state.node}",
        "--proxy-mode=nftables", f"--cluster-cidr={POD_RANGE}", f"--bind-address={state.address}",
        "--conntrack-max-per-core=0",  # the machine's own limit; it is not ours to change
        "--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249",
    )  # fmt: skip
    return Component("kube-proxy", command, ("kube-apiserver",))


def _coredns(state: ClusterState, paths: Paths) -> Component:
    command = (_program("coredns"), "-conf", str(paths.config / "Corefile"))
    return Component("coredns", command, (OBJECTS,), Probe("http", f"http://{state.address}:8181/ready"))


def _kwok(paths: Paths) -> Component:
    command = (_program("kwok"), f"--kubeconfig={paths.kubeconfig('kwok')}", f"--config={paths.config}/kwok.yaml")
    return Component("kwok", command, (OBJECTS,))


def _storage(paths: Paths) -> Component:
    config: Path = paths.config
    command = (
        _program("local-path-provisioner"), "start", f"--config={config}/storage.json",
        f"--helper-pod-file={config}/storage-helper.json", f"--kubeconfig={paths.kubeconfig('storage')}",
        "--namespace=kube-system", "--service-account-name=isthmus-storage", "--helper-image=set-in-the-file",
    )  # fmt: skip
    return Component("local-path-provisioner", command, (OBJECTS,))


def _node_agent(state: ClusterState, paths: Paths) -> Component:
    """It waits in a shell until the node has cards, which costs nothing where it never has."""
    wait = 'while [ ! -e "$0" ]; do sleep 1; done; exec "$@"'
    program = (sys.executable, "-m", "isthmus.localcluster.agent", state.name)
    return Component("node-agent", ("sh", "-c", wait, str(paths.driver / "cards"), *program), (OBJECTS,))
