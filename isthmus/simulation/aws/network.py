"""VPC networking: networks, gateways, routes and security groups, with EC2's refusals.

Addresses are checked as EC2 checks them (a subnet lies inside its VPC and overlaps no other), because a program that
gets them wrong should fail here and not on the day of the first real deployment. No packet is ever routed.
"""

from __future__ import annotations

import ipaddress
import zlib

from isthmus.simulation.aws.base import (
    ARN,
    EC2_DOC,
    OWNER,
    REGION,
    TAGS,
    arn,
    common,
    counted,
    ec2_busy,
    ec2_missing,
    identity,
    region,
    seconds,
    timed,
    updated,
    zone_id,
    zones_of,
)
from isthmus.simulation.resource import Behaviour, Call, CloudError, Property, Ref, ResourceType
from isthmus.toolchain.values import Properties

DEPENDENCIES = Behaviour("deleting one in use is refused with DependencyViolation", "documented", EC2_DOC)
ABSENT = Behaviour("naming one that does not exist is refused with the type's NotFound code", "documented", EC2_DOC)
SMALLEST, LARGEST = 28, 16
"""Prefix lengths EC2 takes for a VPC or subnet block (VPC user guide)."""


def _vpc(call: Call) -> Properties:
    made = {
        name: f"{prefix}-0{call.account.hexadecimal(call.urn, 16)}"
        for name, prefix in (
            ("defaultNetworkAclId", "acl"),
            ("defaultRouteTableId", "rtb"),
            ("defaultSecurityGroupId", "sg"),
            ("dhcpOptionsId", "dopt"),
        )
    }
    return common(call, arn=arn(call, "ec2", f"vpc/{call.id}"), mainRouteTableId=made["defaultRouteTableId"], **made)


def _check_block(block: str) -> ipaddress.IPv4Network:
    try:
        network = ipaddress.IPv4Network(block)
    except ValueError as error:
        raise CloudError(
            "InvalidParameterValue", f"Value ({block}) for parameter cidrBlock is invalid. {error}"
        ) from error
    if not LARGEST <= network.prefixlen <= SMALLEST:
        raise CloudError("InvalidVpc.Range", f"The CIDR '{block}' is invalid.")
    return network


def _validate_vpc(call: Call) -> None:
    block = call.inputs.get("cidrBlock")
    if block is None:
        raise CloudError("MissingParameter", "Either 'cidrBlock' or 'ipv4IpamPoolId' must be provided")
    _check_block(block)


VPC = ResourceType(
    token="aws:ec2/vpc:Vpc",
    noun="EC2 VPC",
    properties=(
        Property("cidrBlock", replaces=True),
        Property("enableDnsHostnames", "bool", default=False),
        Property("enableDnsSupport", "bool", default=True),
        Property("instanceTenancy", default="default"),
        REGION,
        *TAGS,
        ARN,
        OWNER,
        Property("defaultNetworkAclId", computed=True),
        Property("defaultRouteTableId", computed=True),
        Property("defaultSecurityGroupId", computed=True),
        Property("dhcpOptionsId", computed=True),
        Property("mainRouteTableId", computed=True),
    ),
    make_id=identity("vpc"),
    create=_vpc,
    update=updated,
    validate=_validate_vpc,
    usage=counted("vpcs"),
    missing=ec2_missing("InvalidVpcID.NotFound", "The vpc ID '{}' does not exist"),
    busy=ec2_busy("vpc"),
    behaviours=(
        ABSENT,
        DEPENDENCIES,
        Behaviour("blocks are /16 to /28", "documented", "VPC user guide, VPC CIDR blocks"),
        Behaviour("VPCs per region quota, VpcLimitExceeded", "documented", EC2_DOC),
    ),
)


def _subnet(call: Call) -> Properties:
    by_id = {zone_id(name): name for name in zones_of(region(call))}
    given = call.inputs.get("availabilityZone") or by_id.get(call.inputs.get("availabilityZoneId", ""))
    zone = given or zones_of(region(call))[0]
    identifier = zone_id(zone)
    return common(call, arn=arn(call, "ec2", f"subnet/{call.id}"), availabilityZone=zone, availabilityZoneId=identifier)


