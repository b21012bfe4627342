"""The labels that NVIDIA's GPU feature discovery gives a node, worked out from the cards and how they are shared. Pure.

For nodes without a kubelet, which nothing can discover. The rules are those of NVIDIA/k8s-device-plugin v0.18.0,
internal/lm (read 2026-11-30); tests/local/test_sharing_equality.py holds them against the real program. Left out are the
two that are not of the cards: gpu.machine and gpu.mode are read from the machine's DMI table and PCI bus.
"""

import re

from isthmus.catalog.catalog import Catalog
from isthmus.catalog.facts import Gpu, MigProfile
from isthmus.specs.cluster import GpuCards
from isthmus.specs.labels import GPU_RESOURCE, MPS_CAPABLE
from isthmus.specs.sharing import GpuSharing


def feature_labels(
    facts: Catalog, cards: GpuCards, sharing: GpuSharing, *, driver: str, cuda: tuple[int, int]
) -> dict[str, str]:
    """Every label of a node with these cards.

    Args:
        driver: version of the NVIDIA driver, "570.172.08".
        cuda: the CUDA version that the driver supports, (12, 8).
    """
    gpu = facts.gpu(cards.model)
    cut = sharing.mode == "mig"
    labels = {
        **_versions(driver, cuda),
        "nvidia.com/mig.capable": _yes(gpu.mig),
        MPS_CAPABLE: _yes(sharing.mode == "mps"),
        "nvidia.com/vgpu.present": "false",
        **_card(gpu, cards.count, GpuSharing() if cut else sharing, replicated=not cut),
    }
    if not cut:
        return labels
    labels["nvidia.com/mig.strategy"] = sharing.strategy
    profiles = {profile.profile: profile for profile in facts.mig_profiles(gpu.model)}
    for name, each in sharing.layout.items():
        single = sharing.strategy == "single"
        resource = GPU_RESOURCE if single else f"nvidia.com/mig-{_dotted(name)}"
        # Replicas are configured by the plugin's resource, which for an instance with media engines has another name.
        own = GpuSharing() if name.endswith("+me") and not single else sharing
        labels |= _instances(resource, gpu, profiles[name], cards.count * each, own)
    return labels


def _versions(driver: str, cuda: tuple[int, int]) -> dict[str, str]:
    major, minor, *rest = driver.split(".")
    revision = rest[0] if rest else ""
    first, second = map(str, cuda)
    return {
        "nvidia.com/cuda.driver.major": major,
        "nvidia.com/cuda.driver.minor": minor,
        "nvidia.com/cuda.driver.rev": revision,
        "nvidia.com/cuda.runtime.major": first,
        "nvidia.com/cuda.runtime.minor": second,
        "nvidia.com/cuda.driver-version.major": major,
        "nvidia.com/cuda.driver-version.minor": minor,
        "nvidia.com/cuda.driver-version.revision": revision,
        "nvidia.com/cuda.driver-version.full": driver,
        "nvidia.com/cuda.runtime-version.major": first,
        "nvidia.com/cuda.runtime-version.minor": second,
        "nvidia.com/cuda.runtime-version.full": f"{first}.{second}",
    }


def _card(gpu: Gpu, count: int, sharing: GpuSharing, *, replicated: bool) -> dict[str, str]:
    major, minor = gpu.compute_capability.split(".")
    return {
        **_base(GPU_RESOURCE, count, sharing, gpu.nvml_name, replicated=replicated),
        f"{GPU_RESOURCE}.memory": str(gpu.memory_mib),
        f"{GPU_RESOURCE}.family": gpu.architecture.lower().replace(" ", "-"),
        f"{GPU_RESOURCE}.compute.major": major,
        f"{GPU_RESOURCE}.compute.minor": minor,
    }


def _instances(resource: str, gpu: Gpu, profile: MigProfile, count: int, sharing: GpuSharing) -> dict[str, str]:
    words = (gpu.nvml_name, "MIG", _dotted(profile.profile))
    attributes = {
        "memory": profile.memory_mib,
        "multiprocessors": profile.sms,
        "slices.gi": profile.compute_slices,
        "slices.ci": profile.compute_slices,
        "engines.copy": profile.copy_engines,
        "engines.decoder": profile.decoders,
        "engines.encoder": 0,
        "engines.jpeg": profile.jpeg,
        "engines.ofa": profile.ofa,
    }
    base = _base(resource, count, sharing, *words, replicated=True)
    return base | {f"{resource}.{name}": str(value) for name, value in attributes.items()}


def _base(resource: str, count: int, sharing: GpuSharing, *words: str, replicated: bool) -> dict[str, str]:
    """Product, count and sharing of a resource. A card in MIG mode is no replica of anything: 0."""
    each = sharing.replicas * sharing.clients
    shared = each > 1
    product = [*(_cleaned(word) for word in words), *(["SHARED"] if shared and not sharing.rename else [])]
    strategy = ("mps" if sharing.mode == "mps" else "time-slicing") if shared else "none"
    return {
        f"{resource}.product": "-".join(product),
        f"{resource}.count": str(count),
        f"{resource}.replicas": str(each if replicated else 0),
        f"{resource}.sharing-strategy": strategy,
    }


def _dotted(profile: str) -> str:
    """A profile in a label: 1g.5gb.me."""
    return profile.replace("+", ".")


def _cleaned(text: str) -> str:
    return "-".join(re.sub(r"[^A-Za-z0-9\-_. ]", "", text).split())


def _yes(value: bool) -> str:
    return str(value).lower()
