"""Asks the budgets before a run is submitted: what it is forecast to use, and whether that still fits.

The command line and the training service ask here, so that a budget holds whichever way a run comes in.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from typing import Any

from isthmus import catalog
from isthmus.billing.budgets import NOTHING, Amount, Used, check, forecast, standings
from isthmus.billing.gather import used_since
from isthmus.localcluster.locks import exclusive
from isthmus.runs import ledger
from isthmus.runs.model import Run
from isthmus.runs.store import Store
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.stack import StackSettings
from isthmus.specs.workload import WorkloadSpec
from isthmus.toolchain import home

SettingsOf = Callable[[str], StackSettings | None]
"""Settings of a stack by its name; None where it has none any more."""

SUBMIT_SECONDS = 120.0
"""How long a submission waits for one that is asking the same budgets; a submission itself takes seconds."""


@contextmanager
def within_budgets(
    store: Store,
    spec: WorkloadSpec,
    settings_of: SettingsOf,
    *,
    stack: str,
    user: str,
    project: str,
    seconds: float | None,
    now: datetime,
    queued: Callable[[], Amount] = lambda: NOTHING,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[None]:
    """Refuse a run that a budget of its user or project does not allow, and tell the forecast where there is one. The run is
    submitted inside: until it is written down nobody else is let past the same check.

    Args:
        seconds: how long it is told to take, where it only schedules; else its workload says so.
        queued: tells what runs were promised that runs.db does not know yet; asked only where there is a budget.

    Raises:
        Refused: with the figures; or another submission did not come to its end.
    """
    settings = settings_of(stack)
    if settings is None or not catalog.load().has_prices(settings.cloud):
        yield  # it runs on this machine and uses nothing that a budget counts
        return
    simulated = settings.mode == "simulated"
    names = {"user": user, "project": project}
    budgets = [b for b in ledger.budgets(store) if b.simulated == simulated and names[b.kind] == b.name]
    if not budgets:
        yield
        return
    asked = expected(spec, settings, seconds)
    usd = "an unknown amount" if asked.usd is None else f"{asked.usd:.4f} USD"
    kind = "simulated budget" if simulated else "budget"
    of = ", ".join(f"{item.kind} {item.name}" for item in budgets)
    lock = home.runs_db().with_name(".budgets.lock")
    with exclusive(lock, what=f"the {kind} of {of}", doing=f"submit {spec.name}", seconds=SUBMIT_SECONDS):
        check(standings(budgets, used(store, settings_of, now, simulated=simulated), now=now, asked=asked + queued()))
        tell(f"forecast {usd} and {asked.gpu_hours:.4f} GPU-hours, within the {kind} of {of}")
        yield


def expected(spec: WorkloadSpec, settings: StackSettings, seconds: float | None = None) -> Amount:
    """What a run on a stack is forecast to use: on the machine of the pool with its cards, for its workload's hours."""
    facts = catalog.load()
    hours = spec.cost.hours if seconds is None else Decimal(repr(seconds)) / 3600
    wanted = spec.gpu.model if spec.gpu else None
    pools = [
        pool
        for pool in settings.cluster.pools
        if bool(pool.gpu) == spec.on_cards and (wanted is None or (pool.gpu and pool.gpu.model == wanted))
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


def used(store: Store, settings_of: SettingsOf, now: datetime, *, simulated: bool) -> Callable[[datetime], list[Used]]:
    """What each run in runs.db has used since a moment, on simulated stacks or on all others."""

    def ahead(run: Run) -> Any:
        settings = settings_of(run.stack)
        return NOTHING if settings is None else expected(run.spec, settings, run.simulated_seconds)

    return used_since(store, catalog.load(), settings_of, simulated=simulated, now=now, expected=ahead)
