"""What a total does not say of an offer: how often spot machines go, how much of them is idle, what a quota forbids. Pure."""

from dataclasses import dataclass
from decimal import Decimal

from isthmus.catalog import Catalog
from isthmus.costs.demand import Demand
from isthmus.costs.parts import HOURS_PER_MONTH
from isthmus.costs.split import weights
from isthmus.specs.offer import Offer, Purchase, Shape


@dataclass(frozen=True, slots=True)
class Interruptions:
    """How often machines of a spot offer are expected to be taken back during the workload, and the work that is lost.

    Not part of the total: it is an expectation, not a price. The upper ends are None for a band without one.
    """

    band: str
    least: Decimal
    """Expected interruptions of all machines together during the workload's hours."""
    most: Decimal | None
    lost_hours_least: Decimal
    """Hours of the whole workload done over again: half a checkpoint interval for each interruption."""
    lost_hours_most: Decimal | None
    lost_usd_least: Decimal | None
    """Those hours at the machines' price."""
    lost_usd_most: Decimal | None


def interruptions(
    catalog: Catalog, offer: Offer, nodes: int, hours: Decimal, checkpoint_hours: Decimal
) -> Interruptions | None:
    """The interruptions of a spot offer by the cloud's own band; None on demand or where no band is known.

    A band says which part of such machines is taken back within a month, so a machine has that part of an interruption in
    730 hours; one that goes stops the whole workload.
    """
    advice = catalog.spot_advice(offer.region, offer.shape.instance_type) if offer.purchase == "spot" else None
    band = catalog.spot_band(advice.interruption) if advice else None
    if band is None:
        return None
    machine_months = nodes * hours / HOURS_PER_MONTH
    price = None if offer.usd_per_hour is None else nodes * offer.usd_per_hour
    half = checkpoint_hours / 2
    least = band.least * machine_months
    most = None if band.most is None else band.most * machine_months
    return Interruptions(
        band=band.band,
        least=least,
        most=most,
        lost_hours_least=least * half,
        lost_hours_most=None if most is None else most * half,
        lost_usd_least=None if price is None else least * half * price,
        lost_usd_most=None if price is None or most is None else most * half * price,
    )


def idle_share(catalog: Catalog, offer: Offer, nodes: int, demand: Demand, sharers: int) -> Decimal | None:
    """The part of the machines' price that no pod asks for: of CPU, memory and cards each by its part of the price.

    None where the price cannot be divided.
    """
    divided = weights(catalog, offer)
    if divided is None:
        return None
    has = catalog.allocatable(offer.shape.cloud, offer.shape)
    cpu = Decimal(sum(pod.count * pod.cpu_m for pod in demand.pods)) / (nodes * has["cpu_millicores"])
    memory = Decimal(sum(pod.count * pod.memory_mib for pod in demand.pods)) / (nodes * has["memory_mib"])
    cards = Decimal(demand.gpus) / (nodes * offer.shape.gpu_count * sharers) if offer.shape.gpu_count else Decimal(0)
    whole = Decimal(1)
    used = min(cpu, whole) * divided.cpu + min(memory, whole) * divided.memory + min(cards, whole) * divided.cards
    return 1 - used / divided.total


def over_quota(catalog: Catalog, shape: Shape, nodes: int, purchase: Purchase) -> tuple[str, ...]:
    """The quotas of a new account that so many machines exceed, in words."""
    return tuple(
        f"{nodes * quota.amount(shape, purchase)} {quota.unit} of {quota.name} ({quota.code}), a new account has "
        f"{quota.default}"
        for quota in catalog.quotas_for(shape, purchase)
        if nodes * quota.amount(shape, purchase) > quota.default
    )
