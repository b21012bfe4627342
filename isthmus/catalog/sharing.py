"""Whether a way to share cards is legal on a card and a cloud, and what each way gives. Pure.

What is refused names the field, its value and what would be legal, before anything is made.
"""

from collections.abc import Callable
from dataclasses import dataclass

from isthmus.catalog import mig
from isthmus.catalog.catalog import Catalog
from isthmus.catalog.facts import Gpu
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.sharing import GpuSharing


def check(facts: Catalog, sharing: GpuSharing, model: str, cloud: str, *, subject: str) -> None:
    """Refuse a sharing that the card, the device plugin or the cloud does not take.

    Args:
        cloud: aws, gcp or kind.
        subject: what to name in an error: "pool gpu-a100".

    Raises:
        InvalidSpec: the field, its value and what is legal are named.
    """
    gpu = facts.gpu(model)
    _RULES[sharing.mode](facts, sharing, gpu, subject)
    if cloud == "gcp":
        _check_gke(facts, sharing, gpu, subject)


def most_clients(facts: Catalog, gpu: Gpu) -> int:
    """How many MPS clients a card may have."""
    capability = int(gpu.compute_capability.replace(".", ""))
    older = capability < facts.sharing_limit("mps_older_than_capability_tenths").value
    return facts.sharing_limit("mps_most_older_cards" if older else "mps_most").value


@dataclass(frozen=True)
class Share:
    """What one share of a card is under a mode."""

    mode: str
    shares: str
    """How many there are on a card, in words."""
    memory: str
    sms: str
    note: str = ""


def shares(facts: Catalog, model: str) -> list[Share]:
    """What each mode makes of a card, a row for each MIG profile."""
    gpu = facts.gpu(model)
    profiles = facts.mig_profiles(model)
    most, least = most_clients(facts, gpu), facts.sharing_limit("mps_least").value
    found = [
        Share("none", "1", f"{gpu.memory_mib} MiB", "all"),
        Share("time-slicing", "2 to 48 (replicas)", f"{gpu.memory_mib} MiB, not divided", "all, one process at a time"),
        Share(
            "mps",
            f"{least} to {most} (clients)",
            f"{gpu.memory_mib} MiB / clients (pinned limit)",
            "100 % / clients (active threads)",
            f"with {least} clients {gpu.memory_mib // least} MiB each, with {most} {gpu.memory_mib // most} MiB",
        ),
    ]
    if not profiles:
        found.append(Share("mig", "0", "-", "-", f"the {gpu.model} has no MIG"))
    for item in profiles:
        starts = ", ".join(map(str, item.placements))
        found.append(
            Share(
                "mig",
                f"{item.max_instances} x {item.profile}",
                f"{item.memory_mib} MiB",
                str(item.sms),
                f"{item.compute_slices} compute, {item.memory_slices} memory slices; may start at {starts}; {item.source}",
            )
        )
    found.append(Share("dra", "as claimed", "as the mode the claim names", "as the mode the claim names"))
    return found


def _check_nothing(facts: Catalog, sharing: GpuSharing, gpu: Gpu, subject: str) -> None:
    """Legal on every card."""


def _check_mps(facts: Catalog, sharing: GpuSharing, gpu: Gpu, subject: str) -> None:
    most = most_clients(facts, gpu)
    if sharing.clients > most:
        raise _refused(
            subject,
            "clients",
            sharing.clients,
            f"2 to {most} on a {gpu.model} (compute capability {gpu.compute_capability})",
        )


def _check_mig(facts: Catalog, sharing: GpuSharing, gpu: Gpu, subject: str) -> None:
    if not gpu.mig:
        capable = ", ".join(other.model for other in facts.gpus() if other.mig)
        raise _refused(
            subject, "mode", "mig", f"none, time-slicing, mps, dra on a {gpu.model}; cards with MIG are {capable}"
        )
    try:
        mig.place(facts, gpu.model, sharing.layout)
    except InvalidSpec as error:
        raise InvalidSpec(
            f"{subject}: sharing.layout: {error.message}", subject=subject, remedy=error.remedy
        ) from error


def _check_dra(facts: Catalog, sharing: GpuSharing, gpu: Gpu, subject: str) -> None:
    for claim in sharing.claims:
        if claim.profile is None:
            continue
        layout = GpuSharing(mode="mig", layout={claim.profile: 1})
        _check_mig(facts, layout, gpu, f"{subject}, claim {claim.name}")


_RULES: dict[str, Callable[[Catalog, GpuSharing, Gpu, str], None]] = {
    "none": _check_nothing,
    "time-slicing": _check_nothing,
    "mps": _check_mps,
    "mig": _check_mig,
    "dra": _check_dra,
}


def _check_gke(facts: Catalog, sharing: GpuSharing, gpu: Gpu, subject: str) -> None:
    """GKE's own plugin names every share nvidia.com/gpu, gives a container one at most, and cuts a card into equal
    instances that fill it (node pool fields gpuSharingConfig and gpuPartitionSize)."""
    if sharing.rename:
        raise _refused(subject, "rename", "true", "false: GKE's device plugin has no setting for it")
    if not sharing.fail_greater_than_one:
        raise _refused(subject, "failGreaterThanOne", "false", "true: GKE gives a container one share at most")
    most = facts.sharing_limit("gke_clients_most").value
    if sharing.replicas * sharing.clients > most:
        raise _refused(subject, "replicas", sharing.replicas, f"2 to {most} on GKE")
    if sharing.mode != "mig":
        return
    if sharing.strategy != "single" or len(sharing.layout) != 1:
        raise _refused(
            subject, "strategy", sharing.strategy, "single with one profile: GKE cuts a card into equal instances"
        )
    ((profile, count),) = sharing.layout.items()
    filled = mig.full(facts, gpu.model, profile)
    if profile.endswith("+me"):
        raise _refused(subject, "layout", profile, f"{profile.removesuffix('+me')}: GKE has no partition size with +me")
    if count != filled:
        raise _refused(subject, "layout", f"{profile}: {count}", f"{profile}: {filled}, as GKE fills the card")


def _refused(subject: str, field: str, value: object, legal: str) -> InvalidSpec:
    return InvalidSpec(
        f"{subject}: sharing.{field} is {value}; legal: {legal}", subject=subject, remedy=f"change sharing.{field}"
    )
