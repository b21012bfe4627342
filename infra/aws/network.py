"""The VPC of a cluster: public and private subnets over the zones, one way in and one way out.

Nodes and pods live in private subnets only. The S3 gateway endpoint is free and keeps checkpoint traffic off the NAT
gateway, which is billed by the GiB. VPC flow logs are not switched on: they are an account's policy, not a cluster's.
"""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

VPC_CIDR = "10.0.0.0/16"
EVERYWHERE = "0.0.0.0/0"


@dataclass(frozen=True)
class NetworkArgs:
    """What a network needs to know."""

    cluster_name: str
    """Subnets carry kubernetes.io/cluster/<name>, by which load balancers find them."""
    region: str
    zones: tuple[str, ...]
    nat_per_zone: bool


class Network(pulumi.ComponentResource):
    """A VPC. Outputs: vpc_id, private_subnets by zone and private_subnet_ids (nodes), public_subnet_ids
    (load balancers), and `egress`."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("isthmus:aws:Network", name, None, opts)
        self._name = name
        self._args = args
        self._child = pulumi.ResourceOptions(parent=self)
        self.vpc = aws.ec2.Vpc(
            name,
            cidr_block=VPC_CIDR,
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags={"Name": name},
            opts=self._child,
        )
        gateway = aws.ec2.InternetGateway(name, vpc_id=self.vpc.id, tags={"Name": name}, opts=self._child)
        public = self._public_subnets(gateway)
        nat = self._nat_gateways(public, gateway)
        private, tables, routes = self._private_subnets(nat)
        endpoint = aws.ec2.VpcEndpoint(
            f"{name}-s3",
            vpc_id=self.vpc.id,
            service_name=f"com.amazonaws.{args.region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=[table.id for table in tables],
            tags={"Name": f"{name}-s3"},
            opts=self._child,
        )
        self.vpc_id: pulumi.Output[str] = self.vpc.id
        self.public_subnet_ids = [subnet.id for subnet in public]
        self.private_subnets = dict(zip(args.zones, private, strict=True))
        self.private_subnet_ids = [subnet.id for subnet in private]
        self.egress: list[pulumi.Resource] = [*routes, endpoint]
        """Nodes depend on these: without a way out a node cannot join, and it must still have one while it is drained."""
        self.register_outputs({"vpcId": self.vpc_id, "privateSubnetIds": self.private_subnet_ids})

    def _public_subnets(self, gateway: aws.ec2.InternetGateway) -> list[aws.ec2.Subnet]:
        name = f"{self._name}-public"
        table = aws.ec2.RouteTable(name, vpc_id=self.vpc.id, tags={"Name": name}, opts=self._child)
        aws.ec2.Route(
            name, route_table_id=table.id, destination_cidr_block=EVERYWHERE, gateway_id=gateway.id, opts=self._child
        )
        subnets = []
        for index, zone in enumerate(self._args.zones):
            # /22 blocks above the private ones: 1,022 addresses for load balancers and NAT, six zones fit.
            subnet = self._subnet(name, zone, f"10.0.{192 + 4 * index}.0/22", {"kubernetes.io/role/elb": "1"})
            self._associate(name, zone, table, subnet)
            subnets.append(subnet)
        return subnets

    def _nat_gateways(self, public: list[aws.ec2.Subnet], gateway: aws.ec2.InternetGateway) -> list[aws.ec2.NatGateway]:
        zones = self._args.zones if self._args.nat_per_zone else self._args.zones[:1]
        gateways = []
        for zone, subnet in zip(zones, public, strict=False):
            name = f"{self._name}-nat-{zone}"
            # An address of a VPC cannot be mapped before the internet gateway is attached, nor outlive it.
            opts = pulumi.ResourceOptions(parent=self, depends_on=[gateway])
            address = aws.ec2.Eip(name, domain="vpc", tags={"Name": name}, opts=opts)
            gateways.append(
                aws.ec2.NatGateway(name, allocation_id=address.id, subnet_id=subnet.id, tags={"Name": name}, opts=opts)
            )
        return gateways

    def _private_subnets(
        self, nat: list[aws.ec2.NatGateway]
    ) -> tuple[list[aws.ec2.Subnet], list[aws.ec2.RouteTable], list[pulumi.Resource]]:
        """A table per zone even with one NAT gateway, so that going to one per zone later changes routes only."""
        name = f"{self._name}-private"
        subnets, tables, routes = [], [], list[pulumi.Resource]()
        for index, zone in enumerate(self._args.zones):
            # /19 blocks: 8,187 addresses a zone, since every pod takes one (VPC CNI).
            subnet = self._subnet(name, zone, f"10.0.{32 * index}.0/19", {"kubernetes.io/role/internal-elb": "1"})
            table = aws.ec2.RouteTable(
                f"{name}-{zone}", vpc_id=self.vpc.id, tags={"Name": f"{name}-{zone}"}, opts=self._child
            )
            way_out = nat[index] if len(nat) > 1 else nat[0]
            routes.append(
                aws.ec2.Route(
                    f"{name}-{zone}",
                    route_table_id=table.id,
                    destination_cidr_block=EVERYWHERE,
                    nat_gateway_id=way_out.id,
                    opts=self._child,
                )
            )
            routes.append(self._associate(name, zone, table, subnet))
            subnets.append(subnet)
            tables.append(table)
        return subnets, tables, routes

    def _subnet(self, name: str, zone: str, cidr: str, role: dict[str, str]) -> aws.ec2.Subnet:
        tags = {"Name": f"{name}-{zone}", f"kubernetes.io/cluster/{self._args.cluster_name}": "shared", **role}
        return aws.ec2.Subnet(
            f"{name}-{zone}",
            vpc_id=self.vpc.id,
            availability_zone=zone,
            cidr_block=cidr,
            map_public_ip_on_launch=False,
            tags=tags,
            opts=self._child,
        )

    def _associate(
        self, name: str, zone: str, table: aws.ec2.RouteTable, subnet: aws.ec2.Subnet
    ) -> aws.ec2.RouteTableAssociation:
        return aws.ec2.RouteTableAssociation(
            f"{name}-{zone}", route_table_id=table.id, subnet_id=subnet.id, opts=self._child
        )
