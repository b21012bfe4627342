"""Parity: do stacks carry the same objects? Equal, or the exact paths that differ.

What is compared is what we asked for: every object of ours in the cluster, without what the server and its controllers
set, and without the declared bindings (workloads/bindings.py). Pods are left out, and all else that a controller makes
from an object of ours: where a pod runs is each cluster's decision, and its template is compared. So are runs: a run on
one stack is no difference between platforms.

All but `read` is pure.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

from isthmus.kube.client import Cluster, Object
from isthmus.kube.objects import Path, desired, digest, key, leaves, quantity, show_path
from isthmus.specs import labels
from isthmus.specs.errors import InvalidSpec, NotFound
from workloads.bindings import Declared

SERVER_SET: tuple[Declared, ...] = (
    Declared("Service", "*", "spec.clusterIP", "given by the cluster"),
    Declared("Service", "*", "spec.clusterIPs", "given by the cluster"),
    Declared("Service", "*", "spec.ports[*].nodePort", "given by the cluster"),
    Declared("Service", "*", "spec.healthCheckNodePort", "given by the cluster"),
    Declared("Namespace", "*", "spec", "finalizers of the cluster"),
    Declared("ServiceAccount", "*", "secrets", "made by the cluster"),
    Declared("PersistentVolumeClaim", "*", "spec.volumeName", "the volume that the cluster gave"),
    Declared("ValidatingWebhookConfiguration", "*", "webhooks[*].clientConfig.caBundle", "made anew by each operator"),
    Declared("MutatingWebhookConfiguration", "*", "webhooks[*].clientConfig.caBundle", "made anew by each operator"),
    Declared("CustomResourceDefinition", "*", "spec.conversion.webhook.clientConfig.caBundle", "made by each operator"),
    Declared("APIService", "*", "spec.caBundle", "made anew by each operator"),
    Declared("Secret", "*-webhook-cert", "data", "a certificate that the operator makes for itself"),
    Declared("Secret", "*-webhook-cert", "type", "set with the certificate"),
)
"""Fields that a server or controller fills in, per cluster. Kind, name, path, why; * matches anything."""

NOT_COMPARED = frozenset({"Node", "Event", "Endpoints", "EndpointSlice", "Lease", "PersistentVolume", "Pod"})
"""Kinds that are the cluster's own affair, even where they carry our label."""

CLUSTERS_OWN: tuple[Declared, ...] = (
    Declared("ClusterRole", "isthmus:*", "*", "processes of a local cluster"),
    Declared("ClusterRoleBinding", "isthmus:*", "*", "processes of a local cluster"),
    Declared("ServiceAccount", "isthmus-storage", "*", "a local cluster's provisioner"),
    Declared("FlowSchema", "isthmus-*", "*", "processes of a local cluster"),
    Declared("Service", "kube-dns", "*", "every cluster has its own DNS"),
    Declared("MutatingAdmissionPolicy", "*", "*", "where pods run is the cluster's side"),
    Declared("MutatingAdmissionPolicyBinding", "*", "*", "where pods run is the cluster's side"),
)
"""Objects that stand for a cloud's own where the cluster is a local one; the platform makes none of these kinds and names."""


class Absent:
    """Stands where a side has nothing; no value of an object equals it."""

    def __repr__(self) -> str:
        return "(absent)"


ABSENT = Absent()
PRESENT = "(present)"


@dataclass(frozen=True)
class Difference:
    """One path at which two sides differ. `left` and `right` are values, or ABSENT."""

    object: str
    path: str
    """JSONPath in the object; "" when the whole object is missing on one side."""
    left: Any
    right: Any


@dataclass(frozen=True)
class Side:
    """One stack, ready to be compared."""

    name: str
    objects: Mapping[str, Object]
    """By kind, namespace and name; without server-set fields and bindings."""
    left_out: tuple[str, ...] = ()
    """Declared differences that were really there, in words."""

    @property
    def digest(self) -> str:
        """One digest over all objects."""
        return digest(dict(self.objects))


def read(cluster: Cluster) -> list[Object]:
    """Every object of ours in a cluster that nothing else made from another object: some seventy small lists."""
    found: list[Object] = []
    for resource in cluster.kinds():
        if resource.kind in NOT_COMPARED:
            continue
        try:
            items = cluster.list(
                resource.api_version, resource.kind, selector=f"{labels.MANAGED_BY}={labels.OWNER},!{labels.RUN}"
            )
        except (NotFound, InvalidSpec):
            continue  # gone since discovery, or a kind that cannot be selected by label
        found += items
    return [item for item in found if not _is_made_by_controller(item)]


