"""Reading a fact file: every cell is checked, and what is wrong is named by file and row.

A price that nobody knows is written `unknown` and becomes None. An empty price cell is a mistake, so that a slip of
the pen cannot turn into "we do not know". Dates are ISO or `undated`, never in the future.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path

from isthmus.specs.errors import InvalidSpec

UNKNOWN = "unknown"
UNDATED = "undated"


class Row:
    """One row of a fact file. Each method reads a cell and raises InvalidSpec naming the file, the row and the column."""

    __slots__ = ("_cells", "_clouds", "_file", "_line", "_today")

    def __init__(
        self, file: Path, line: int, cells: dict[str, str], today: date, clouds: tuple[str, ...] | None
    ) -> None:
        self._file = file
        self._clouds = clouds
        self._line = line
        self._cells = cells
        self._today = today

    @property
    def source(self) -> str:
        """Where the fact was read. Required in every row."""
        return self.text("source")

    @property
    def as_of(self) -> date | None:
        """The date of the fact; None where the source has none."""
        text = self.text("as_of")
        if text == UNDATED:
            return None
        try:
            day = date.fromisoformat(text)
        except ValueError as error:
            raise self.wrong(f"as_of {text!r} is neither a date (2026-01-31) nor {UNDATED!r}") from error
        if day > self._today:
            raise self.wrong(f"as_of {text} lies in the future")
        return day

    @property
    def cloud(self) -> str:
        """The cell `cloud`: one of those in clouds.csv."""
        return self.one_of("cloud", self._clouds or ())

    def text(self, column: str) -> str:
        """A cell that must not be empty."""
        value = self._cells[column]
        if not value:
            raise self.wrong(f"{column} is missing")
        return value

    def maybe(self, column: str) -> str | None:
        """A cell that may be empty."""
        return self._cells[column] or None

    def words(self, column: str) -> tuple[str, ...]:
        """A cell holding a list separated by spaces; empty for none."""
        return tuple(self._cells[column].split())

    def flag(self, column: str) -> bool:
        """A cell holding yes or no."""
        value = self.text(column)
        if value not in ("yes", "no"):
            raise self.wrong(f"{column} must be yes or no, not {value!r}")
        return value == "yes"

    def integer(self, column: str) -> int:
        """A whole number, 0 or more."""
        value = self.text(column)
        if not (value.isascii() and value.isdigit()):
            raise self.wrong(f"{column} must be a whole number, not {value!r}")
        return int(value)

    def decimal(self, column: str) -> Decimal:
        """A number, 0 or more."""
        value = self.text(column)
        try:
            number = Decimal(value)
        except InvalidOperation as error:
            raise self.wrong(f"{column} must be a number, not {value!r}") from error
        if not number.is_finite() or number < 0:
            raise self.wrong(f"{column} must be a number of 0 or more, not {value!r}")
        return number

    def price(self, column: str) -> Decimal | None:
        """A price above 0, or None where it is written `unknown`."""
        if self._cells[column] == UNKNOWN:
            return None
        number = self.decimal(column)
        if number == 0:
            raise self.wrong(f"{column} is 0; write {UNKNOWN!r} for a price that is not known")
        return number

    def one_of(self, column: str, legal: tuple[str, ...]) -> str:
        """A cell with one of a few values."""
        value = self.text(column)
        if value not in legal:
            raise self.wrong(f"{column} must be one of {', '.join(legal)}, not {value!r}")
        return value

    def wrong(self, problem: str) -> InvalidSpec:
        """The error for this row."""
        where = f"{self._file.name}, row {self._line}"
        return InvalidSpec(f"{where}: {problem}", subject=where, remedy=f"edit {self._file}")


@dataclass(frozen=True, slots=True)
class Table:
    """A folder of fact files.

    Args:
        today: dates after it are refused.
        clouds: the names that a column `cloud` may hold; None where there are none yet.
    """

    folder: Path
    today: date
    clouds: tuple[str, ...] | None

    def rows(self, file: str, columns: str, *, key: tuple[str, ...]) -> Iterator[Row]:
        """The rows of one of its files; see `read`."""
        return read(self.folder / file, columns, key=key, today=self.today, clouds=self.clouds)


def read(
    path: Path, columns: str, *, key: tuple[str, ...], today: date, clouds: tuple[str, ...] | None = None
) -> Iterator[Row]:
    """The rows of a fact file.

    Args:
        columns: the header the file must have, space separated (source and as_of are added).
        key: the columns that together may occur only once.
        today: dates after it are refused.
        clouds: the names that a column `cloud` may hold.

    Raises:
        InvalidSpec: no such file, another header, a row of another length, or a duplicate; file and row are named.
    """
    header = [*columns.split(), "source", "as_of"]
    seen: dict[tuple[str, ...], int] = {}
    file = path.name
    if not path.is_file():
        raise InvalidSpec(f"there is no file {path}", subject=str(path))
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.reader(stream)
        found = next(reader, [])
        if sorted(found) != sorted(header):
            raise InvalidSpec(f"{file}, row 1: the columns must be {', '.join(header)}", subject=f"{file}, row 1")
        for cells in reader:
            row = Row(path, reader.line_num, dict(zip(found, cells, strict=False)), today, clouds)
            if len(cells) != len(found):
                raise row.wrong(f"has {len(cells)} cells instead of {len(found)}")
            identity = tuple(row._cells[column] for column in key)
            if identity in seen:
                raise row.wrong(f"repeats row {seen[identity]} ({', '.join(identity)})")
            seen[identity] = reader.line_num
            yield row
