"""What a node leaves for pods, by each cloud's own rules.

Sources: awslabs/amazon-eks-ami nodeadm/internal/kubelet (2026-07-23) and the figures Karpenter counts on; for GKE
cloudpilot-ai/karpenter-provider-gcp pkg/utils/utils.go (2026-08), which cites Google's node-sizing page.
"""

from collections.abc import Callable, Mapping
from decimal import ROUND_FLOOR, Decimal
from types import MappingProxyType

from isthmus.catalog.facts import NodeLimits
from isthmus.specs.offer import Shape

EVICTION_MIB = 100
"""The kubelet's hard eviction threshold for memory, on both clouds."""

DEFAULT_PODS = 110
"""Pods per node where nothing else is known (EKS: the AMI's fallback; GKE: its default, from memory)."""

VM_OVERHEAD = Decimal("0.075")
"""Share of the nominal memory that Karpenter takes the hypervisor to keep. The figures in aws_node_limits.csv have it."""

_GKE_MEMORY_STEPS = ((4, Decimal("0.25")), (4, Decimal("0.20")), (8, Decimal("0.10")), (112, Decimal("0.06")))
_GKE_MEMORY_REST = Decimal("0.02")


def eks(shape: Shape, limits: NodeLimits | None) -> dict[str, int]:
    """EKS: Karpenter's figures where the instance type is known, else the AMI's formulas with the fallback of 110 pods."""
    if limits is not None:
        return _amounts(limits.allocatable_cpu_m, limits.allocatable_memory_mib, limits.max_pods)
    memory = _mib(shape) * (1 - VM_OVERHEAD) - (11 * DEFAULT_PODS + 255) - EVICTION_MIB
    return _amounts(shape.vcpus * 1000 - reserved_cpu_m(shape.vcpus), memory, DEFAULT_PODS)


def gke(shape: Shape, limits: NodeLimits | None = None) -> dict[str, int]:
    """GKE, which has no limits by machine: memory and CPU reserved in steps, and the eviction threshold."""
    memory = _mib(shape) - gke_reserved_memory_mib(shape.memory_gib) - EVICTION_MIB
    return _amounts(shape.vcpus * 1000 - reserved_cpu_m(shape.vcpus), memory, DEFAULT_PODS)


RULES: Mapping[str, Callable[[Shape, NodeLimits | None], dict[str, int]]] = MappingProxyType({"eks": eks, "gke": gke})
"""The rules by the names that clouds.csv knows them by."""


def reserved_cpu_m(vcpus: int) -> int:
    """Millicores kept back: 6 % of the first core, 1 % of the second, 0.5 % of two more, 0.25 % of the rest."""
    tenths = 600 + 100 * min(max(vcpus - 1, 0), 1) + 50 * min(max(vcpus - 2, 0), 2) + 25 * max(vcpus - 4, 0)
    return tenths // 10


def gke_reserved_memory_mib(memory_gib: Decimal) -> Decimal:
    """MiB kept back: 255 MiB up to 1 GiB, else in steps, 2 % of what is above 128 GiB."""
    if memory_gib <= 1:
        return Decimal(255)
    reserved, left = Decimal(0), memory_gib
    for size, share in _GKE_MEMORY_STEPS:
        reserved += min(left, Decimal(size)) * share
        left = max(left - size, Decimal(0))
    return (reserved + left * _GKE_MEMORY_REST) * 1024


def _mib(shape: Shape) -> Decimal:
    return shape.memory_gib * 1024


def _amounts(cpu_m: int, memory_mib: Decimal | int, pods: int) -> dict[str, int]:
    whole = int(Decimal(memory_mib).to_integral_value(rounding=ROUND_FLOOR))
    return {"cpu_millicores": cpu_m, "memory_mib": whole, "pods": pods}
