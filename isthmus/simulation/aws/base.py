"""What every AWS resource type shares: ARNs, tags, the account's number, EC2's error texts, quotas of the catalog."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from isthmus import catalog
from isthmus.simulation.account import Row
from isthmus.simulation.quota import Quota
from isthmus.simulation.resource import Behaviour, Call, CloudError, Fidelity, Property, Usage
from isthmus.toolchain.values import Properties

PARTITION = "aws"
EC2_DOC = "EC2 API reference, error codes"
EKS_DOC = "EKS API reference"
IAM_DOC = "IAM API reference"
S3_DOC = "S3 API reference, error responses"

STARTING_GPU_VCPUS = 192.0
"""vCPUs of each GPU quota a simulated account starts with, in place of a new account's 0: four g4dn.12xlarge."""

REGION = Property("region", filled=True, replaces=True)
TAGS = (Property("tags", "map"), Property("tagsAll", "map", computed=True, volatile=True))
ARN = Property("arn", computed=True)
OWNER = Property("ownerId", computed=True)


def account_number(name: str) -> str:
    """The twelve-digit number of a simulated account: made from its name, never starting with 0."""
    digits = int(hashlib.sha256(f"aws account {name}".encode()).hexdigest(), 16) % 9 * 10**11
    return str(10**11 + digits + int(hashlib.sha256(name.encode()).hexdigest(), 16) % 10**11)[:12]


def region(call: Call) -> str:
    """The region a resource is in, also for types whose names are unique in the whole account."""
    return str(call.inputs.get("region") or call.config["region"])


def arn(call: Call, service: str, resource: str, *, everywhere: bool = False, numbered: bool = True) -> str:
    """An ARN of this account, arn:aws:SERVICE:REGION:NUMBER:RESOURCE."""
    place = "" if everywhere else region(call)
    number = call.config["accountNumber"] if numbered else ""
    return f"arn:{PARTITION}:{service}:{place}:{number}:{resource}"


def common(call: Call, **outputs: Any) -> Properties:
    """Outputs that most types have, and the given ones."""
    found: Properties = {}
    if call.type.property("region"):
        found["region"] = region(call)
    if call.type.property("tagsAll"):
        found["tagsAll"] = call.inputs.get("tags", {})
    if call.type.property("ownerId"):
        found["ownerId"] = call.config["accountNumber"]
    return {**found, **outputs}


def updated(call: Call) -> Properties:
    """What an update changes on most types: the tags."""
    return {"tagsAll": call.inputs.get("tags", {})} if call.type.property("tagsAll") else {}


def identity(prefix: str, digits: int = 17) -> Callable[[Call], str]:
    """A maker of ids like vpc-0a1b2c3d4e5f60718."""
    return lambda call: f"{prefix}-0{call.account.hexadecimal(call.urn, digits - 1)}"


def ec2_missing(code: str, text: str) -> Callable[[str], CloudError]:
    """EC2's not-found error of a type; `text` has a place for the id."""
    return lambda value: CloudError(code, text.format(value))


def ec2_busy(noun: str) -> Callable[[str, Row], CloudError]:
    """EC2's refusal to delete what is in use."""
    return lambda name, user: CloudError(
        "DependencyViolation", f"The {noun} '{name}' has dependencies and cannot be deleted. (held by {user.id})"
    )


@cache
def quotas() -> dict[str, Quota]:
    """The catalog's quotas of AWS by code. Those for GPU machines start at STARTING_GPU_VCPUS, others at the default."""
    found: dict[str, Quota] = {}
    for fact in catalog.load().quotas("aws"):
        default = float(fact.default) if fact.default is not None else None
        start = default or STARTING_GPU_VCPUS
        found[fact.code] = Quota(fact.code, fact.name, fact.unit, default, start, fact.source)
    return found


def seconds(operation: str) -> tuple[float, float]:
    """How long an operation takes: the catalog's figure, give or take a tenth."""
    figure = float(catalog.load().latency("aws", operation).seconds)
    return 0.9 * figure, 1.1 * figure


def timed(operation: str) -> Behaviour:
    """The ledger's line for it."""
    fact = catalog.load().latency("aws", operation)
    return Behaviour(f"{operation} takes {fact.seconds} s, give or take a tenth", fidelity(fact.fidelity), fact.source)


def fidelity(text: str) -> Fidelity:
    """The catalog's word for how a fact is known, as one of the ledger's."""
    if text not in ("recorded", "documented", "assumed"):
        raise ValueError(f"latencies.csv: no such fidelity: {text}")
    return cast(Fidelity, text)


def counted(unit: str, *, zone: Callable[[Call], str] | None = None) -> Callable[[Call], tuple[Usage, ...]]:
    """One of something against the quota that counts it, per region or per zone."""

    def usage(call: Call) -> tuple[Usage, ...]:
        place = zone(call) if zone else region(call)
        return tuple(Usage(item.code, 1.0, place) for item in quotas().values() if item.unit == unit)

    return usage


def zones_of(region_name: str) -> tuple[str, ...]:
    """The zones of a region in the catalog; for a region it does not have, the first three letters."""
    known = catalog.load()
    if region_name not in known.regions("aws"):
        return tuple(f"{region_name}{letter}" for letter in "abc")
    return tuple(zone.name for zone in known.zones("aws", region_name))


def zone_id(zone: str) -> str:
    """The zone's id as in us-east-1a -> use1-az1. The real mapping differs by account; this one is fixed."""
    area, way, rest = zone.split("-", 2)
    letters = {"northeast": "ne", "northwest": "nw", "southeast": "se", "southwest": "sw"}
    return f"{area}{letters.get(way, way[0])}{rest[:-1]}-az{ord(rest[-1]) - ord('a') + 1}"
