"""GPU sharing of a node pool."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class GpuSharing(BaseModel):
    """How the cards of a node pool are shared.

    Time-slicing: each card is advertised `replicas` times; no memory or error isolation, and more replicas for one pod
    buy no more compute (NVIDIA/k8s-device-plugin README, read 2026-08-19).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    mode: Literal["none", "time-slicing"] = "none"
    replicas: int = Field(default=1, ge=1, le=48)
    """Advertised devices per card under time-slicing. 48 is GKE's limit on containers per card (facts/capacity.md)."""
    rename: bool = False
    """Advertise nvidia.com/gpu.shared instead of nvidia.com/gpu."""
    fail_greater_than_one: bool = Field(default=True, alias="failGreaterThanOne")
    """Refuse a container that asks for more than one share; NVIDIA recommends true."""