def side(name: str, objects: Iterable[Mapping[str, Any]], declared: Sequence[Declared]) -> Side:
    """One stack's objects without what may differ.

    Args:
        declared: bindings; those that were met are told in `left_out`.
    """
    kept: dict[str, Object] = {}
    left_out: list[str] = []
    for item in objects:
        one = strip(desired(item), (*CLUSTERS_OWN, *SERVER_SET))[0]
        if not one:
            continue
        one, hits = strip(one, declared)
        where = key(item)
        left_out += (f"{where} {hit.path}: {hit.why}" if hit.path != "*" else f"{where}: {hit.why}" for hit in hits)
        if one:
            kept[where] = one
    return Side(name, kept, tuple(sorted(left_out)))


def compare(left: Mapping[str, Object], right: Mapping[str, Object]) -> list[Difference]:
    """Every path at which two sets of objects differ; empty when they are equal. Order: object, then path."""
    differences: list[Difference] = []
    for name in sorted({*left, *right}):
        if name not in left or name not in right:
            there: tuple[Any, Any] = (PRESENT, ABSENT) if name in left else (ABSENT, PRESENT)
            differences.append(Difference(name, "", *there))
            continue
        if left[name] != right[name] or digest(left[name]) != digest(right[name]):
            differences += (
                Difference(name, show_path(path), *values) for path, *values in _differing(left[name], right[name])
            )
    return differences


def missing(rendered: Iterable[Mapping[str, Any]], live: Side, declared: Sequence[Declared]) -> list[Difference]:
    """What the program renders and a stack does not carry as rendered. Left is the program, right the stack.

    Fields that the server added are no difference; a rendered field with another value is.
    """
    wanted = side("program", rendered, declared)
    differences: list[Difference] = []
    for name, item in sorted(wanted.objects.items()):
        if name not in live.objects:
            differences.append(Difference(name, "", PRESENT, ABSENT))
            continue
        for path, value in leaves(item):
            found = _at(live.objects[name], path)
            if value not in ({}, [], None, "") and not _same(value, found):
                differences.append(Difference(name, show_path(path), value, found))
    return differences


def strip(item: Mapping[str, Any], rules: Sequence[Declared]) -> tuple[Object, list[Declared]]:
    """An object without the paths that `rules` name, and the rules that took something away.

    A rule with path * takes the whole object: then the result is empty. Mappings left empty by it go too.
    """
    result: Object = copy.deepcopy(dict(item))
    hits: list[Declared] = []
    metadata = item.get("metadata") or {}
    for rule in rules:
        if rule.kind not in ("*", item.get("kind")) or not fnmatchcase(str(metadata.get("name")), rule.name):
            continue
        if rule.path == "*":
            return {}, [*hits, rule]
        if _remove(result, _steps(rule.path)):
            hits.append(rule)
    return result, hits


def _differing(left: Any, right: Any, at: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for name in sorted({*left, *right}):
            yield from _differing(left.get(name, ABSENT), right.get(name, ABSENT), (*at, name))
    elif isinstance(left, list) and isinstance(right, list):
        for index in range(max(len(left), len(right))):
            one = left[index] if index < len(left) else ABSENT
            other = right[index] if index < len(right) else ABSENT
            yield from _differing(one, other, (*at, index))
    elif left != right or type(left) is not type(right):
        yield at, left, right


def _steps(path: str) -> list[str | int | None]:
    """Steps of a path as `show_path` writes it; None stands for [*]."""
    steps: list[str | int | None] = []
    for name, index, quoted in re.findall(r"([^.\[\]']+)(?=[.\[]|$)|\[(\*|\d+)\]|\['((?:[^'\\]|\\.)*)'\]", path):
        if name:
            steps.append(name)
        elif index:
            steps.append(None if index == "*" else int(index))
        else:
            steps.append(re.sub(r"\\(.)", r"\1", quoted))
    return steps


def _remove(place: Any, steps: Sequence[str | int | None]) -> bool:
    first, rest = steps[0], steps[1:]
    if first is None:
        taken = [_remove(item, rest) for item in place] if isinstance(place, list) else []
        return any(taken)
    if isinstance(first, int):
        return isinstance(place, list) and first < len(place) and _remove(place[first], rest)
    if not isinstance(place, dict) or first not in place:
        return False
    if not rest:
        del place[first]
        return True
    done = _remove(place[first], rest)
    if done and place[first] == {}:
        del place[first]
    return done


def _at(value: Any, path: Path) -> Any:
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return ABSENT
    return value


def _same(wanted: Any, found: Any) -> bool:
    """Equal, or the same amount written in another way: the server writes 1000m as 1."""
    if wanted == found and isinstance(wanted, bool) == isinstance(found, bool):
        return True
    try:
        return _amount(wanted) == _amount(found)
    except InvalidSpec:
        return False


def _amount(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidSpec("not an amount")
    return quantity(value)


def _is_made_by_controller(item: Mapping[str, Any]) -> bool:
    return any(owner.get("controller") for owner in (item.get("metadata") or {}).get("ownerReferences") or ())
