"""VPC networking on Compute Engine: networks, subnets with secondary ranges, routers, NAT and firewall rules.

Ranges are checked as Google checks them (no overlap within a network), because a program that gets them wrong should
fail here and not on the day of the first real deployment. No packet is ever routed.
"""

from __future__ import annotations

import ipaddress

from isthmus.simulation.gcp.base import (
    ABSENT,
    COMPUTE_DOC,
    CREATED,
    IN_USE,
    PROJECT,
    REGION,
    SELF_LINK,
    busy,
    check_name,
    compute,
    etag,
    exists,
    global_id,
    linked,
    missing,
    named,
    project,
    region,
    regional_id,
    zones_of,
)
from isthmus.simulation.resource import Autoname, Behaviour, Call, CloudError, Property, Ref, ResourceType
from isthmus.toolchain.values import Properties

AUTONAME = Autoname(max_length=63, lower=True)
NAME = Property("name", replaces=True, filled=True)
DESCRIPTION = Property("description", replaces=True)


NETWORK = ResourceType(
    token="gcp:compute/network:Network",
    noun="Network",
    properties=(
        NAME,
        DESCRIPTION,
        Property("autoCreateSubnetworks", "bool", default=True, replaces=True),
        Property("routingMode", default="REGIONAL", choices=("REGIONAL", "GLOBAL")),
        Property("mtu", "int", filled=True),
        Property("deleteDefaultRoutesOnCreate", "bool", default=False, replaces=True),
        PROJECT,
        SELF_LINK,
        Property("gatewayIpv4", computed=True),
        Property("networkId", computed=True),
        Property("numericId", computed=True),
    ),
    make_id=global_id("networks"),
    create=lambda call: compute(call, mtu=call.inputs.get("mtu", 1460), gatewayIpv4="", **_numbers(call)),
    validate=check_name,
    name=named,
    everywhere=True,
    aliases=linked,
    autoname=AUTONAME,
    missing=missing("networks"),
    exists=exists("networks"),
    busy=busy("network"),
    create_seconds=(10.0, 20.0),
    delete_seconds=(10.0, 30.0),
    behaviours=(ABSENT, IN_USE),
)


def _numbers(call: Call) -> Properties:
    number = str(int(call.account.hexadecimal(call.urn, 15), 16))
    return {"networkId": number, "numericId": number}


def _blocks(inputs: Properties) -> list[ipaddress.IPv4Network]:
    """Every range of a subnet: the nodes' and the secondary ones."""
    texts = [inputs.get("ipCidrRange"), *(item.get("ipCidrRange") for item in inputs.get("secondaryIpRanges", []))]
    blocks = []
    for text in texts:
        if text is None:
            continue
        try:
            blocks.append(ipaddress.IPv4Network(text))
        except ValueError as error:
            raise CloudError(
                "invalid",
                f"Invalid value for field 'resource.ipCidrRange': '{text}'. Must be a CIDR address range that is"
                " contained in the RFC1918 private address blocks",
            ) from error
    return blocks


def _validate_subnet(call: Call) -> None:
    check_name(call)
    if not zones_of(region(call)):
        raise CloudError("invalid", f"Unknown region. '{region(call)}'")
    if "ipCidrRange" not in call.inputs:
        raise CloudError("required", "Required field 'resource.ipCidrRange' not specified")
    mine = _blocks(call.inputs)
    network = call.find(NETWORK.token, str(call.inputs["network"]))
    for other in call.account.rows(SUBNETWORK.token):
        theirs = call.find(NETWORK.token, str(other.inputs["network"]))
        if other.key == call.key or network is None or theirs is None or theirs.key != network.key:
            continue
        for block in mine:
            if any(block.overlaps(taken) for taken in _blocks(other.inputs)):
                raise CloudError(
                    "invalid", f"Invalid IPCidrRange: {block} conflicts with existing subnetwork '{other.name}'"
                )
    if any(a.overlaps(b) for index, a in enumerate(mine) for b in mine[index + 1 :]):
        raise CloudError("invalid", f"Invalid IPCidrRange: ranges of subnetwork '{call.inputs['name']}' overlap")


