"""Prices: an offer for a machine, and a part of a cost."""

from datetime import date
from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, ConfigDict

Purchase = Literal["on-demand", "spot", "1-year", "3-year"]
"""How a machine is paid for; the last two are commitments: paid for the whole term, used or not."""


class Shape(BaseModel):
    """What an instance type is, without its price."""

    model_config = ConfigDict(frozen=True)

    cloud: str
    instance_type: str
    vcpus: int
    memory_gib: Decimal
    gpu_model: str | None
    """A model of the catalog, or None for a machine without cards."""
    gpu_count: int
    gpu_memory_gib: Decimal | None
    """Memory of each card in GiB."""
    accelerator: str | None = None
    """The cloud's own name for the card where it has one (GKE: nvidia-tesla-t4), else None."""
    cards_apart: bool = False
    """The cards are attached to a machine that is also sold without them, and priced apart (GCP N1)."""

    @property
    def name(self) -> str:
        """What to call it in a report: the instance type, with its cards where they are attached to it."""
        return f"{self.instance_type} + {self.gpu_count} x {self.gpu_model}" if self.cards_apart else self.instance_type

    @property
    def family(self) -> str:
        """The part of the instance type that zones and quotas go by: g4dn, n1, a2-highgpu."""
        if self.cloud == "aws":
            return self.instance_type.partition(".")[0]
        first, _, rest = self.instance_type.partition("-")
        return f"{first}-{rest.partition('-')[0]}" if first in {"a2", "a3"} else first


class Offer(BaseModel):
    """A price for an instance type in a region under a purchase option, with its source and date."""

    model_config = ConfigDict(frozen=True)

    shape: Shape
    region: str
    purchase: Purchase
    usd_per_hour: Decimal | None
    """The whole machine, cards included, in USD per hour. None: unknown, which is never counted as 0."""
    machine_usd_per_hour: Decimal | None = None
    """The host alone where the cloud prices cards apart (GCP N1), else None."""
    gpu_usd_per_hour: Decimal | None = None
    """All cards of the machine where the cloud prices them apart, else None."""
    source: str
    """Where the price of the machine was read (of the host alone where cards are priced apart)."""
    as_of: date | None
    gpu_source: str | None = None
    """Where the price of the cards was read, where they are priced apart."""
    gpu_as_of: date | None = None
