"""What a plan of the engine costs by the month: what it adds, changes and removes, resource by resource. Pure.

Which type is charged, and how, is data (resources.csv); the few rules that turn a resource's properties into a price are
here. What is charged by use (objects, logs) is named and not counted; a type or a price that is not known is unknown, and
so is the total: it is never taken as 0. A month has 730 hours.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from isthmus.catalog import Catalog
from isthmus.costs.parts import HOURS_PER_MONTH, Part, hourly, money, stored
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import InvalidSpec, Refused
from isthmus.specs.offer import Offer
from isthmus.specs.quantity import mebibytes

Properties = Mapping[str, Any]

LOGICAL = frozenset({"replace", "read", "refresh", "discard", "import-replacement"})
"""Steps that stand for others (a replacement is its create and its delete) or change nothing that is paid."""


@dataclass(frozen=True, slots=True)
class Step:
    """One resource of a plan, with its inputs before and after; None where it is not there."""

    operation: str
    type: str
    name: str
    before: Properties | None
    after: Properties | None


@dataclass(frozen=True, slots=True)
class Priced:
    """What a resource costs a month, before and after. `None`: charged, and not known."""

    step: Step
    before: Decimal | None
    after: Decimal | None
    how: str
    source: str

    @property
    def change(self) -> Decimal | None:
        """What the plan adds to the month."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, slots=True)
class PlanCost:
    """A plan's price. Free resources are left out."""

    resources: tuple[Priced, ...]
    by_use: tuple[str, ...] = field(default=())

    @property
    def unknown(self) -> tuple[str, ...]:
        """Resources that are charged and whose price is not known, by name."""
        return tuple(
            f"{p.step.type} {p.step.name} ({p.how})" for p in self.resources if p.before is None or p.after is None
        )

    def known(self, when: str) -> Decimal:
        """USD a month of the resources whose price is known, "before" or "after" the plan."""
        return sum((value for p in self.resources if (value := getattr(p, when)) is not None), Decimal(0))


def plan_cost(steps: Sequence[Step], catalog: Catalog, *, cloud: str, region: str) -> PlanCost:
    """The monthly price of a plan.

    Args:
        steps: every resource that is there before or after, unchanged ones too.
        cloud, region: of the stack.
    """
    place = _Place(catalog, cloud, region, tuple(steps))
    found, by_use = [], []
    for step in steps:
        known = catalog.resource_pricing(step.type)
        if step.operation in LOGICAL or (known is None and _is_free(step.type)):
            continue
        if known is None:
            found.append(_unpriced(step, "a type that the catalog does not know", "resources.csv"))
        elif known.pricing == "use":
            by_use.append(f"{step.type} {step.name} ({known.what})")
        elif known.pricing == "unknown":
            found.append(_unpriced(step, known.what, known.source))
        elif known.pricing != "free":
            priced = _priced(place, step, RULES[known.pricing])
            if priced is not None:
                found.append(priced)
    return PlanCost(tuple(found), tuple(by_use))


def check_monthly(cost: PlanCost, limit: Decimal, *, allow_unknown: bool, subject: str) -> None:
    """Refuse a plan after which the stack costs more than `limit` a month.

    Raises:
        Refused: it does; or, unless `allow_unknown`, a price is not known, so that it cannot be shown to stay below.
    """
    after = cost.known("after")
    if after > limit:
        raise Refused(
            f"after this plan the stack costs {money(after)} USD a month, more than {limit}"
            f"{' (and what is unknown on top)' if cost.unknown else ''}",
            subject=subject,
            remedy="make its pools smaller, or raise --max-monthly",
        )
    if cost.unknown and not allow_unknown:
        raise Refused(
            f"it cannot be shown that the stack stays below {limit} USD a month: {money(after)} is known, the price of "
            f"{'; '.join(cost.unknown)} is not",
            subject=subject,
            remedy="--allow-unknown leaves what is not known out of the check",
        )


