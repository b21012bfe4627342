"""The comparison as a table, JSON, CSV or one self-contained HTML page. All four read the same document.

The page needs nothing but itself: no script, no font, no network. rich and jinja2 are imported when they are used.
"""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.costs.parts import NAMES
from isthmus.specs.errors import InvalidSpec

UNKNOWN = "unknown"
UNDATED = "undated"
TEMPLATES = Path(__file__).parent / "templates"
BARS = 16
"""Bars in a chart; what comes after is in the table."""
LONGEST_BAR = 20
"""A bar is at most this many times as long as that of the cheapest offer."""
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
    "workload", "status", "rank", "cloud", "region", "purchase", "service", "machines", "machine", "instance_type",
    "gpu_model", "gpus", "hours", "paid_hours", *(f"{name.replace(' ', '_')}_usd" for name in NAMES), "total_usd", "idle_percent", "idle_usd", "oldest_price",
    "undated", "interruption", "lost_work_least_usd", "lost_work_most_usd", "quota", "reason", *(f"{name.replace(' ', '_')}_{what}" for name in NAMES for what in ("how", "as_of", "source")),
)  # fmt: skip


def _csv_offer(workload: Document, offer: Document, sources: Mapping[int, str]) -> dict[str, Any]:
    row = {
        "workload": workload["workload"],
        "status": "offer" if offer["total"] is not None else UNKNOWN,
        "rank": offer["rank"] or "",
        "cloud": offer["cloud"],
        "region": offer["region"],
        "purchase": offer["purchase"],
        "service": offer["service"] or "",
        "machines": offer["machines"],
        "machine": offer["machine"],
        "instance_type": offer["instanceType"],
        "gpu_model": offer["gpuModel"] or "",
        "gpus": offer["gpus"],
        "hours": offer["hours"],
        "paid_hours": offer["paidHours"],
        "idle_percent": offer["idlePercent"] or UNKNOWN,
        "idle_usd": offer["idleUsd"] or UNKNOWN,
        "lost_work_least_usd": (offer["lostWork"] or {}).get("usdLeast") or "",
        "lost_work_most_usd": (offer["lostWork"] or {}).get("usdMost") or "",
        "quota": "; ".join(offer["quota"]),
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
        row[f"{name}_source"] = sources.get(part["source"], "")
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
    environment.filters["lost"] = lost
    environment.filters["absent"] = absent
    environment.filters["times"] = _times
    environment.filters["cloud"] = lambda name: report["clouds"].get(name, name)
    template = environment.get_template("comparison.html.j2")
    charts = [_chart(workload["offers"]) for workload in report["workloads"]]
    refused = [grouped(workload["refused"]) for workload in report["workloads"]]
    quotas = [_quotas(workload["offers"], report["clouds"]) for workload in report["workloads"]]
    return template.render(report=report, charts=charts, refused=refused, quotas=quotas, names=report["partNames"])


def _chart(offers: Sequence[Document]) -> list[dict[str, Any]]:
    """The bars: each an offer and its segments, with the part's width in percent of the longest bar.

    An offer of many times the cheapest (a commitment for an hour's work) would leave nothing to see of the others: it is in
    the table only.
    """
    totals = [float(offer["total"]) for offer in offers if offer["total"] is not None]
    most = LONGEST_BAR * totals[0] if totals else 0.0
    chosen = [offer for offer in offers if offer["total"] is None or float(offer["total"]) <= most][:BARS]
    bars = [[part for part in offer["parts"] if part["usd"] and float(part["usd"]) > 0] for offer in chosen]
    longest = max((sum(float(part["usd"]) for part in bar) for bar in bars), default=0.0) or 1.0
    return [
        {
            "offer": offer,
            "segments": [{**part, "width": round(float(part["usd"]) / longest * 100, 3)} for part in bar],
        }
        for offer, bar in zip(chosen, bars, strict=True)
    ]


def _times(text: str) -> str:
    """Numbers are not parted from their unit, and x is the sign."""
    return re.sub(r"(?<=\d) (?=(h|USD|%|GiB)\b)", "\u00a0", text.replace(" x ", "\u00a0×\u00a0"))


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
            console.print(_table(workload, offers[:shown], report["partNames"]))
        if len(offers) > shown:
            console.print(Text(f"and {len(offers) - shown} more offers: --all shows them"))
        for change in workload["changes"]:
            console.print(Text(f"  {change['text']}", style="dim"))
        _show_refused(console, refused, len(refused) if everything else LINES_REFUSED)
    for warning in report["warnings"]:
        console.print(Text(warning, style="yellow"))
    console.print(
        Text(
            f"USD, {report['basis']}. What is assumed: isthmus cost compare ... -o report.html (or --json).",
            style="dim",
        )
    )


def _table(workload: Document, offers: Sequence[Document], names: Sequence[str]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=_demand(workload), title_justify="left", title_style="dim")
    for column in ("#", "cloud", "region", "purchase", "machines"):
        table.add_column(column, overflow="fold")
    for column in (*names, "total", "idle", "prices of"):
        table.add_column(column, justify="right", no_wrap=True)
    for offer in offers:
        by_name = {part["name"]: part["usd"] or UNKNOWN for part in offer["parts"]}
        table.add_row(
            str(offer["rank"] or "-"),
            offer["cloud"],
            offer["region"],
            offer["service"] or offer["purchase"],
            f"{offer['machines']} x {offer['machine']}",
            *(by_name.get(name, absent(name)) for name in names),
            offer["total"] or UNKNOWN,
            "?" if offer["idlePercent"] is None else f"{float(offer['idlePercent']):.0f} %",
            dated(offer),
        )
    return table


def absent(name: str) -> str:
    """What to show where an offer does not have a part: cards are in the machine's price, anything else is not there."""
    return "included" if name == "gpu" else "none"


def lost(offer: Document) -> str:
    """The expected loss of a spot offer, for a cell: 0.01 to 0.02, or at least 0.02."""
    found = offer["lostWork"]
    if found is None:
        return UNKNOWN if offer["purchase"] == "spot" else ""
    if found["usdLeast"] is None:
        return UNKNOWN
    if found["usdMost"] is None:
        return f"at least {found['usdLeast']}"
    return f"{found['usdLeast']} to {found['usdMost']}"


def _quotas(offers: Sequence[Document], clouds: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """What quotas do not allow, each once with the offers it stands in the way of."""
    found: dict[str, list[str]] = {}
    for offer in offers:
        for text in offer["quota"]:
            found.setdefault(text, []).append(
                f"{clouds.get(offer['cloud'], offer['cloud'])} {offer['region']} {offer['purchase']}"
            )
    return list(found.items())


def dated(offer: Document) -> str:
    """The oldest date among an offer's prices; a star where one of them has none in its source."""
    return (offer["oldestPrice"] or UNDATED) + ("*" if offer["undated"] and offer["oldestPrice"] else "")


def _demand(workload: Document) -> str:
    what = f"shares of a card by {workload['share']}" if workload["share"] else "GPUs"
    cards = f", {workload['gpus']} {what}" if workload["gpus"] else ""
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
