"""The comparison as a table, JSON, CSV or one self-contained HTML page. All four read the same document.

The page needs nothing but itself: no script, no font, no network. rich and jinja2 are imported when they are used.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.costs.document import CLOUD_NAMES
from isthmus.costs.parts import NAMES
from isthmus.specs.errors import InvalidSpec

UNKNOWN = "unknown"
UNDATED = "undated"
TEMPLATES = Path(__file__).parent / "templates"
BARS = 16
"""Bars in a chart; what comes after is in the table."""
LINES = 20
"""Offers printed unless all are asked for."""
LINES_REFUSED = 12

Document = Mapping[str, Any]


def write(report: Document, path: Path) -> None:
    """Write the report in the format that the file's name asks for.

    Raises:
        InvalidSpec: the name ends in none of .html, .json, .csv, or the file cannot be written.
    """
    makers = {".html": to_html, ".json": to_json, ".csv": to_csv}
    maker = makers.get(path.suffix.lower())
    if maker is None:
        raise InvalidSpec(
            f"cannot tell the format of {path.name}: its name must end in .html, .json or .csv",
            subject=str(path),
            remedy="isthmus cost compare ... -o report.html",
        )
    text = maker(report)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise InvalidSpec(
            f"cannot write {path}: {error.strerror}", subject=str(path), remedy="choose another file"
        ) from error


def to_json(report: Document) -> str:
    """The document itself, in its own order."""
    return json.dumps(report, indent=2, ensure_ascii=False) + "\n"


def to_csv(report: Document) -> str:
    """One row per offer and per refused place. Amounts unknown are `unknown`; a part that an offer does not have is empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV_COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    sources = {source["id"]: source["source"] for source in report["sources"]}
    for workload in report["workloads"]:
        for offer in workload["offers"]:
            writer.writerow(_csv_offer(workload, offer, sources))
        for refusal in workload["refused"]:
            writer.writerow(
                {
                    "workload": workload["workload"],
                    "status": "refused",
                    "cloud": refusal["cloud"],
                    "region": refusal["region"],
                    "purchase": refusal["purchase"],
                    "gpu_model": refusal["gpuModel"] or "",
                    "reason": refusal["reason"],
                }
            )
    return out.getvalue()


CSV_COLUMNS = (
    "workload", "status", "rank", "cloud", "region", "purchase", "machines", "machine", "instance_type", "gpu_model",
    "gpus", "hours", *(f"{name.replace(' ', '_')}_usd" for name in NAMES), "total_usd", "oldest_price", "undated", "interruption",
    "reason", *(f"{name.replace(' ', '_')}_{what}" for name in NAMES for what in ("how", "as_of", "source")),
)  # fmt: skip


def _csv_offer(workload: Document, offer: Document, sources: Mapping[int, str]) -> dict[str, Any]:
    row = {
        "workload": workload["workload"],
        "status": "offer" if offer["total"] is not None else UNKNOWN,
        "rank": offer["rank"] or "",
        "cloud": offer["cloud"],
        "region": offer["region"],
        "purchase": offer["purchase"],
        "machines": offer["machines"],
        "machine": offer["machine"],
        "instance_type": offer["instanceType"],
        "gpu_model": offer["gpuModel"] or "",
        "gpus": offer["gpus"],
        "hours": workload["hours"],
        "total_usd": offer["total"] or UNKNOWN,
        "oldest_price": offer["oldestPrice"] or UNDATED,
        "undated": " ".join(offer["undated"]),
        "interruption": offer["interruption"] or "",
        "reason": f"no price of: {', '.join(offer['unknown'])}" if offer["unknown"] else "",
    }
    for part in offer["parts"]:
        name = part["name"].replace(" ", "_")
        row[f"{name}_usd"] = part["usd"] or UNKNOWN
        row[f"{name}_how"] = part["how"]
        row[f"{name}_as_of"] = part["asOf"] or UNDATED
        row[f"{name}_source"] = sources[part["source"]]
    return row


def to_html(report: Document) -> str:
    """One page that works offline, in light and dark, on paper and on a phone."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["dated"] = dated
    environment.filters["whole"] = _whole
    environment.filters["times"] = lambda text: text.replace(" x ", "\u00a0×\u00a0")
    environment.filters["cloud"] = lambda name: CLOUD_NAMES.get(name, name)
    template = environment.get_template("comparison.html.j2")
    charts = [_chart(workload["offers"]) for workload in report["workloads"]]
    refused = [grouped(workload["refused"]) for workload in report["workloads"]]
    return template.render(report=report, charts=charts, refused=refused, names=NAMES)


def _chart(offers: Sequence[Document]) -> list[list[dict[str, Any]]]:
    """For each bar its segments: the part's name, its amount and its width in percent of the longest bar."""
    bars = [[part for part in offer["parts"] if part["usd"] and float(part["usd"]) > 0] for offer in offers[:BARS]]
    longest = max((sum(float(part["usd"]) for part in bar) for bar in bars), default=0.0) or 1.0
    return [[{**part, "width": round(float(part["usd"]) / longest * 100, 3)} for part in bar] for bar in bars]


