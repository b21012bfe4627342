"""What a workload costs in every place that could run it: the comparison, cheapest first.

Pure: a catalog and workloads in, numbers out; no clock, no file, no network. These are list prices and simple
arithmetic, not measurements: what a run really used is the bill's business. An offer whose price is not fully known is
kept, shown as unknown, put last, and never wins.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal

from isthmus.catalog import Catalog
from isthmus.catalog.facts import ManagedPrice
from isthmus.catalog.sharing import most_clients
from isthmus.costs.assumptions import assumptions
from isthmus.costs.demand import Demand, cards_demand, demand_of, nodes_needed, room
from isthmus.costs.options import DEFAULTS, MAX_HOURS, PURCHASES, Options, parse_cards
from isthmus.costs.parts import Part, parts_of, total
from isthmus.costs.risk import Interruptions, idle_share, interruptions, over_quota
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.names import unknown
from isthmus.specs.offer import Offer, Purchase, Shape
from isthmus.specs.workload import WorkloadSpec


@dataclass(frozen=True, slots=True)
class Estimate:
    """One offer: so many machines of one type in one region under one purchase option."""

    cloud: str
    region: str
    purchase: Purchase
    shape: Shape
    nodes: int
    hours: Decimal
    parts: tuple[Part, ...]
    service: str | None = None
    """A managed training service that runs it; None for a cluster of one's own."""
    idle: Decimal | None = None
    """The part of the machines' price that no pod asks for, 0 to 1; None where it cannot be said."""
    interruptions: Interruptions | None = None
    """Of spot: how often, and the work lost; None on demand or where nothing is known."""
    quota: tuple[str, ...] = ()
    """Quotas of a new account that do not allow it, in words."""

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

    @property
    def machines_usd(self) -> Decimal | None:
        """Machines and cards alone."""
        return total(part for part in self.parts if part.name in ("machine", "gpu"))

    @property
    def idle_usd(self) -> Decimal | None:
        """What the idle part of the machines costs; it is within the total, not on top of it."""
        return None if self.idle is None or self.machines_usd is None else self.idle * self.machines_usd


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
    assumptions: tuple[str, ...]
    options: Options
    catalog: Catalog


def compare(workloads: Sequence[WorkloadSpec], catalog: Catalog, options: Options = DEFAULTS) -> Comparison:
    """Compare what each workload costs in every cloud, region and purchase option.

    Args:
        workloads: may be empty where `options.gpus` says MODEL:N.

    Raises:
        InvalidSpec: nothing to compare; unknown region, GPU model or purchase option; absurd hours; a pod that no machine
            in the catalog holds (the largest is named).
    """
    places = _places(catalog, options.regions)
    for purchase in options.purchases:
        if purchase not in PURCHASES:
            raise unknown("purchase option", purchase, PURCHASES)
    rankings = []
    for name, demand in _demands(workloads, catalog, options):
        _check_fits_somewhere(catalog, name, demand, options)
        rankings.append(_rank(catalog, name, demand, places, options))
    return Comparison(tuple(rankings), assumptions(options), options, catalog)


def _demands(workloads: Sequence[WorkloadSpec], catalog: Catalog, options: Options) -> Iterable[tuple[str, Demand]]:
    cards = parse_cards(options.gpus, catalog) if options.gpus else None
    if not workloads and (cards is None or cards.count is None):
        raise InvalidSpec(
            "name at least one workload, or cards as MODEL:N",
            remedy="isthmus cost compare ddp-digits, or isthmus cost compare --gpus A100:8",
        )
    if options.hours is not None and not (options.hours.is_finite() and 0 < options.hours <= MAX_HOURS):
        raise InvalidSpec(f"hours must be more than 0 and at most {MAX_HOURS}, not {options.hours}", subject="hours")
    if not (options.checkpoint_hours.is_finite() and 0 < options.checkpoint_hours <= MAX_HOURS):
        raise InvalidSpec(
            f"hours between checkpoints must be more than 0 and at most {MAX_HOURS}, not {options.checkpoint_hours}",
            subject="--checkpoint-every",
        )
    if not workloads and cards is not None and cards.count is not None:
        sharers = options.share.per_card(catalog, cards.model) if options.share else 1
        if sharers is None:
            raise _cannot_share(catalog, cards.model, options)
        demand = cards_demand(cards.model, cards.count, sharers)
        yield f"{cards.count} x {cards.model}", _adjusted(demand, catalog, options)
        return
    for workload in workloads:
        demand = demand_of(workload)
        if cards is not None:
            demand = replace(demand, gpu_model=cards.model, cards_per_node=None)
            if cards.count is not None:
                pods = cards_demand(cards.model, cards.count, 1).pods
                demand = replace(demand, pods=pods)
        yield workload.name, _adjusted(demand, catalog, options)


