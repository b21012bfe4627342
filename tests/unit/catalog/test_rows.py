"""A wrong fact is refused with its file and row, before anything is computed from it."""

import shutil
from datetime import date
from pathlib import Path

import pytest

from isthmus.catalog import read_catalog
from isthmus.catalog.load import DATA
from isthmus.specs.errors import InvalidSpec

TODAY = date(2026, 11, 30)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA, tmp_path / "data"))


def change(folder: Path, file: str, row: int, column: str, value: str) -> None:
    """Put a value into a cell; rows as an editor counts them, the header being row 1."""
    lines = (folder / file).read_text(encoding="utf-8").splitlines()
    header = lines[0].split(",")
    cells = lines[row - 1].split(",")
    cells[header.index(column)] = value
    lines[row - 1] = ",".join(cells)
    (folder / file).write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.parametrize("file", ["prices.csv", "card_prices.csv"])
@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "usd_per_hour is missing"),
        ("cheap", "usd_per_hour must be a number, not 'cheap'"),
        ("1,5", "instead of"),
        ("-1", "usd_per_hour must be a number of 0 or more"),
        ("NaN", "usd_per_hour must be a number of 0 or more"),
        ("inf", "usd_per_hour must be a number of 0 or more"),
        ("0", "write 'unknown' for a price that is not known"),
        ("€2", "usd_per_hour must be a number"),
    ],
)
def test_a_bad_price_names_file_and_row(folder: Path, file: str, value: str, says: str) -> None:
    change(folder, file, 3, "usd_per_hour", value)
    with pytest.raises(InvalidSpec) as caught:
        read_catalog(folder, today=TODAY)
    assert f"{file}, row 3" in caught.value.message
    assert says in caught.value.message
    assert file in caught.value.remedy


def test_an_unknown_price_is_none_and_never_zero(folder: Path) -> None:
    change(folder, "prices.csv", 2, "usd_per_hour", "unknown")
    cells = (folder / "prices.csv").read_text(encoding="utf-8").splitlines()[1].split(",")
    catalog = read_catalog(folder, today=TODAY)
    offers = catalog.offers(cloud=cells[0], region=cells[1], purchase="on-demand")
    offer = next(offer for offer in offers if offer.shape.instance_type == cells[2])
    assert offer.usd_per_hour is None
    assert offers[-1].usd_per_hour is None, "unknown prices come last"


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("as_of", "2026-12-01", "as_of 2026-12-01 lies in the future"),
        ("as_of", "2026-13-01", "neither a date"),
        ("as_of", "", "as_of is missing"),
        ("source", "", "source is missing"),
        ("purchase", "reserved", "purchase must be one of on-demand, spot, not 'reserved'"),
        ("cloud", "azure", "cloud must be one of aws, gcp, not 'azure'"),
        ("region", "", "region is missing"),
        ("instance_type", "g4dn.huge", "instance_type 'g4dn.huge' of aws is not known"),
    ],
)
def test_a_bad_cell_names_file_and_row(folder: Path, column: str, value: str, says: str) -> None:
    change(folder, "prices.csv", 2, column, value)
    with pytest.raises(InvalidSpec) as caught:
        read_catalog(folder, today=TODAY)
    assert caught.value.message.startswith("prices.csv, row 2: ")
    assert says in caught.value.message


@pytest.mark.parametrize("file", sorted(path.name for path in DATA.glob("*.csv")))
def test_every_file_refuses_a_repeated_row(folder: Path, file: str) -> None:
    path = folder / file
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines, lines[1]]) + "\n", encoding="utf-8")
    with pytest.raises(InvalidSpec, match=rf"{file}, row {len(lines) + 1}: repeats row 2"):
        read_catalog(folder, today=TODAY)


@pytest.mark.parametrize("file", sorted(path.name for path in DATA.glob("*.csv")))
def test_every_file_refuses_a_date_in_the_future(folder: Path, file: str) -> None:
    lines = (folder / file).read_text(encoding="utf-8").splitlines()
    column = lines[0].split(",").index("as_of") - len(lines[0].split(","))
    cells = lines[1].split(",")
    cells[column] = "2030-01-01"
    lines[1] = ",".join(cells)
    (folder / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(InvalidSpec, match=f"{file}, row 2: as_of 2030-01-01 lies in the future"):
        read_catalog(folder, today=TODAY)


@pytest.mark.parametrize("file", sorted(path.name for path in DATA.glob("*.csv")))
def test_every_file_refuses_another_header(folder: Path, file: str) -> None:
    path = folder / file
    path.write_text(path.read_text(encoding="utf-8").replace("source", "origin", 1), encoding="utf-8")
    with pytest.raises(InvalidSpec, match=f"{file}, row 1: the columns must be"):
        read_catalog(folder, today=TODAY)


def test_a_machine_with_a_card_that_nobody_knows_is_refused(folder: Path) -> None:
    lines = (folder / "shapes.csv").read_text(encoding="utf-8").splitlines()
    row = next(number for number, line in enumerate(lines, 1) if line.startswith("aws,g4dn.xlarge,"))
    change(folder, "shapes.csv", row, "gpu_model", "T5")
    with pytest.raises(InvalidSpec, match=f"shapes.csv, row {row}: gpu_model 'T5' is not in gpus.csv"):
        read_catalog(folder, today=TODAY)
