"""Runs side by side: what was asked for, what each took and what each reached, a row each. Pure.

Times and metrics of a run that only schedules are not set beside measured ones: its column says so and has its own times
only. What a run has not is left empty, never guessed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from isthmus.runs.figures import Figures, figures
from isthmus.runs.model import Metric, Run, Snapshot, show_seconds

Row = tuple[str, list[Any]]
"""A name and one value per run."""


@dataclass(frozen=True)
class Side:
    """One run of a comparison."""

    run: Run
    figures: Figures
    latest: dict[str, Metric]


def side(snapshot: Snapshot, *, now: datetime) -> Side:
    """A run as a column."""
    return Side(snapshot.run, figures(snapshot.run, snapshot.replicas, now=now), snapshot.latest)


def rows(sides: Sequence[Side]) -> list[Row]:
    """Every row: how the runs differ in what was asked, then what they took, then their metrics' last values."""
    return [*_asked(sides), *_taken(sides), *_metrics(sides)]


def as_dict(sides: Sequence[Side]) -> dict[str, Any]:
    """The comparison for --json: a mapping of row name to value for each run."""
    columns = rows(sides)
    return {
        "runs": [
            {"run": item.run.id, **{name: values[index] for name, values in columns}}
            for index, item in enumerate(sides)
        ]
    }


def words(name: str, value: Any) -> str:
    """A value for a table."""
    if value is None:
        return ""
    if name in {"time", "waiting"}:
        return show_seconds(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {count:g}" for key, count in value.items())
    return str(value)


def _asked(sides: Sequence[Side]) -> list[Row]:
    found: list[Row] = [
        ("workload", [item.run.spec.name for item in sides]),
        ("kind", [item.run.spec.kind for item in sides]),
        ("stack", [item.run.stack for item in sides]),
        ("source", [item.run.source for item in sides]),
        ("pods", [{role: part.replicas for role, part in item.run.spec.roles.items()} for item in sides]),
    ]
    names = sorted({name for item in sides for name in item.run.spec.env})
    for name in names:  # settings in which they differ
        values = [item.run.spec.env.get(name) for item in sides]
        if len(set(values)) > 1:
            found.append((f"env {name}", values))
    return found


def _taken(sides: Sequence[Side]) -> list[Row]:
    return [
        ("state", [item.run.state.value for item in sides]),
        ("time", [item.figures.seconds for item in sides]),
        ("waiting", [item.figures.queue_seconds for item in sides]),
        ("restarts", [item.figures.restarts for item in sides]),
        ("exit codes", [item.figures.exit_codes for item in sides]),
        ("GPU-seconds", [item.figures.gpu_seconds for item in sides]),
    ]


def _metrics(sides: Sequence[Side]) -> list[Row]:
    names = sorted({name for item in sides for name in item.latest})
    return [(name, [metric.value if (metric := item.latest.get(name)) else None for item in sides]) for name in names]
