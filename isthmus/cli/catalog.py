"""isthmus catalog: keep the facts current, and see what differs."""

import os
import re
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from isthmus.cli.output import confirm, print_rows, progress
from isthmus.specs.errors import InvalidSpec, Refused

if TYPE_CHECKING:
    from isthmus.catalog.upkeep.quotes import Quote
    from isthmus.catalog.upkeep.update import Change

app = App(name="catalog", help="Keep prices current.")

Json = Annotated[bool, Parameter(negative="")]


@app.command
def update(
    *,
    cloud: Literal["aws", "gcp", "all"] = "all",
    regions: Annotated[tuple[str, ...], Parameter(negative="", consume_multiple=True, show_default=False)] = (),
    folder: Path | None = None,
    aws_url: str | None = None,
    gcp_url: str | None = None,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="")] = False,
    json: Json = False,
) -> None:
    """Read today's machine prices from the clouds' own price lists, show what changes, and write it.

    AWS's list is public and has no spot prices; GCP's wants an API key in ISTHMUS_GCP_API_KEY. Services, quotas and cards are
    kept by hand.

    Parameters
    ----------
    cloud
        aws, gcp or all. Default: all that can be read.
    regions
        Regions to read, also new ones. Default: those in the catalog.
    folder
        Folder of facts to change. Default: isthmus/catalog/data.
    aws_url
        Another server of AWS's price list, for example a mirror.
    gcp_url
        Another server of the Cloud Billing Catalog.
    yes
        Do not ask.
    json
        Print the changes as JSON.
    """
    from isthmus.catalog.load import DATA
    from isthmus.catalog.upkeep import update as upkeep

    facts = folder or DATA
    names = tuple(name for text in regions for name in text.split(",") if name)
    with progress("prices") as line:
        files = upkeep.merge(facts, _counted(_quotes(cloud, names, facts, aws_url, gcp_url, line.note), line.update))
        line.done("read")
    found = upkeep.changes(facts, files)
    _print(found, as_json=json, empty="no price differs")
    if not files:
        return
    if found and not confirm(f"{len(found)} rows of {facts} change; write them?", yes=yes):
        raise Refused("not confirmed; nothing changed", subject=str(facts), remedy="isthmus catalog update --yes")
    upkeep.write(facts, files, today=date.today())


@app.command
def diff(old: Path, new: Path | None = None, *, json: Json = False) -> None:
    """Show what differs between two folders of facts.

    Parameters
    ----------
    old
        A folder of facts.
    new
        Another. Default: the facts that isthmus uses.
    json
        Print JSON.
    """
    from isthmus.catalog.load import DATA
    from isthmus.catalog.upkeep.update import differences

    _print(differences(old, new or DATA), as_json=json, empty="no fact differs")


def _quotes(
    cloud: str,
    regions: tuple[str, ...],
    facts: Path,
    aws_url: str | None,
    gcp_url: str | None,
    note: Callable[[str], None],
) -> "Iterator[Quote]":
    from isthmus.catalog import read_catalog
    from isthmus.catalog.upkeep import aws, gcp

    catalog = read_catalog(facts, today=date.today())
    key = os.environ.get(gcp.KEY, "")
    if cloud == "gcp" and not key:
        raise InvalidSpec(
            f"the Cloud Billing Catalog wants an API key: set {gcp.KEY}",
            subject="gcp",
            remedy=f"{gcp.KEY}=... isthmus catalog update --cloud gcp",
        )
    if cloud in ("aws", "all"):
        yield from aws.quotes(_of("aws", regions, catalog.regions("aws")), aws_url or aws.URL)
    if cloud == "all" and not key:
        note(f"gcp is left as it is: {gcp.KEY} is not set")
    if cloud in ("gcp", "all") and key:
        machines = [shape for shape in catalog.shapes("gcp") if not shape.cards_apart]
        attached = sorted({str(s.gpu_model) for s in catalog.shapes("gcp") if s.cards_apart})
        places = _of("gcp", regions, catalog.regions("gcp"))
        yield from gcp.quotes(places, machines, attached, catalog.skus, key=key, url=gcp_url or gcp.URL)


def _of(cloud: str, asked: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    """The asked regions that are this cloud's by their form (GCP: us-central1; AWS: us-east-1); all known ones where none are
    asked for."""
    if not asked:
        return known
    return tuple(name for name in asked if bool(re.fullmatch(r"[a-z]+-[a-z]+\d+", name)) == (cloud == "gcp"))


def _counted(quotes: "Iterator[Quote]", tell: Callable[[str], None]) -> "Iterator[Quote]":
    for number, quote in enumerate(quotes, start=1):
        if number % 1000 == 0:
            tell(f"{number} prices, now {quote.cloud} {quote.region}")
        yield quote


def _print(found: "list[Change]", *, as_json: bool, empty: str) -> None:
    rows = [
        {
            "file": change.file,
            "row": " ".join(change.row),
            "before": change.before,
            "after": change.after,
            "change": None if change.percent is None else f"{change.percent:+.1f} %",
        }
        for change in found
    ]
    print_rows(rows, ["file", "row", "before", "after", "change"], as_json=as_json, empty=empty)
