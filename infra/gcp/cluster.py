"""The GKE control plane: a regional Standard cluster with private nodes and workload identity.

Standard, not Autopilot: node settings do not apply to Autopilot clusters, and asking for both makes every second run
plan a replacement (case A05); there is no setting for it. Kubernetes secrets are encrypted at rest by Google's own keys,
as everything in etcd on GKE is.
"""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.gcp.network import CONTROL_PLANE_RANGE, PODS, SERVICES, Network


@dataclass(frozen=True)
class ControlPlaneArgs:
    """What a control plane needs to know."""

    cluster_name: str
    kubernetes_version: str
    region: str
    zones: tuple[str, ...]
    network: Network
    workload_pool: str
    node_account: pulumi.Input[str]
    """Email of the nodes' service account."""
    node_tag: str
    deletion_protection: bool


class ControlPlane(pulumi.ComponentResource):
    """A GKE cluster without nodes. Outputs: name, endpoint (https), ca_certificate (base64)."""

    def __init__(self, name: str, args: ControlPlaneArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("isthmus:gcp:ControlPlane", name, None, opts)
        self.cluster = gcp.container.Cluster(
            name,
            name=args.cluster_name,
            location=args.region,
            node_locations=list(args.zones),
            network=args.network.network_id,
            subnetwork=args.network.subnet_id,
            networking_mode="VPC_NATIVE",
            datapath_provider="ADVANCED_DATAPATH",
            ip_allocation_policy={"cluster_secondary_range_name": PODS, "services_secondary_range_name": SERVICES},
            private_cluster_config={
                "enable_private_nodes": True,
                "enable_private_endpoint": False,
                "master_ipv4_cidr_block": CONTROL_PLANE_RANGE,
            },
            workload_identity_config={"workload_pool": args.workload_pool},
            release_channel={"channel": "REGULAR"},
            min_master_version=args.kubernetes_version,
            logging_config={"enable_components": ["SYSTEM_COMPONENTS", "WORKLOADS"]},
            addons_config={"gce_persistent_disk_csi_driver_config": {"enabled": True}},
            # A cluster cannot be made without a pool; this one lives for minutes, with the nodes' own account rather
            # than the project's default one, which may do nearly everything.
            remove_default_node_pool=True,
            initial_node_count=1,
            node_config={
                "service_account": args.node_account,
                "oauth_scopes": ["https://www.googleapis.com/auth/cloud-platform"],
                "tags": [args.node_tag],
            },
            deletion_protection=args.deletion_protection,
            # Once that pool is gone the cluster reports another pool's settings here, which would plan a replacement of
            # the whole cluster (pulumi/pulumi-gcp#744, under case A05).
            opts=pulumi.ResourceOptions(
                parent=self, ignore_changes=["nodeConfig", "initialNodeCount"], protect=args.deletion_protection
            ),
        )
        self.name: pulumi.Output[str] = self.cluster.name
        self.endpoint: pulumi.Output[str] = self.cluster.endpoint.apply(lambda address: f"https://{address}")
        self.ca_certificate: pulumi.Output[str] = self.cluster.master_auth.apply(
            lambda auth: auth.cluster_ca_certificate or ""
        )
        self.register_outputs({"endpoint": self.endpoint})
