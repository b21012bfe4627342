"""Prices as the clouds' own APIs give them, before they become rows of the catalog."""

from decimal import Decimal

import pytest

from isthmus.catalog.upkeep.quotes import price_of
from isthmus.specs.errors import InvalidSpec


def test_a_price_in_dollars_is_taken_to_its_last_digit() -> None:
    assert price_of("0.5260000000", "USD", "offer 1") == Decimal("0.526")


@pytest.mark.parametrize("currency", ["CNY", "EUR", "usd", ""])
def test_another_currency_is_refused_and_never_converted(currency: str) -> None:
    with pytest.raises(InvalidSpec, match="only USD is read") as caught:
        price_of("0.526", currency, "offer 1")
    assert "offer 1" in caught.value.message


@pytest.mark.parametrize("text", ["", "cheap", "-1", "NaN", "inf"])
def test_a_price_that_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec):
        price_of(text, "USD", "offer 1")
