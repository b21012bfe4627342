"""The invokes of AWS that a program may use: who am I, where am I, and policy documents.

`getClusterAuth` is left out on purpose: its token would lie in the state (case A07).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

from isthmus import catalog
from isthmus.simulation.account import Account
from isthmus.simulation.aws.base import PARTITION, zone_id, zones_of
from isthmus.simulation.resource import Behaviour, CloudError, Function, Property
from isthmus.specs.errors import InvalidSpec
from isthmus.toolchain.values import Properties

CALLER_NAME = "isthmus"
_SUFFIX = "amazonaws.com"


def caller_arn(config: Properties) -> str:
    """Who works on a simulated account: always the same IAM user."""
    return f"arn:{PARTITION}:iam::{config['accountNumber']}:user/{CALLER_NAME}"


def _caller(given: Properties, config: Properties, account: Account) -> Properties:
    number = config["accountNumber"]
    return {"id": number, "accountId": number, "arn": caller_arn(config), "userId": f"AIDA{number}SIMUL"}


def _zones(given: Properties, config: Properties, account: Account) -> Properties:
    place = str(given.get("region") or config["region"])
    excluded = set(given.get("excludeNames", ()))
    names = [zone for zone in zones_of(place) if zone not in excluded]
    ids = [zone_id(zone) for zone in names]
    return {"id": place, "region": place, "names": names, "zoneIds": ids, "groupNames": [place], "state": "available"}


def _region(given: Properties, config: Properties, account: Account) -> Properties:
    place = given.get("region") or given.get("name") or config["region"]
    described = {"id": place, "region": place, "name": place, "description": place}
    return {**described, "endpoint": f"ec2.{place}.{_SUFFIX}"}


def _partition(given: Properties, config: Properties, account: Account) -> Properties:
    return {"id": PARTITION, "partition": PARTITION, "dnsSuffix": _SUFFIX, "reverseDnsPrefix": "com.amazonaws"}


def _session(given: Properties, config: Properties, account: Account) -> Properties:
    """The IAM identity behind an STS ARN; an ARN that is no session is its own issuer."""
    arn = given["arn"]
    parts = arn.split(":", 5)
    if len(parts) != 6:
        raise CloudError("ValidationError", f"{arn} is no ARN")
    if parts[5].startswith("assumed-role/"):
        _, role, session = parts[5].split("/", 2)
        issuer = f"arn:{PARTITION}:iam::{parts[4]}:role/{role}"
        return {"id": arn, "arn": arn, "issuerArn": issuer, "issuerId": "", "issuerName": role, "sessionName": session}
    return {"id": arn, "arn": arn, "issuerArn": arn, "issuerId": "", "issuerName": "", "sessionName": ""}


def _instance_type(given: Properties, config: Properties, account: Account) -> Properties:
    name = given["instanceType"]
    try:
        shape = catalog.load().shape("aws", name)
    except InvalidSpec as error:
        raise CloudError(
            "InvalidInstanceType", f"The following supplied instance types do not exist: [{name}]"
        ) from error
    gpus: list[Properties] = []
    if shape.gpu_count:
        memory = int((shape.gpu_memory_gib or 0) * 1024)
        gpus = [{"count": shape.gpu_count, "manufacturer": "NVIDIA", "memorySize": memory, "name": shape.gpu_model}]
    return {
        "id": name,
        "instanceType": name,
        "region": config["region"],
        "defaultVcpus": shape.vcpus,
        "memorySize": int(shape.memory_gib * 1024),
        "gpuses": gpus,
        "supportedArchitectures": ["x86_64"],
        "currentGeneration": True,
    }


# Policy documents


def _document(given: Properties, config: Properties, account: Account) -> Properties:
    """What the AWS provider renders: statements merged, single values unwrapped, keys in IAM's order, two-space indent."""
    statements: dict[str, Properties] = {}
    for text in given.get("sourcePolicyDocuments", ()):
        _merge(statements, json.loads(text).get("Statement", ()))
    _merge(statements, (_statement(item) for item in given.get("statements", ())))
    for text in given.get("overridePolicyDocuments", ()):
        _merge(statements, json.loads(text).get("Statement", ()))
    document: Properties = {"Version": given.get("version", "2012-10-17")}
    if "policyId" in given:
        document["Id"] = given["policyId"]
    document["Statement"] = list(statements.values())
    text = json.dumps(document, indent=2)
    return {"id": str(hash_of(text)), "json": text, "minifiedJson": json.dumps(document, separators=(",", ":"))}


