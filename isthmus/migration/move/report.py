"""The report of a move: steps, runs with their downtime, volumes, bytes, rate, evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from isthmus.costs.parts import Part
from isthmus.migration.move.record import Record, StepRow
from isthmus.migration.move.steps import BACK, MOVE

COPIES = ("copy", "last", "back: objects")
"""Steps that copy objects."""
DIFFERENCES = ("corrupt", "problems", "gone", "removedAtSource", "strangersAtDestination", "metadataLost")
"""What of a copy's outcome tells that the ends are not the same, or were not."""
LONG = frozenset(
    (
        "source", "destination", "ok", "seconds", "corrupt", "problems", "gone", "removedAtSource", "metadataLost",
        "strangersAtDestination",
    )
)  # fmt: skip
"""Parts of a copy's outcome that the table leaves out: the document has them under `detail`."""


def document(
    record: Record, downtimes: Mapping[str, float | None], bill: Sequence[Part], *, source: str, destination: str
) -> dict[str, Any]:
    """Everything, as JSON can hold it.

    Args:
        downtimes: seconds from a run's stop to the first start of its new pods; None while that has not come.
        bill: what the move costs (see bill.py).
    """
    began, ended = record.times()
    known = record.steps()
    wanted = [*MOVE, *(BACK if any(name.startswith("back:") for name in known) else ())]
    return {
        "source": source,
        "destination": destination,
        "state": str(record.stage),
        "mode": record.mode,
        "began": began,
        "ended": ended,
        "steps": [_step(step.name, known.get(step.name)) for step in wanted],
        "runs": [
            {"run": row.id, "state": str(row.state), "stopped": row.stopped, "downtime": downtimes.get(row.id)}
            for row in record.runs()
        ],
        "volumes": [
            {"volume": row.claim, "run": row.run, "files": row.files, "bytes": row.bytes, "digest": row.digest}
            for row in record.volumes()
        ],
        "objects": _objects(record),
        "bill": [
            {
                "part": part.name,
                "usd": None if part.usd is None else str(part.usd),
                "how": part.how,
                "source": part.source,
            }
            for part in bill
        ],
    }


def lines(told: Mapping[str, Any]) -> list[str]:
    """Objects, differences and the bill for people."""
    found, said = told["objects"], list[str]()
    if found is not None:
        rate = found["bytesPerSecond"]
        speed = "" if rate is None else f"; {rate / 1e6:.1f} MB/s measured, with reading back"
        said.append(
            f"objects: {found['verified']} verified by SHA-256, {found['verifiedBytes'] / 1e6:.1f} MB, digest of all"
            f" {found['digest'][:16]}{speed}"
        )
        named = [f"{name} {_short(value)}" for name, value in found["differences"].items()]
        said.append(f"differences: {', '.join(named) or 'none'}")
    for part in told["bill"]:
        said.append(f"{part['part']}: {part['usd'] or 'unknown'} USD at list price ({part['how']})")
    return said


def _objects(record: Record) -> dict[str, Any] | None:
    """What all copies of objects did, the latest of them with its evidence; None before the first was done."""
    steps = record.steps()
    done = [steps[name].detail for name in COPIES if name in steps and steps[name].detail.get("verified")]
    if not done:
        return None
    copied = sum(detail["copied"]["bytes"] for detail in done)
    seconds = sum(detail["seconds"] for detail in done if detail["copied"]["bytes"])
    last = done[-1]
    return {
        "copied": sum(detail["copied"]["objects"] for detail in done),
        "copiedBytes": copied,
        "bytesPerSecond": round(copied / seconds) if seconds else None,
        "verified": last["verified"]["objects"],
        "verifiedBytes": last["verified"]["bytes"],
        "digest": last["verified"]["digest"],
        "differences": {name: last[name] for name in DIFFERENCES if last[name]},
    }


def _step(name: str, row: StepRow | None) -> dict[str, Any]:
    if row is None:
        return {"step": name, "state": "to do", "seconds": None, "what": ""}
    spent = _seconds(row.began, row.ended) if row.done else None
    what = ", ".join(f"{key} {_short(value)}" for key, value in row.detail.items() if key not in LONG)
    return {
        "step": name,
        "state": "done" if row.done else "begun",
        "seconds": spent,
        "what": what,
        "detail": dict(row.detail),
    }


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("objects", len(value)))
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _seconds(began: str, ended: str) -> float:
    return round((datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds(), 1)
