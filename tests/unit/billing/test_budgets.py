"""Budgets: by user and project, in money and GPU-hours, over a period; fractions of a card count as fractions."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.billing.budgets import NOTHING, Amount, Used, check, forecast, period_start, standings
from isthmus.billing.gather import used_since
from isthmus.catalog import load
from isthmus.runs.ledger import BudgetRow
from isthmus.runs.model import Run, State
from isthmus.runs.store import Store
from isthmus.specs.errors import Refused
from isthmus.specs.stack import StackSettings
from isthmus.specs.workload import WorkloadSpec

from .conftest import at

VISION = BudgetRow("project", "vision", "month", Decimal(10), None, simulated=False)


def used(*amounts: tuple[str, str, str, str]) -> Callable[[datetime], list[Used]]:
    """Runs of a user for a project with USD and GPU-hours."""
    runs = [
        Used(f"r{i}", user, project, Amount(Decimal(usd), Decimal(hours)))
        for i, (user, project, usd, hours) in enumerate(amounts)
    ]
    return lambda since: runs


def refused(budget: BudgetRow, before: Callable[[datetime], list[Used]], asked: Amount) -> str:
    try:
        check(standings([budget], before, now=at(0), asked=asked))
    except Refused as error:
        return error.message
    return ""


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("4", ""),
        ("4.01", "budget of project vision: 6.0000 USD used and 4.0100 USD forecast are more than 10 USD a month"),
    ],
)
def test_money_up_to_the_limit_is_allowed_and_no_more(asked: str, message: str) -> None:
    before = used(("ada", "vision", "5", "1"), ("bob", "vision", "1", "1"), ("ada", "nlp", "99", "99"))
    assert refused(VISION, before, Amount(Decimal(asked), Decimal(0))) == message


def test_gpu_hours_count_fractions_of_a_card() -> None:
    budget = BudgetRow("user", "ada", "day", None, Decimal(1), simulated=True)
    before = used(("ada", "vision", "5", "0.75"), ("bob", "vision", "1", "9"))
    assert refused(budget, before, Amount(None, Decimal("0.25"))) == "", "money is not limited, so it need not be known"
    assert refused(budget, before, Amount(None, Decimal("0.26"))) == (
        "simulated budget of user ada: 0.75 GPU-hours used and 0.26 forecast are more than 1 a day"
    )


def test_an_unknown_price_cannot_be_shown_to_hold_and_is_refused() -> None:
    assert "a price is not known, so 10 USD a month cannot be shown to hold" in refused(
        VISION, used(), Amount(None, Decimal(0))
    )


def test_a_budget_of_nothing_allows_nothing() -> None:
    assert refused(replace(VISION, usd=Decimal(0)), used(), Amount(Decimal("0.01"), Decimal(0)))


@pytest.mark.parametrize(
    ("period", "start"), [("day", (2026, 11, 30)), ("week", (2026, 11, 30)), ("month", (2026, 11, 1))]
)
def test_periods_begin_at_midnight_monday_and_the_first(period, start) -> None:
    assert period_start(period, datetime(2026, 11, 30, 13, 5, tzinfo=UTC)) == datetime(*start, tzinfo=UTC)
    assert period_start("week", datetime(2026, 12, 6, 23, 59, tzinfo=UTC)) == datetime(2026, 11, 30, tzinfo=UTC)


def test_a_run_is_forecast_its_share_of_its_machine(spec: WorkloadSpec) -> None:
    """Four cards of four, 4 of 47.81 cores, 4 GiB of 174.7: each by its part of 3.912 USD/h."""
    catalog = load()
    offer = catalog.offer(catalog.shape("aws", "g4dn.12xlarge"), "us-east-1", "on-demand")
    found = forecast(spec, catalog, offer, hours=Decimal(2))
    rate = catalog.host_rate("aws", "us-east-1")
    assert rate is not None and found.usd is not None
    cpu, memory = 48 * rate.usd_per_vcpu_hour, 192 * rate.usd_per_gib_hour
    cards = Decimal("3.912") - cpu - memory
    expected = 2 * (cpu * 4000 / 47810 + memory * 4096 / 178933 + cards)
    assert found.usd == pytest.approx(expected, abs=Decimal("1e-12"))
    assert found.gpu_hours == 8
    shared = forecast(spec, catalog, offer, hours=Decimal(2), sharers=4)
    assert shared.gpu_hours == 2 and shared.usd is not None and shared.usd < found.usd
    assert forecast(spec, catalog, None, hours=Decimal(2)) == Amount(None, Decimal(8))


def everything(store: Store, settings: StackSettings, now: datetime, *, simulated: bool = True, asked: str = "0"):
    return used_since(
        store, load(), lambda stack: settings if stack == "aws-sim" else None, simulated=simulated, now=now,
        expected=lambda run: Amount(Decimal(asked), Decimal(asked)),
    )  # fmt: skip


def test_what_was_used_comes_from_the_pods_in_the_period(
    store: Store, settings: StackSettings, ran: Callable[..., Run]
) -> None:
    run = ran(seconds=3600, share=(1, 4), begins=-1800)
    [whole] = everything(store, settings, at(9999))(at(-9999))
    assert (whole.run, whole.user, whole.project) == (run.id, "ada", "vision")
    assert whole.amount.gpu_hours == pytest.approx(Decimal(1), abs=Decimal("1e-9")), (
        "four quarters of a card for an hour"
    )
    [half] = everything(store, settings, at(9999))(at(0))
    assert half.amount.gpu_hours == pytest.approx(Decimal("0.5"), abs=Decimal("1e-9"))
    assert half.amount.usd == pytest.approx((whole.amount.usd or 0) / 2, abs=Decimal("1e-9"))
    [none] = everything(store, settings, at(9999))(at(5000))
    assert none.amount == NOTHING


def test_a_run_that_is_not_over_counts_its_forecast_until_it_costs_more(
    store: Store, settings: StackSettings, ran: Callable[..., Run]
) -> None:
    ran(state=State.RUNNING)
    [early] = everything(store, settings, at(36), asked="7")(at(-60))
    assert early.amount == Amount(Decimal(7), Decimal(7))
    [late] = everything(store, settings, at(36000), asked="7")(at(-60))
    assert late.amount.gpu_hours == pytest.approx(Decimal(40))


def test_simulated_use_and_measured_use_have_budgets_of_their_own(
    store: Store, settings: StackSettings, ran: Callable[..., Run]
) -> None:
    ran()
    assert everything(store, settings, at(99), simulated=False)(at(-60)) == []
    assert len(everything(store, settings, at(99), simulated=True)(at(-60))) == 1


def test_runs_of_a_stack_that_has_no_settings_any_more_do_not_stop_a_budget(
    store: Store, settings: StackSettings, ran: Callable[..., Run]
) -> None:
    ran(stack="gone")
    assert everything(store, settings, at(99))(at(-60)) == []


amounts = st.lists(st.decimals("0", "50", places=3), max_size=6)


@given(amounts, st.decimals("0", "50", places=3), st.decimals("0", "200", places=3))
def test_a_run_is_allowed_exactly_when_it_fits(before: list[Decimal], asked: Decimal, limit: Decimal) -> None:
    budget = replace(VISION, usd=limit)
    runs = used(*[("ada", "vision", str(amount), "0") for amount in before])
    allowed = refused(budget, runs, Amount(asked, Decimal(0))) == ""
    assert allowed == (sum(before) + asked <= limit)
