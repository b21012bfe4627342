"""Metrics: JSON lines that the ranks print, taken from the pods' own logs into runs.db.

A line is `{"metric": "loss", "value": 0.31, "epoch": 4, "step": 120}`; epoch and step may be absent and other fields are
left alone. Nothing else in a log is looked at, and no metric comes from anywhere but a log.
"""

import csv
import io
import json
import math
from collections.abc import Iterable
from typing import Any

from isthmus.runs.logs import Line
from isthmus.runs.model import Metric, Run
from isthmus.runs.store import Store

LONGEST_NAME = 120


def from_line(line: Line) -> Metric | None:
    """The metric in a log line, or None when it holds none."""
    text = line.text.strip()
    if not text.startswith("{") or '"metric"' not in text:
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    name, value = document.get("metric"), document.get("value")
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not _is_number(value):
        return None
    epoch, step = document.get("epoch"), document.get("step")
    return Metric(
        name=name,
        value=float(value) if math.isfinite(value) else None,
        epoch=epoch if _is_count(epoch) else None,
        step=step if _is_count(step) else None,
        role=line.role,
        rank=line.rank,
        at=line.at,
        restart=line.restart,
    )


def collect(store: Store, run: Run, lines: Iterable[Line]) -> list[Metric]:
    """Take the metrics out of log lines into the store; returns them."""
    found = [metric for line in lines if (metric := from_line(line)) is not None]
    if found:
        store.add_metrics(run, found)
    return found


def rows(metrics: Iterable[Metric]) -> list[dict[str, Any]]:
    """Metrics as rows of a table or JSON list. A value that is not a number is None."""
    return [
        {
            "metric": metric.name,
            "value": metric.value,
            "epoch": metric.epoch,
            "step": metric.step,
            "role": metric.role,
            "rank": metric.rank,
            "restart": metric.restart,
            "at": metric.at.isoformat() if metric.at else None,
        }
        for metric in metrics
    ]


def to_csv(metrics: Iterable[Metric]) -> str:
    """Metrics as CSV with a header."""
    text = io.StringIO()
    columns = ["metric", "value", "epoch", "step", "role", "rank", "restart", "at"]
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(metrics))
    return text.getvalue()


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 or _is_not_finite(value)
    )


def _is_not_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62
