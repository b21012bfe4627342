"""EC2 prices from the AWS price list: one CSV file per region, public, several hundred megabytes, read as it comes.

Its first lines are the file's own data (publication date among them), then a header, then a row per price. Taken are
Linux machines of shared tenancy without licences: on demand, and reserved for one and three years, standard, no upfront.
Spot is not in the price list.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from datetime import date

from isthmus.catalog.upkeep.quotes import Quote, opened, price_of
from isthmus.specs.errors import InvalidSpec

URL = "https://pricing.us-east-1.amazonaws.com"
_PATH = "/offers/v1.0/aws/AmazonEC2/current/{region}/index.csv"

_PLAIN = {"Operating System": "Linux", "Tenancy": "Shared", "Pre Installed S/W": "NA", "CapacityStatus": "Used"}
_RESERVED = {"OfferingClass": "standard", "PurchaseOption": "No Upfront"}
_TERMS = {"1yr": "1-year", "3yr": "3-year"}
_HOURS = frozenset({"Hrs", "Hours"})
_NEEDED = (
    "TermType", "Unit", "PricePerUnit", "Currency", "Instance Type", "LeaseContractLength", *_PLAIN, *_RESERVED,
)  # fmt: skip


def quotes(regions: Iterable[str], url: str = URL) -> Iterator[Quote]:
    """The prices of these regions.

    Raises:
        NotReady: the server cannot be read.
        InvalidSpec: the file has another shape, or a price that is none.
    """
    for region in regions:
        address = url.rstrip("/") + _PATH.format(region=region)
        with opened(address) as body:
            yield from read(io.TextIOWrapper(body, encoding="utf-8", newline=""), region, address)


def read(lines: Iterable[str], region: str, where: str) -> Iterator[Quote]:
    """The prices in one region's file."""
    rows = csv.reader(lines)
    published: date | None = None
    header: list[str] = []
    for row in rows:
        if row and row[0] == "Publication Date" and len(row) > 1:
            published = date.fromisoformat(row[1][:10])
        if row and row[0] == "SKU":
            header = row
            break
    missing = [name for name in _NEEDED if name not in header]
    if missing or published is None:
        lacks = f"columns {', '.join(missing)}" if missing else "a publication date"
        raise InvalidSpec(f"the price list has another shape: it lacks {lacks}", subject=where)
    at = {name: header.index(name) for name in header}
    for number, row in enumerate(rows, start=1):
        purchase = _purchase(row, at) if len(row) == len(header) else None
        if purchase is None:
            continue
        place = f"{where}, price {number}"
        price = price_of(row[at["PricePerUnit"]], row[at["Currency"]], place)
        if price > 0:  # rows of 0 are for hours that a reservation has paid
            source = f"AWS price list, AmazonEC2 in {region}"
            yield Quote("aws", region, row[at["Instance Type"]], purchase, price, source, published)


def _purchase(row: list[str], at: dict[str, int]) -> str | None:
    """The purchase option of a row; None for a row that is not one of ours."""
    if row[at["Unit"]] not in _HOURS or any(row[at[name]] != value for name, value in _PLAIN.items()):
        return None
    if row[at["TermType"]] == "OnDemand":
        return "on-demand"
    if row[at["TermType"]] != "Reserved" or any(row[at[name]] != value for name, value in _RESERVED.items()):
        return None
    return _TERMS.get(row[at["LeaseContractLength"]])
