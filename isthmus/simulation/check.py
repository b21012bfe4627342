"""Checking a program's inputs against a declaration, and telling which of two sets of inputs differ, and how.

Pure: no account, no cloud. An unknown property is refused by its name, nested ones too, because a property that is
silently ignored would make the simulated cloud lie. Values that preview cannot know yet pass every check.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from isthmus.simulation.resource import Property, ResourceType
from isthmus.toolchain.values import UNKNOWN, Properties, Secret, reveal

DEFAULTS_KEY = "__defaults"
"""Input that lists the properties we chose, not the program (pulumi-terraform-bridge uses the same key)."""

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "bool": (bool,),
    "int": (int,),
    "number": (int, float),
    "list": (list,),
    "map": (dict,),
    "object": (dict,),
    "objects": (list,),
}


@dataclass(frozen=True)
class Failure:
    """An input that is wrong: its path and why, in a sentence."""

    property: str
    reason: str


@dataclass(frozen=True)
class Change:
    """A property that differs, by its dotted path."""

    path: str
    kind: Literal["add", "delete", "update"]
    replaces: bool


def checked(
    declared: Sequence[Property], values: Mapping[str, Any], *, owner: str, path: str = ""
) -> tuple[Properties, list[Failure]]:
    """The values without nulls, and every fault in them: unknown, missing, of the wrong type, not among the choices.

    Args:
        owner: the token or property that the declarations belong to, for the messages.
    """
    by_name = {item.name: item for item in declared if not item.computed}
    kept = {key: value for key, value in values.items() if reveal(value) is not None and key != DEFAULTS_KEY}
    failures = [_unknown(key, by_name, owner, path) for key in kept if key not in by_name]
    for item in by_name.values():
        if item.required and item.name not in kept:
            failures.append(Failure(path + item.name, f"missing required property '{item.name}' of {owner}"))
    for key, value in kept.items():
        if key in by_name:
            failures.extend(_wrong(by_name[key], value, path + key))
    return kept, failures


def named(kind: ResourceType, inputs: Properties, olds: Properties, logical_name: str, seed: str) -> Properties:
    """The inputs with a name made up where the program gives none; an earlier made-up name is kept."""
    rule = kind.autoname
    if rule is None or rule.property in inputs:
        return inputs
    kept = olds.get(rule.property) if rule.property in olds.get(DEFAULTS_KEY, ()) else None
    prefix = inputs.get(rule.prefix_property) if rule.prefix_property else None
    if prefix is UNKNOWN:
        return inputs
    digits = hashlib.sha256(seed.encode()).hexdigest()[:7]
    stem = str(reveal(prefix)) if prefix else f"{logical_name}-"
    made = (stem[: rule.max_length - len(digits)] + digits) if rule.suffix else logical_name[: rule.max_length]
    return {**inputs, rule.property: kept or (made.lower() if rule.lower else made), DEFAULTS_KEY: [rule.property]}


def differences(kind: ResourceType, olds: Properties, news: Properties) -> list[Change]:
    """What changes between two sets of inputs, in the declaration's order."""
    changes: list[Change] = []
    for item in kind.inputs:
        changes.extend(_compare(item, olds.get(item.name), news.get(item.name), item.name, item.replaces))
    return changes


def equal(item: Property, old: Any, new: Any) -> bool:
    """Whether two values mean the same to the cloud. UNKNOWN equals nothing."""
    return not _compare(item, old, new, item.name, False)


