"""What is known of the two ends of a move, and what a plan says about it. Data only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from isthmus.costs.parts import Part
from isthmus.specs.stack import StackSettings

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Limit:
    """What an account may have of something, and has."""

    limit: float
    used: float


@dataclass(frozen=True)
class Rate:
    """A measured rate of copying."""

    bytes_per_second: float
    how: str
    """Where and when it was measured."""


@dataclass(frozen=True)
class Data:
    """What a bucket holds."""

    objects: int
    bytes: int


@dataclass(frozen=True)
class End:
    """One end of the move, as far as it could be looked at."""

    name: str
    settings: StackSettings
    objects: Sequence[Object] = ()
    """What its cluster holds; empty where it is not up."""
    up: bool = False
    data: Data | None = None
    """None: it could not be listed."""
    data_problem: str = ""
    """Why its bucket may not be read (of a source) or written (of a destination)."""
    limits: Mapping[str, Limit] | None = None
    """By quota code; None where the account does not tell."""
    machines_left: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(zone, machine) to how many are left, where that is known to be limited."""


@dataclass(frozen=True)
class Choices:
    """What the user has decided."""

    classes: Mapping[str, str] = field(default_factory=dict)
    """StorageClass of the source to that of the destination."""
    accepted: frozenset[str] = frozenset()
    """Ids of lines that are fine as they are."""


@dataclass(frozen=True)
class Line:
    """One thing of the source and where it goes."""

    section: str
    id: str
    """What the user names it by: volume/isthmus-runs/ckpt."""
    source: str
    destination: str
    """"" where there is no counterpart."""
    detail: str = ""
    undecided: str = ""
    """What must be decided before a move may start; "" for nothing."""


@dataclass(frozen=True)
class Plan:
    """A whole plan."""

    source: str
    destination: str
    lines: tuple[Line, ...]
    data: Data | None
    egress: Part | None
    """None where the amount is not known."""
    rate: Rate | None
    monthly: tuple[Decimal | None, Decimal | None]
    """USD a month of the machines of all pools at their present size, at the source and at the destination; None: unknown."""

    @property
    def undecided(self) -> tuple[Line, ...]:
        """What stands in the way."""
        return tuple(line for line in self.lines if line.undecided)

    @property
    def seconds(self) -> float | None:
        """How long copying the objects takes at the measured rate; None where rate or amount is not known."""
        if self.data is None or self.rate is None or not self.rate.bytes_per_second:
            return None
        return self.data.bytes / self.rate.bytes_per_second


SECTIONS = ("place", "machines", "quotas", "data", "volumes", "identities", "jobs", "images", "services", "other")
"""In the order they are shown."""
