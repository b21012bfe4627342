"""Measured use of a node by a pod."""

from datetime import datetime
from decimal import Decimal

from pydantic import BaseModel, ConfigDict, model_validator


class UsageRecord(BaseModel):
    """One pod on one node for one span of time. Shares are of the node's allocatable, 0 to 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    pod: str
    node: str
    start: datetime
    end: datetime
    cpu_share: Decimal
    memory_share: Decimal
    gpu_share: Decimal
    simulated: bool
    """True when the times come from a simulated clock; never summed with measured ones."""

    @model_validator(mode="after")
    def _ordered(self) -> "UsageRecord":
        if self.end < self.start:
            raise ValueError(f"usage of pod {self.pod} ends before it starts")
        return self