def _adjusted(demand: Demand, catalog: Catalog, options: Options) -> Demand:
    if options.hours is not None:
        demand = replace(demand, hours=options.hours)
    if demand.gpu_model is not None:
        demand = replace(demand, gpu_model=catalog.gpu(demand.gpu_model).model)
    return demand


def _cannot_share(catalog: Catalog, model: str | None, options: Options) -> InvalidSpec:
    if model and options.share and options.share.mode == "mps":
        most = most_clients(catalog, catalog.gpu(model))
        return InvalidSpec(
            f"{model} cannot be shared by {options.share}: it serves at most {most} clients",
            subject=f"GPU model {model}",
            remedy=f"--share mps:{most}",
        )
    have = [profile.profile for profile in catalog.mig_profiles(model)] if model else []
    kinds = f"it has: {', '.join(have)}" if have else "it has no MIG"
    return InvalidSpec(
        f"{model} cannot be shared by {options.share}: {kinds}",
        subject=f"GPU model {model}",
        remedy=f"--share mig:{have[0]}" if have else "--share time-slicing:4",
    )


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


def _nodes(catalog: Catalog, shape: Shape, demand: Demand, options: Options) -> int | None:
    """How many of a machine hold the demand; None for one that does not hold a pod, or cannot share its cards so."""
    sharers = options.share.per_card(catalog, shape.gpu_model) if options.share and shape.gpu_count else 1
    if sharers is None:
        return None
    return nodes_needed(demand, room(catalog.allocatable(shape.cloud, shape), shape.gpu_count * sharers))


def _check_fits_somewhere(catalog: Catalog, name: str, demand: Demand, options: Options) -> None:
    """Refuse a workload that no machine holds, whatever the region, and name the largest there is."""
    shapes = [s for cloud in catalog.clouds() for s in catalog.shapes(cloud) if _suits(s, demand)]
    if any(_nodes(catalog, shape, demand, options) is not None for shape in shapes):
        return
    if options.share and shapes and not any(options.share.per_card(catalog, s.gpu_model) for s in shapes):
        raise _cannot_share(catalog, demand.gpu_model or shapes[0].gpu_model, options)
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


def _rank(catalog: Catalog, name: str, demand: Demand, places: Sequence[tuple[str, str]], options: Options) -> Ranking:
    models = [demand.gpu_model] if demand.gpu_model or not demand.gpus else [gpu.model for gpu in catalog.gpus()]
    estimates: list[Estimate] = []
    refused: list[Refusal] = []
    for cloud, region in places:
        for purchase in options.purchases:
            sold = catalog.offers(cloud=cloud, region=region, purchase=purchase)
            for model in models:
                wanted: Demand | None = replace(demand, gpu_model=model)
                if options.throughput is not None:
                    wanted = _at_speed(demand, model, options)
                if wanted is None:
                    refused.append(Refusal(cloud, region, purchase, model, f"no throughput is given for {model}"))
                    continue
                found, reasons = _offers(catalog, wanted, sold, (cloud, region), options)
                estimates.extend(found)
                refused.extend(Refusal(cloud, region, purchase, model, reason) for reason in reasons)
    estimates.sort(key=_cheapest_first)
    return Ranking(name, demand, tuple(estimates), tuple(refused))


def _at_speed(demand: Demand, model: str | None, options: Options) -> Demand | None:
    if options.throughput is None:
        return None
    hours = options.throughput.hours(demand.hours, demand.gpu_model, model)
    return None if hours is None else replace(demand, gpu_model=model, hours=hours)


def _suits(shape: Shape, demand: Demand) -> bool:
    """Whether a machine has the right kind of cards for this demand (none, where none are asked for)."""
    if not demand.gpus:
        return shape.gpu_count == 0
    if demand.gpu_model is None:
        return shape.gpu_count > 0
    return shape.gpu_model == demand.gpu_model and demand.cards_per_node in (None, shape.gpu_count)


def _offers(
    catalog: Catalog, demand: Demand, sold: Sequence[Offer], place: tuple[str, str], options: Options
) -> tuple[list[Estimate], list[str]]:
    """The cheapest of these offers that holds the demand (none or one; one more for each managed service), and why others
    were refused."""
    suiting = [offer for offer in sold if _suits(offer.shape, demand)]
    if not suiting:
        return [], [_absent(catalog, demand, sold, place)]
    offers = [offer for offer in suiting if catalog.placeable(offer.shape, offer.region)]
    if not offers:
        return [], [f"no zone of {place[1]} is recorded to have {suiting[0].shape.name}"]
    sized = [(_nodes(catalog, offer.shape, demand, options), offer) for offer in offers]
    fitting = [(nodes, offer) for nodes, offer in sized if nodes is not None]
    if not fitting:
        return [], [_does_not_fit(catalog, demand, offers, options)]
    reasons = []
    if options.within_quota:
        short = {offer.shape.name: over_quota(catalog, offer.shape, nodes, offer.purchase) for nodes, offer in fitting}
        within = [row for row in fitting if not short[row[1].shape.name]]
        if not within:
            nodes, offer = min(fitting, key=lambda row: _per_hour(*row))
            return [], [f"quota: {'; '.join(short[offer.shape.name])}"]
        fitting = within
    nodes, offer = min(fitting, key=lambda row: _per_hour(*row))
    if offer.usd_per_hour is not None:
        reasons += [f"price unknown: {n} x {o.shape.name}" for n, o in fitting if o.usd_per_hour is None]
    estimates = [_estimate(catalog, offer, nodes, demand, options)]
    if options.managed and offer.purchase == "on-demand":
        found, lacking = _managed(catalog, demand, fitting, place, options)
        estimates, reasons = [*estimates, *found], [*reasons, *lacking]
    return estimates, reasons


