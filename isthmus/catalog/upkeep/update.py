"""Quotes into the files of facts, and what differs between two folders of facts.

A quote replaces the row of its machine, or adds one; rows without a quote stay as they are, with their own date. Files are
written whole beside the old one and then put in its place, so that a kill leaves the old or the new. Nothing is written
before the result was read back as a catalog.
"""

import csv
import io
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path

from isthmus.catalog.load import read_catalog
from isthmus.catalog.upkeep.quotes import Quote
from isthmus.specs.errors import InvalidSpec

KEYS = {
    "prices.csv": ("cloud", "region", "instance_type", "purchase"),
    "card_prices.csv": ("cloud", "region", "gpu_model", "purchase"),
    "commitments.csv": ("cloud", "region", "machines", "term"),
}
"""The files that quotes go to, and what tells their rows apart."""

VALUE = "usd_per_hour"


@dataclass(frozen=True, slots=True)
class Change:
    """One row that differs."""

    file: str
    row: tuple[str, ...]
    """Its key."""
    before: str | None
    """The price, or every value of a file that has none; None: the row was not there."""
    after: str | None

    @property
    def percent(self) -> Decimal | None:
        """How much dearer, in percent; None where one side is no number."""
        try:
            old, new = Decimal(self.before or ""), Decimal(self.after or "")
        except ArithmeticError:
            return None
        return (new / old - 1) * 100 if old else None


def merge(folder: Path, quotes: Iterable[Quote]) -> dict[str, str]:
    """The files that quotes change, as they would be written: name to text. Machines that the catalog does not have are
    left out."""
    tables = {name: _read(folder / name) for name in KEYS}
    machines = {(row["cloud"], row["instance_type"]) for row in _read(folder / "shapes.csv")[1]}
    models = {row["model"] for row in _read(folder / "gpus.csv")[1]}
    indexed = {
        name: {tuple(row[column] for column in KEYS[name]): row for row in rows} for name, (_, rows) in tables.items()
    }
    touched: set[str] = set()
    for quote in quotes:
        file = _file(quote, machines, models)
        if file is None:
            continue
        key = (quote.cloud, quote.region, quote.thing, quote.purchase)
        fresh = dict(zip(KEYS[file], key, strict=True))
        fresh |= {
            VALUE: f"{quote.usd_per_hour.normalize():f}",
            "source": quote.source,
            "as_of": quote.as_of.isoformat(),
        }
        header = tables[file][0]
        indexed[file][key] = {column: fresh.get(column, "") for column in header}
        touched.add(file)
    return {name: _text(tables[name][0], list(indexed[name].values())) for name in sorted(touched)}


def _file(quote: Quote, machines: set[tuple[str, str]], models: set[str]) -> str | None:
    if (quote.cloud, quote.thing) in machines:
        return "prices.csv" if quote.purchase in ("on-demand", "spot") else "commitments.csv"
    return "card_prices.csv" if quote.thing in models and quote.purchase in ("on-demand", "spot") else None


def changes(folder: Path, files: dict[str, str]) -> list[Change]:
    """What writing these files would change, row by row; the date and source of a price alone are no change."""
    found: list[Change] = []
    for name, text in files.items():
        found += _compare(name, _read(folder / name), _parse(text, name))
    return found


def differences(old: Path, new: Path) -> list[Change]:
    """What differs between two folders of facts.

    Raises:
        InvalidSpec: one of them is no folder of facts; file and row are named.
    """
    for folder in (old, new):
        if not folder.is_dir():
            raise InvalidSpec(f"there is no folder {folder}", subject=str(folder))
        read_catalog(folder, today=date.today())
    found: list[Change] = []
    for name in sorted({path.name for folder in (old, new) for path in folder.glob("*.csv")}):
        found += _compare(name, _read(old / name), _read(new / name))
    return found


def write(folder: Path, files: dict[str, str], *, today: date) -> None:
    """Write changed files, once the whole was read back as a catalog.

    Raises:
        InvalidSpec: the result would be no catalog; nothing was written.
    """
    with tempfile.TemporaryDirectory() as name:
        trial = Path(name) / "facts"
        shutil.copytree(folder, trial)
        for file, text in files.items():
            (trial / file).write_text(text, encoding="utf-8", newline="")
        read_catalog(trial, today=today)
    for file, text in files.items():
        beside = folder / f".{file}.new"
        beside.write_text(text, encoding="utf-8", newline="")
        os.replace(beside, folder / file)


Rows = tuple[list[str], list[dict[str, str]]]


def _read(path: Path) -> Rows:
    if not path.is_file():
        return [], []
    return _parse(path.read_text(encoding="utf-8"), path.name)


def _parse(text: str, name: str) -> Rows:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    rows = [{column: value or "" for column, value in row.items()} for row in reader]
    return list(reader.fieldnames or []), rows


def _text(header: Sequence[str], rows: Sequence[dict[str, str]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _compare(name: str, old: Rows, new: Rows) -> list[Change]:
    before, after = _values(name, old), _values(name, new)
    return [
        Change(name, key, before.get(key), after.get(key))
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]


def _values(name: str, table: Rows) -> dict[tuple[str, ...], str]:
    """Each row's key and what it says: its price, or all that is neither key, source nor date."""
    header, rows = table
    key = KEYS.get(name) or tuple(c for c in header if c in _NAMES)
    rest = [c for c in header if c not in (*key, "source", "as_of")]
    return {
        tuple(row.get(c, "") for c in key): row[VALUE] or row.get("discount", "")
        if name in KEYS
        else _joined(row, rest)
        for row in rows
    }


_NAMES = frozenset(
    [
        "cloud",
        "region",
        "instance_type",
        "service",
        "item",
        "part",
        "purchase",
        "machines",
        "term",
        "model",
        "gpu_model",
        "profile",
        "family",
        "gpu_count",
        "zone",
        "code",
        "operation",
        "band",
        "type",
        "description",
    ]
)
"""The columns that name a row in the files that quotes do not go to."""


def _joined(row: dict[str, str], columns: Sequence[str]) -> str:
    return ", ".join(f"{column} {row[column]}" for column in columns if row[column])
