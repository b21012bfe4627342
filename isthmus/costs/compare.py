"""What a workload costs in every place that could run it: the comparison, cheapest first.

Pure: a catalog and workloads in, numbers out; no clock, no file, no network. These are list prices and simple
arithmetic, not measurements: what a run really used is the bill's business. An offer whose price is not fully known is
kept, shown as unknown, put last, and never wins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal

from isthmus.catalog import Catalog
from isthmus.costs.demand import DAEMONS_CPU_M, DAEMONS_MEMORY_MIB, Demand, demand_of, nodes_needed, room
from isthmus.costs.parts import HOURS_PER_MONTH, Part, parts_of, total
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.names import unknown
from isthmus.specs.offer import Offer, Purchase, Shape
from isthmus.specs.workload import WorkloadSpec

PURCHASES: tuple[Purchase, ...] = ("on-demand", "spot")

MAX_HOURS = Decimal(100_000)
"""Eleven years. More is taken for a slip."""

ASSUMPTIONS = (
    (
        "All amounts are list prices in USD times a plan, not measured. Taxes, discounts, credits and free tiers (GKE's 74.40 "
        "USD a month, AWS's 100 GB of egress) are not counted."
    ),
    "The workload takes the same hours everywhere: a faster card is not credited, a spot interruption is not charged.",
    (
        "The cluster exists for the workload alone and for its hours: one control plane (standard support), and machines of "
        "one type. Not counted: system nodes, their boot disks, NAT, load balancers, traffic inside a region."
    ),
    (
        f"Pods are packed by GPU, CPU, memory and pod count on what each cloud leaves allocatable, less {DAEMONS_CPU_M} "
        f"millicores and {DAEMONS_MEMORY_MIB} MiB per node for daemons (assumed). Where the workload names cards per node, "
        "only machines with exactly that many are taken."
    ),
    f"Disk is gp3 on AWS and pd-balanced on GCP, for the workload's hours of a month of {HOURS_PER_MONTH} hours.",
    (
        "Egress goes to the internet from the region, GCP premium tier, priced as a month without other traffic; AWS's GB is "
        "taken as GiB."
    ),
    "GCP N1 with attached cards is the host's price plus the cards' price; other machines include their cards.",
    "AWS spot is the feed's one figure per region; it differs by zone and moves.",
    "Each part is rounded to a hundredth of a cent; totals are sums of the rounded parts.",
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """One offer: so many machines of one type in one region under one purchase option."""

    cloud: str
    region: str
    purchase: Purchase
    shape: Shape
    nodes: int
    parts: tuple[Part, ...]
    interruption: str | None
    """AWS's band of how often such a spot machine is taken back; None on demand or where none is given."""

    @property
    def total(self) -> Decimal | None:
        """USD for the workload's hours; None if a part is not known."""
        return total(self.parts)

    @property
    def cards(self) -> int:
        """Cards paid for."""
        return self.nodes * self.shape.gpu_count

    @property
    def unknown(self) -> tuple[str, ...]:
        """The parts whose price is not known."""
        return tuple(part.name for part in self.parts if part.usd is None)

    @property
    def oldest(self) -> date | None:
        """The oldest date among the prices that make up the total; None if none of them has a date."""
        return min((part.as_of for part in self.parts if part.usd and part.as_of is not None), default=None)

    @property
    def undated(self) -> tuple[str, ...]:
        """The parts whose price has no date in its source."""
        return tuple(part.name for part in self.parts if part.usd and part.as_of is None)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A place that cannot run the workload, or a machine that was left out, and why."""

    cloud: str
    region: str
    purchase: Purchase
    gpu_model: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Ranking:
    """One workload's offers, cheapest first, unknown ones last."""

    workload: str
    demand: Demand
    estimates: tuple[Estimate, ...]
    refused: tuple[Refusal, ...]

    @property
    def best(self) -> Estimate | None:
        """The cheapest offer with a known total."""
        return next((estimate for estimate in self.estimates if estimate.total is not None), None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rankings of all workloads, and what they assume."""

    rankings: tuple[Ranking, ...]
    assumptions: tuple[str, ...] = ASSUMPTIONS


def compare(
    workloads: Sequence[WorkloadSpec],
    catalog: Catalog,
    *,
    regions: Sequence[str] | None = None,
    purchases: Sequence[Purchase] = PURCHASES,
    gpu: str | None = None,
    hours: Decimal | None = None,
) -> Comparison:
    """Compare what each workload costs in every cloud, region and purchase option.

    Args:
        regions: names of any cloud's regions; None for every one in the catalog.
        purchases: the purchase options to look at.
        gpu: a card model instead of the workloads' own.
        hours: hours instead of the workloads' own.

    Raises:
        InvalidSpec: no workload; unknown region or GPU model; absurd hours; a pod that no machine in the catalog holds
            (the largest is named).
    """
    if not workloads:
        raise InvalidSpec("name at least one workload", remedy="isthmus cost compare ddp-digits")
    places = _places(catalog, regions)
    for purchase in purchases:
        if purchase not in PURCHASES:
            raise unknown("purchase option", purchase, PURCHASES)
    rankings = []
    for workload in workloads:
        demand = _adjusted(demand_of(workload), catalog, gpu, hours)
        _check_fits_somewhere(catalog, workload.name, demand)
        rankings.append(_rank(catalog, workload.name, demand, places, purchases))
    return Comparison(tuple(rankings))


def _places(catalog: Catalog, regions: Sequence[str] | None) -> list[tuple[str, str]]:
    every = [(cloud, region) for cloud in catalog.clouds() for region in catalog.regions(cloud)]
    if regions is None:
        return every
    for region in regions:
        if region not in {name for _, name in every}:
            raise unknown("region", region, (name for _, name in every))
    chosen = [(cloud, region) for cloud, region in every if region in regions]
    if not chosen:
        raise InvalidSpec("name at least one region", remedy="leave --regions out to compare all of them")
    return chosen


def _adjusted(demand: Demand, catalog: Catalog, gpu: str | None, hours: Decimal | None) -> Demand:
    if hours is not None:
        if not (hours.is_finite() and 0 < hours <= MAX_HOURS):
            raise InvalidSpec(f"hours must be more than 0 and at most {MAX_HOURS}, not {hours}", subject="hours")
        demand = replace(demand, hours=hours)
    if gpu is not None:
        demand = replace(demand, gpu_model=gpu, cards_per_node=None)
    if demand.gpu_model is not None:
        demand = replace(demand, gpu_model=catalog.gpu(demand.gpu_model).model)
    return demand


def _check_fits_somewhere(catalog: Catalog, name: str, demand: Demand) -> None:
    """Refuse a workload that no machine holds, whatever the region, and name the largest there is."""
    shapes = [s for cloud in catalog.clouds() for s in catalog.shapes(cloud) if _suits(s, demand)]
    if any(nodes_needed(demand, room(catalog.allocatable(s.cloud, s), s.gpu_count)) is not None for s in shapes):
        return
    pod = demand.pods[0]
    cards = f" with {demand.cards_per_node} x {demand.gpu_model}" if demand.cards_per_node else ""
    if not shapes:
        model = f"{demand.cards_per_node} x {demand.gpu_model}" if demand.gpu_model else "cards"
        counts = sorted({s.gpu_count for c in catalog.clouds() for s in catalog.shapes(c, demand.gpu_model)})
        raise InvalidSpec(
            f"no machine in the catalog has {model}; counts there are: {', '.join(map(str, counts))}",
            subject=f"workload {name}",
            remedy="change gpu.count of the workload",
        )
    largest = _largest(shapes)
    raise InvalidSpec(
        f"no machine{cards} in the catalog holds a pod of {pod}; the largest is {_sized(largest)}",
        subject=f"workload {name}",
        remedy="ask for less per pod and for more replicas",
    )


def _rank(
    catalog: Catalog, name: str, demand: Demand, places: Sequence[tuple[str, str]], purchases: Sequence[Purchase]
) -> Ranking:
    models = [demand.gpu_model] if demand.gpu_model or not demand.gpus else [gpu.model for gpu in catalog.gpus()]
    estimates: list[Estimate] = []
    refused: list[Refusal] = []
    for cloud, region in places:
        for purchase in purchases:
            sold = catalog.offers(cloud=cloud, region=region, purchase=purchase)
            for model in models:
                wanted = replace(demand, gpu_model=model)
                found, reasons = _cheapest(catalog, wanted, sold, (cloud, region))
                estimates.extend(found)
                refused.extend(Refusal(cloud, region, purchase, model, reason) for reason in reasons)
    estimates.sort(key=_cheapest_first)
    return Ranking(name, demand, tuple(estimates), tuple(refused))


def _suits(shape: Shape, demand: Demand) -> bool:
    """Whether a machine has the right kind of cards for this demand (none, where none are asked for)."""
    if not demand.gpus:
        return shape.gpu_count == 0
    if demand.gpu_model is None:
        return shape.gpu_count > 0
    return shape.gpu_model == demand.gpu_model and demand.cards_per_node in (None, shape.gpu_count)


def _cheapest(
    catalog: Catalog, demand: Demand, sold: Sequence[Offer], place: tuple[str, str]
) -> tuple[list[Estimate], list[str]]:
    """The cheapest of these offers that holds the demand (none or one), and why others were refused."""
    offers = [offer for offer in sold if _suits(offer.shape, demand)]
    if not offers:
        return [], [_absent(catalog, demand, sold, place)]
    fitting: list[tuple[int, Offer]] = []
    for offer in offers:
        nodes = nodes_needed(demand, room(catalog.allocatable(offer.shape.cloud, offer.shape), offer.shape.gpu_count))
        if nodes is not None:
            fitting.append((nodes, offer))
    if not fitting:
        largest = _sized(_largest([offer.shape for offer in offers]))
        return [], [f"does not fit: a pod of {demand.pods[0]} is more than {largest} has"]
    nodes, offer = min(fitting, key=lambda row: _per_hour(*row))
    passed_over = [] if offer.usd_per_hour is None else [row for row in fitting if row[1].usd_per_hour is None]
    estimate = Estimate(
        cloud=offer.shape.cloud,
        region=offer.region,
        purchase=offer.purchase,
        shape=offer.shape,
        nodes=nodes,
        parts=parts_of(catalog, offer, nodes, demand),
        interruption=_interruption(catalog, offer),
    )
    return [estimate], [f"price unknown: {count} x {other.shape.name}" for count, other in passed_over]


def _per_hour(nodes: int, offer: Offer) -> tuple[bool, Decimal, int, int, str]:
    """Order of machines: known price first, then cheaper, fewer, smaller."""
    price = offer.usd_per_hour
    return (price is None, nodes * (price or Decimal(0)), nodes, offer.shape.vcpus, offer.shape.name)


def _interruption(catalog: Catalog, offer: Offer) -> str | None:
    advice = catalog.spot_advice(offer.region, offer.shape.instance_type) if offer.purchase == "spot" else None
    return advice.interruption if advice else None


def _absent(catalog: Catalog, demand: Demand, sold: Sequence[Offer], place: tuple[str, str]) -> str:
    """Why no offer of a place comes into question at all."""
    if not demand.gpus:
        return "no machine without cards is sold there"
    counts = sorted({offer.shape.gpu_count for offer in sold if offer.shape.gpu_model == demand.gpu_model})
    if counts:
        return f"not sold there with {demand.cards_per_node} per machine (there are: {', '.join(map(str, counts))})"
    otherwise = catalog.offers(cloud=place[0], region=place[1], gpu=demand.gpu_model)
    return "not sold there under this option" if otherwise else "not sold there"


def _largest(shapes: Sequence[Shape]) -> Shape:
    return max(shapes, key=lambda shape: (shape.gpu_count, shape.vcpus, shape.memory_gib, shape.name))


def _sized(shape: Shape) -> str:
    cards = f"{shape.gpu_count} x {shape.gpu_model}, " if shape.gpu_count else ""
    return f"{shape.name} ({shape.cloud}: {cards}{shape.vcpus} vCPUs, {shape.memory_gib:f} GiB)"


def _cheapest_first(estimate: Estimate) -> tuple[bool, Decimal, str, str, str, str]:
    usd = estimate.total
    place = (estimate.cloud, estimate.region, estimate.purchase, estimate.shape.name)
    return (usd is None, usd or Decimal(0), *place)
