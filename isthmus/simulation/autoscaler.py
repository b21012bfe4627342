"""Runs the autoscaler of a simulated account's clusters (growth.py says what it is told), while somebody asks for it.

Karpenter is a process of this machine, a child of the command; it dies with it. All it knows is in the cluster, so that
another command goes on where one was killed; nodes that it made stay.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from isthmus.kube import Cluster, wait
from isthmus.simulation import coverage, growth, local, nodes
from isthmus.simulation.account import Account
from isthmus.simulation.aws import node_groups
from isthmus.simulation.aws.eks_base import CLUSTER_TOKEN
from isthmus.simulation.gcp import pools as gcp_pools
from isthmus.simulation.names import local_name
from isthmus.specs import labels
from isthmus.specs.errors import NotFound, NotReady
from isthmus.toolchain import home

PROGRAM = "karpenter"
STOP_SECONDS = 10


@dataclass(frozen=True)
class Made:
    """A node that the autoscaler has made."""

    pool: str
    node: str
    machine: str
    zone: str


@dataclass(frozen=True)
class Scaled:
    """A cluster whose pools grow."""

    name: str
    """Of the local cluster."""
    cloud: str
    pools: Callable[[], list[nodes.Pool]]


def scaled(account: Account) -> list[Scaled]:
    """The clusters of an account."""

    def of_aws(key: str) -> Callable[[], list[nodes.Pool]]:
        return lambda: node_groups.pools(account, key)

    def of_gcp(identity: str, name: str, place: str) -> Callable[[], list[nodes.Pool]]:
        return lambda: gcp_pools.of_cluster(account, identity, name, place)

    found = [
        Scaled(local_name(account.name, row.region, row.id), "aws", of_aws(row.key))
        for row in account.rows(CLUSTER_TOKEN)
    ]
    for row in account.rows("gcp:container/cluster:Cluster"):
        name, place = str(row.inputs["name"]), str(row.outputs["location"])
        found.append(
            Scaled(local_name(account.name, row.region, row.name or row.id), "gcp", of_gcp(row.id, name, place))
        )
    return found


class Autoscaler:
    """Karpenter for one cluster. `look` again and again while it runs."""

    def __init__(self, account: Account, cluster: Scaled) -> None:
        """
        Raises:
            NotFound: Karpenter is not installed.
        """
        self._account, self._cluster = account, cluster
        self._quotas = next(cloud.quotas for cloud in coverage.clouds() if cloud.name == cluster.cloud)
        self._kubeconfig = local.backend().runtime().get(cluster.name).kubeconfig()
        self._kube = Cluster(self._kubeconfig)
        self._program = home.tool(PROGRAM)
        self._process: subprocess.Popen[bytes] | None = None
        self.log = home.logs() / f"autoscaler-{cluster.name}.log"

    def look(self) -> list[Made]:
        """Bring Karpenter to the account's pools and limits, and the account to Karpenter's nodes; the nodes it has made.

        Raises:
            NotReady: it ended; the end of its log is in the message.
        """
        pools = growth.growing(self._cluster.pools())
        there = self._kube.list("v1", "Node", selector=labels.GROWN)
        made = [_made(node) for node in there]
        for pool in pools:
            own = [item for item in made if item.pool == pool.name]
            self._complete(pool, [node for node in there if node["metadata"]["labels"][labels.GROWN] == pool.name])
            growth.record(self._account, pool, [item.zone for item in own], self._quotas)
            room = growth.room(self._account, pool, len(own), self._quotas)
            self._kube.apply(growth.node_pool(pool, room))
        if self._process is not None and self._process.poll() is not None:
            raise NotReady(
                f"Karpenter ended: {self._last_words()}",
                subject=f"cluster {self._cluster.name}",
                remedy=f"see {self.log}",
            )
        return made

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start Karpenter, and stop it at the end.

        Raises:
            NotFound: no pool of the cluster may grow.
        """
        pools = growth.growing(self._cluster.pools())
        if not pools:
            raise NotFound(
                "no pool of it may have more nodes than it has",
                subject=f"cluster {self._cluster.name}",
                remedy="give a pool a max above its size",
            )
        for folder in ("crds", "kwok-crds"):
            for path in sorted((home.share(PROGRAM) / folder).glob("*.yaml")):
                self._kube.apply(yaml.safe_load(path.read_text(encoding="utf-8")))
        self._wait_for_kinds()
        self._kube.apply(growth.CLASS)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="isthmus-autoscaler-") as folder, self.log.open("wb") as log:
            types, kubeconfig = Path(folder) / "machines.json", Path(folder) / "kubeconfig"
            types.write_text(json.dumps(growth.instance_types(pools)), encoding="utf-8")
            kubeconfig.write_text(json.dumps(self._kubeconfig), encoding="utf-8")
            self._process = subprocess.Popen(
                [*_DIES_WITH_US, str(self._program), "--instance-types-file-path", str(types), *_OPTIONS],
                env={**os.environ, "KUBECONFIG": str(kubeconfig), "SYSTEM_NAMESPACE": "kube-system"},
                stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                yield
            finally:
                self._process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(STOP_SECONDS)
                self._process.kill()
                self._process = None

    def _complete(self, pool: nodes.Pool, there: list[dict[str, Any]]) -> None:
        """Give nodes the capacity of their machine. Karpenter's provider says what the first pods asked for, and Karpenter
        takes that off its limits."""
        capacity = nodes.capacity(pool.machine, nodes.sharing_of(pool.labels))
        for node in there:
            if node["status"]["capacity"].get("ephemeral-storage") != capacity["ephemeral-storage"]:
                status = {"status": {"capacity": capacity}}
                self._kube.patch("v1", "Node", node["metadata"]["name"], status, subresource="status")

    def _wait_for_kinds(self) -> None:
        def served() -> bool:
            try:
                self._kube.list(growth.API, "NodePool")
                self._kube.list(str(growth.CLASS["apiVersion"]), str(growth.CLASS["kind"]))
            except NotFound:
                return False
            return True

        wait.until(served, seconds=60, what="Karpenter's kinds to be served")

    def _last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"


def _made(node: dict[str, Any]) -> Made:
    own = node["metadata"]["labels"]
    return Made(own[labels.GROWN], node["metadata"]["name"], own[nodes.INSTANCE_TYPE], own[nodes.ZONE])


_DIES_WITH_US = ("setpriv", "--pdeathsig", "TERM")
"""Of util-linux, which every local cluster needs: also where this process is killed."""

_OPTIONS: Sequence[str] = (
    "--disable-leader-election",
    "--metrics-port=0",
    "--health-probe-port=0",
    "--batch-idle-duration=1s",
)