def _managed(
    catalog: Catalog, demand: Demand, fitting: Sequence[tuple[int, Offer]], place: tuple[str, str], options: Options
) -> tuple[list[Estimate], list[str]]:
    """For each managed service the cheapest machine that it has a price of."""
    by_service: dict[str, list[tuple[int, Offer, ManagedPrice]]] = {}
    for price in catalog.managed(*place):
        for nodes, offer in fitting:
            if offer.shape.instance_type == price.instance_type and offer.usd_per_hour is not None:
                by_service.setdefault(price.service, []).append((nodes, offer, price))
    if not by_service:
        return [], ["no price of a managed service for these machines is in the catalog"]
    estimates = []
    for rows in by_service.values():
        found = [_estimate(catalog, offer, nodes, demand, options, price) for nodes, offer, price in rows]
        estimates.append(min(found, key=_cheapest_first))
    return estimates, []


def _estimate(
    catalog: Catalog, offer: Offer, nodes: int, demand: Demand, options: Options, managed: ManagedPrice | None = None
) -> Estimate:
    sharers = options.share.per_card(catalog, offer.shape.gpu_model) if options.share else 1
    return Estimate(
        cloud=offer.shape.cloud,
        region=offer.region,
        purchase=offer.purchase,
        shape=offer.shape,
        nodes=nodes,
        hours=demand.hours,
        parts=parts_of(catalog, offer, nodes, demand, options, managed),
        service=managed.service if managed else None,
        idle=idle_share(catalog, offer, nodes, demand, sharers or 1),
        interruptions=interruptions(catalog, offer, nodes, demand.hours, options.checkpoint_hours),
        quota=() if managed else over_quota(catalog, offer.shape, nodes, offer.purchase),
    )


def _per_hour(nodes: int, offer: Offer) -> tuple[bool, Decimal, int, int, str]:
    """Order of machines: known price first, then cheaper, fewer, smaller."""
    price = offer.usd_per_hour
    return (price is None, nodes * (price or Decimal(0)), nodes, offer.shape.vcpus, offer.shape.name)


def _does_not_fit(catalog: Catalog, demand: Demand, offers: Sequence[Offer], options: Options) -> str:
    if options.share and all(options.share.per_card(catalog, offer.shape.gpu_model) is None for offer in offers):
        return f"cannot be shared by {options.share}"
    largest = _sized(_largest([offer.shape for offer in offers]))
    return f"does not fit: a pod of {demand.pods[0]} is more than {largest} has"


def _absent(catalog: Catalog, demand: Demand, sold: Sequence[Offer], place: tuple[str, str]) -> str:
    """Why no offer of a place comes into question at all."""
    purchases = catalog.offers(cloud=place[0], region=place[1], gpu=demand.gpu_model) if demand.gpus else []
    if not demand.gpus:
        return "no machine without cards is sold there under this option"
    counts = sorted({offer.shape.gpu_count for offer in sold if offer.shape.gpu_model == demand.gpu_model})
    if counts:
        return f"not sold there with {demand.cards_per_node} per machine (there are: {', '.join(map(str, counts))})"
    return "not sold there under this option, or its price is not in the catalog" if purchases else "not sold there"


def _largest(shapes: Sequence[Shape]) -> Shape:
    return max(shapes, key=lambda shape: (shape.gpu_count, shape.vcpus, shape.memory_gib, shape.name))


def _sized(shape: Shape) -> str:
    cards = f"{shape.gpu_count} x {shape.gpu_model}, " if shape.gpu_count else ""
    return f"{shape.name} ({shape.cloud}: {cards}{shape.vcpus} vCPUs, {shape.memory_gib:f} GiB)"


def _cheapest_first(estimate: Estimate) -> tuple[bool, Decimal, str, str, str, str, str]:
    usd = estimate.total
    place = (estimate.cloud, estimate.region, estimate.purchase, estimate.shape.name, estimate.service or "")
    return (usd is None, usd or Decimal(0), *place)