def _whole(text: str) -> str:
    """Names with a hyphen (us-west-2) are not broken at the end of a line."""
    from markupsafe import Markup, escape

    words = [
        Markup('<span class="nb">{}</span>').format(word) if "-" in word else escape(word) for word in text.split(" ")
    ]
    return Markup(" ").join(words)


def grouped(refusals: Sequence[Document]) -> list[dict[str, Any]]:
    """Refusals for the same reason in one place as one, with all their purchase options and card models."""
    purchases: dict[tuple[str, str, str, str | None], list[str]] = {}
    for refusal in refusals:
        key = (refusal["cloud"], refusal["region"], refusal["reason"], refusal["gpuModel"])
        purchases.setdefault(key, []).append(refusal["purchase"])
    models: dict[tuple[str, str, str, tuple[str, ...]], list[str]] = {}
    for (cloud, region, reason, model), options in purchases.items():
        found = models.setdefault((cloud, region, reason, tuple(dict.fromkeys(options))), [])
        found.extend([model] if model else [])
    return [
        {"cloud": cloud, "region": region, "purchases": list(options), "gpuModels": found, "reason": reason}
        for (cloud, region, reason, options), found in models.items()
    ]


def show(report: Document, *, everything: bool = False) -> None:
    """Print the report as tables for a person; long ones are cut, saying so, unless `everything`."""
    from rich.console import Console
    from rich.text import Text

    console = Console(width=None if _is_terminal() else 180, highlight=False, soft_wrap=False)
    for workload in report["workloads"]:
        console.print(Text(workload["answer"], style="bold"))
        for note in workload["notes"]:
            console.print(Text(note))
        offers, refused = workload["offers"], grouped(workload["refused"])
        shown = len(offers) if everything else LINES
        if offers:
            console.print(_table(workload, offers[:shown]))
        if len(offers) > shown:
            console.print(Text(f"and {len(offers) - shown} more offers: --all shows them"))
        _show_refused(console, refused, len(refused) if everything else LINES_REFUSED)
    console.print(
        Text(
            f"USD, {report['basis']}. What is assumed: isthmus cost compare ... -o report.html (or --json).",
            style="dim",
        )
    )


def _table(workload: Document, offers: Sequence[Document]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=_demand(workload), title_justify="left", title_style="dim")
    for column in ("#", "cloud", "region", "purchase", "machines"):
        table.add_column(column, overflow="fold")
    for column in (*NAMES, "total", "prices of"):
        table.add_column(column, justify="right", no_wrap=True)
    for offer in offers:
        by_name = {part["name"]: part["usd"] or UNKNOWN for part in offer["parts"]}
        table.add_row(
            str(offer["rank"] or "-"),
            offer["cloud"],
            offer["region"],
            offer["purchase"],
            f"{offer['machines']} x {offer['machine']}",
            *(by_name.get(name, "included") for name in NAMES),
            offer["total"] or UNKNOWN,
            dated(offer),
        )
    return table


def dated(offer: Document) -> str:
    """The oldest date among an offer's prices; a star where one of them has none in its source."""
    return (offer["oldestPrice"] or UNDATED) + ("*" if offer["undated"] and offer["oldestPrice"] else "")


def _demand(workload: Document) -> str:
    cards = f", {workload['gpus']} GPUs" if workload["gpus"] else ""
    model = f" ({workload['gpuModel']})" if workload["gpuModel"] else ""
    return f"{workload['pods']} pods{cards}{model}, {workload['hours']} h, {workload['storageGib']} GiB disk, {workload['egressGib']} GiB out; USD"


def _show_refused(console: Any, refusals: Sequence[Document], most: int) -> None:
    from rich.text import Text

    if refusals:
        console.print(Text("Refused:", style="bold"))
    for refusal in refusals[:most]:
        models = f"{', '.join(refusal['gpuModels'])}: " if refusal["gpuModels"] else ""
        where = f"{refusal['cloud']} {refusal['region']} ({', '.join(refusal['purchases'])})"
        console.print(Text(f"  {where}: {models}{refusal['reason']}"))
    if len(refusals) > most:
        console.print(Text(f"  and {len(refusals) - most} more: --all shows them"))


def _is_terminal() -> bool:
    import sys

    return sys.stdout.isatty()
