"""A whole EKS platform: network, control plane, system pool, and the add-ons that need a node to run on.

Destroy runs the other way round, which is what keeps it from getting stuck: add-ons with pods, then nodes, then the
CNI add-on that frees network interfaces, then the control plane, then security group, NAT and subnets (case A04).
"""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.aws.cluster import ControlPlane, ControlPlaneArgs, addon
from infra.aws.network import EVERYWHERE, Network, NetworkArgs
from infra.aws.nodes import NodeGroup, NodeGroupArgs, PlacedPool
from infra.aws.roles import POD_IDENTITY, Role, RoleArgs
from isthmus.specs.cluster import ClusterSpec

NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly")
"""Join the cluster and pull images: no CNI rights, no shell through Systems Manager."""


@dataclass(frozen=True)
class PlatformArgs:
    """What a platform needs to know."""

    spec: ClusterSpec
    system: PlacedPool
    nat_per_zone: bool
    admins: tuple[str, ...]
    deletion_protection: bool
    tags: dict[str, str]


class Platform(pulumi.ComponentResource):
    """An EKS cluster with its system pool. Makes further node groups by `node_group`."""

    def __init__(self, name: str, args: PlatformArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("isthmus:aws:Platform", name, None, opts)
        self._name = name
        self._args = args
        self._child = pulumi.ResourceOptions(parent=self)
        spec = args.spec
        self.network = Network(name, NetworkArgs(spec.name, spec.region, spec.zones, args.nat_per_zone), self._child)
        self.control_plane = ControlPlane(
            name,
            ControlPlaneArgs(
                cluster_name=spec.name,
                region=spec.region,
                kubernetes_version=spec.kubernetes_version,
                network=self.network,
                admins=args.admins,
                deletion_protection=args.deletion_protection,
            ),
            self._child,
        )
        self._node_role = self._make_role("nodes", "ec2.amazonaws.com", "EKS nodes", NODE_POLICIES)
        self._node_group = self._node_security_group()
        system = self.node_group(args.system, self._child)
        self._pod_addons(system)
        self.register_outputs({"endpoint": self.control_plane.endpoint})

    def node_group(self, placed: PlacedPool, opts: pulumi.ResourceOptions) -> NodeGroup:
        """A node group in the private subnets of this platform, in both security groups: EKS's own and ours."""
        args = NodeGroupArgs(
            cluster_name=self.control_plane.name,
            placed=placed,
            role_arn=self._node_role.arn,
            subnet_ids=[self.network.private_subnets[zone].id for zone in placed.zones],
            security_group_ids=[self.control_plane.security_group_id, self._node_group.id],
            tags=self._args.tags,
            after=[self._node_role, *self.network.egress, *self.control_plane.ready],
        )
        return NodeGroup(f"{self._name}-{placed.pool.name}", args, opts)

    def _make_role(self, use: str, service: str, description: str, policies: tuple[str, ...]) -> Role:
        role_name = f"{self._args.spec.name}-{self._args.spec.region}-{use}"
        return Role(f"{self._name}-{use}", RoleArgs(role_name, service, description, policies), self._child)

    def _node_security_group(self) -> aws.ec2.SecurityGroup:
        """Nodes talk freely to each other (NCCL and gloo choose ports at random) and outwards; nothing comes in.

        The control plane reaches nodes, webhooks included, through the group that EKS makes and nodes also carry.
        """
        name = f"{self._name}-nodes"
        group = aws.ec2.SecurityGroup(
            name,
            name=name,
            description="Nodes among themselves and outwards",
            vpc_id=self.network.vpc_id,
            tags={"Name": name},
            opts=self._child,
        )
        aws.vpc.SecurityGroupIngressRule(
            name,
            security_group_id=group.id,
            referenced_security_group_id=group.id,
            ip_protocol="-1",
            description="Any traffic between nodes",
            opts=self._child,
        )
        aws.vpc.SecurityGroupEgressRule(
            name,
            security_group_id=group.id,
            cidr_ipv4=EVERYWHERE,
            ip_protocol="-1",
            description="Any traffic outwards",
            opts=self._child,
        )
        return group

    def _pod_addons(self, system: NodeGroup) -> None:
        """Add-ons that are Deployments: without a node they would wait, and EKS would call them degraded."""
        cluster = self.control_plane.cluster
        role = self._make_role("ebs-csi", POD_IDENTITY, "Volumes of pods", ("service-role/AmazonEBSCSIDriverPolicy",))
        after = pulumi.ResourceOptions(parent=self, depends_on=[system, role])
        addon(self._name, cluster, "coredns", after)
        addon(self._name, cluster, "aws-ebs-csi-driver", after, identity=("ebs-csi-controller-sa", role.arn))
