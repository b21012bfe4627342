"""The one interface to a local cluster, and the choice of what runs it.

A local cluster is a real Kubernetes on this machine: an API server, one node that runs containers, and simulated nodes
that only schedule. `embedded` runs upstream's programs as supervised processes (Linux, root); `kind` runs the same in
Docker. Callers use `choose()` and the two protocols below and never ask which one they have.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from isthmus.specs.cluster import NAME_PATTERN, GpuCards
from isthmus.specs.errors import InvalidSpec, NotFound, Refused
from isthmus.toolchain.home import RUNTIME_VARIABLE

KUBERNETES_MINOR = "1.36"
"""The Kubernetes minor version of the programs in isthmus/toolchain/table.py; a local cluster runs no other."""

Phase = Literal["creating", "starting", "running", "degraded", "stopped", "dead"]


@dataclass(frozen=True)
class LocalNode:
    """One node that runs containers on this machine."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Beside those that Kubernetes itself sets."""
    cards: GpuCards | None = None
    """What its driver root shows; None: no driver."""
    taints: tuple[Mapping[str, str], ...] = ()
    """key, value and effect each."""


@dataclass(frozen=True)
class LocalClusterConfig:
    """What a local cluster is asked for. A second create with other labels, taints or cards changes them on the running
    one; the number of nodes is for life."""

    nodes: tuple[LocalNode, ...] = (LocalNode(),)
    """The first one also runs the control plane; it takes pods like the others. The embedded runtime has just one."""
    kubernetes_version: str = KUBERNETES_MINOR
    """Minor version, "1.36". Any other is refused."""


@dataclass(frozen=True)
class ProcessStatus:
    """One process of a local cluster."""

    name: str
    running: bool
    ready: bool
    """It has answered its health check since it last started."""
    pid: int | None
    restarts: int
    """How often it was started again since the cluster was last started."""
    last_exit: int | None
    """Exit code of its last end; negative: the signal that ended it. None: it never ended."""
    since: float | None
    """When it last started or ended, in seconds since 1970."""
    message: str = ""
    """What is wrong with it, in words; "" when nothing is."""


@dataclass(frozen=True)
class ClusterStatus:
    """What a local cluster is doing now.

    phase: `creating` (create was cut short: run it again, or delete), `starting`, `running`, `degraded` (a process is
    down and being restarted, or was given up), `stopped`, `dead` (it should run, but its supervisor is gone: start it).
    """

    name: str
    phase: Phase
    processes: tuple[ProcessStatus, ...] = ()
    message: str = ""


def check(name: str, config: LocalClusterConfig) -> None:
    """Refuse a name or a version that no runtime takes.

    Raises:
        InvalidSpec: nothing was changed.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise InvalidSpec(
            f"{name!r} is no cluster name: lower-case letters, digits and hyphens, at most 40, a letter first",
            subject="local cluster",
        )
    if config.kubernetes_version != KUBERNETES_MINOR:
        raise InvalidSpec(
            f"a local cluster runs Kubernetes {KUBERNETES_MINOR}, not {config.kubernetes_version}",
            subject=f"local cluster {name}",
            remedy=f"set isthmus:kubernetesVersion to {KUBERNETES_MINOR}",
        )


class LocalCluster(Protocol):
    """One local cluster, existing or half-made.

    create, start, stop and delete hold the cluster's lock; a second caller waits for a while and is then told who holds
    it (Refused). Every method may be called from any process of the same ISTHMUS_HOME.
    """

    @property
    def name(self) -> str: ...

    @property
    def endpoint(self) -> str:
        """https://<address>:6443, reachable from this machine only. It stays the same until delete."""
        ...

    @property
    def ca_certificate(self) -> str:
        """The cluster's CA, PEM."""
        ...

    def start(self) -> None:
        """Bring a stopped, crashed or rebooted cluster back with all its state; returns when it is usable. Idempotent.

        Raises:
            NotReady: it did not become usable in time; the message names the first process that is not, and its log.
        """
        ...

    def stop(self) -> None:
        """End all its processes and containers, keep all its state. Idempotent."""
        ...

    def delete(self) -> None:
        """End and remove everything of it: processes, mounts, namespaces, cgroups, interfaces, files. Idempotent."""
        ...

    def status(self) -> ClusterStatus:
        """What each of its processes is doing; changes nothing."""
        ...

    def kubeconfig(self) -> dict[str, Any]:
        """A kubeconfig with the administrator's certificate, for our own use; never hand it out."""
        ...

    def client_certificate(self, user: str, groups: tuple[str, ...], minutes: int) -> tuple[str, str]:
        """A fresh short-lived client certificate from the cluster's CA: (certificate PEM, key PEM)."""
        ...

    def load_image(self, archive: Path) -> None:
        """Import an OCI or docker archive, so that pods of the local node can run its images.

        Raises:
            NotFound: there is no such file.
            NotReady: the cluster does not run, or the import failed.
        """
        ...

    def logs(self, component: str) -> Path:
        """The log file of a process; NotFound names those there are. Kept until delete."""
        ...

    def set_cards(self, cards: GpuCards | None) -> None:
        """Change what the first node's driver root shows and restart the device plugin there. Does not wait for it."""
        ...

    def local_node(self) -> str:
        """Name of the first node that runs containers."""
        ...


