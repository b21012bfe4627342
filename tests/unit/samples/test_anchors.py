"""Anchors on models that are known, and the census's groups."""

import csv
import gzip
from collections.abc import Callable
from typing import Any

import anchors
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.load import SAMPLES


def people(seed: int = 0) -> anchors.People:
    """2,000 rows: a number from 0 to 1 and three categories of three values."""
    random = np.random.RandomState(seed)
    rows = np.c_[random.rand(2000), random.randint(0, 3, (2000, 3))]
    return anchors.People(rows, frozenset({0}), random)


def says(rule: Callable[[Any], Any]) -> anchors.Predict:
    return lambda rows: rule(rows).astype(int)


@pytest.mark.parametrize(
    ("rule", "features"),
    [
        (lambda rows: rows[:, 2] == 1, (2,)),
        (lambda rows: rows[:, 0] < 0.25, (0,)),
        (lambda rows: (rows[:, 1] == 0) & (rows[:, 3] == 2), (1, 3)),
    ],
)
def test_the_anchor_is_what_the_model_goes_by(rule: Callable[[Any], Any], features: tuple[int, ...]) -> None:
    row = np.array([0.1, 0.0, 1.0, 2.0])
    found = anchors.explain(says(rule), row, people(), precision=0.95)
    assert found.features == features
    assert found.precision >= 0.95
    assert found.coverage == pytest.approx({1: 0.3, 2: 0.11}[len(features)], abs=0.1)


def test_a_model_that_always_says_the_same_needs_one_feature_that_most_rows_have() -> None:
    found = anchors.explain(says(lambda rows: rows[:, 0] > -1), np.zeros(4), people(), precision=0.95)
    assert len(found.features) == 1 and found.precision == 1


def test_a_model_that_contradicts_itself_has_no_anchor() -> None:
    random = np.random.RandomState(5)
    with pytest.raises(ValueError, match=r"precision of 0\.95"):
        anchors.explain(says(lambda rows: random.rand(len(rows)) < 0.5), np.zeros(4), people(), precision=0.95)


@settings(deadline=None)
@given(mean=st.floats(0, 1), level=st.floats(0.001, 2))
def test_bounds_hold_the_mean_between_them(mean: float, level: float) -> None:
    low, high = anchors._bound(mean, level, -1), anchors._bound(mean, level, +1)
    assert 0 <= low <= mean <= high <= 1


def test_every_group_is_of_a_value_that_the_census_has() -> None:
    folder = SAMPLES / "census-income"
    columns = ["age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
               "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country"]  # fmt: skip
    rows = list(csv.reader(gzip.decompress((folder / "adult.data.gz").read_bytes()).decode().splitlines()))
    values = {
        (name, row[place].strip()) for row in rows if row for place, name in enumerate(columns) if len(row) > place
    }
    groups = {(row["column"], row["value"]) for row in csv.DictReader((folder / "groups.csv").open())}
    assert groups <= values
    assert {name for name, _ in groups} == {"education", "marital-status", "occupation", "native-country"}