def _validate_subnet(call: Call) -> None:
    block = _check_block(call.inputs["cidrBlock"]) if "cidrBlock" in call.inputs else None
    if block is None:
        raise CloudError("MissingParameter", "The request must contain the parameter cidrBlock")
    vpc = call.find(VPC.token, call.inputs["vpcId"])
    if vpc is None:
        return  # the reference check says so
    if not block.subnet_of(ipaddress.IPv4Network(vpc.inputs["cidrBlock"])):
        raise CloudError("InvalidSubnet.Range", f"The CIDR '{block}' is invalid.")
    for other in call.account.rows(SUBNET.token):
        same = other.inputs["vpcId"] == call.inputs["vpcId"] and other.key != call.key
        if same and block.overlaps(ipaddress.IPv4Network(other.inputs["cidrBlock"])):
            raise CloudError("InvalidSubnet.Conflict", f"The CIDR '{block}' conflicts with another subnet")
    zone = call.inputs.get("availabilityZone")
    if zone and zone not in zones_of(region(call)):
        raise CloudError(
            "InvalidParameterValue",
            f"Value ({zone}) for parameter availabilityZone is invalid. Subnets can currently only be created in the "
            f"following availability zones: {', '.join(zones_of(region(call)))}.",
        )


SUBNET = ResourceType(
    token="aws:ec2/subnet:Subnet",
    noun="EC2 Subnet",
    properties=(
        Property("vpcId", required=True, replaces=True),
        Property("cidrBlock", replaces=True),
        Property("availabilityZone", filled=True, replaces=True),
        Property("availabilityZoneId", filled=True, replaces=True),
        Property("mapPublicIpOnLaunch", "bool", default=False),
        Property("assignIpv6AddressOnCreation", "bool", default=False),
        REGION,
        *TAGS,
        ARN,
        OWNER,
    ),
    make_id=identity("subnet"),
    create=_subnet,
    update=updated,
    validate=_validate_subnet,
    refs=(Ref("vpcId", VPC.token),),
    missing=ec2_missing("InvalidSubnetID.NotFound", "The subnet ID '{}' does not exist"),
    busy=ec2_busy("subnet"),
    behaviours=(
        ABSENT,
        DEPENDENCIES,
        Behaviour("a block outside the VPC or over another subnet is refused", "documented", EC2_DOC),
        Behaviour("zone ids are a fixed mapping; the real one differs by account", "assumed"),
    ),
)

INTERNET_GATEWAY = ResourceType(
    token="aws:ec2/internetGateway:InternetGateway",
    noun="EC2 Internet Gateway",
    properties=(Property("vpcId"), REGION, *TAGS, ARN, OWNER),
    make_id=identity("igw"),
    create=lambda call: common(call, arn=arn(call, "ec2", f"internet-gateway/{call.id}")),
    update=updated,
    refs=(Ref("vpcId", VPC.token),),
    missing=ec2_missing("InvalidInternetGatewayID.NotFound", "The internetGateway ID '{}' does not exist"),
    busy=ec2_busy("internetGateway"),
    behaviours=(ABSENT, DEPENDENCIES),
)


def _address(call: Call) -> str:
    """A public address from the block that documents may use (RFC 5737), the same for the same allocation."""
    return f"203.0.113.{zlib.crc32(call.id.encode()) % 254 + 1}"


def _eip(call: Call) -> Properties:
    address = _address(call)
    return common(
        call,
        arn=arn(call, "ec2", f"elastic-ip/{call.id}"),
        allocationId=call.id,
        publicIp=address,
        publicDns=f"ec2-{address.replace('.', '-')}.{region(call)}.compute.amazonaws.com",
    )


EIP = ResourceType(
    token="aws:ec2/eip:Eip",
    noun="EC2 EIP",
    properties=(
        Property("domain", default="vpc", replaces=True),
        REGION,
        *TAGS,
        ARN,
        Property("allocationId", computed=True),
        Property("publicIp", computed=True),
        Property("publicDns", computed=True),
    ),
    make_id=identity("eipalloc"),
    create=_eip,
    update=updated,
    aliases=lambda call: (_address(call),),
    usage=counted("elastic-ips"),
    missing=ec2_missing("InvalidAllocationID.NotFound", "The allocation ID '{}' does not exist"),
    busy=lambda name, user: CloudError("InvalidIPAddress.InUse", f"The address '{name}' is in use by {user.id}."),
    behaviours=(
        ABSENT,
        Behaviour("releasing an associated address is refused with InvalidIPAddress.InUse", "documented", EC2_DOC),
        Behaviour("Elastic IP quota, AddressLimitExceeded", "documented", EC2_DOC),
        Behaviour("addresses are from 203.0.113.0/24, which belongs to documentation (RFC 5737)", "assumed"),
    ),
)


def _nat_zone(call: Call) -> str:
    subnet = call.find(SUBNET.token, str(call.inputs.get("subnetId")))
    return str(subnet.outputs.get("availabilityZone", "")) if subnet else ""


