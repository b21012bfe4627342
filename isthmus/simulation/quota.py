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


def limit(account: Account, quota: Quota, place: str) -> float:
    """The limit that applies in a place: its own, else its region's (of a zone), else everywhere's, else the start."""
    found = {
        row["place"]: float(row["value"])
        for row in account.database.execute("SELECT place, value FROM quotas WHERE code = ?", (quota.code,))
    }
    for name in (place, place[:-1], EVERYWHERE):
        if name in found:
            return found[name]
    return quota.start


def used(account: Account, code: str, place: str) -> float:
    """How much of a quota is taken in a place."""
    row = account.database.execute(
        "SELECT coalesce(sum(amount), 0) AS total FROM usage WHERE code = ? AND place = ?", (code, place)
    ).fetchone()
    return float(row["total"])


def set_limit(account: Account, code: str, value: float, place: str = EVERYWHERE) -> None:
    """Change a limit; nothing that exists is taken away."""
    with account.transaction() as database:
        if place == EVERYWHERE:
            database.execute("DELETE FROM quotas WHERE code = ?", (code,))
        database.execute("INSERT OR REPLACE INTO quotas VALUES (?, ?, ?)", (code, place, value))


def take(
    account: Account,
    resource: tuple[str, str],
    amounts: Iterable[Usage],
    quotas: Callable[[str], Quota | None],
    refuse: Refusal,
) -> None:
    """Record what a resource takes, in place of what it took before. Call inside a transaction.

    Args:
        resource: its type and key.
        quotas: the quota of a code, or None when its limit does not count now.

    Raises:
        CloudError: a limit would be passed (made by `refuse`).
    """
    with account.transaction() as database:
        before = {
            (row["place"], row["code"]): float(row["amount"])
            for row in database.execute("SELECT * FROM usage WHERE type = ? AND key = ?", resource)
        }
        database.execute("DELETE FROM usage WHERE type = ? AND key = ?", resource)
        for item in amounts:
            quota = quotas(item.code)
            if quota is not None and item.amount > before.get((item.place, item.code), 0.0):
                _check(account, quota, item, refuse)
            database.execute(
                "INSERT INTO usage VALUES (?, ?, ?, ?, ?)", (*resource, item.place, item.code, item.amount)
            )


def _check(account: Account, quota: Quota, item: Usage, refuse: Refusal) -> None:
    allowed, taken = limit(account, quota, item.place), used(account, quota.code, item.place)
    if taken + item.amount > allowed:
        raise refuse(quota, allowed, taken, item.amount)
