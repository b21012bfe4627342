"""The parts of a cost, each with the price it was made from. Pure arithmetic on Decimals.

A part is rounded once, to a hundredth of a cent, and a total is the sum of the rounded parts: so the parts in any
report add up exactly. A part whose price is not known is None and makes the total None; it is never 0. What is not
needed (no disk, no traffic) is truly 0 and needs no price. Which row of services.csv prices which part of which cloud
is data (parts.csv).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal

from isthmus.catalog import Catalog
from isthmus.catalog.facts import ManagedPrice, ServicePrice
from isthmus.costs.demand import Demand
from isthmus.costs.options import Options
from isthmus.specs.offer import Offer, Purchase

HOURS_PER_MONTH = Decimal(730)
"""Hours that a monthly price is divided by, as both clouds' calculators do."""

TERM_HOURS: dict[Purchase, Decimal] = {"1-year": 12 * HOURS_PER_MONTH, "3-year": 36 * HOURS_PER_MONTH}

CENT_HUNDREDTH = Decimal("0.0001")

NAMES = ("machine", "gpu", "managed premium", "control plane", "storage", "object storage", "network", "egress")
"""The parts there are, in the order they are shown."""

NOT_SOLD = "no such part on this cloud"


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


def paid_hours(purchase: Purchase, hours: Decimal) -> Decimal:
    """Hours that machines are paid for: a commitment at least for its whole term."""
    return max(hours, TERM_HOURS.get(purchase, hours))


def parts_of(
    catalog: Catalog, offer: Offer, nodes: int, demand: Demand, options: Options, managed: ManagedPrice | None = None
) -> tuple[Part, ...]:
    """Every part of running a demand on so many machines of an offer for its hours.

    Args:
        managed: by a managed training service, which takes its own price for the machines and none for a cluster.
    """
    cloud, region = offer.shape.cloud, offer.region
    hours = paid_hours(offer.purchase, demand.hours)
    if managed is None:
        first = [*_machines(offer, nodes, hours), control_plane(catalog, cloud, region, demand.hours, options)]
    else:
        nothing = f"none: {managed.service} has no cluster fee"
        first = [
            *_machines(offer, nodes, hours),
            _premium(managed, offer, nodes, hours),
            Part("control plane", Decimal(0), nothing, managed.source, managed.as_of),
        ]
    return (
        *first,
        stored(catalog, cloud, region, "storage", "disk", demand.storage_gib, demand.hours),
        stored(catalog, cloud, region, "object storage", "object-storage", demand.object_gib, demand.hours),
        *([_network(catalog, cloud, region, nodes, demand)] if options.network else []),
        egress(catalog, cloud, region, demand.egress_gib),
    )


def _machines(offer: Offer, nodes: int, hours: Decimal) -> list[Part]:
    if not offer.shape.cards_apart:
        return [hourly("machine", nodes, offer.usd_per_hour, hours, offer.source, offer.as_of)]
    return [
        hourly("machine", nodes, offer.machine_usd_per_hour, hours, offer.source, offer.as_of),
        hourly("gpu", nodes, offer.gpu_usd_per_hour, hours, offer.gpu_source or offer.source, offer.gpu_as_of),
    ]


def _premium(managed: ManagedPrice, offer: Offer, nodes: int, hours: Decimal) -> Part:
    """What the service asks on top of the machine's own price of today.

    Where its source has another price of the machine than ours (prices were cut since), the premium is the source's ratio
    of today's price, and says so.
    """
    if offer.usd_per_hour is None:
        return hourly("managed premium", nodes, None, hours, managed.source, managed.as_of)
    if offer.usd_per_hour == managed.self_managed_usd_per_hour:
        extra = managed.usd_per_hour - managed.self_managed_usd_per_hour
        return hourly("managed premium", nodes, extra, hours, managed.source, managed.as_of)
    part = hourly("managed premium", nodes, offer.usd_per_hour * managed.premium, hours, managed.source, managed.as_of)
    ratio = money(managed.premium * 100)
    told = f"{nodes} x {plain(offer.usd_per_hour)} USD/h x {plain(ratio)} % x {plain(hours)} h (the source's ratio)"
    return Part(part.name, part.usd, told, f"{managed.source}; derived: its ratio of today's price", managed.as_of)


def hourly(name: str, count: int, price: Decimal | None, hours: Decimal, source: str, as_of: date | None) -> Part:
    """So many things at a price per hour, for hours."""
    if price is None:
        return Part(name, None, f"{count} x unknown USD/h x {plain(hours)} h", source, as_of)
    how = f"{count} x {plain(price)} USD/h x {plain(hours)} h"
    return Part(name, money(count * price * hours), how, source, as_of)


