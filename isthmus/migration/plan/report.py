"""A plan as data, as a table and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isthmus.migration.plan.model import Plan
from isthmus.runs.model import show_seconds

UNKNOWN = "unknown"


def document(plan: Plan) -> dict[str, Any]:
    """Everything, as JSON can hold it: the one source of table and page."""
    bill = plan.egress
    return {
        "source": plan.source,
        "destination": plan.destination,
        "decided": not plan.undecided,
        "lines": [
            {
                "section": line.section, "id": line.id, "source": line.source, "destination": line.destination,
                "detail": line.detail, "undecided": line.undecided,
            }
            for line in plan.lines
        ],
        "data": {"objects": plan.data.objects, "bytes": plan.data.bytes} if plan.data else None,
        "egress": {"usd": None if bill.usd is None else str(bill.usd), "how": bill.how, "source": bill.source} if bill else None,
        "copying": {
            "seconds": None if plan.seconds is None else round(plan.seconds),
            "rate": {"bytesPerSecond": round(plan.rate.bytes_per_second), "how": plan.rate.how} if plan.rate else None,
        },
        "machinesUsdAMonth": {
            end: None if usd is None else str(usd) for end, usd in zip(("source", "destination"), plan.monthly, strict=True)
        },
    }  # fmt: skip


def summary(plan: Plan) -> list[str]:
    """What the lines come to."""
    said = []
    if plan.data is None:
        said.append("bytes to move: unknown, since the source's bucket cannot be listed")
    else:
        bill = plan.egress
        usd = UNKNOWN if bill is None or bill.usd is None else f"{bill.usd} USD ({bill.how})"
        said.append(f"to move: {plan.data.objects} objects, {plan.data.bytes / 1e6:.1f} MB; egress at list price {usd}")
    if plan.rate is None:
        said.append(
            "time to copy: unknown until a rate was measured: isthmus migrate objects copies ahead, and measures it"
        )
    elif plan.seconds is not None:
        said.append(
            f"time to copy: {show_seconds(plan.seconds)} at {plan.rate.bytes_per_second / 1e6:.1f} MB/s ({plan.rate.how})"
        )
    before, after = (UNKNOWN if usd is None else str(usd) for usd in plan.monthly)
    said.append(f"machines, USD a month at list price: {before} at {plan.source}, {after} at {plan.destination}")
    return said


def show(plan: Plan) -> None:
    """Print the plan for a person."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if _is_terminal() else 180, highlight=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("", plan.source, plan.destination, "detail"):
        table.add_column(column, overflow="fold")
    section = ""
    for line in plan.lines:
        table.add_row(
            *map(Text, (line.section if line.section != section else "", line.source, line.destination, line.detail))
        )
        section = line.section
    console.print(table)
    for text in summary(plan):
        console.print(Text(text))
    if plan.undecided:
        console.print(Text(f"{len(plan.undecided)} undecided:", style="bold"))
    for line in plan.undecided:
        console.print(Text(f"  {line.id}: {line.undecided}"))


def write(plan: Plan, path: Path) -> None:
    """Write the plan as a page of its own."""
    from jinja2 import Environment

    page = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(_PAGE)
    path.write_text(page.render(plan=plan, summary=summary(plan)), encoding="utf-8")


def _is_terminal() -> bool:
    import sys

    return sys.stdout.isatty()


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>From {{ plan.source }} to {{ plan.destination }}</title>
<style>
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em; max-width: 80em }
table { border-collapse: collapse } td, th { text-align: left; vertical-align: top; padding: .2em .8em; border-bottom: 1px solid #ddd }
.undecided { background: #fff3d6 }
</style></head><body>
<h1>From {{ plan.source }} to {{ plan.destination }}</h1>
<p>{{ plan.undecided | length }} undecided.{% if not plan.undecided %} The move can start.{% endif %}</p>
<ul>
{% for text in summary %}
<li>{{ text }}</li>
{% endfor %}
</ul>
<table><tr><th></th><th>{{ plan.source }}</th><th>{{ plan.destination }}</th><th>detail</th><th>to decide</th></tr>
{% for line in plan.lines %}
<tr{% if line.undecided %} class="undecided"{% endif %}><td title="{{ line.id }}">{{ line.section }}</td><td>{{ line.source }}</td>
<td>{{ line.destination }}</td><td>{{ line.detail }}</td><td>{{ line.undecided }}</td></tr>
{% endfor %}
</table></body></html>
"""
