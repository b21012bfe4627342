"""What a comparison is asked, besides the workloads. Each choice is listed in the report's assumptions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from isthmus.catalog import Catalog
from isthmus.catalog.rows import read
from isthmus.catalog.sharing import most_clients
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.offer import Purchase

PURCHASES: tuple[Purchase, ...] = ("on-demand", "spot", "1-year", "3-year")

MAX_HOURS = Decimal(100_000)
"""Eleven years. More is taken for a slip."""

MAX_CARDS = 100_000

ControlPlane = Literal["standard", "extended", "free-tier"]


@dataclass(frozen=True, slots=True)
class Share:
    """How each card is shared. MIG is by profile, and how many a card holds is the catalog's to say."""

    mode: Literal["time-slicing", "mps", "mig"]
    sharers: int | None
    """Pods per card; None for MIG."""
    profile: str | None = None

    def __str__(self) -> str:
        return f"{self.mode}:{self.profile or self.sharers}"

    def per_card(self, catalog: Catalog, model: str | None) -> int | None:
        """How many share a card of this model; None for a card that cannot be shared so."""
        if self.mode == "mps" and model is not None and self.sharers is not None:
            return self.sharers if self.sharers <= most_clients(catalog, catalog.gpu(model)) else None
        if self.sharers is not None or model is None:
            return self.sharers
        return next((p.max_instances for p in catalog.mig_profiles(model) if p.profile == self.profile), None)


@dataclass(frozen=True, slots=True)
class Throughput:
    """Steps per second of the whole workload by card model, each with its source: hours then differ by model."""

    rates: Mapping[str, tuple[Decimal, str]]
    """The first is the reference where the workload names no card."""

    def hours(self, hours: Decimal, own: str | None, model: str | None) -> Decimal | None:
        """The hours on another card, of a workload that takes `hours` on its own; None where no rate is given for it."""
        reference = own if own in self.rates else next(iter(self.rates))
        if model is None or model not in self.rates or reference is None:
            return None
        return hours * self.rates[reference][0] / self.rates[model][0]


@dataclass(frozen=True, slots=True)
class Options:
    """All choices of a comparison; the defaults ask for every place and purchase option."""

    regions: tuple[str, ...] | None = None
    """Names of any cloud's regions; None for every one in the catalog."""
    purchases: tuple[Purchase, ...] = PURCHASES
    gpus: str | None = None
    """MODEL: that card instead of the workload's own. MODEL:N: so many cards instead of the workload's pods."""
    hours: Decimal | None = None
    """Hours instead of the workload's own."""
    share: Share | None = None
    throughput: Throughput | None = None
    managed: bool = False
    """Also what SageMaker and Vertex AI ask for the same machines."""
    network: bool = False
    """Also a NAT gateway with the traffic out, and a load balancer."""
    control_plane: ControlPlane = "standard"
    checkpoint_hours: Decimal = Decimal("0.5")
    """Between two checkpoints; half of it is lost, on average, each time a machine is taken back."""
    within_quota: bool = False
    """Refuse what a new account's quota does not allow, instead of naming it."""


DEFAULTS = Options()
NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Cards:
    """`--gpus` as it was meant: a model, and how many of it, or None for as many as the workload asks for."""

    model: str
    count: int | None = field(default=None)


def parse_cards(text: str, catalog: Catalog) -> Cards:
    """MODEL or MODEL:N.

    Raises:
        InvalidSpec: an unknown model, or a count that is none.
    """
    model, colon, count = text.partition(":")
    known = catalog.gpu(model).model
    if not colon:
        return Cards(known)
    if not (count.isascii() and count.isdigit() and 0 < int(count) <= MAX_CARDS):
        raise InvalidSpec(
            f"the number of cards must be 1 to {MAX_CARDS}, not {count!r}",
            subject="--gpus",
            remedy=f"--gpus {known}:8",
        )
    return Cards(known, int(count))


def parse_share(text: str) -> Share:
    """time-slicing:N, mps:N or mig:PROFILE.

    Raises:
        InvalidSpec: anything else; more than 48 sharers (the most that MPS and GKE's time-slicing allow, see
            isthmus.specs.sharing).
    """
    mode, _, value = text.partition(":")
    if mode == "mig" and re.fullmatch(r"\d+g\.\d+gb", value):
        return Share("mig", None, value)
    if mode in ("time-slicing", "mps") and value.isascii() and value.isdigit() and 1 <= int(value) <= 48:
        return Share("mps" if mode == "mps" else "time-slicing", int(value))
    raise InvalidSpec(
        f"a share is time-slicing:N or mps:N with N from 1 to 48, or mig:PROFILE, not {text!r}",
        subject="--share",
        remedy="--share time-slicing:4 or --share mig:1g.5gb",
    )


def read_throughput(path: Path, catalog: Catalog, *, today: date) -> Throughput:
    """A CSV file with the columns gpu_model, steps_per_second, source and as_of.

    Raises:
        InvalidSpec: no such file, a wrong row (file and row are named), or no row at all.
    """
    rates: dict[str, tuple[Decimal, str]] = {}
    for row in read(path, "gpu_model steps_per_second", key=("gpu_model",), today=today):
        try:
            model = catalog.gpu(row.text("gpu_model")).model
        except InvalidSpec as error:
            raise row.wrong(error.message) from error
        rate = row.decimal("steps_per_second")
        if rate == 0:
            raise row.wrong("steps_per_second is 0; leave the row out where it is not known")
        dated = f"{row.source}, {row.as_of.isoformat() if row.as_of else 'undated'}"
        rates[model] = (rate, dated)
    if not rates:
        raise InvalidSpec(f"{path.name} has no row", subject=str(path), remedy="add a row for each card model")
    return Throughput(rates)


def parse_hours(text: str | None, subject: str) -> Decimal | None:
    """A number of hours; whether it makes sense is checked where it is used. InvalidSpec for what is no number."""
    if text is None:
        return None
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise InvalidSpec(
            f"{subject.strip('-')} must be a number, not {text!r}", subject=subject, remedy=f"{subject} 1.5"
        ) from error