def _validate_nat(call: Call) -> None:
    if "subnetId" not in call.inputs:
        raise CloudError("MissingParameter", "The request must contain the parameter SubnetId")
    if call.inputs.get("connectivityType", "public") == "public" and "allocationId" not in call.inputs:
        raise CloudError("MissingParameter", "The request must contain the parameter AllocationId")
    subnet = call.find(SUBNET.token, call.inputs["subnetId"])
    vpc = subnet.inputs["vpcId"] if subnet else None
    attached = any(row.inputs.get("vpcId") == vpc for row in call.account.rows(INTERNET_GATEWAY.token))
    if subnet and call.inputs.get("connectivityType", "public") == "public" and not attached:
        raise CloudError("Gateway.NotAttached", f"Network {vpc} has no Internet gateway attached")


def _nat(call: Call) -> Properties:
    address = call.find(EIP.token, str(call.inputs.get("allocationId", "")))
    return common(
        call,
        publicIp=address.outputs["publicIp"] if address else "",
        privateIp=f"10.0.255.{zlib.crc32(call.id.encode()) % 254 + 1}",
        networkInterfaceId=f"eni-0{call.account.hexadecimal(call.urn, 16)}",
        associationId=f"eipassoc-0{call.account.hexadecimal(call.urn, 16)}",
    )


NAT_GATEWAY = ResourceType(
    token="aws:ec2/natGateway:NatGateway",
    noun="EC2 NAT Gateway",
    properties=(
        Property("subnetId", replaces=True),
        Property("allocationId", replaces=True),
        Property("connectivityType", default="public", replaces=True, choices=("public", "private")),
        REGION,
        *TAGS,
        Property("publicIp", computed=True),
        Property("privateIp", filled=True, replaces=True),
        Property("networkInterfaceId", computed=True),
        Property("associationId", computed=True),
    ),
    make_id=identity("nat"),
    create=_nat,
    update=updated,
    validate=_validate_nat,
    refs=(Ref("subnetId", SUBNET.token), Ref("allocationId", EIP.token)),
    usage=counted("nat-gateways", zone=_nat_zone),
    missing=ec2_missing("NatGatewayNotFound", "NAT gateway {} was not found"),
    create_seconds=seconds("nat-gateway-create"),
    delete_seconds=(40.0, 60.0),
    behaviours=(
        ABSENT,
        Behaviour("a public one needs an internet gateway in its VPC", "documented", EC2_DOC),
        Behaviour("NAT gateways per zone quota, NatGatewayLimitExceeded", "documented", EC2_DOC),
        timed("nat-gateway-create"),
        Behaviour("takes 40 to 60 s to delete", "assumed"),
    ),
)

ROUTE_TABLE = ResourceType(
    token="aws:ec2/routeTable:RouteTable",
    noun="EC2 Route Table",
    properties=(Property("vpcId", required=True, replaces=True), REGION, *TAGS, ARN, OWNER),
    make_id=identity("rtb"),
    create=lambda call: common(call, arn=arn(call, "ec2", f"route-table/{call.id}")),
    update=updated,
    refs=(Ref("vpcId", VPC.token),),
    missing=ec2_missing("InvalidRouteTableID.NotFound", "The routeTable ID '{}' does not exist"),
    busy=ec2_busy("routeTable"),
    behaviours=(ABSENT, DEPENDENCIES, Behaviour("inline `routes` are not understood: use Route", "assumed")),
)

_TARGETS = ("gatewayId", "natGatewayId")


def _validate_route(call: Call) -> None:
    if sum(name in call.inputs for name in _TARGETS) != 1:
        raise CloudError(
            "InvalidParameterCombination", f"The request must contain exactly one of {', '.join(_TARGETS)}."
        )
    if "destinationCidrBlock" not in call.inputs:
        raise CloudError("MissingParameter", "The request must contain the parameter destinationCidrBlock")


