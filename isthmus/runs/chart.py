"""A metric over its epochs (or steps) as a chart of characters, for a terminal. Pure."""

import math
from collections.abc import Sequence

from isthmus.runs.model import Metric

WIDTH, HEIGHT = 60, 12
MARKS = "ox+*#@%&"
"""One for each rank; more ranks begin again."""


def charts(metrics: Sequence[Metric]) -> list[str]:
    """Lines of a chart for each metric that has more than one point; each rank has its own mark."""
    lines: list[str] = []
    for name in sorted({metric.name for metric in metrics}):
        series = _series([metric for metric in metrics if metric.name == name])
        if any(len(points) > 1 for points in series.values()):
            lines += [*_chart(name, series), ""]
    return lines


def _series(metrics: Sequence[Metric]) -> dict[str, list[tuple[int, float]]]:
    """Points by who printed them, along the step where lines have one, else the epoch, else their order."""
    found: dict[str, list[tuple[int, float]]] = {}
    for number, metric in enumerate(metrics):
        if metric.value is None:
            continue
        place = next((at for at in (metric.step, metric.epoch) if at is not None), number)
        found.setdefault(f"{metric.role} rank {metric.rank}", []).append((place, metric.value))
    return found


def _chart(name: str, series: dict[str, list[tuple[int, float]]]) -> list[str]:
    points = [point for some in series.values() for point in some]
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for number, some in enumerate(series.values()):
        for x, y in some:
            column = _place(x, left, right, WIDTH)
            grid[HEIGHT - 1 - _place(y, low, high, HEIGHT)][column] = MARKS[number % len(MARKS)]
    labels = {0: f"{high:.4g}", HEIGHT - 1: f"{low:.4g}"}
    edge = max(len(text) for text in labels.values())
    legend = ", ".join(f"{MARKS[number % len(MARKS)]} {who}" for number, who in enumerate(series))
    return [
        f"{name} ({legend})",
        *(f"{labels.get(line, ''):>{edge}} |{''.join(cells).rstrip()}" for line, cells in enumerate(grid)),
        f"{'':>{edge}} +{'-' * WIDTH}",
        f"{'':>{edge}}  {left}{right:>{WIDTH - len(str(left))}}",
    ]


def _place(value: float, low: float, high: float, room: int) -> int:
    """Which of so many cells a value falls into."""
    if math.isclose(low, high):
        return 0
    return min(int((value - low) / (high - low) * room), room - 1)
