"""A whole GKE platform: network, nodes' service account, control plane and system pool."""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.gcp.cluster import ControlPlane, ControlPlaneArgs
from infra.gcp.identity import ServiceAccount, ServiceAccountArgs
from infra.gcp.network import Network, NetworkArgs
from infra.gcp.nodes import NodeGroup, NodeGroupArgs, PlacedPool
from isthmus.specs.cluster import ClusterSpec

NODE_ROLES = ("roles/logging.logWriter", "roles/monitoring.metricWriter", "roles/artifactregistry.reader")
"""What a node must do: write logs and metrics, pull images. GKE's documents call the first two the least it needs."""
ADMIN_ROLE = "roles/container.admin"


@dataclass(frozen=True)
class PlatformArgs:
    """What a platform needs to know."""

    spec: ClusterSpec
    project: str
    workload_pool: str
    system: PlacedPool
    admins: tuple[str, ...]
    deletion_protection: bool


class Platform(pulumi.ComponentResource):
    """A GKE cluster with its system pool. Makes further node pools by `node_group`."""

    def __init__(self, name: str, args: PlatformArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("isthmus:gcp:Platform", name, None, opts)
        self._name = name
        self._args = args
        child = pulumi.ResourceOptions(parent=self)
        spec = args.spec
        self._node_tag = f"{spec.name}-node"
        self.network = Network(name, NetworkArgs(spec.region, self._node_tag), child)
        nodes = ServiceAccountArgs(f"{spec.name}-nodes", args.project, f"Nodes of {spec.name}", NODE_ROLES)
        self._nodes = ServiceAccount(f"{name}-nodes", nodes, child)
        self.control_plane = ControlPlane(
            name,
            ControlPlaneArgs(
                cluster_name=spec.name,
                kubernetes_version=spec.kubernetes_version,
                region=spec.region,
                zones=spec.zones,
                network=self.network,
                workload_pool=args.workload_pool,
                node_account=self._nodes.email,
                node_tag=self._node_tag,
                deletion_protection=args.deletion_protection,
            ),
            child,
        )
        for member in args.admins:
            gcp.projects.IAMMember(
                f"{name}-admin-{member}", project=args.project, role=ADMIN_ROLE, member=member, opts=child
            )
        self.node_group(args.system, child)
        self.register_outputs({"endpoint": self.control_plane.endpoint})

    def node_group(self, placed: PlacedPool, opts: pulumi.ResourceOptions) -> NodeGroup:
        """A node pool in the zones of this cluster that offer its machine."""
        args = NodeGroupArgs(
            cluster_name=self.control_plane.name,
            location=self._args.spec.region,
            placed=placed,
            node_account=self._nodes.email,
            node_tag=self._node_tag,
            after=[self._nodes, *self.network.egress],
        )
        return NodeGroup(f"{self._name}-{placed.pool.name}", args, opts)
