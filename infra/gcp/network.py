"""The network of a cluster: one subnet with ranges for pods and services, and a way out for nodes without addresses.

The Cloud NAT is regional by nature, so there is nothing to choose per zone. Routes to Google's own APIs (images, logs,
buckets) do not go through it: the subnet has Private Google Access.
"""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

NODE_RANGE = "10.0.0.0/20"
POD_RANGE = "10.4.0.0/14"
"""A /24 per node at GKE's default of 110 pods a node: 1,024 nodes."""
SERVICE_RANGE = "10.8.0.0/20"
CONTROL_PLANE_RANGE = "172.16.0.0/28"
"""The control plane's side of a private cluster; GKE wants exactly a /28."""
PODS = "pods"
SERVICES = "services"
WEBHOOK_PORTS = ["8443", "9443"]
"""Where controllers built on controller-runtime serve admission webhooks; GKE itself opens only 443 and 10250."""


@dataclass(frozen=True)
class NetworkArgs:
    """What a network needs to know."""

    region: str
    node_tag: str
    """Network tag of the cluster's nodes."""


class Network(pulumi.ComponentResource):
    """A VPC-native network. Outputs: network_id, subnet_id, and `egress`."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("isthmus:gcp:Network", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        network = gcp.compute.Network(
            name, name=name, auto_create_subnetworks=False, routing_mode="REGIONAL", opts=child
        )
        subnet = gcp.compute.Subnetwork(
            name,
            name=name,
            network=network.id,
            region=args.region,
            ip_cidr_range=NODE_RANGE,
            secondary_ip_ranges=[
                {"range_name": PODS, "ip_cidr_range": POD_RANGE},
                {"range_name": SERVICES, "ip_cidr_range": SERVICE_RANGE},
            ],
            private_ip_google_access=True,
            opts=child,
        )
        router = gcp.compute.Router(name, name=name, network=network.id, region=args.region, opts=child)
        nat = gcp.compute.RouterNat(
            name,
            name=name,
            router=router.name,
            region=args.region,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="LIST_OF_SUBNETWORKS",
            subnetworks=[{"name": subnet.id, "source_ip_ranges_to_nats": ["ALL_IP_RANGES"]}],
            log_config={"enable": True, "filter": "ERRORS_ONLY"},
            opts=child,
        )
        webhooks = gcp.compute.Firewall(
            f"{name}-webhooks",
            name=f"{name}-webhooks",
            network=network.id,
            description="The control plane calls admission webhooks on nodes",
            direction="INGRESS",
            source_ranges=[CONTROL_PLANE_RANGE],
            target_tags=[args.node_tag],
            allows=[{"protocol": "tcp", "ports": WEBHOOK_PORTS}],
            opts=child,
        )
        self.network_id: pulumi.Output[str] = network.id
        self.subnet_id: pulumi.Output[str] = subnet.id
        self.egress: list[pulumi.Resource] = [nat, webhooks]
        """Nodes depend on these: they have no address of their own to pull anything with."""
        self.register_outputs({"networkId": self.network_id, "subnetId": self.subnet_id})
