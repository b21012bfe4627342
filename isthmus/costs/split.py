"""How the price of a machine is divided among its CPU, memory and cards. Pure.

A cloud sells the machine whole, so a division is a convention, stated here: the host (CPU and memory) is worth what a vCPU
and a GiB are worth in that region (host_rates.csv, derived from machines without cards), and the cards are worth the
rest. Where the cloud itself prices cards apart (GCP N1) the cards' own price is taken. The parts are then scaled to the
price that is really paid (spot, commitment), so that they always make up the whole of it: the parts of a node never sum
to more than the node (case A24).
"""

from dataclasses import dataclass
from decimal import Decimal

from isthmus.catalog import Catalog
from isthmus.specs.offer import Offer


@dataclass(frozen=True, slots=True)
class Weights:
    """The parts of a price in proportion; their sum is not 0."""

    cpu: Decimal
    memory: Decimal
    cards: Decimal

    @property
    def total(self) -> Decimal:
        """What they sum to."""
        return self.cpu + self.memory + self.cards


def weights(catalog: Catalog, offer: Offer) -> Weights | None:
    """How an offer's price is divided; None where the region has no host rate.

    Args:
        offer: of any purchase option; the division is that of the machine on demand, where its price is known.
    """
    shape = offer.shape
    rate = catalog.host_rate(shape.cloud, offer.region)
    if rate is None:
        return None
    cpu, memory = rate.usd_per_vcpu_hour * shape.vcpus, rate.usd_per_gib_hour * shape.memory_gib
    listed = catalog.offer(shape, offer.region, "on-demand") or offer
    if not shape.gpu_count or listed.usd_per_hour is None:
        # Without cards only the proportion counts; with cards of an unknown price nothing can be said of them.
        return Weights(cpu, memory, Decimal(0)) if not shape.gpu_count else None
    if listed.gpu_usd_per_hour is not None and listed.machine_usd_per_hour is not None:
        scale = listed.machine_usd_per_hour / (cpu + memory)
        return Weights(cpu * scale, memory * scale, listed.gpu_usd_per_hour)
    return Weights(cpu, memory, max(listed.usd_per_hour - cpu - memory, Decimal(0)))
