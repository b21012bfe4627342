"""A simulated Google project for tests: its operations over a file, and valid inputs of every resource type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isthmus.simulation import local
from isthmus.simulation.account import Account
from isthmus.simulation.gcp.cloud import CLOUD
from isthmus.simulation.operations import Operations
from isthmus.toolchain.values import Properties
from tests.local_backend import FileBackend, FileCluster

PROJECT = "p-test01"
REGION = "us-central1"
NETWORK = "gcp:compute/network:Network"
SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
ROUTER = "gcp:compute/router:Router"
ROUTER_NAT = "gcp:compute/routerNat:RouterNat"
FIREWALL = "gcp:compute/firewall:Firewall"
CLUSTER = "gcp:container/cluster:Cluster"
POOL = "gcp:container/nodePool:NodePool"
ACCOUNT = "gcp:serviceaccount/account:Account"
ACCOUNT_MEMBER = "gcp:serviceaccount/iAMMember:IAMMember"
PROJECT_MEMBER = "gcp:projects/iAMMember:IAMMember"
BUCKET = "gcp:storage/bucket:Bucket"
BUCKET_MEMBER = "gcp:storage/bucketIAMMember:BucketIAMMember"
REPOSITORY = "gcp:artifactregistry/repository:Repository"
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}


class Project:
    """One project and the engine's view of it."""

    def __init__(self, folder: Path) -> None:
        self.backend = FileBackend(folder / "clusters")
        local.use(self.backend)
        self.account = Account(PROJECT, folder / "account.db")
        self.restart()

    def restart(self) -> None:
        """A new provider process over the same account."""
        config = CLOUD.configure({"project": PROJECT, "region": REGION, "defaultLabels": {"team": "ml"}}, PROJECT)
        self.operations = Operations(CLOUD, self.account, config)

    def make(self, token: str, name: str, inputs: dict[str, Any]) -> tuple[str, Properties]:
        """Check and create a resource; returns its id and outputs."""
        urn = self.urn(token, name)
        checked, failures = self.operations.check(token, urn, inputs, {}, "seed")
        assert not failures, failures
        return self.operations.create(token, urn, checked)

    def drop(self, token: str, identity: str, outputs: Properties, name: str) -> None:
        """Delete a resource."""
        self.operations.delete(token, identity, self.urn(token, name), outputs)

    def urn(self, token: str, name: str) -> str:
        """The URN the engine would give."""
        return f"urn:pulumi:test::isthmus::{token}::{name}"

    def network(self) -> tuple[str, str]:
        """A network and a subnet with ranges: their ids."""
        network, _ = self.make(NETWORK, "n", {"name": "net", "autoCreateSubnetworks": False})
        subnet, _ = self.make(SUBNETWORK, "s", subnet_inputs(network))
        return network, subnet

    def cluster(self, **changes: Any) -> str:
        """A cluster in a network of its own: its id."""
        network, subnet = self.network()
        return self.make(CLUSTER, "c", {**cluster_inputs(network, subnet), **changes})[0]

    @property
    def local(self) -> FileCluster:
        """The only local cluster."""
        (found,) = self.backend.list()
        return found

    def nodes(self, pool: str) -> list[dict[str, Any]]:
        """The nodes of a pool that only schedule."""
        labels = "cloud.google.com/gke-nodepool"
        return [node for node in self.local.document["nodes"].values() if node["metadata"]["labels"][labels] == pool]


def subnet_inputs(network: str) -> dict[str, Any]:
    return {
        "name": "subnet",
        "network": network,
        "region": REGION,
        "ipCidrRange": "10.0.0.0/20",
        "secondaryIpRanges": [
            {"rangeName": "pods", "ipCidrRange": "10.4.0.0/14"},
            {"rangeName": "services", "ipCidrRange": "10.8.0.0/20"},
        ],
    }


def cluster_inputs(network: str, subnet: str) -> dict[str, Any]:
    return {
        "name": "train",
        "location": REGION,
        "nodeLocations": ["us-central1-a", "us-central1-b", "us-central1-c"],
        "network": network,
        "subnetwork": subnet,
        "ipAllocationPolicy": {"clusterSecondaryRangeName": "pods", "servicesSecondaryRangeName": "services"},
        "workloadIdentityConfig": {"workloadPool": f"{PROJECT}.svc.id.goog"},
        "minMasterVersion": "1.36",
        "deletionProtection": False,
    }


def pool_inputs(cluster: str, name: str, *, cards: int = 0, nodes: int = 1, **config: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"machineType": "n1-standard-8" if cards else "e2-standard-4", **config}
    if cards:
        settings["guestAccelerators"] = [{"type": "nvidia-tesla-t4", "count": cards}]
    return {
        "name": name,
        "cluster": cluster,
        "location": REGION,
        "nodeLocations": ["us-central1-a"],
        "nodeCount": nodes,
        "nodeConfig": settings,
    }
