"""Account quotas: how many of something an account may have in a region.

Names, codes and the clouds' own defaults come from the catalog (isthmus/catalog/data/quotas.csv). A simulated account
does not start with the zeros a new real one has for GPUs: `STARTING` gives it enough for the demo, and COVERAGE.md says
so. What a resource takes is written with it, in the same transaction that checks the limit, so two writers cannot both
take the last of it. Shortage in a zone is not a quota: see capacity.py.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from isthmus.simulation.account import Account
from isthmus.simulation.resource import CloudError, Usage

EVERYWHERE = "*"


@dataclass(frozen=True)
class Quota:
    """One quota as the cloud names it."""

    code: str
    name: str
    unit: str
    default: float | None
    """A new real account's limit, or None where no source says it."""
    start: float
    """The limit a simulated account starts with."""
    source: str


Refusal = Callable[[Quota, float, float, float], CloudError]
"""The cloud's error from (quota, limit, already used, asked for)."""


def limit(account: Account, quota: Quota, region: str) -> float:
    """The limit that applies in a region: the region's own, else the one for everywhere, else the starting one."""
    found = {
        row["region"]: float(row["value"])
        for row in account.database.execute("SELECT region, value FROM quotas WHERE code = ?", (quota.code,))
    }
    return found.get(region, found.get(EVERYWHERE, quota.start))


def used(account: Account, code: str, region: str, *, besides: tuple[str, str] = ("", "")) -> float:
    """How much of a quota is taken in a region, leaving out one resource (type, id)."""
    row = account.database.execute(
        "SELECT coalesce(sum(amount), 0) AS total FROM usage WHERE code = ? AND region = ? AND NOT (type = ? AND id = ?)",
        (code, region, *besides),
    ).fetchone()
    return float(row["total"])


def set_limit(account: Account, code: str, value: float, region: str = EVERYWHERE) -> None:
    """Change a limit; nothing that exists is taken away."""
    with account.transaction() as database:
        if region == EVERYWHERE:
            database.execute("DELETE FROM quotas WHERE code = ?", (code,))
        database.execute("INSERT OR REPLACE INTO quotas VALUES (?, ?, ?)", (code, region, value))


def take(
    account: Account,
    resource: tuple[str, str],
    region: str,
    amounts: Iterable[Usage],
    quotas: Callable[[str], Quota | None],
    refuse: Refusal,
) -> None:
    """Record what a resource takes, in place of what it took before. Call inside a transaction.

    Raises:
        CloudError: a limit would be passed (made by `refuse`).
    """
    with account.transaction() as database:
        before = {
            row["code"]: float(row["amount"])
            for row in database.execute("SELECT code, amount FROM usage WHERE type = ? AND id = ?", resource)
        }
        database.execute("DELETE FROM usage WHERE type = ? AND id = ?", resource)
        for item in amounts:
            quota = quotas(item.code)
            if quota is not None and item.amount > before.get(item.code, 0.0):
                _check(account, quota, region, item.amount, refuse)
            database.execute("INSERT INTO usage VALUES (?, ?, ?, ?, ?)", (*resource, region, item.code, item.amount))


def _check(account: Account, quota: Quota, region: str, amount: float, refuse: Refusal) -> None:
    allowed, taken = limit(account, quota, region), used(account, quota.code, region)
    if taken + amount > allowed:
        raise refuse(quota, allowed, taken, amount)
