"""Measured use: what a pod took of a node for a span of time, and what a node was and cost while it was there.

A share of a card is a fraction carried by the record itself: parts of a whole. One of four time-slices is 1 of 4, a
2g MIG instance 2 of 7 compute slices, a claim that two pods share 1 of 2, three whole cards 3 of 1. So the bill needs to
know nothing of how the card was shared.
"""

from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from isthmus.specs.offer import Purchase


class UsageRecord(NamedTuple):
    """One pod on one node for one span of time. Light on purpose: a bill takes a million of them."""

    run: str
    user: str
    project: str
    pod: str
    """Unique among all pods: name or uid. A pod is on one node at a time, so its records may not overlap."""
    node: str
    """Name of a NodeRecord that was there during the whole span."""
    start: datetime
    end: datetime
    cpu_millicores: int
    """What it asked for, which is what it kept others from having."""
    memory_mib: int
    card_parts: int = 0
    """Parts of `card_whole` it holds; see the module."""
    card_whole: int = 1
    simulated: bool = False
    """True when the times come from a simulated clock; never billed together with measured ones."""


class NodeRecord(NamedTuple):
    """One node from its start to its end. A node that went and came back is two records; between them it costs nothing."""

    node: str
    instance_type: str
    purchase: Purchase
    start: datetime
    end: datetime
    cpu_millicores: int
    """Allocatable: who asks for all of it pays all of it."""
    memory_mib: int
    cards: int
    usd_per_hour: Decimal | None
    """The whole machine, cards included. None: unknown, and so is the bill of the node."""
    cpu_weight: Decimal = Decimal(0)
    memory_weight: Decimal = Decimal(0)
    card_weight: Decimal = Decimal(0)
    """How the price is divided, in any unit: only their proportion counts (see isthmus.costs.split)."""
    source: str = ""
    as_of: str = ""
    """Where and of when the price is, for the reader."""
