"""Where MIG instances go on a card. Pure.

A card has compute slices and memory slices; an instance of a profile takes a run of memory slices that may start only at
some of them (NVIDIA MIG User Guide, nvidia-smi mig -lgipp). A layout is legal when its instances can be laid side by side.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from isthmus.catalog.catalog import Catalog
from isthmus.catalog.facts import MigProfile
from isthmus.specs.errors import InvalidSpec


@dataclass(frozen=True, slots=True)
class Placed:
    """One GPU instance of a card."""

    profile: MigProfile
    start: int
    """First memory slice."""
    gpu_instance: int
    """Its id on the card."""


def place(facts: Catalog, model: str, layout: Mapping[str, int]) -> tuple[Placed, ...]:
    """The instances of a layout with their places, in the order of their first slice.

    Raises:
        InvalidSpec: the card has no MIG, no such profile, or no room; the message says what would be legal.
    """
    profiles = {profile.profile: profile for profile in facts.mig_profiles(model)}
    if not profiles:
        raise InvalidSpec(
            f"layout: the {model} has no MIG; legal: {', '.join(_models(facts))}",
            subject=f"GPU model {model}",
            remedy="choose another sharing mode or card",
        )
    wanted: list[MigProfile] = []
    for name, count in layout.items():
        if name not in profiles:
            raise _wrong(model, layout, f"the {model} has no MIG profile {name}; legal: {', '.join(profiles)}")
        most = profiles[name].max_instances
        if count > most:
            raise _wrong(model, layout, f"{count} instances of {name} on one {model}; legal: 1 to {most}")
        wanted += [profiles[name]] * count
    wanted.sort(key=lambda profile: (-profile.memory_slices, -profile.compute_slices, profile.profile))
    starts = next(_fit(wanted, frozenset()), None)
    if starts is None:
        room = max(profile.memory_slices for profile in profiles.values())
        need = sum(profile.memory_slices for profile in wanted)
        raise _wrong(
            model,
            layout,
            f"it takes {need} of the card's {room} memory slices, or its instances cannot lie side by side;"
            f" legal with {wanted[0].profile}: {_companions(profiles, wanted[0])}",
        )
    found = [Placed(profile, start, _identity(profile, start)) for profile, start in zip(wanted, starts, strict=True)]
    return tuple(sorted(found, key=lambda item: item.start))


def places(facts: Catalog, model: str, profile: str) -> tuple[Placed, ...]:
    """Every place that an instance of a profile may have on an empty card.

    Raises:
        InvalidSpec: the card has no such profile.
    """
    (one,) = place(facts, model, {profile: 1})
    return tuple(Placed(one.profile, start, _identity(one.profile, start)) for start in one.profile.placements)


def full(facts: Catalog, model: str, profile: str) -> int:
    """How many instances of one profile fill a card.

    Raises:
        InvalidSpec: the card has no such profile.
    """
    (found,) = place(facts, model, {profile: 1})
    return found.profile.max_instances


def _fit(wanted: Sequence[MigProfile], taken: frozenset[int]) -> Iterator[tuple[int, ...]]:
    """Every way to give each profile a start, the first ones first."""
    if not wanted:
        yield ()
        return
    first, rest = wanted[0], wanted[1:]
    for start in first.placements:
        slices = frozenset(range(start, start + first.memory_slices))
        if not slices & taken:
            for others in _fit(rest, taken | slices):
                yield (start, *others)


def _identity(profile: MigProfile, start: int) -> int:
    """An id for a GPU instance, unique on its card: larger instances have smaller ones, as on real cards (7g: 0; 4g and
    3g: 1, 2; 2g: 3 to 6; 1g: 7 to 14), and the place decides among equals."""
    base, width = {8: (0, 8), 4: (1, 4), 2: (3, 2), 1: (7, 1)}[profile.memory_slices]
    return base + start // width


def _companions(profiles: Mapping[str, MigProfile], first: MigProfile) -> str:
    """What may lie beside one instance of a profile, as words."""
    legal = []
    for other in profiles.values():
        for count in range(min(other.max_instances, 7), 0, -1):
            group = sorted([first, *[other] * count], key=lambda profile: -profile.memory_slices)
            if next(_fit(group, frozenset()), None) is not None:
                legal.append(f"up to {count} x {other.profile}")
                break
    return ", ".join(legal) or "nothing else"


def _models(facts: Catalog) -> list[str]:
    return [gpu.model for gpu in facts.gpus() if gpu.mig]


def _wrong(model: str, layout: Mapping[str, int], problem: str) -> InvalidSpec:
    shown = ", ".join(f"{profile}: {count}" for profile, count in layout.items())
    return InvalidSpec(
        f"layout {{{shown}}} is not possible: {problem}",
        subject=f"MIG layout of the {model}",
        remedy=f"isthmus sharing explain {model}",
    )