def hash_of(text: str) -> int:
    """The document's id: the CRC32 the provider uses (terraform-plugin-sdk, helper/schema, HashString)."""
    return zlib.crc32(text.encode())


def _merge(statements: dict[str, Properties], more: Iterable[Properties] | Properties) -> None:
    """Add statements; one with a Sid that is there already takes its place."""
    for item in [more] if isinstance(more, dict) else more:
        statements[item.get("Sid") or f"\0{len(statements)}"] = item


def _statement(item: Properties) -> Properties:
    found: Properties = {"Sid": item["sid"]} if item.get("sid") else {}
    found["Effect"] = item.get("effect", "Allow")
    for name, key in (
        ("actions", "Action"),
        ("notActions", "NotAction"),
        ("resources", "Resource"),
        ("notResources", "NotResource"),
    ):
        if item.get(name):
            found[key] = _single(sorted(set(item[name]), reverse=True))
    for name, key in (("principals", "Principal"), ("notPrincipals", "NotPrincipal")):
        if item.get(name):
            found[key] = _principals(item[name])
    if item.get("conditions"):
        found["Condition"] = _conditions(item["conditions"])
    return found


def _principals(principals: list[Properties]) -> Any:
    if any(item["type"] == "*" for item in principals):
        return "*"
    found: dict[str, list[str]] = {}
    for item in principals:
        found.setdefault(item["type"], []).extend(item["identifiers"])
    return {kind: _single(sorted(set(names), reverse=True)) for kind, names in found.items()}


def _conditions(conditions: list[Properties]) -> Properties:
    found: dict[str, dict[str, list[str]]] = {}
    for item in conditions:
        found.setdefault(item["test"], {}).setdefault(item["variable"], []).extend(item["values"])
    return {test: {key: _single(values) for key, values in keys.items()} for test, keys in found.items()}


def _single(values: list[str]) -> Any:
    return values[0] if len(values) == 1 else values


_PRINCIPAL = (Property("type", required=True), Property("identifiers", "list", required=True))
_STATEMENT = (
    Property("sid"),
    Property("effect", choices=("Allow", "Deny")),
    *(Property(name, "list") for name in ("actions", "notActions", "resources", "notResources")),
    *(Property(name, "objects", fields=_PRINCIPAL) for name in ("principals", "notPrincipals")),
    Property(
        "conditions",
        "objects",
        fields=(
            Property("test", required=True),
            Property("variable", required=True),
            Property("values", "list", required=True),
        ),
    ),
)

FUNCTIONS = (
    Function(
        "aws:index/getCallerIdentity:getCallerIdentity",
        (),
        _caller,
        (Behaviour("always the IAM user `isthmus` of an account number made from the account's name", "assumed"),),
    ),
    Function(
        "aws:index/getAvailabilityZones:getAvailabilityZones",
        (
            Property("state"),
            Property("region"),
            Property("excludeNames", "list"),
            Property("allAvailabilityZones", "bool"),
            Property("filters", "objects"),
        ),
        _zones,
        (Behaviour("the catalog's zones; filters are accepted and do nothing", "assumed"),),
    ),
    Function("aws:index/getRegion:getRegion", (Property("region"), Property("name"), Property("endpoint")), _region),
    Function("aws:index/getPartition:getPartition", (), _partition),
    Function("aws:iam/getSessionContext:getSessionContext", (Property("arn", required=True),), _session),
    Function(
        "aws:ec2/getInstanceType:getInstanceType",
        (Property("instanceType", required=True), Property("region")),
        _instance_type,
    ),
    Function(
        "aws:iam/getPolicyDocument:getPolicyDocument",
        (
            Property("version"),
            Property("policyId"),
            Property("statements", "objects", fields=_STATEMENT),
            Property("sourcePolicyDocuments", "list"),
            Property("overridePolicyDocuments", "list"),
        ),
        _document,
        (Behaviour("renders JSON as the provider does: sets sorted backwards, single values unwrapped", "assumed"),),
    ),
)