class Runtime(Protocol):
    """Makes and finds local clusters of one kind."""

    @property
    def name(self) -> str:
        """`embedded` or `kind`."""
        ...

    def available(self) -> str | None:
        """None when it can run here, else a sentence saying what is missing."""
        ...

    def create(self, name: str, config: LocalClusterConfig) -> LocalCluster:
        """Make a cluster, or go on with a half-made or stopped one; returns when it is usable.

        Raises:
            InvalidSpec: the name or version is not possible; nothing was changed.
            Refused: something this runtime needs is missing, or another command holds the cluster.
            NotReady: it did not become usable in time. What there is stays, with its logs, until delete.
        """
        ...

    def get(self, name: str) -> LocalCluster:
        """An existing (perhaps half-made) cluster; NotFound names those there are."""
        ...

    def list(self) -> list[LocalCluster]:
        """All clusters of this runtime under this ISTHMUS_HOME, by name."""
        ...


def runtimes() -> tuple[Runtime, ...]:
    """Every runtime there is, the preferred one first."""
    from isthmus.localcluster.embedded import EmbeddedRuntime  # here: costs an import of cryptography
    from isthmus.localcluster.kind import KindRuntime

    return (EmbeddedRuntime(), KindRuntime())


def choose(name: str | None = None) -> Runtime:
    """The runtime to use: the first one that can run here, or the one named.

    Raises:
        InvalidSpec: there is no runtime of that name.
        Refused: none can run here; the message says what is missing for each.
    """
    known = {runtime.name: runtime for runtime in runtimes()}
    if name is not None and name not in known:
        raise InvalidSpec(
            f"there is no runtime {name!r}; known: {', '.join(known)}", subject="runtime", remedy="isthmus doctor"
        )
    missing: list[str] = []
    for runtime in known.values():
        if name not in (None, runtime.name):
            continue
        problem = runtime.available()
        if problem is None:
            return runtime
        missing.append(f"{runtime.name}: {problem}")
    raise Refused(
        "no local cluster can run here. " + "; ".join(missing), subject="local cluster", remedy="isthmus doctor"
    )


def choose_problem(name: str | None = None) -> str | None:
    """None when the runtime of that name (default: any) can run here, else a sentence saying what is missing."""
    try:
        choose(name)
    except Refused as refusal:
        return refusal.message
    return None


class EveryRuntime:
    """All runtimes as one (the Runtime protocol): a cluster is found wherever it is, and a new one is made by the runtime
    that the environment names (RUNTIME_VARIABLE), else by the first that can run here."""

    name = "every"

    def available(self) -> str | None:
        """None when one of them can run here."""
        return choose_problem(os.environ.get(RUNTIME_VARIABLE))

    def create(self, name: str, config: LocalClusterConfig) -> LocalCluster:
        """See Runtime.create; an existing cluster stays with its runtime."""
        for runtime in runtimes():
            try:
                runtime.get(name)
            except NotFound:
                continue
            return runtime.create(name, config)
        return choose(os.environ.get(RUNTIME_VARIABLE)).create(name, config)

    def get(self, name: str) -> LocalCluster:
        """See Runtime.get."""
        for runtime in runtimes():
            try:
                return runtime.get(name)
            except NotFound:
                continue
        known = ", ".join(cluster.name for cluster in self.list()) or "none"
        raise NotFound(
            f"there is no local cluster {name!r}; there are: {known}",
            subject=f"local cluster {name}",
            remedy="isthmus up",
        )

    def list(self) -> list[LocalCluster]:
        """See Runtime.list."""
        return [cluster for runtime in runtimes() for cluster in runtime.list()]
