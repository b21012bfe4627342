"""A copy's outcome as data and in words."""

from __future__ import annotations

from typing import Any

from isthmus.migration.objects.copy import Outcome

SHOWN = 20


def document(outcome: Outcome, *, source: str, destination: str) -> dict[str, Any]:
    """Everything, as JSON can hold it. Rates are measured: of this run, with the reading back in it."""
    return {
        "source": source,
        "destination": destination,
        "ok": outcome.ok,
        "copied": {"objects": outcome.copied, "bytes": outcome.copied_bytes},
        "readBack": {"objects": outcome.read_back, "bytes": outcome.read_back_bytes},
        "seconds": round(outcome.seconds, 3),
        "verified": {"objects": outcome.verified, "bytes": outcome.verified_bytes, "digest": outcome.digest},
        "corrupt": [{"key": key, "how": how} for key, how in outcome.corrupt],
        "problems": [{"key": key, "why": why} for key, why in outcome.problems],
        "gone": list(outcome.gone),
        "removedAtSource": list(outcome.removed),
        "deletedAtDestination": outcome.deleted,
        "strangersAtDestination": outcome.foreign,
        "metadataLost": [{"key": key, "what": what} for key, what in outcome.losses],
    }


def lines(outcome: Outcome) -> list[str]:
    """The outcome for people: what was done, then everything that is not as it was."""
    rate = (
        f", {outcome.copied_bytes / 1e6 / outcome.seconds:.1f} MB/s with reading back" if outcome.copied_bytes else ""
    )
    checked = f"{outcome.verified} objects, {outcome.verified_bytes / 1e6:.1f} MB ({outcome.read_back} read back now)"
    said = [
        f"copied {outcome.copied} objects, {outcome.copied_bytes / 1e6:.1f} MB in {outcome.seconds:.1f} s{rate}",
        f"verified by SHA-256: {checked}; digest of all {outcome.digest[:16]}",
    ]
    said += _listed("CORRUPT at the destination", [f"{key}: {how}" for key, how in outcome.corrupt])
    said += _listed("not copied", [f"{key}: {why}" for key, why in outcome.problems])
    said += _listed("deleted at the source before they were copied", list(outcome.gone))
    if outcome.deleted:
        said += _listed("deleted at the destination, since they are at the source", list(outcome.removed))
    else:
        said += _listed("deleted at the source, still at the destination (--delete)", list(outcome.removed))
    said += _listed("lost some of their metadata", [f"{key}: {what}" for key, what in outcome.losses])
    if outcome.foreign:
        said.append(f"{outcome.foreign} objects at the destination are not from here; left alone")
    return said


def _listed(title: str, items: list[str]) -> list[str]:
    if not items:
        return []
    more = [f"  and {len(items) - SHOWN} more; --json has all"] if len(items) > SHOWN else []
    return [f"{len(items)} {title}:", *(f"  {item}" for item in items[:SHOWN]), *more]
