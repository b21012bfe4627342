"""A price that a cloud gave, and reading from its server."""

import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import IO

from isthmus.specs.errors import InvalidSpec, NotReady

SECONDS = 60.0
"""How long a price server may be silent."""


@dataclass(frozen=True, slots=True)
class Quote:
    """One price of one machine or card, as the cloud gave it."""

    cloud: str
    region: str
    thing: str
    """An instance type, or a card's model."""
    purchase: str
    """on-demand, spot, 1-year or 3-year."""
    usd_per_hour: Decimal
    source: str
    as_of: date


@contextmanager
def opened(url: str, headers: Mapping[str, str] | None = None) -> Iterator[IO[bytes]]:
    """The body of a page, to be read as it comes.

    Raises:
        NotReady: the server cannot be reached, or answers with an error.
    """
    request = urllib.request.Request(url, headers={"User-Agent": "isthmus", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            yield answer
    except urllib.error.HTTPError as error:
        raise NotReady(
            f"the price server answered {error.code} {error.reason}",
            subject=url,
            remedy="check the region's name, the key and the network, then the same command",
        ) from error
    except (OSError, urllib.error.URLError) as error:
        raise NotReady(f"the price server cannot be read: {error}", subject=url, remedy="try again later") from error


def price_of(text: str, currency: str, where: str) -> Decimal:
    """A price in USD.

    Raises:
        InvalidSpec: it is in another currency, or no number of 0 or more; nothing is converted.
    """
    if currency != "USD":
        raise InvalidSpec(
            f"{where}: the price is in {currency or 'no currency'}, only USD is read", subject=where,
            remedy="ask the price server of the commercial regions",
        )  # fmt: skip
    try:
        price = Decimal(text)
    except InvalidOperation as error:
        raise InvalidSpec(f"{where}: {text!r} is no price", subject=where) from error
    if not price.is_finite() or price < 0:
        raise InvalidSpec(f"{where}: {text!r} is no price", subject=where)
    return price
