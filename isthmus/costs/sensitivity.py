"""What would change the answer: where the cheapest offer stops being the cheapest. Pure.

Each break-even is found by pricing both offers again with one figure changed (hours, traffic out), by the same arithmetic
as the comparison itself, and halving the interval in which they change places.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal

from isthmus.catalog import Catalog
from isthmus.costs.compare import Comparison, Estimate, Ranking
from isthmus.costs.demand import Demand
from isthmus.costs.options import MAX_HOURS, Options
from isthmus.costs.parts import TERM_HOURS, parts_of, plain, total

MAX_GIB = Decimal(1_000_000)
"""A petabyte: no break-even is looked for beyond it."""

_STEPS = 48
"""Halvings: of a million, that leaves less than a millionth."""


@dataclass(frozen=True, slots=True)
class Change:
    """One figure at which the answer changes."""

    kind: str
    """hours, egress, spot-price, commitment or managed."""
    at: Decimal | None
    """The figure, in the unit of its kind (h, GiB, % of today's price, h, machines); None: nowhere within reason."""
    text: str


def changes(comparison: Comparison, ranking: Ranking) -> tuple[Change, ...]:
    """What would change the answer of one workload; empty where nothing has a known price."""
    best = ranking.best
    if best is None:
        return ()
    found = [
        _spot(ranking, best),
        *_other_cloud(comparison, ranking, best),
        _commitment(comparison, ranking),
        *_managed(comparison, ranking),
    ]
    return tuple(change for change in found if change is not None)


def _spot(ranking: Ranking, best: Estimate) -> Change | None:
    """How much dearer spot may become before on demand is cheaper."""
    on_demand = next((e for e in ranking.estimates if e.purchase == "on-demand" and e.total is not None), None)
    if best.purchase != "spot" or on_demand is None or not best.machines_usd:
        return None
    assert on_demand.total is not None and best.total is not None  # both were chosen for it
    rise = (on_demand.total - best.total) / best.machines_usd * 100
    return Change(
        "spot-price", rise,
        f"Spot in {best.region} stays the cheapest until its price rises by {rise:.0f} %, or until the same part of the work "
        f"has to be done again; then it is {name(on_demand)} on demand.",
    )  # fmt: skip


def _other_cloud(comparison: Comparison, ranking: Ranking, best: Estimate) -> list[Change]:
    """Hours and traffic out at which the cheapest of another cloud takes over."""
    rival = next((e for e in ranking.estimates if e.cloud != best.cloud and e.total is not None), None)
    if rival is None or best.service or rival.service:
        return []
    difference = _difference(comparison, rival, best)
    demand = ranking.demand
    hours = _crossing(lambda x: difference(replace(demand, hours=x)), demand.hours, MAX_HOURS)
    gib = _crossing(lambda x: difference(replace(demand, egress_gib=x)), demand.egress_gib, MAX_GIB)
    their = f"{name(rival)} {_how(rival)}"
    return [
        Change("hours", hours, f"{their} is cheaper {_side(hours, demand.hours)} {_shown(hours)} h." if hours else
               f"Whatever the hours, {their} is not cheaper."),
        Change("egress", gib, f"{their} is cheaper with {_side(gib, demand.egress_gib)} {_shown(gib)} GiB of traffic out."
               if gib else f"However much traffic goes out, {their} is not cheaper."),
    ]  # fmt: skip


def _commitment(comparison: Comparison, ranking: Ranking) -> Change | None:
    """From how many hours of use in its term the cheapest commitment costs less than paying by the hour."""
    hourly = next((e for e in ranking.estimates if e.purchase not in TERM_HOURS and e.total and not e.service), None)
    committed = [e for e in ranking.estimates if e.purchase in TERM_HOURS and e.total is not None]
    if hourly is None or not committed:
        return None
    found = []
    for estimate in committed:
        term = TERM_HOURS[estimate.purchase]
        difference = _difference(comparison, hourly, estimate)
        ahead = difference(replace(ranking.demand, hours=term))
        found.append((ahead is None, -(ahead or Decimal(0)), term, estimate, difference))
    _, _, term, best, difference = min(found, key=lambda row: row[:3])
    demand = ranking.demand
    at = _crossing(lambda x: difference(replace(demand, hours=x)), min(demand.hours, term), term)
    what = f"A {best.purchase} commitment to {name(best)}"
    if at is None:
        return Change(
            "commitment",
            None,
            f"{what} does not pay even if it is used all its term: {name(hourly)} {_how(hourly)} is cheaper.",
        )
    percent = at / term * 100
    return Change(
        "commitment", at,
        f"{what} is cheaper from {_shown(at)} h of use in its {plain(term)} h ({percent:.0f} % of the term).",
    )  # fmt: skip


def _managed(comparison: Comparison, ranking: Ranking) -> list[Change]:
    """Against each managed service: its premium, and the number of machines from which a cluster of one's own is cheaper."""
    found = []
    for estimate in ranking.estimates:
        if estimate.service is None:
            continue
        rows = [row for row in premiums(comparison.catalog) if row.instance_type == estimate.shape.instance_type]
        row = next((row for row in rows if (row.cloud, row.region) == (estimate.cloud, estimate.region)), None)
        if row is not None:
            found.append(Change("managed", row.machines, row.sentence))
    return found


@dataclass(frozen=True, slots=True)
class Premium:
    """A managed service's price against the machine's own."""

    cloud: str
    region: str
    service: str
    instance_type: str
    managed: Decimal
    own: Decimal
    """Both in USD per hour, from one source."""
    premium: Decimal
    saving: Decimal
    """In percent: what it costs more, and what running it yourself saves."""
    fee: Decimal | None
    """The control plane's, in USD per hour."""
    machines: Decimal | None
    """From this many machines on a cluster of one's own is cheaper, its control plane paid; None: the fee is not known, or
    there is no premium."""
    sentence: str
    source: str
    as_of: str | None


def premiums(catalog: Catalog) -> list[Premium]:
    """Every managed price of the catalog against the machine's own, with the break-even."""
    made = []
    for price in catalog.managed():
        plane = catalog.part(price.cloud, "control-plane", price.region)
        fee = plane.value if plane else None
        extra = price.usd_per_hour - price.self_managed_usd_per_hour
        machines = fee / extra if fee is not None and extra > 0 else None
        premium, saving = price.premium * 100, price.saving * 100
        sentence = (
            f"{price.service} asks {plain(price.usd_per_hour)} USD/h for {price.instance_type} against "
            f"{plain(price.self_managed_usd_per_hour)}: a premium of {premium:.2f} %, or a saving of {saving:.1f} % by running it "
            "yourself"
        )
        if machines is not None and fee is not None:
            own_alone, whole = plain(price.self_managed_usd_per_hour + fee), int(machines) + 1
            verdict = (
                f"one machine already wins ({own_alone} against {plain(price.usd_per_hour)} USD/h)"
                if whole == 1
                else f"one machine alone loses ({own_alone} against {plain(price.usd_per_hour)} USD/h), {whole} or more win"
            )
            sentence += f". With the control plane's {plain(fee)} USD/h {verdict}; break-even {machines:.2f} machines."
        as_of = price.as_of.isoformat() if price.as_of else None
        made.append(
            Premium(
                price.cloud, price.region, price.service, price.instance_type, price.usd_per_hour,
                price.self_managed_usd_per_hour, premium, saving, fee, machines, sentence, price.source, as_of,
            )
        )  # fmt: skip
    return made


def _difference(comparison: Comparison, one: Estimate, other: Estimate) -> Callable[[Demand], Decimal | None]:
    """What `one` costs more than `other`, as a function of the demand; None where a price is unknown."""

    def price(estimate: Estimate, demand: Demand) -> Decimal | None:
        return _again(comparison.catalog, estimate, demand, comparison.options)

    def difference(demand: Demand) -> Decimal | None:
        first, second = price(one, demand), price(other, demand)
        return None if first is None or second is None else first - second

    return difference


def _again(catalog: Catalog, estimate: Estimate, demand: Demand, options: Options) -> Decimal | None:
    offer = catalog.offer(estimate.shape, estimate.region, estimate.purchase)
    if offer is None:
        return None
    hours = demand.hours
    if options.throughput is not None:
        hours = options.throughput.hours(demand.hours, demand.gpu_model, estimate.shape.gpu_model) or hours
    return total(parts_of(catalog, offer, estimate.nodes, replace(demand, hours=hours), options))


def _crossing(difference: Callable[[Decimal], Decimal | None], now: Decimal, most: Decimal) -> Decimal | None:
    """The nearest figure at which a difference changes its sign, looked for upwards and downwards from `now`."""
    here = difference(now)
    if here is None or here == 0:
        return None
    up = [now + (most - now) * Decimal(2) ** -step for step in range(30, -1, -1)] if most > now else []
    down = [now * (1 - Decimal(2) ** -step) for step in range(30, 0, -1)] + ([now / 10**6] if now else [])
    for grid in (up, down):
        before = now
        for point in grid:
            there = difference(point)
            if there is None:
                break
            if (there < 0) != (here < 0):
                return _halve(difference, before, point, below=here < 0)
            before = point
    return None


def _halve(difference: Callable[[Decimal], Decimal | None], same: Decimal, other: Decimal, *, below: bool) -> Decimal:
    for _ in range(_STEPS):
        middle = (same + other) / 2
        found = difference(middle)
        if found is not None and (found < 0) == below:
            same = middle
        else:
            other = middle
    return other


def _side(at: Decimal, now: Decimal) -> str:
    return "above" if at > now else "below"


def _shown(number: Decimal) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def name(estimate: Estimate) -> str:
    """Machines and place: "4 x g4dn.xlarge in us-east-1"."""
    return f"{estimate.nodes} x {estimate.shape.name} in {estimate.region}"


def _how(estimate: Estimate) -> str:
    return {"on-demand": "on demand", "spot": "on spot"}.get(
        estimate.purchase, f"with a {estimate.purchase} commitment"
    )
