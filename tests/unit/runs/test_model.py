"""Durations and words."""

import pytest

from isthmus.runs.model import parse_duration, show_seconds
from isthmus.specs.errors import InvalidSpec


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("90", 90), ("2m", 120), ("1h30m", 5400), ("1.5h", 5400), ("1m5s", 65), ("0.5s", 0.5)],
)
def test_durations_are_those_of_go(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "1d", "0", "0s", "5m2h", "8000h", "1 m", "NaN"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec, match="duration"):
        parse_duration(text)


def test_seconds_are_shown_for_people() -> None:
    assert [show_seconds(s) for s in (None, 0.04, 43.2, 192, 7500)] == [
        "unknown",
        "0.0 s",
        "43.2 s",
        "3 min 12 s",
        "2 h 5 min",
    ]
