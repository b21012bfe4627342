"""Unknown names: one error that says what is meant perhaps, and what is legal."""

import difflib
from collections.abc import Iterable

from isthmus.specs.errors import InvalidSpec

_LISTED = 24
"""Names beyond this are not listed; the nearest ones say enough."""


def unknown(kind: str, name: str, legal: Iterable[str], *, where: str = "") -> InvalidSpec:
    """The error for a name that is not among the legal ones.

    Args:
        kind: what was asked for: "region", "GPU model".
        legal: the names there are.
        where: "on aws", "in gcp us-west1"; empty where it is plain.
    """
    names = sorted(set(legal))
    near = nearest(name, names)
    place = f" {where}" if where else ""
    said = f"there is no {kind} {name!r}{place}"
    if near:
        said += f"; nearest: {', '.join(near)}"
    if len(names) <= _LISTED:
        said += f"; known: {', '.join(names) or 'none'}"
    else:
        said += f"; {len(names)} are known, for example {', '.join(names[:: len(names) // 6])}"
    remedy = f"use {near[0]}" if near else f"use one of: {', '.join(names[:_LISTED])}" if names else ""
    return InvalidSpec(said, subject=f"{kind} {name}", remedy=remedy)


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """The names most like this one, best first, whatever their case."""
    by_lower = {candidate.lower(): candidate for candidate in names}
    return [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)]
