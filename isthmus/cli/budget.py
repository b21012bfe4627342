"""isthmus cost budget: what a user or project may use in a period; `isthmus run` asks before it submits."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from isthmus.cli.output import print_rows
from isthmus.specs.errors import InvalidSpec, IsthmusError

if TYPE_CHECKING:
    from isthmus.billing.budgets import Amount, Used
    from isthmus.runs.model import Run
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
    from isthmus.cli.run import open_store
    from isthmus.runs import ledger

    store, now = open_store(), datetime.now(UTC)
    rows = []
    for budget in ledger.budgets(store):
        [standing] = standings([budget], _used(store, now, simulated=budget.simulated), now=now)
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


def check_budgets(
    store: "Store",
    spec: "WorkloadSpec",
    *,
    stack: str,
    user: str,
    project: str,
    seconds: float | None,
    tell: Callable[[str], None],
) -> None:
    """Refuse a run that a budget of its user or project does not allow, and tell the forecast where there is one.

    Args:
        seconds: how long it is told to take, where it only schedules; else its workload says so.

    Raises:
        Refused: with the figures.
    """
    from isthmus import catalog
    from isthmus.billing.budgets import check, standings
    from isthmus.cli import project as stacks
    from isthmus.runs import ledger

    settings, now = stacks.settings(stack), datetime.now(UTC)
    if not catalog.load().has_prices(settings.cloud):
        return  # it runs on this machine and uses nothing that a budget counts
    simulated = settings.mode == "simulated"
    names = {"user": user, "project": project}
    budgets = [b for b in ledger.budgets(store) if b.simulated == simulated and names[b.kind] == b.name]
    if not budgets:
        return
    asked = expected(spec, settings, seconds)
    found = standings(budgets, _used(store, now, simulated=simulated), now=now, asked=asked)
    check(found)
    usd = "an unknown amount" if asked.usd is None else f"{asked.usd:.4f} USD"
    kind = "simulated budget" if simulated else "budget"
    of = ", ".join(f"{item.budget.kind} {item.budget.name}" for item in found)
    tell(f"forecast {usd} and {asked.gpu_hours:.4f} GPU-hours, within the {kind} of {of}")


def expected(spec: "WorkloadSpec", settings: "StackSettings", seconds: float | None = None) -> "Amount":
    """What a run on a stack is forecast to use: on the machine of the pool with its cards, for its workload's hours."""
    from isthmus import catalog
    from isthmus.billing.budgets import forecast

    facts = catalog.load()
    hours = spec.cost.hours if seconds is None else Decimal(repr(seconds)) / 3600
    wanted = spec.gpu.model if spec.gpu else None
    pools = [
        pool
        for pool in settings.cluster.pools
        if bool(pool.gpu) == bool(spec.gpus) and (wanted is None or (pool.gpu and pool.gpu.model == wanted))
    ]
    pool = next((pool for pool in pools if pool.size), pools[0] if pools else None)
    if pool is None:
        return forecast(spec, facts, None, hours=hours)
    try:
        shape = facts.machine_for(settings.cloud, settings.region, pool.gpu, pool.instance_type)
    except InvalidSpec:
        return forecast(spec, facts, None, hours=hours)
    offer = facts.offer(shape, settings.region, "spot" if pool.spot else "on-demand")
    return forecast(spec, facts, offer, hours=hours, sharers=max(pool.sharing.shares, 1))


def _used(store: "Store", now: datetime, *, simulated: bool) -> "Callable[[datetime], list[Used]]":
    from isthmus import catalog
    from isthmus.billing.budgets import NOTHING
    from isthmus.billing.gather import used_since

    def ahead(run: "Run") -> Any:
        settings = _settings(run.stack)
        return NOTHING if settings is None else expected(run.spec, settings, run.simulated_seconds)

    return used_since(store, catalog.load(), _settings, simulated=simulated, now=now, expected=ahead)


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
