"""The cloud-free description of a cluster: what every cloud is asked for."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from isthmus.specs.sharing import GpuSharing

NAME_PATTERN = r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$"
"""A DNS-1035 label of at most 40 characters: legal as a GKE cluster and node pool name and an EKS node group name."""


class GpuCards(BaseModel):
    """The cards of one node: a catalog model and how many of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    """A model of the catalog (isthmus/catalog/data/gpus.csv), for example T4."""
    count: int = Field(ge=1, le=16)
    layout: Mapping[str, int] = Field(default_factory=dict)
    """MIG profile to the number of instances of it on each card; empty for whole cards. A node pool says it under sharing."""

    @model_serializer(mode="wrap")
    def _without_empty_layout(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        return written if self.layout else {name: value for name, value in written.items() if name != "layout"}


def cards_of(model: str, count: int, sharing: GpuSharing) -> GpuCards:
    """A node's cards as a way to share them leaves them: cut under MIG, whole otherwise."""
    return GpuCards(model=model, count=count, layout=sharing.layout)


class NodePool(BaseModel):
    """A group of equal nodes. Exactly one of `instance_type` and `gpu` chooses the machine, or both if they agree."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str = Field(pattern=NAME_PATTERN)
    instance_type: str | None = Field(default=None, alias="instanceType")
    gpu: GpuCards | None = None
    min: int = Field(default=1, ge=0, le=1000)
    max: int = Field(default=1, ge=1, le=1000)
    size: int = Field(default=1, ge=0, le=1000)
    """Nodes now: the desired size, between min and max."""
    spot: bool = False
    sharing: GpuSharing = GpuSharing()

    @model_validator(mode="after")
    def _sizes_agree(self) -> "NodePool":
        if not self.min <= self.size <= self.max:
            raise ValueError(f"pool {self.name}: size {self.size} is not between min {self.min} and max {self.max}")
        if self.gpu is not None and self.gpu.layout:
            raise ValueError(f"pool {self.name}: gpu.layout belongs under sharing (mode mig, layout)")
        if self.instance_type is None and self.gpu is None:
            raise ValueError(f"pool {self.name}: give an instanceType or a gpu (model and count)")
        return self


class ClusterSpec(BaseModel):
    """One cluster: a system pool and any number of GPU pools, in the zones of one region."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str = Field(pattern=NAME_PATTERN)
    region: str
    zones: tuple[str, ...] = Field(min_length=1)
    kubernetes_version: str = Field(default="1.36", alias="kubernetesVersion", pattern=r"^1\.\d+$")
    system_pool: NodePool = Field(alias="systemPool")
    gpu_pools: tuple[NodePool, ...] = Field(default=(), alias="gpuPools")

    @property
    def pools(self) -> tuple[NodePool, ...]:
        """All pools, the system pool first."""
        return (self.system_pool, *self.gpu_pools)

    @model_validator(mode="after")
    def _names_unique(self) -> "ClusterSpec":
        names = [pool.name for pool in self.pools]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"node pool names must differ: {', '.join(sorted(twice))}")
        return self