def control_plane(catalog: Catalog, cloud: str, region: str, hours: Decimal, options: Options) -> Part:
    """The fee of one cluster: standard, under extended support where the cloud sells that, or less the free tier."""
    name = "control plane"
    extended = catalog.part(cloud, "control-plane-extended", region) if options.control_plane == "extended" else None
    price = extended or catalog.part(cloud, "control-plane", region)
    if price is None:
        return Part(name, Decimal(0), NOT_SOLD, f"parts.csv has no control plane of {cloud}", None)
    fee = hourly(name, 1, price.value, hours, price.source, price.as_of)
    credit = catalog.part(cloud, "free-tier", region) if options.control_plane == "free-tier" else None
    if credit is None or credit.value is None or fee.usd is None:
        return fee
    months = (hours / HOURS_PER_MONTH).to_integral_value(rounding=ROUND_CEILING)
    how = f"{fee.how} - at most {plain(months)} x {plain(credit.value)} USD of free tier (zonal clusters only)"
    return Part(name, max(fee.usd - months * credit.value, Decimal(0)), how, f"{fee.source}; {credit.source}", None)


def stored(catalog: Catalog, cloud: str, region: str, name: str, part: str, gib: Decimal, hours: Decimal) -> Part:
    """So many GiB kept for hours, at a monthly price."""
    price = catalog.part(cloud, part, region)
    if gib == 0:
        return Part(
            name,
            Decimal(0),
            "none",
            price.source if price else f"parts.csv has no {part} of {cloud}",
            None if price is None else price.as_of,
        )
    amount = f"{plain(gib)} GiB x {plain(hours)} h / {HOURS_PER_MONTH} h"
    if price is None or price.value is None:
        source = price.source if price else f"parts.csv has no {part} of {cloud}"
        return Part(name, None, f"{amount} x unknown USD/GiB-month", source, None)
    usd = money(gib * price.value * hours / HOURS_PER_MONTH)
    return Part(name, usd, f"{amount} x {plain(price.value)} USD/GiB-month", price.source, price.as_of)


def _network(catalog: Catalog, cloud: str, region: str, nodes: int, demand: Demand) -> Part:
    """A NAT gateway (by the hour, or by the machine behind it up to a cap), the traffic out through it, a load balancer."""
    hours, gib = demand.hours, demand.egress_gib
    wanted: list[tuple[ServicePrice | None, Decimal, str]] = []
    per_node, cap = catalog.part(cloud, "nat-node", region), catalog.part(cloud, "nat-cap", region)
    if per_node is not None:
        many = (
            cap is not None
            and per_node.value is not None
            and cap.value is not None
            and nodes * per_node.value > cap.value
        )
        wanted.append((cap, hours, "NAT {} h") if many else (per_node, nodes * hours, "NAT {} machine-hours"))
    else:
        wanted.append((catalog.part(cloud, "nat-gateway", region), hours, "NAT {} h"))
    if gib:
        wanted.append((catalog.part(cloud, "nat-data", region), gib, "NAT {} GiB"))
    wanted.append((catalog.part(cloud, "load-balancer", region), hours, "load balancer {} h"))
    how = " + ".join(f"{text.format(plain(amount))} x {_value(price)} USD" for price, amount, text in wanted)
    values = [None if price is None else price.value for price, _, _ in wanted]
    known = [value * amount for value, (_, amount, _) in zip(values, wanted, strict=True) if value is not None]
    priced = [price for price, _, _ in wanted if price is not None]
    source = "; ".join(dict.fromkeys(price.source for price in priced)) or f"parts.csv has no network of {cloud}"
    dates = [price.as_of for price in priced if price.as_of is not None]
    as_of = min(dates) if dates and len(dates) == len(wanted) else None
    usd = money(sum(known, Decimal(0))) if len(known) == len(wanted) else None
    return Part("network", usd, how, source, as_of)


def _value(price: ServicePrice | None) -> str:
    return "unknown" if price is None or price.value is None else plain(price.value)


def egress(catalog: Catalog, cloud: str, region: str, gib: Decimal) -> Part:
    """What so many GiB out to the internet cost, by the steps of a month."""
    steps = catalog.part_tiers(cloud, "egress", region)
    if gib == 0:
        source, as_of = (steps[0].source, steps[0].as_of) if steps else (f"parts.csv has no egress of {cloud}", None)
        return Part("egress", Decimal(0), "no traffic out", source, as_of)
    if not steps:
        return Part("egress", None, f"{plain(gib)} GiB x unknown USD/GiB", f"parts.csv has no egress of {cloud}", None)
    spans = _spans(steps, gib)
    how = " + ".join(f"{plain(amount)} GiB x {_value(step)} USD/GiB" for amount, step in spans)
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


def plain(number: Decimal) -> str:
    """A number without needless zeros or an exponent."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