ROUTE = ResourceType(
    token="aws:ec2/route:Route",
    noun="EC2 Route",
    properties=(
        Property("routeTableId", required=True, replaces=True),
        Property("destinationCidrBlock", replaces=True),
        Property("gatewayId"),
        Property("natGatewayId"),
        REGION,
        Property("origin", computed=True),
        Property("state", computed=True),
    ),
    # The provider's own id: a hash over the destination, after the table's id.
    make_id=lambda call: f"r-{call.inputs['routeTableId']}{zlib.crc32(call.inputs['destinationCidrBlock'].encode())}",
    create=lambda call: common(call, origin="CreateRoute", state="active"),
    update=updated,
    validate=_validate_route,
    name=lambda inputs: f"{inputs.get('routeTableId')} {inputs.get('destinationCidrBlock')}",
    refs=(
        Ref("routeTableId", ROUTE_TABLE.token, holds=False),
        Ref("gatewayId", INTERNET_GATEWAY.token, holds=False),
        Ref("natGatewayId", NAT_GATEWAY.token, holds=False),
    ),
    exists=lambda name: CloudError(
        "RouteAlreadyExists", f"The route identified by {name.split()[1]} already exists.", status=400
    ),
    missing=ec2_missing("InvalidRoute.NotFound", "no route with destination-cidr-block {}"),
    behaviours=(
        Behaviour("two routes of one table to one destination are refused, RouteAlreadyExists", "documented", EC2_DOC),
        Behaviour(
            "routes do not keep their table or target from being deleted", "documented", "VPC user guide, blackhole"
        ),
        Behaviour("targets understood: internet gateway and NAT gateway", "assumed"),
    ),
)

ROUTE_TABLE_ASSOCIATION = ResourceType(
    token="aws:ec2/routeTableAssociation:RouteTableAssociation",
    noun="EC2 Route Table Association",
    properties=(Property("routeTableId", required=True), Property("subnetId", required=False, replaces=True), REGION),
    make_id=identity("rtbassoc"),
    create=common,
    update=updated,
    name=lambda inputs: inputs.get("subnetId"),
    refs=(Ref("routeTableId", ROUTE_TABLE.token), Ref("subnetId", SUBNET.token, holds=False)),
    exists=lambda name: CloudError(
        "Resource.AlreadyAssociated",
        f"the specified association for subnet {name} conflicts with an existing association",
    ),
    missing=ec2_missing("InvalidAssociationID.NotFound", "The association ID '{}' does not exist"),
    behaviours=(
        Behaviour("a second table for one subnet is refused, Resource.AlreadyAssociated", "documented", EC2_DOC),
        Behaviour("associations with gateways are not understood", "assumed"),
    ),
)


def _gateway_endpoint(call: Call) -> None:
    if call.inputs.get("vpcEndpointType", "Gateway") != "Gateway":
        raise CloudError("InvalidParameter", "the simulated cloud makes endpoints of type Gateway only")
    service = f"com.amazonaws.{region(call)}."
    if call.inputs["serviceName"] not in {f"{service}s3", f"{service}dynamodb"}:
        raise CloudError(
            "InvalidServiceName", f"The Vpc Endpoint Service '{call.inputs['serviceName']}' does not exist"
        )


VPC_ENDPOINT = ResourceType(
    token="aws:ec2/vpcEndpoint:VpcEndpoint",
    noun="EC2 VPC Endpoint",
    properties=(
        Property("vpcId", required=True, replaces=True),
        Property("serviceName", required=False, replaces=True),
        Property("vpcEndpointType", default="Gateway", replaces=True, choices=("Gateway",)),
        Property("routeTableIds", "list", unordered=True),
        Property("policy", filled=True, json=True),
        REGION,
        *TAGS,
        ARN,
        OWNER,
        Property("state", computed=True),
        Property("prefixListId", computed=True),
        Property("cidrBlocks", "list", computed=True),
    ),
    make_id=identity("vpce"),
    create=lambda call: common(
        call,
        arn=arn(call, "ec2", f"vpc-endpoint/{call.id}"),
        state="available",
        prefixListId=f"pl-{call.account.hexadecimal(call.urn, 8)}",
        cidrBlocks=["198.51.100.0/24"],
        **({} if "policy" in call.inputs else {"policy": _ENDPOINT_POLICY}),
    ),
    update=updated,
    validate=_gateway_endpoint,
    refs=(Ref("vpcId", VPC.token), Ref("routeTableIds", ROUTE_TABLE.token, holds=False)),
    missing=ec2_missing("InvalidVpcEndpointId.NotFound", "The Vpc Endpoint Id '{}' does not exist"),
    behaviours=(ABSENT, Behaviour("only gateway endpoints for S3 and DynamoDB", "assumed")),
)
_ENDPOINT_POLICY = (
    '{"Statement":[{"Action":"*","Effect":"Allow","Principal":"*","Resource":"*"}],"Version":"2008-10-17"}'
)

TYPES = (
    VPC,
    SUBNET,
    INTERNET_GATEWAY,
    EIP,
    NAT_GATEWAY,
    ROUTE_TABLE,
    ROUTE,
    ROUTE_TABLE_ASSOCIATION,
    VPC_ENDPOINT,
)
