"""Pure functions over manifests and objects: quantities, what the server added, digests, flattening.

No input or output here, so that parity and rendering can be tested without a cluster.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from isthmus.specs.errors import InvalidSpec

SUFFIXES: Mapping[str, Decimal] = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}  # fmt: skip
"""Suffixes of a Kubernetes quantity (k8s.io/apimachinery, pkg/api/resource: DecimalSI and BinarySI)."""

_QUANTITY = re.compile(r"^([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE])?)$")

SERVER_METADATA = frozenset({
    "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp",
    "deletionGracePeriodSeconds", "ownerReferences", "finalizers",
})  # fmt: skip
"""metadata fields that the server or a controller sets, never a manifest of ours."""

TOOL_ANNOTATIONS = (
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
    "deprecated.daemonset.template.generation",
    "pulumi.com/",
    "pv.kubernetes.io/",
    "volume.kubernetes.io/",
    "volume.beta.kubernetes.io/",
)
"""Annotations of the tools that carry an object to the server, or of controllers; a name ending in / is a prefix."""

Path = tuple[str | int, ...]


def quantity(value: str | float | Decimal) -> Decimal:
    """The number that a Kubernetes quantity means: "500m" is 0.5, "1Gi" is 1073741824.

    Raises:
        InvalidSpec: it is no quantity.
    """
    text = str(value).strip()
    match = _QUANTITY.match(text)
    if match is None:
        raise InvalidSpec(f"{text!r} is no Kubernetes quantity (examples: 500m, 2, 1Gi)")
    number, exponent, suffix = match.groups()
    if exponent:
        return Decimal(number + exponent)
    return Decimal(number) * SUFFIXES[suffix or ""]


def show(amount: Decimal) -> str:
    """A quantity for people: in Mi or Gi from a mebibyte up, without needless digits."""
    for suffix, floor in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20)):
        if abs(amount) >= floor:
            return f"{_plain(round(amount / floor, 1))}{suffix}"
    return _plain(round(amount, 3))


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def pod_requests(spec: Mapping[str, Any]) -> dict[str, Decimal]:
    """What a pod asks the scheduler for, by resource (kubernetes.io, "Init Containers", resource sharing).

    The sum over containers and restartable init containers, or the largest ordinary init container where that is more;
    plus overhead. A limit without a request counts as the request.
    """
    total: dict[str, Decimal] = {}
    for container in spec.get("containers") or ():
        _add(total, _requests(container))
    sidecars: dict[str, Decimal] = {}
    peak: dict[str, Decimal] = {}
    for container in spec.get("initContainers") or ():
        wants = _requests(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, wants)
            _add(total, wants)
            continue
        for name, amount in wants.items():
            peak[name] = max(peak.get(name, Decimal(0)), amount + sidecars.get(name, Decimal(0)))
    for name, amount in peak.items():
        total[name] = max(total.get(name, Decimal(0)), amount)
    _add(total, {name: quantity(amount) for name, amount in (spec.get("overhead") or {}).items()})
    return total


def _requests(container: Mapping[str, Any]) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    merged = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: quantity(amount) for name, amount in merged.items()}


def _add(total: dict[str, Decimal], more: Mapping[str, Decimal]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Decimal(0)) + amount


def tolerates(tolerations: Sequence[Mapping[str, Any]], taint: Mapping[str, Any]) -> bool:
    """Whether a pod's tolerations cover a taint (kubernetes.io, "Taints and Tolerations")."""
    for toleration in tolerations:
        if toleration.get("effect") not in (None, "", taint.get("effect")):
            continue
        key, operator = toleration.get("key"), toleration.get("operator", "Equal")
        if operator == "Exists" and key in (None, "", taint.get("key")):
            return True
        if operator == "Equal" and key == taint.get("key") and toleration.get("value", "") == taint.get("value", ""):
            return True
    return False


def conditions(item: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The conditions of an object's status by type."""
    return {str(entry.get("type")): entry for entry in (item.get("status") or {}).get("conditions") or ()}


def holds(item: Mapping[str, Any], condition: str) -> bool:
    """Whether an object's status says that a condition ("Ready", "Succeeded") is true."""
    return conditions(item).get(condition, {}).get("status") == "True"


def desired(item: Mapping[str, Any]) -> dict[str, Any]:
    """An object without what the server, controllers and tools added to it: what its author asked for.

    Drops status, the server's metadata, tools' annotations and empty labels or annotations. Defaults inside a spec stay:
    they are the same on both sides when both servers have the same version, and a changed default is worth seeing.
    """
    result = {key: value for key, value in item.items() if key != "status"}
    metadata = {key: value for key, value in (item.get("metadata") or {}).items() if key not in SERVER_METADATA}
    annotations = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if not key.startswith(TOOL_ANNOTATIONS)
    }
    for name, value in (("annotations", annotations), ("labels", metadata.get("labels"))):
        metadata.pop(name, None)
        if value:
            metadata[name] = value
    result["metadata"] = metadata
    return result


def digest(value: Any) -> str:
    """SHA-256 of a value's canonical JSON (sorted keys, no spaces), in hex."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def leaves(value: Any, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every leaf with its path. An empty mapping or list is a leaf: it differs from an absent one."""
    if isinstance(value, Mapping) and value:
        for key in sorted(value):
            yield from leaves(value[key], (*at, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, (*at, index))
    else:
        yield at, value


def show_path(path: Path) -> str:
    """A path as JSONPath: spec.containers[0].image, metadata.labels['isthmus.dev/run']."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", part):
            text += f".{part}" if text else part
        else:
            text += "['" + part.replace("\\", "\\\\").replace("'", "\\'") + "']"
    return text


def key(item: Mapping[str, Any]) -> str:
    """The name of an object among others: kind, group, namespace and name, without the API's version."""
    group = str(item.get("apiVersion", "")).partition("/")[0] if "/" in str(item.get("apiVersion", "")) else ""
    metadata = item.get("metadata") or {}
    name = f"{metadata['namespace']}/{metadata.get('name')}" if metadata.get("namespace") else str(metadata.get("name"))
    return f"{item.get('kind')}{'.' + group if group else ''} {name}"
