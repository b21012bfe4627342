"""Modes side by side: what fits, what a job-hour costs, what others measured."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus import catalog
from isthmus.sharing.compare import card_prices, compare
from isthmus.specs.errors import InvalidSpec

FACTS = catalog.load()
MODELS = [gpu.model for gpu in FACTS.gpus()]


def test_seven_small_jobs_on_an_a100() -> None:
    none, sliced, mps, mig, dra = compare(FACTS, "A100", 7, memory_mib=4096)
    assert dra.setting == "each job claims a 1g.5gb" and dra.usd_per_job_hour == mig.usd_per_job_hour
    assert [way.jobs_per_card for way in (none, sliced, mps, mig)] == [1, 7, 7, 7]
    assert [way.cards for way in (none, sliced, mps, mig)] == [7, 1, 1, 1]
    assert mig.setting == "layout: {1g.5gb: 7}" and mig.memory_mib_each == 4864
    assert mps.isolation["error isolation"] == "yes / no"  # the sources disagree, so both are shown
    price = card_prices(FACTS, FACTS.gpu("A100"))["aws"]
    assert price is not None and none.usd_per_job_hour["aws"] == price.usd_per_hour
    assert mig.usd_per_job_hour["aws"] == price.usd_per_hour / 7


def test_jobs_that_need_more_memory_get_larger_instances() -> None:
    *_, mig, _ = compare(FACTS, "A100-80GB", 4, memory_mib=15000)
    assert mig.setting == "layout: {1g.20gb: 4}"
    _, sliced, mps, mig, dra = compare(FACTS, "A100", 4, memory_mib=30000)
    assert (sliced.jobs_per_card, mps.jobs_per_card, mig.jobs_per_card) == (1, 1, 0)
    assert "enough memory" in mig.note
    assert (dra.jobs_per_card, dra.setting) == (1, "each job claims a card")


def test_a_card_without_mig_says_so() -> None:
    *_, mig, dra = compare(FACTS, "T4", 4)
    assert dra.setting == "all claim one card, strategy MPS, clients: 4"
    assert (mig.jobs_per_card, mig.setting, mig.note) == (0, "", "the T4 has no MIG")


@given(st.sampled_from(MODELS), st.integers(1, 200), st.integers(0, 14_000))
def test_no_way_promises_more_than_the_card_has(model: str, jobs: int, memory: int) -> None:
    for way in compare(FACTS, model, jobs, memory_mib=memory):
        if not way.jobs_per_card:
            continue
        assert way.jobs_per_card * way.memory_mib_each <= FACTS.gpu(model).memory_mib
        assert way.memory_mib_each >= memory
        assert way.cards * way.jobs_per_card >= jobs > (way.cards - 1) * way.jobs_per_card
        whole = compare(FACTS, model, jobs)[0].usd_per_job_hour
        for cloud, price in way.usd_per_job_hour.items():
            assert price is None or Decimal(0) < price <= (whole[cloud] or price)


@pytest.mark.parametrize(("jobs", "memory"), [(0, 0), (4, 999_999)])
def test_impossible_questions_are_refused(jobs: int, memory: int) -> None:
    with pytest.raises(InvalidSpec):
        compare(FACTS, "T4", jobs, memory_mib=memory)


def test_published_figures_carry_their_source() -> None:
    figures = [item for mode in ("time-slicing", "mps", "mig") for item in FACTS.sharing_measurements(mode)]
    assert len(figures) == 13 and all(item.source for item in figures)
