"""Names: one error for an unknown one, that says what is meant perhaps and what is legal; and what a Service may be called."""

import difflib
import re
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


def label_problem(name: str, *, longest: int) -> str | None:
    """The rule that a name breaks as a DNS-1035 label, in words; None if it breaks none.

    Services and the pods behind them must be such labels (Kubernetes, object names; case A17).

    Args:
        longest: most characters it may have; Kubernetes' own limit is 63.
    """
    if not name:
        return "it is empty"
    if len(name) > longest:
        return f"it has {len(name)} characters and may have {longest}"
    if name != name.lower():
        return "only lower case letters are allowed"
    if "." in name:
        return "a dot is not allowed"
    if not name[0].isascii() or not name[0].isalpha():
        return f"its first character must be a letter, not {name[0]!r}"
    if name.endswith("-"):
        return "it must not end with '-'"
    odd = re.search("[^-a-z0-9]", name)
    return f"{odd[0]!r} is not allowed; letters, digits and '-' are" if odd else None
