"""The parts of a cost, each with the price it was made from. Pure arithmetic on Decimals.

A part is rounded once, to a hundredth of a cent, and a total is the sum of the rounded parts: so the parts in any
report add up exactly. A part whose price is not known is None and makes the total None; it is never 0. What is not
needed (no disk, no traffic) is truly 0 and needs no price.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_UP, Decimal

from isthmus.catalog import Catalog
from isthmus.catalog.facts import ServicePrice
from isthmus.costs.demand import Demand
from isthmus.specs.offer import Offer

HOURS_PER_MONTH = Decimal(730)
"""Hours that a monthly price is divided by, as both clouds' calculators do."""

CENT_HUNDREDTH = Decimal("0.0001")

NAMES = ("machine", "gpu", "control plane", "storage", "egress")
"""The parts there are, in the order they are shown."""

_CONTROL_PLANE = {
    "aws": ("eks", "control plane, standard support"),
    "gcp": ("gke", "cluster management fee (all modes and topologies)"),
}
_DISK = {"aws": ("ebs", "gp3 storage"), "gcp": ("persistent-disk", "pd-balanced")}
"""The disk behind the default StorageClass that isthmus makes on each cloud."""
_EGRESS = {"aws": ("data-transfer", "internet egress"), "gcp": ("data-transfer", "internet egress premium tier")}


@dataclass(frozen=True, slots=True)
class Part:
    """One part of an estimate."""

    name: str
    usd: Decimal | None
    """None: the price is not known."""
    how: str
    """The arithmetic, for a reader: "1 x 3.912 USD/h x 1 h"."""
    source: str
    as_of: date | None


def money(amount: Decimal) -> Decimal:
    """Rounded to a hundredth of a cent, half up."""
    return amount.quantize(CENT_HUNDREDTH, rounding=ROUND_HALF_UP)


def total(parts: Iterable[Part]) -> Decimal | None:
    """The sum of the parts; None as soon as one is not known."""
    amounts = [part.usd for part in parts]
    known = [amount for amount in amounts if amount is not None]
    return sum(known, Decimal(0)) if len(known) == len(amounts) else None


def parts_of(catalog: Catalog, offer: Offer, nodes: int, demand: Demand) -> tuple[Part, ...]:
    """Every part of running a demand on so many machines of an offer for its hours."""
    cloud, region = offer.shape.cloud, offer.region
    return (
        *_machines(offer, nodes, demand.hours),
        _control_plane(catalog, cloud, region, demand.hours),
        _disk(catalog, cloud, region, demand),
        _egress(catalog, cloud, region, demand.egress_gib),
    )


def _machines(offer: Offer, nodes: int, hours: Decimal) -> list[Part]:
    if not offer.shape.cards_apart:
        return [_hourly("machine", nodes, offer.usd_per_hour, hours, offer.source, offer.as_of)]
    return [
        _hourly("machine", nodes, offer.machine_usd_per_hour, hours, offer.source, offer.as_of),
        _hourly("gpu", nodes, offer.gpu_usd_per_hour, hours, offer.gpu_source or offer.source, offer.gpu_as_of),
    ]


def _hourly(name: str, count: int, price: Decimal | None, hours: Decimal, source: str, as_of: date | None) -> Part:
    if price is None:
        return Part(name, None, f"{count} x unknown USD/h x {plain(hours)} h", source, as_of)
    how = f"{count} x {plain(price)} USD/h x {plain(hours)} h"
    return Part(name, money(count * price * hours), how, source, as_of)


def _control_plane(catalog: Catalog, cloud: str, region: str, hours: Decimal) -> Part:
    price = catalog.service(cloud, *_CONTROL_PLANE[cloud], region)
    return _hourly("control plane", 1, price.value, hours, price.source, price.as_of)


def _disk(catalog: Catalog, cloud: str, region: str, demand: Demand) -> Part:
    price = catalog.service(cloud, *_DISK[cloud], region)
    if demand.storage_gib == 0:
        return Part("storage", Decimal(0), "no disk", price.source, price.as_of)
    amount = f"{plain(demand.storage_gib)} GiB x {plain(demand.hours)} h / {HOURS_PER_MONTH} h"
    if price.value is None:
        return Part("storage", None, f"{amount} x unknown USD/GiB-month", price.source, price.as_of)
    usd = money(demand.storage_gib * price.value * demand.hours / HOURS_PER_MONTH)
    return Part("storage", usd, f"{amount} x {plain(price.value)} USD/GiB-month", price.source, price.as_of)


def _egress(catalog: Catalog, cloud: str, region: str, gib: Decimal) -> Part:
    steps = catalog.tiers(cloud, *_EGRESS[cloud], region)
    if gib == 0:
        return Part("egress", Decimal(0), "no traffic out", steps[0].source, steps[0].as_of)
    spans = _spans(steps, gib)
    how = " + ".join(f"{plain(amount)} GiB x {_price(step)} USD/GiB" for amount, step in spans)
    dates = [step.as_of for _, step in spans if step.as_of is not None]
    as_of = min(dates) if len(dates) == len(spans) else None
    usd = Decimal(0)
    for amount, step in spans:
        if step.value is None:
            return Part("egress", None, how, step.source, as_of)
        usd += amount * step.value
    return Part("egress", money(usd), how, spans[0][1].source, as_of)


def _spans(steps: Sequence[ServicePrice], gib: Decimal) -> list[tuple[Decimal, ServicePrice]]:
    """The amount that falls into each step, as it would for a month without other traffic."""
    spans = []
    for step in steps:
        first, last = Decimal(step.tier_from_gib or 0), step.tier_to_gib
        amount = (gib if last is None else min(gib, Decimal(last))) - first
        if amount > 0:
            spans.append((amount, step))
    return spans


def _price(step: ServicePrice) -> str:
    return "unknown" if step.value is None else plain(step.value)


def plain(number: Decimal) -> str:
    """A number without needless zeros or an exponent."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