def _fingerprint(call: Call) -> Properties:
    return {"fingerprint": etag(call)["etag"]}


SUBNETWORK = ResourceType(
    token="gcp:compute/subnetwork:Subnetwork",
    noun="Subnetwork",
    properties=(
        NAME,
        DESCRIPTION,
        Property("network", required=True, replaces=True),
        Property("ipCidrRange", filled=True),
        Property("privateIpGoogleAccess", "bool", default=False),
        Property("purpose", filled=True, replaces=True),
        Property("stackType", filled=True),
        Property(
            "secondaryIpRanges",
            "objects",
            fields=(Property("rangeName", required=True), Property("ipCidrRange", required=True)),
        ),
        PROJECT,
        REGION,
        SELF_LINK,
        CREATED,
        Property("gatewayAddress", computed=True),
        Property("fingerprint", computed=True, volatile=True),
        Property("subnetworkId", "int", computed=True),
    ),
    make_id=regional_id("subnetworks"),
    create=lambda call: compute(
        call,
        purpose=call.inputs.get("purpose", "PRIVATE"),
        stackType=call.inputs.get("stackType", "IPV4_ONLY"),
        **_fingerprint(call),
        gatewayAddress=str(next(ipaddress.IPv4Network(call.inputs["ipCidrRange"]).hosts())),
        subnetworkId=int(call.account.hexadecimal(call.urn, 10), 16),
    ),
    update=_fingerprint,
    validate=_validate_subnet,
    name=named,
    aliases=linked,
    autoname=AUTONAME,
    refs=(Ref("network", NETWORK.token),),
    missing=missing("subnetworks"),
    exists=exists("subnetworks"),
    busy=busy("subnetwork"),
    create_seconds=(10.0, 25.0),
    delete_seconds=(10.0, 25.0),
    behaviours=(
        ABSENT,
        IN_USE,
        Behaviour("ranges of one network may not overlap", "documented", COMPUTE_DOC),
    ),
)

ROUTER = ResourceType(
    token="gcp:compute/router:Router",
    noun="Router",
    properties=(
        NAME,
        DESCRIPTION,
        Property("network", required=True, replaces=True),
        Property("bgp", "object", fields=(Property("asn", "int", required=True), Property("advertiseMode"))),
        PROJECT,
        REGION,
        SELF_LINK,
        CREATED,
    ),
    make_id=regional_id("routers"),
    create=compute,
    validate=check_name,
    name=named,
    aliases=linked,
    autoname=AUTONAME,
    refs=(Ref("network", NETWORK.token),),
    missing=missing("routers"),
    exists=exists("routers"),
    busy=busy("router"),
    create_seconds=(5.0, 15.0),
    delete_seconds=(5.0, 15.0),
    behaviours=(ABSENT, IN_USE),
)


def _validate_nat(call: Call) -> None:
    check_name(call)
    listed = call.inputs["sourceSubnetworkIpRangesToNat"] == "LIST_OF_SUBNETWORKS"
    if listed != bool(call.inputs.get("subnetworks")):
        need = "must be" if listed else "must not be"
        raise CloudError(
            "invalid",
            "Invalid value for field 'resource.nats[0].subnetworks': subnetworks"
            f" {need} given when source_subnetwork_ip_ranges_to_nat is {call.inputs['sourceSubnetworkIpRangesToNat']}",
        )


