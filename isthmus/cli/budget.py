"""isthmus cost budget: what a user or project may use in a period; `isthmus run` asks before it submits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from isthmus.cli.output import print_rows
from isthmus.specs.errors import InvalidSpec, IsthmusError

if TYPE_CHECKING:
    from isthmus.runs.store import Store
    from isthmus.specs.stack import StackSettings
    from isthmus.specs.workload import WorkloadSpec

app = App(name="budget", help="Limit what a user or project may use.")

Json = Annotated[bool, Parameter(negative="")]
Flag = Annotated[bool, Parameter(negative="")]
Kind = Literal["user", "project"]


@app.command(name="set")
def set_budget(
    *,
    user: str | None = None,
    project: str | None = None,
    usd: str | None = None,
    gpu_hours: str | None = None,
    period: Literal["day", "week", "month"] = "month",
    simulated: Flag = False,
) -> None:
    """Set what a user or project may use in a period. A run that would exceed it is refused before it is submitted.

    Parameters
    ----------
    user
        Login name of a user.
    project
        Name of a project (isthmus run --project).
    usd
        Money, at list prices. At least one of --usd and --gpu-hours.
    gpu_hours
        Hours times cards; a quarter of a card for four hours is one.
    period
        day, week (from Monday) or month, in UTC.
    simulated
        For runs on simulated stacks, which are counted apart.
    """
    from isthmus.cli.run import open_store
    from isthmus.runs import ledger

    kind, name = _owner(user, project)
    limits = {"--usd": _limit(usd, "--usd"), "--gpu-hours": _limit(gpu_hours, "--gpu-hours")}
    if not any(limit is not None for limit in limits.values()):
        raise InvalidSpec(
            "give --usd or --gpu-hours", subject=f"{kind} {name}", remedy="isthmus cost budget set --help"
        )
    row = ledger.BudgetRow(kind, name, period, limits["--usd"], limits["--gpu-hours"], simulated)
    ledger.set_budget(open_store(), row)
    print(f"{kind} {name}: {_words(row)}")


@app.command
def remove(*, user: str | None = None, project: str | None = None, simulated: Flag = False) -> None:
    """Remove the budget of a user or project.

    Parameters
    ----------
    user
        Login name of a user.
    project
        Name of a project.
    simulated
        The one for simulated stacks.
    """
    from isthmus.cli.run import open_store
    from isthmus.runs import ledger

    kind, name = _owner(user, project)
    ledger.remove_budget(open_store(), kind, name, simulated=simulated)
    print(f"{kind} {name}: no {'simulated ' if simulated else ''}budget")


@app.command(name="list")
def list_budgets(*, json: Json = False) -> None:
    """List budgets, and what has been used of each in its period.

    Parameters
    ----------
    json
        Print JSON.
    """
    from isthmus.billing.budgets import standings
    from isthmus.billing.guard import used
    from isthmus.cli.run import open_store
    from isthmus.runs import ledger

    store, now = open_store(), datetime.now(UTC)
    rows = []
    for budget in ledger.budgets(store):
        [standing] = standings([budget], used(store, _settings, now, simulated=budget.simulated), now=now)
        rows.append(
            {
                "whose": f"{budget.kind} {budget.name}",
                "period": budget.period,
                "usd": budget.usd,
                "usd_used": "unknown" if standing.spent.usd is None else f"{standing.spent.usd:.4f}",
                "gpu_hours": budget.gpu_hours,
                "gpu_hours_used": f"{standing.spent.gpu_hours:.4f}",
                "source": "simulated" if budget.simulated else "measured",
            }
        )
    columns = ["whose", "period", "usd", "usd_used", "gpu_hours", "gpu_hours_used", "source"]
    print_rows(rows, columns, as_json=json, empty="no budgets; isthmus cost budget set --project NAME --usd 100")


@contextmanager
def within_budgets(
    store: "Store",
    spec: "WorkloadSpec",
    *,
    stack: str,
    user: str,
    project: str,
    seconds: float | None,
    tell: Callable[[str], None],
) -> Iterator[None]:
    """Refuse a run that a budget of its user or project does not allow; see billing.guard.within_budgets."""
    from isthmus.billing import guard
    from isthmus.cli import project as stacks

    stacks.settings(stack)  # the name of a stack that never was is a slip of the keyboard
    with guard.within_budgets(
        store,
        spec,
        _settings,
        stack=stack,
        user=user,
        project=project,
        seconds=seconds,
        now=datetime.now(UTC),
        tell=tell,
    ):
        yield


def _settings(stack: str) -> "StackSettings | None":
    from isthmus.cli import project

    try:
        return project.settings(stack)
    except IsthmusError:
        return None  # the stack's file is gone


def _owner(user: str | None, project: str | None) -> tuple[Kind, str]:
    if (user is None) == (project is None) or not (user or project):
        raise InvalidSpec(
            "give one of --user and --project", remedy="isthmus cost budget set --project vision --usd 100"
        )
    return ("user", user) if user else ("project", project or "")


def _limit(text: str | None, option: str) -> Decimal | None:
    from decimal import InvalidOperation

    if text is None:
        return None
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise InvalidSpec(f"{option} must be a number, not {text!r}", subject=option, remedy=f"{option} 100") from error
    if not (value.is_finite() and value >= 0):
        raise InvalidSpec(f"{option} must be 0 or more, not {text}", subject=option, remedy=f"{option} 100")
    return value


def _words(row: Any) -> str:
    limits = [f"{row.usd} USD"] if row.usd is not None else []
    limits += [f"{row.gpu_hours} GPU-hours"] if row.gpu_hours is not None else []
    return f"{' and '.join(limits)} a {row.period}{', on simulated stacks' if row.simulated else ''}"