def document(cost: PlanCost, *, stack: str) -> dict[str, Any]:
    """The plan's price as JSON-able data, for a comment on a pull request."""
    before, after = cost.known("before"), cost.known("after")
    return {
        "apiVersion": "isthmus.dev/v1",
        "kind": "PlanCost",
        "stack": stack,
        "currency": "USD",
        "basis": f"list prices by the month of {HOURS_PER_MONTH} hours, not measured",
        "before": str(money(before)),
        "after": str(money(after)),
        "change": str(money(after - before)),
        "complete": not cost.unknown,
        "resources": [
            {
                "operation": p.step.operation,
                "type": p.step.type,
                "name": p.step.name,
                "before": None if p.before is None else str(money(p.before)),
                "after": None if p.after is None else str(money(p.after)),
                "change": None if p.change is None else str(money(p.change)),
                "how": p.how,
                "source": p.source,
            }
            for p in cost.resources
        ],
        "unknown": list(cost.unknown),
        "byUse": list(cost.by_use),
    }


@dataclass(frozen=True, slots=True)
class _Place:
    catalog: Catalog
    cloud: str
    region: str
    steps: tuple[Step, ...]


Rule = Callable[[_Place, Step, Properties, str], Part | None]
"""The part that a resource with these inputs costs a month; None for one that is free. The last says which side it is."""


def _priced(place: _Place, step: Step, rule: Rule) -> Priced | None:
    sides = [
        None if inputs is None else rule(place, step, inputs, side)
        for inputs, side in ((step.before, "before"), (step.after, "after"))
    ]
    if sides == [None, None]:
        return None
    shown = next(part for part in reversed(sides) if part is not None)
    before, after = (Decimal(0) if part is None else part.usd for part in sides)
    return Priced(step, before, after, shown.how, shown.source)


def _unpriced(step: Step, what: str, source: str) -> Priced:
    """A resource whose price is not known: unknown on each side on which it is there."""
    nothing = Decimal(0)
    return Priced(step, nothing if step.before is None else None, nothing if step.after is None else None, what, source)


def _is_free(kind: str) -> bool:
    """The engine's own things and Kubernetes objects cost nothing by themselves; those that do are in resources.csv."""
    return kind.startswith(("pulumi:", "kubernetes:", "isthmus:"))


def _control_plane(place: _Place, step: Step, inputs: Properties, side: str) -> Part | None:
    return _by_hour(place, "control-plane", 1)


def _nat(place: _Place, step: Step, inputs: Properties, side: str) -> Part | None:
    """By the hour; on GCP by the machine behind it, up to its cap."""
    if place.catalog.part(place.cloud, "nat-node", place.region) is None:
        return _by_hour(place, "nat-gateway", 1)
    nodes = sum(_size(other, chosen) for other in place.steps if (chosen := getattr(other, side)) is not None)
    return _by_hour(place, "nat-node", nodes) if nodes <= 32 else _by_hour(place, "nat-cap", 1)


def _endpoint(place: _Place, step: Step, inputs: Properties, side: str) -> Part | None:
    """A gateway endpoint is free; an interface has a price by the hour, which is not in the catalog."""
    if inputs.get("vpcEndpointType", "Gateway") == "Gateway":
        return None
    return Part("endpoint", None, "an interface endpoint", "no price of it is in the catalog", None)


def _nodes(place: _Place, step: Step, inputs: Properties, side: str) -> Part | None:
    """A node pool: its machines now, with their boot disks."""
    size, offer = _size(step, inputs), _offer(place, inputs)
    if size == 0:
        return Part("nodes", Decimal(0), "no node now; what it adds when it grows is not counted", "the plan", None)
    if offer is None:
        return Part("nodes", None, "its machine is not in the catalog", "the plan", None)
    machines = hourly("nodes", size, offer.usd_per_hour, HOURS_PER_MONTH, offer.source, offer.as_of)
    disk = stored(
        place.catalog,
        place.cloud,
        place.region,
        "disks",
        "disk",
        size * _disk_gib(place, step, inputs, side),
        HOURS_PER_MONTH,
    )
    usd = None if machines.usd is None or disk.usd is None else machines.usd + disk.usd
    how = f"{size} x {offer.shape.name} ({offer.purchase}): {machines.how}; disks {disk.how}"
    return Part("nodes", usd, how, f"{machines.source}; {disk.source}", None)