ROUTER_NAT = ResourceType(
    token="gcp:compute/routerNat:RouterNat",
    noun="RouterNat",
    properties=(
        NAME,
        Property("router", required=True, replaces=True),
        Property("natIpAllocateOption", filled=True, choices=("AUTO_ONLY", "MANUAL_ONLY")),
        Property(
            "sourceSubnetworkIpRangesToNat",
            required=True,
            choices=("ALL_SUBNETWORKS_ALL_IP_RANGES", "ALL_SUBNETWORKS_ALL_PRIMARY_IP_RANGES", "LIST_OF_SUBNETWORKS"),
        ),
        Property(
            "subnetworks",
            "objects",
            fields=(Property("name", required=True), Property("sourceIpRangesToNats", "list", required=True)),
        ),
        Property(
            "logConfig",
            "object",
            fields=(
                Property("enable", "bool", required=True),
                Property("filter", required=True, choices=("ERRORS_ONLY", "TRANSLATIONS_ONLY", "ALL")),
            ),
        ),
        PROJECT,
        REGION,
        Property("autoNetworkTier", computed=True),
        Property("endpointTypes", "list", computed=True),
    ),
    make_id=lambda call: f"{project(call)}/{region(call)}/{call.inputs['router']}/{call.inputs['name']}",
    create=lambda call: {
        "project": project(call),
        "region": region(call),
        "natIpAllocateOption": call.inputs.get("natIpAllocateOption", "AUTO_ONLY"),
        "autoNetworkTier": "PREMIUM",
        "endpointTypes": ["ENDPOINT_TYPE_VM"],
    },
    validate=_validate_nat,
    name=lambda inputs: f"{inputs['router']}/{inputs['name']}" if "name" in inputs else None,
    autoname=AUTONAME,
    refs=(Ref("router", ROUTER.token), Ref("subnetworks.name", SUBNETWORK.token)),
    missing=missing("nats"),
    exists=exists("nats"),
    create_seconds=(5.0, 15.0),
    delete_seconds=(5.0, 15.0),
    behaviours=(ABSENT, Behaviour("no address is translated", "assumed")),
)


def _validate_firewall(call: Call) -> None:
    check_name(call)
    if bool(call.inputs.get("allows")) == bool(call.inputs.get("denies")):
        raise CloudError("invalid", "Invalid value for field 'resource': one of allowed and denied must be specified")
    for text in call.inputs.get("sourceRanges", []):
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            raise CloudError("invalid", f"Invalid value for field 'resource.sourceRanges[0]': '{text}'") from error


def _firewall(call: Call) -> Properties:
    """Sources and destinations that the program leaves open are everywhere, where the direction has them."""
    inwards = call.inputs.get("direction", "INGRESS") == "INGRESS"
    open_sources = ["0.0.0.0/0"] if inwards and not call.inputs.get("sourceTags") else []
    return compute(
        call,
        direction="INGRESS" if inwards else "EGRESS",
        sourceRanges=call.inputs.get("sourceRanges", open_sources),
        destinationRanges=call.inputs.get("destinationRanges", [] if inwards else ["0.0.0.0/0"]),
    )


RULE = (Property("protocol", required=True), Property("ports", "list"))

FIREWALL = ResourceType(
    token="gcp:compute/firewall:Firewall",
    noun="Firewall",
    properties=(
        NAME,
        Property("description"),
        Property("network", required=True, replaces=True),
        Property("direction", filled=True, replaces=True, choices=("INGRESS", "EGRESS")),
        Property("priority", "int", default=1000),
        Property("disabled", "bool", default=False),
        Property("sourceRanges", "list", filled=True),
        Property("destinationRanges", "list", filled=True),
        Property("sourceTags", "list"),
        Property("targetTags", "list"),
        Property("allows", "objects", fields=RULE),
        Property("denies", "objects", fields=RULE),
        PROJECT,
        SELF_LINK,
        CREATED,
    ),
    make_id=global_id("firewalls"),
    create=_firewall,
    validate=_validate_firewall,
    name=named,
    everywhere=True,
    aliases=linked,
    autoname=AUTONAME,
    refs=(Ref("network", NETWORK.token),),
    missing=missing("firewalls"),
    exists=exists("firewalls"),
    create_seconds=(5.0, 15.0),
    delete_seconds=(5.0, 15.0),
    behaviours=(ABSENT, Behaviour("rules are kept, not enforced", "assumed")),
)

TYPES = (NETWORK, SUBNETWORK, ROUTER, ROUTER_NAT, FIREWALL)
