"""A bill as JSON-able data, from which the table and the JSON are made. Pure.

Amounts are strings with twelve decimals, so that parts can be checked against the node's price to 1e-9; None is an amount
that nobody knows. What a bill cannot know (traffic, objects kept) is named under `notMetered`, never taken as 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from isthmus.costs.bill import RESOURCES, Bill, Line, NodeBill
from isthmus.costs.compare import Estimate
from isthmus.costs.parts import Part, plain

NOT_METERED = (
    "traffic out and through NAT",
    "objects kept in buckets",
    "requests",
    "logs",
    "images kept in registries",
)
"""What no measurement of pods and nodes can know; the cloud's own bill has it."""

MEASURED = "measured: times of pods and nodes by their cluster's clock, at list prices"


@dataclass(frozen=True, slots=True)
class Statement:
    """A bill and what is told with it."""

    title: str
    basis: str
    """Which clock the times are of, and whether they are measured or simulated: a sentence."""
    bill: Bill
    platform: tuple[Part, ...]
    """What is paid beside the nodes: control plane, NAT gateways, disks."""
    notes: tuple[str, ...] = ()

    @property
    def usd(self) -> float | None:
        """Nodes and platform; None as soon as a part is not known."""
        platform = [part.usd for part in self.platform if part.usd is not None]
        if self.bill.usd is None or len(platform) < len(self.platform):
            return None
        return self.bill.usd + float(sum(platform, Decimal(0)))


def document(statement: Statement) -> dict[str, Any]:
    """The whole statement."""
    bill = statement.bill
    starts = [node.record.start for node in bill.nodes]
    ends = [node.record.end for node in bill.nodes]
    return {
        "apiVersion": "isthmus.dev/v1",
        "kind": "CostBill",
        "title": statement.title,
        "currency": "USD",
        "simulated": bill.simulated,
        "basis": statement.basis,
        "from": _moment(min(starts, default=None)),
        "to": _moment(max(ends, default=None)),
        "total": amount(statement.usd),
        "nodesTotal": amount(bill.usd),
        "idle": amount(bill.idle),
        "nodes": [_node(node) for node in bill.nodes],
        "platform": [_part(part) for part in statement.platform],
        **{f"by{owner.capitalize()}": [_line(line) for line in bill.by(owner)] for owner in ("run", "user", "project")},
        "unknown": _unknown(statement),
        "notMetered": list(NOT_METERED),
        "notes": list(statement.notes),
    }


def amount(usd: float | None) -> str | None:
    """USD with twelve decimals; None stays None."""
    return None if usd is None else f"{usd:.12f}"


def short(usd: str | float | None) -> str:
    """USD for a person: four decimals, or more where it would be 0.0000."""
    if usd is None:
        return "unknown"
    value = float(usd)
    return f"{value:.4f}" if value >= 0.001 or value == 0 else f"{value:.2g}" if value >= 1e-9 else "0.0000"


def _node(node: NodeBill) -> dict[str, Any]:
    record = node.record
    return {
        "node": record.node,
        "machine": record.instance_type,
        "purchase": record.purchase,
        "from": _moment(record.start),
        "to": _moment(record.end),
        "hours": f"{node.hours:.6f}",
        "usdPerHour": None if record.usd_per_hour is None else plain(record.usd_per_hour),
        "total": amount(node.usd),
        "used": None if node.used is None else _triple(node.used),
        "idle": None if node.idle is None else _triple(node.idle),
        "source": record.source,
        "asOf": record.as_of,
    }


def _triple(parts: tuple[float, float, float]) -> dict[str, str]:
    return {name: f"{part:.12f}" for name, part in zip(RESOURCES, parts, strict=True)}


def _line(line: Line) -> dict[str, Any]:
    return {
        "name": line.name,
        "usd": amount(line.usd),
        "parts": _triple(line.parts),
        "podHours": f"{line.pod_hours:.6f}",
        "gpuHours": f"{line.gpu_hours:.6f}",
    }


def _part(part: Part) -> dict[str, Any]:
    return {
        "name": part.name,
        "usd": None if part.usd is None else amount(float(part.usd)),
        "how": part.how,
        "source": part.source,
        "asOf": part.as_of.isoformat() if part.as_of else None,
    }


def _unknown(statement: Statement) -> list[str]:
    nodes = [
        f"node {n.record.node} ({n.record.instance_type}, {n.record.purchase})"
        for n in statement.bill.nodes
        if n.usd is None
    ]
    return [*nodes, *(part.name for part in statement.platform if part.usd is None)]


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class Difference:
    """One reason why a bill is not its estimate."""

    reason: str
    usd: Decimal | None
    """What it adds to the estimate; None: it cannot be said."""


def differences(
    estimate: Estimate,
    *,
    ran_on: Sequence[NodeBill],
    platform: Sequence[Part],
    run_hours: Decimal,
    billed: float | None,
) -> list[Difference]:
    """From an estimate to the bill of the run, step by step; the steps sum to the difference.

    Args:
        estimate: the cheapest of the run's own place and purchase option, as `isthmus cost compare` has it.
        ran_on: the nodes of the run for the time it was on them.
        platform: what was paid beside the nodes.
        run_hours: from the first pod's start to the last one's end.
        billed: the whole bill of the run.
    """
    machines = {part.name: part.usd for part in estimate.parts}
    before = estimate.machines_usd
    rates = [node.record.usd_per_hour for node in ran_on]
    known = [rate for rate in rates if rate is not None]
    if estimate.total is None or before is None or billed is None or len(known) < len(rates):
        return [Difference("a price is not known, so the two cannot be set against each other", None)]
    there = sum(known, Decimal(0)) * estimate.hours
    shorter = sum(known, Decimal(0)) * run_hours
    nodes = Decimal(repr(sum(node.usd or 0.0 for node in ran_on)))
    names = ", ".join(sorted({f"{node.record.instance_type} ({node.record.purchase})" for node in ran_on}))
    planned = f"{estimate.nodes} x {estimate.shape.name} ({estimate.purchase})"
    as_planned = (estimate.shape.name, estimate.purchase)
    if len(ran_on) == estimate.nodes and all(as_planned == _kind(node) for node in ran_on):
        there = before  # the same machines: what is left between the two is rounding
        steps = []
    else:
        steps = [Difference(f"machines: planned {planned}, ran on {len(ran_on)} x {names}", there - before)]
    steps += [
        Difference(f"hours: planned {plain(estimate.hours)}, took {run_hours:.6f}", shorter - there),
        Difference("nodes were not all used from the first pod's start to the last one's end", nodes - shorter),
    ]
    paid = {part.name: part.usd for part in platform}
    for name in sorted(set(machines) | set(paid) - {"machine", "gpu"}):
        if name in ("machine", "gpu"):
            continue
        planned_usd, paid_usd = machines.get(name) or Decimal(0), paid.get(name)
        if name in paid:
            steps.append(Difference(f"{name}: for the time it took", (paid_usd or Decimal(0)) - planned_usd))
        elif planned_usd:
            steps.append(Difference(f"{name}: planned, but not metered", -planned_usd))
    rest = (
        Decimal(repr(billed)) - estimate.total - sum((step.usd for step in steps if step.usd is not None), Decimal(0))
    )
    if abs(rest) > Decimal("1e-9"):
        steps.append(Difference("rounding of the estimate's parts and of hours", rest))
    return [step for step in steps if step.usd is None or abs(step.usd) > Decimal("1e-12")]


def _kind(node: NodeBill) -> tuple[str, str]:
    return node.record.instance_type, node.record.purchase
