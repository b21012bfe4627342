"""GPU sharing of a node pool."""

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from isthmus.specs.labels import GPU_RESOURCE

_CONFIG_NAME = re.compile(r"time-slicing-(\d{1,2})(-renamed)?(-lenient)?")


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

    @property
    def config_name(self) -> str:
        """Name of the device plugin configuration that does this: a ConfigMap key, and the value of the node label
        nvidia.com/device-plugin.config (labels.DEVICE_PLUGIN_CONFIG). "" for cards that are not shared: no label."""
        if self.mode == "none":
            return ""
        renamed = "-renamed" if self.rename else ""
        return f"time-slicing-{self.replicas}{renamed}{'' if self.fail_greater_than_one else '-lenient'}"

    @classmethod
    def from_config_name(cls, name: str) -> "GpuSharing":
        """The sharing that `config_name` names; not shared for "" and for names that are not ours."""
        found = _CONFIG_NAME.fullmatch(name)
        if not found:
            return cls()
        replicas, renamed, lenient = int(found[1]), bool(found[2]), bool(found[3])
        return cls(mode="time-slicing", replicas=replicas, rename=renamed, fail_greater_than_one=not lenient)

    def advertised(self, cards: int) -> dict[str, int]:
        """What the device plugin makes a node with so many cards advertise: resource name to count. Empty for no cards.

        Source: NVIDIA/k8s-device-plugin README, 2026-08-19 (8 cards, replicas 10: 80; renamed: nvidia.com/gpu.shared).
        """
        if cards == 0:
            return {}
        if self.mode == "none":
            return {GPU_RESOURCE: cards}
        return {f"{GPU_RESOURCE}.shared" if self.rename else GPU_RESOURCE: cards * self.replicas}
