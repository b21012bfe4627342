"""Prices: an offer for a machine, and a part of a cost."""

from datetime import date
from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, ConfigDict

Purchase = Literal["on-demand", "spot"]


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
    as_of: date | None
