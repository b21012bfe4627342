"""Configuration files of NVIDIA's device plugin: written from a GpuSharing, and checked strictly.

The plugin ignores what it does not know, so a field in the wrong block changes nothing and says nothing (case A08:
NVIDIA/k8s-device-plugin#1433). Here an unknown field is refused, and a known one in the wrong place is told where it
belongs. Field names and rules: api/config/v1 of v0.18.0 (read 2026-11-30).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from isthmus.specs import labels
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.sharing import GpuSharing, mig_resource

Object = dict[str, Any]

_RESOURCES = [{"name": str, "replicas": int, "rename": str, "devices": object}]
FIELDS: Object = {
    "version": str,
    "flags": {
        "migStrategy": str,
        "failOnInitError": bool,
        "mpsRoot": str,
        "nvidiaDriverRoot": str,
        "nvidiaDevRoot": str,
        "gdrcopyEnabled": bool,
        "gdsEnabled": bool,
        "mofedEnabled": bool,
        "useNodeFeatureAPI": bool,
        "deviceDiscoveryStrategy": str,
        "plugin": {
            "passDeviceSpecs": bool,
            "deviceListStrategy": object,
            "deviceIDStrategy": str,
            "cdiAnnotationPrefix": str,
            "nvidiaCTKPath": str,
            "containerDriverRoot": str,
        },
        "gfd": {"oneshot": bool, "noTimestamp": bool, "sleepInterval": str, "outputFile": str, "machineTypeFile": str},
    },
    "sharing": {
        "timeSlicing": {"renameByDefault": bool, "failRequestsGreaterThanOne": bool, "resources": _RESOURCES},
        "mps": {"renameByDefault": bool, "resources": _RESOURCES},
    },
    "imex": {"channelIDs": list, "required": bool},
}
"""Every field the plugin follows: blocks, then types. Left out, because v0.18.0 ignores them: `resources` at the top, and
failRequestsGreaterThanOne under mps, where it is always on."""

IGNORED = {"rename": "renameByDefault of the block above", "devices": "nothing: all devices are shared"}
"""Fields of a shared resource that v0.18.0 reads, warns of and ignores; and what to use."""

MIG_STRATEGIES = ("none", "single", "mixed")


def configuration(sharing: GpuSharing) -> Object:
    """The configuration that shares a node's cards so."""
    strategy = sharing.strategy if sharing.mode == "mig" else "none"
    config: Object = {"version": "v1", "flags": {"migStrategy": strategy}}
    if sharing.mode == "mps":
        config["sharing"] = {"mps": {"resources": [{"name": labels.GPU_RESOURCE, "replicas": sharing.clients}]}}
    elif sharing.replicas > 1:
        config["sharing"] = {
            "timeSlicing": {
                "renameByDefault": sharing.rename,
                "failRequestsGreaterThanOne": sharing.fail_greater_than_one,
                "resources": [{"name": name, "replicas": sharing.replicas} for name in _resources(sharing)],
            }
        }
    return config


def validate(document: object, *, origin: str) -> None:
    """Refuse a configuration that the plugin would not follow to the letter.

    Args:
        document: the file's content, parsed.
        origin: the file's name, for errors.

    Raises:
        InvalidSpec: every problem is named with its place, its value and what is legal.
    """
    problems = list(_problems(document))
    if problems:
        raise InvalidSpec("; ".join(problems), subject=origin, remedy=f"edit {origin}")


def advertised(document: Mapping[str, Any], cards: int) -> dict[str, int]:
    """What a node with so many whole cards advertises under a valid configuration: resource name to count."""
    kind, block = _shared(document)
    replicas = {item["name"]: int(item["replicas"]) for item in block.get("resources") or ()} if kind else {}
    count = replicas.get(labels.GPU_RESOURCE, 0)
    if not count:
        return {labels.GPU_RESOURCE: cards}
    suffix = ".shared" if block.get("renameByDefault") else ""
    return {f"{labels.GPU_RESOURCE}{suffix}": cards * count}


def _resources(sharing: GpuSharing) -> list[str]:
    if sharing.mode == "mig" and sharing.strategy == "mixed":
        return list(dict.fromkeys(mig_resource(profile) for profile in sharing.layout))
    return [labels.GPU_RESOURCE]


