"""The ways to share a card side by side, for a number of small equal jobs. Pure: facts in, rows out.

How many jobs fit a card is arithmetic over the catalog; nothing here says how fast they run. What others have measured is
listed apart, with its source.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from isthmus.catalog import Catalog
from isthmus.catalog import sharing as rules
from isthmus.catalog.facts import Gpu, MigProfile
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.offer import Offer

ISOLATION = ("memory protection", "error isolation", "bandwidth QoS")
TIME_SLICING_MOST = 48
"""GpuSharing.replicas: no more is advertised per card."""


@dataclass(frozen=True)
class CardPrice:
    """The cheapest card of a model in a cloud, on demand: a machine's price by its number of cards."""

    cloud: str
    region: str
    machine: str
    usd_per_hour: Decimal


@dataclass(frozen=True)
class Way:
    """One way to share, for the jobs asked about."""

    mode: str
    setting: str
    """What the pool's setting would be; "" where the mode is no use for these jobs."""
    jobs_per_card: int
    memory_mib_each: int
    """Memory that a job can count on; of time-slicing, what is left for each if all take the same."""
    memory_enforced: str
    cards: int
    """Cards for all jobs."""
    isolation: dict[str, str]
    usd_per_job_hour: dict[str, Decimal | None]
    """By cloud; None where the cloud does not sell the card or no price is known."""
    note: str = ""


def compare(facts: Catalog, model: str, jobs: int, *, memory_mib: int = 0) -> list[Way]:
    """A row for each mode.

    Args:
        jobs: equal jobs that run at the same time, one process each.
        memory_mib: card memory that a job needs; 0 for little.

    Raises:
        InvalidSpec: a job needs more than the card has, or there is no job.
    """
    gpu = facts.gpu(model)
    if jobs < 1:
        raise InvalidSpec(f"the number of jobs is {jobs}; legal: 1 or more", subject="--jobs")
    if memory_mib > gpu.memory_mib:
        raise InvalidSpec(
            f"a job needs {memory_mib} MiB and a {gpu.model} has {gpu.memory_mib}",
            subject=f"GPU model {gpu.model}",
            remedy="choose a card with more memory",
        )
    prices = card_prices(facts, gpu)
    fitting = gpu.memory_mib // memory_mib if memory_mib else jobs
    sliced = min(jobs, fitting, TIME_SLICING_MOST)
    clients = min(jobs, fitting, rules.most_clients(facts, gpu))
    profile = _profile(facts, gpu, jobs, memory_mib)

    def way(mode: str, setting: str, each: int, memory: int, enforced: str, note: str = "") -> Way:
        cards = -(-jobs // each) if each else 0
        costs = {
            cloud: None if price is None or not each else price.usd_per_hour * cards / jobs
            for cloud, price in prices.items()
        }
        return Way(mode, setting, each, memory, enforced, cards, _isolation(facts, mode), costs, note)

    return [
        way("none", "mode: none", 1, gpu.memory_mib, "the card is the job's own"),
        way("time-slicing", _setting("replicas", sliced), sliced, gpu.memory_mib // sliced, "no"),
        way("mps", _setting("clients", clients), clients, gpu.memory_mib // clients, "yes, by the MPS server"),
        way(
            "mig",
            f"layout: {{{profile.profile}: {profile.max_instances}}}" if profile else "",
            min(profile.max_instances, jobs) if profile else 0,
            profile.memory_mib if profile else 0,
            "yes, by the card" if profile else "-",
            "" if profile else f"the {gpu.model} has no MIG" if not gpu.mig else "no profile has enough memory for two",
        ),
        way(
            "dra",
            _claim(profile, clients),
            min(profile.max_instances, jobs) if profile else clients,
            profile.memory_mib if profile else gpu.memory_mib // clients,
            "yes, by the card" if profile else "yes, by the MPS server",
        ),
    ]


def card_prices(facts: Catalog, gpu: Gpu) -> dict[str, CardPrice | None]:
    """The cheapest card of a model in each cloud, on demand; None where none is known."""
    return {
        cloud: _cheapest(facts.offers(cloud=cloud, gpu=gpu.model, purchase="on-demand")) for cloud in facts.clouds()
    }


def _cheapest(offers: Iterable[Offer]) -> CardPrice | None:
    known = [
        CardPrice(offer.shape.cloud, offer.region, offer.shape.name, offer.usd_per_hour / offer.shape.gpu_count)
        for offer in offers
        if offer.usd_per_hour is not None
    ]
    return min(known, key=lambda price: (price.usd_per_hour, price.region, price.machine), default=None)


def _profile(facts: Catalog, gpu: Gpu, jobs: int, memory_mib: int) -> MigProfile | None:
    """The profile that holds most of the jobs on a card, of these the one with most memory for each."""
    fitting = [
        profile
        for profile in facts.mig_profiles(gpu.model)
        if profile.memory_mib >= memory_mib and profile.max_instances > 1
    ]
    return max(fitting, key=lambda profile: (min(profile.max_instances, jobs), profile.memory_mib), default=None)


def _claim(profile: MigProfile | None, clients: int) -> str:
    if profile:
        return f"each job claims a {profile.profile}"
    return f"all claim one card, strategy MPS, clients: {clients}" if clients > 1 else "each job claims a card"


def _setting(name: str, value: int) -> str:
    return f"{name}: {value}" if value > 1 else ""


def _isolation(facts: Catalog, mode: str) -> dict[str, str]:
    """Each property's value; all of them where sources disagree."""
    known = facts.sharing_properties(mode)
    return {
        name: " / ".join(dict.fromkeys(item.value.partition(":")[0] for item in known if item.property == name))
        for name in ISOLATION
    }