def _claim(place: _Place, step: Step, inputs: Properties, side: str) -> Part | None:
    wanted = ((inputs.get("spec") or {}).get("resources") or {}).get("requests") or {}
    try:
        gib = Decimal(mebibytes(str(wanted.get("storage", "")))) / 1024
    except InvalidSpec:
        return Part("disk", None, "its size is not known", "the plan", None)
    return stored(place.catalog, place.cloud, place.region, "disk", "disk", gib, HOURS_PER_MONTH)


def _service(place: _Place, step: Step, inputs: Properties, side: str) -> Part | None:
    balanced = (inputs.get("spec") or {}).get("type") == "LoadBalancer"
    return _by_hour(place, "load-balancer", 1) if balanced else None


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "control-plane": _control_plane,
        "nat-gateway": _nat,
        "endpoint": _endpoint,
        "nodes": _nodes,
        "disk": _claim,
        "load-balancer": _service,
    }
)
"""The rules by the names that resources.csv knows them by."""


def _by_hour(place: _Place, part: str, count: int) -> Part:
    price = place.catalog.part(place.cloud, part, place.region)
    if price is None:
        return Part(part, None, "no price of it is in the catalog", "parts.csv", None)
    return hourly(part, count, price.value, HOURS_PER_MONTH, price.source, price.as_of)


def _size(step: Step, inputs: Properties) -> int:
    """Nodes of a pool now: EKS by desired size, GKE by zones times nodes in each; 0 for what is no pool."""
    if step.type == "aws:eks/nodeGroup:NodeGroup":
        return _whole((inputs.get("scalingConfig") or {}).get("desiredSize"))
    if step.type == "gcp:container/nodePool:NodePool":
        each = inputs.get("nodeCount")
        return len(inputs.get("nodeLocations") or [""]) * _whole(
            inputs.get("initialNodeCount") if each is None else each
        )
    return 0


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) or (isinstance(value, str) and value.isdigit()) else 0


def _offer(place: _Place, inputs: Properties) -> Offer | None:
    """The machine of a node pool under its purchase option."""
    config = inputs.get("nodeConfig") or {}
    kinds = inputs.get("instanceTypes") or [config.get("machineType")]
    spot = inputs.get("capacityType") == "SPOT" or config.get("spot") is True
    try:
        shape = place.catalog.shape(place.cloud, str(kinds[0]))
        cards = (config.get("guestAccelerators") or [None])[0]
        if cards and not shape.gpu_count:
            model = next(g.model for g in place.catalog.gpus() if g.gke_accelerator == cards.get("type"))
            shape = place.catalog.shape(
                place.cloud, str(kinds[0]), GpuCards(model=model, count=_whole(cards.get("count")))
            )
    except (InvalidSpec, StopIteration):
        return None
    return place.catalog.offer(shape, place.region, "spot" if spot else "on-demand")


def _disk_gib(place: _Place, step: Step, inputs: Properties, side: str) -> Decimal:
    """The boot disk of each node: in the pool itself (GKE), or in the launch template of its name (EKS)."""
    own = (inputs.get("nodeConfig") or {}).get("diskSizeGb")
    if own is not None:
        return Decimal(_whole(own))
    for other in place.steps:
        if other.type == "aws:ec2/launchTemplate:LaunchTemplate" and other.name == step.name:
            for device in (getattr(other, side) or {}).get("blockDeviceMappings") or ():
                return Decimal(_whole((device.get("ebs") or {}).get("volumeSize")))
    return Decimal(0)
