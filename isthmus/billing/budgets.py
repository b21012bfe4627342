"""Budgets: what a user or project has used in a period, what a run would add, and whether that is allowed. Pure.

A run counts its share of its nodes (what it held, not what was idle beside it): a quarter of a card for four hours is one
GPU-hour. A run that is not over yet counts what it was forecast to cost, or what it has cost where that is more. What has
no known price is unknown, so a budget in money cannot be shown to hold: it refuses, and says so.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from isthmus.catalog import Catalog
from isthmus.costs.split import weights
from isthmus.runs.ledger import BudgetRow, Period
from isthmus.runs.observe import asked_share
from isthmus.specs.errors import Refused
from isthmus.specs.offer import Offer
from isthmus.specs.quantity import mebibytes, millicores
from isthmus.specs.workload import WorkloadSpec


@dataclass(frozen=True, slots=True)
class Amount:
    """Money and GPU-hours. `usd` None: a price is not known."""

    usd: Decimal | None
    gpu_hours: Decimal

    def __add__(self, other: "Amount") -> "Amount":
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Amount(usd, self.gpu_hours + other.gpu_hours)

    def at_least(self, other: "Amount") -> "Amount":
        """The larger of both in each."""
        usd = None if self.usd is None or other.usd is None else max(self.usd, other.usd)
        return Amount(usd, max(self.gpu_hours, other.gpu_hours))


NOTHING = Amount(Decimal(0), Decimal(0))


@dataclass(frozen=True, slots=True)
class Used:
    """What one run counts in a budget."""

    run: str
    user: str
    project: str
    amount: Amount


@dataclass(frozen=True, slots=True)
class Standing:
    """How a budget stands."""

    budget: BudgetRow
    spent: Amount
    forecast: Amount
    """What the run that is asked for would add; nothing, where none is."""

    @property
    def exceeded(self) -> list[str]:
        """Why the forecast does not fit, in words; empty where it does."""
        after = self.spent + self.forecast
        found = []
        limit = self.budget.usd
        if limit is not None and after.usd is None:
            found.append(f"a price is not known, so {limit} USD a {self.budget.period} cannot be shown to hold")
        elif limit is not None and after.usd is not None and after.usd > limit:
            found.append(
                f"{_money(self.spent.usd)} USD used and {_money(self.forecast.usd)} USD forecast are more than {limit} USD "
                f"a {self.budget.period}"
            )
        hours = self.budget.gpu_hours
        if hours is not None and after.gpu_hours > hours:
            found.append(
                f"{_hours(self.spent.gpu_hours)} GPU-hours used and {_hours(self.forecast.gpu_hours)} forecast are more than "
                f"{hours} a {self.budget.period}"
            )
        return found


def period_start(period: Period, now: datetime) -> datetime:
    """When the period that `now` is in began: the day, the week (Monday) or the month, in UTC."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if period == "month" else day


def forecast(spec: WorkloadSpec, catalog: Catalog, offer: Offer | None, *, hours: Decimal, sharers: int = 1) -> Amount:
    """What a run is expected to use: its pods' shares of the machine they will be on, for the hours its workload assumes.

    Args:
        offer: of the machine that the stack's pool has; None where that is not known.
        sharers: into how many each card is shared there; a pod that asks for one card gets one of them.
    """
    model = offer.shape.gpu_model if offer else None
    claimed = sum((role.replicas * asked_share(spec, name, model) for name, role in spec.roles.items()), Fraction(0))
    cards = Decimal(spec.gpus) / sharers + Decimal(claimed.numerator) / claimed.denominator
    gpu_hours = cards * hours
    divided = weights(catalog, offer) if offer else None
    if offer is None or divided is None or offer.usd_per_hour is None:
        return Amount(None, gpu_hours)
    has = catalog.allocatable(offer.shape.cloud, offer.shape)
    cpu = Decimal(sum(role.replicas * millicores(role.cpu) for role in spec.roles.values())) / has["cpu_millicores"]
    memory = Decimal(sum(role.replicas * mebibytes(role.memory) for role in spec.roles.values())) / has["memory_mib"]
    part = cards / offer.shape.gpu_count if offer.shape.gpu_count else Decimal(0)
    share = (cpu * divided.cpu + memory * divided.memory + part * divided.cards) / divided.total
    return Amount(share * offer.usd_per_hour * hours, gpu_hours)


def standings(
    budgets: Iterable[BudgetRow], used: Callable[[datetime], Sequence[Used]], *, now: datetime, asked: Amount = NOTHING
) -> list[Standing]:
    """How budgets stand now, each in its own period.

    Args:
        used: what runs have used since a moment, simulated ones or others as the budgets are.
        asked: what a run would add to each of them.
    """
    found = []
    for budget in budgets:
        runs = used(period_start(budget.period, now))
        spent = sum((item.amount for item in runs if getattr(item, budget.kind) == budget.name), NOTHING)
        found.append(Standing(budget, spent, asked))
    return found


def check(standing: Iterable[Standing]) -> None:
    """Refuse a run that a budget does not allow.

    Raises:
        Refused: with the figures of each budget that it would exceed.
    """
    problems = [
        f"{'simulated ' if item.budget.simulated else ''}budget of {item.budget.kind} {item.budget.name}: {reason}"
        for item in standing
        for reason in item.exceeded
    ]
    if problems:
        raise Refused(
            "; ".join(problems),
            subject=problems[0].partition(":")[0],
            remedy="isthmus cost budget list shows what is left; isthmus cost budget set changes it",
        )


def _money(usd: Decimal | None) -> str:
    return "unknown" if usd is None else f"{usd:.4f}"


def _hours(hours: Decimal) -> str:
    return f"{hours:.4f}".rstrip("0").rstrip(".")