def _problems(document: object) -> Iterator[str]:
    if not isinstance(document, dict):
        yield "the file holds no mapping; legal: version, flags, sharing, imex"
        return
    yield from _strangers(document, FIELDS, "", list(_block(document, "sharing")))
    if document.get("version", "v1") != "v1":
        yield f"version is {document['version']!r}; legal: v1"
    strategy = _block(document, "flags").get("migStrategy", "none")
    if strategy not in MIG_STRATEGIES:
        yield f"flags.migStrategy is {strategy!r}; legal: {', '.join(MIG_STRATEGIES)}"
    sharing = _block(document, "sharing")
    if "timeSlicing" in sharing and "mps" in sharing:
        yield "sharing.timeSlicing and sharing.mps exclude each other; legal: one of them"
    for kind in ("timeSlicing", "mps"):
        if kind in sharing:
            yield from _shared_problems(kind, sharing[kind], strategy)


def _shared_problems(kind: str, block: object, strategy: object) -> Iterator[str]:
    where = f"sharing.{kind}"
    resources = block.get("resources") if isinstance(block, dict) else None
    if not isinstance(resources, list) or not resources:
        yield f"{where}.resources is empty; legal: a list of name and replicas"
        return
    for index, item in enumerate(resources):
        place = f"{where}.resources[{index}]"
        if not isinstance(item, dict):
            continue  # the wrong type is reported with the others
        replicas, name = item.get("replicas"), str(item.get("name", ""))
        if isinstance(replicas, int) and replicas < 2:
            yield f"{place}.replicas is {replicas}; legal: 2 or more"
        for field in ("name", "replicas"):
            if field not in item:
                yield f"{place}.{field} is missing"
        for field in item.keys() & IGNORED.keys():
            yield f"{place}.{field} is ignored by the plugin; use {IGNORED[field]}"
        if kind == "mps" and ("/mig-" in name or strategy == "single"):
            yield f"{place}.name is {name}; MPS does not cover MIG devices; legal: nvidia.com/gpu without MIG"


def _strangers(document: Mapping[Any, Any], known: Mapping[str, Any], where: str, kinds: list[str]) -> Iterator[str]:
    """Fields that are not known where they stand, and values of a wrong type. `kinds` are the sharing blocks in use."""
    for name, value in document.items():
        place = f"{where}.{name}" if where else str(name)
        if name not in known:
            yield _misplaced(str(name), place, kinds)
        elif not _fits(value, known[name]):
            yield f"{place} is {value!r}; legal: {_words(known[name])}"
        elif isinstance(known[name], dict):
            yield from _strangers(value, known[name], place, kinds)
        elif isinstance(known[name], list):
            for index, item in enumerate(value):
                if not isinstance(item, dict):
                    yield f"{place}[{index}] is {item!r}; legal: {_words(known[name][0])}"
                else:
                    yield from _strangers(item, known[name][0], f"{place}[{index}]", kinds)


def _misplaced(name: str, place: str, kinds: list[str]) -> str:
    homes = sorted(_homes(name, FIELDS, ""))
    homes = [home for home in homes if home.rpartition(".")[2] in kinds] or homes
    if not homes:
        parent = place.rpartition(".")[0]
        return f"{place} is no field of the device plugin; legal there: {', '.join(sorted(_at(parent)))}"
    return f"{place} is in the wrong place, where the plugin ignores it; it belongs in {' or '.join(homes)}"


def _homes(name: str, known: Mapping[str, Any], where: str) -> Iterator[str]:
    """The blocks in which a field is known."""
    for key, kind in known.items():
        if key == name:
            yield where or "the top level"
        inner = kind[0] if isinstance(kind, list) else kind
        if isinstance(inner, dict):
            yield from _homes(name, inner, f"{where}.{key}" if where else key)


def _at(place: str) -> Mapping[str, Any]:
    known: Any = FIELDS
    for part in place.split(".") if place else ():
        known = known[part.partition("[")[0]]
        known = known[0] if isinstance(known, list) else known
    return known if isinstance(known, dict) else {}


def _fits(value: object, kind: Any) -> bool:
    if isinstance(kind, dict):
        return isinstance(value, dict)
    if isinstance(kind, list):
        return isinstance(value, list)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _words(kind: Any) -> str:
    if isinstance(kind, dict):
        return f"a mapping of {', '.join(kind)}"
    if isinstance(kind, list):
        return "a list"
    return {bool: "true or false", int: "a whole number", str: "a text", list: "a list"}.get(kind, "any value")


def _block(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _shared(document: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    for kind, block in _block(document, "sharing").items():
        return kind, block
    return "", {}