def _unknown(key: str, by_name: Mapping[str, Property], owner: str, path: str) -> Failure:
    near = difflib.get_close_matches(key, by_name, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else "; isthmus/simulation/COVERAGE.md lists those understood"
    return Failure(path + key, f"the simulated cloud does not understand property '{key}' of {owner}{hint}")


def _wrong(item: Property, given: Any, path: str) -> list[Failure]:
    value: Any = given.value if isinstance(given, Secret) else given
    if value is UNKNOWN or item.kind == "any":
        return []
    if not _has_type(value, _TYPES[item.kind]):
        return [Failure(path, f"expected {item.kind} for '{path}', got {type(value).__name__}")]
    if item.choices and value not in item.choices:
        return [Failure(path, f"expected '{path}' to be one of {', '.join(item.choices)}, got {value!r}")]
    if item.kind == "object":
        return _wrong_record(item, value, path)
    if item.kind == "objects":
        return [
            fault for index, record in enumerate(value) for fault in _wrong_record(item, record, f"{path}[{index}]")
        ]
    return []


def _has_type(value: Any, expected: tuple[type, ...]) -> bool:
    return isinstance(value, expected) and not (isinstance(value, bool) and bool not in expected)


def _wrong_record(item: Property, given: Any, path: str) -> list[Failure]:
    record = given.value if isinstance(given, Secret) else given
    if record is UNKNOWN or not item.fields:
        return []
    if not isinstance(record, dict):
        return [Failure(path, f"expected a record for '{path}', got {type(record).__name__}")]
    return checked(item.fields, record, owner=path, path=f"{path}.")[1]


def _compare(item: Property, old: Any, new: Any, path: str, replaces: bool) -> list[Change]:
    old, new = _without_nulls(old), _without_nulls(new)
    if item.json and _same_document(old, new):
        return []
    if old is None and new is None:
        return []
    if old is None or new is None:
        if _is_default(item, new if old is None else old):
            return []
        return [Change(path, "add" if old is None else "delete", replaces)]
    if item.kind in {"object", "map"} and isinstance(old, dict) and isinstance(new, dict):
        return _compare_record(item, old, new, path, replaces)
    if isinstance(old, list) and isinstance(new, list):
        return _compare_list(item, old, new, path, replaces)
    return [] if _same(old, new) else [Change(path, "update", replaces)]


def _compare_record(
    item: Property, old: dict[str, Any], new: dict[str, Any], path: str, replaces: bool
) -> list[Change]:
    fields = {field.name: field for field in item.fields}
    changes: list[Change] = []
    for key in sorted({*old, *new}):
        inner = fields.get(key, Property(key, "any"))
        changes.extend(_compare(inner, old.get(key), new.get(key), _step(path, key), replaces or inner.replaces))
    return changes


def _compare_list(item: Property, old: list[Any], new: list[Any], path: str, replaces: bool) -> list[Change]:
    if item.unordered:
        old, new = sorted(old, key=_sort_key), sorted(new, key=_sort_key)
    changes: list[Change] = []
    element = Property(item.name, "object" if item.kind == "objects" else "any", fields=item.fields)
    for index in range(max(len(old), len(new))):
        before = old[index] if index < len(old) else None
        after = new[index] if index < len(new) else None
        changes.extend(_compare(element, before, after, f"{path}[{index}]", replaces))
    return changes


def _same(old: Any, new: Any) -> bool:
    """Plain equality in which UNKNOWN, at any depth, equals nothing and secrecy does not count."""
    if isinstance(old, Secret) or isinstance(new, Secret):
        return _same(reveal(old), reveal(new))
    if old is UNKNOWN or new is UNKNOWN:
        return False
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_same(old[key], new[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same, old, new))
    return type(old) is type(new) and old == new if isinstance(old, bool) or isinstance(new, bool) else bool(old == new)


def _without_nulls(value: Any) -> Any:
    value = value.value if isinstance(value, Secret) else value
    if isinstance(value, dict):
        return {key: item for key, item in value.items() if item is not None}
    return value


def _is_default(item: Property, value: Any) -> bool:
    if value in ({}, []) and item.kind in {"map", "list", "objects"}:
        return True
    return item.default is not None and _same(item.default, value)


def _same_document(old: Any, new: Any) -> bool:
    if not isinstance(old, str) or not isinstance(new, str):
        return False
    try:
        return bool(json.loads(old) == json.loads(new))
    except ValueError:
        return False


def _sort_key(value: Any) -> str:
    return json.dumps(reveal(value), sort_keys=True, default=str)


def _step(path: str, key: str) -> str:
    return f"{path}.{key}" if re.fullmatch(r"[A-Za-z_$][\w$]*", key) else f'{path}["{key}"]'
