"""Zone capacity: how many machines of a type a zone still has, and stock-outs.

Without a setting a zone has as many as anyone asks for. `isthmus sim capacity ACCOUNT ZONE MACHINE COUNT` sets what is
there; 0 is a stock-out. Which machines a zone offers at all is a fact of the catalog, checked by the resource types.
The text of the refusal is the cloud's own and made by the resource type.
"""

from collections.abc import Callable, Iterable

from isthmus.simulation.account import Account
from isthmus.simulation.resource import CloudError, Placement

Refusal = Callable[[Placement, list[str]], CloudError]
"""The cloud's error from the refused placement and the zones that still have such machines."""


def available(account: Account, zone: str, machine: str) -> int | None:
    """Machines left in a zone, or None when there is no limit."""
    row = account.database.execute(
        "SELECT available FROM capacity WHERE zone = ? AND machine = ?", (zone, machine)
    ).fetchone()
    if row is None:
        return None
    taken = account.database.execute(
        "SELECT coalesce(sum(count), 0) AS total FROM placements WHERE zone = ? AND machine = ?", (zone, machine)
    ).fetchone()
    return int(row["available"]) - int(taken["total"])


def set_available(account: Account, zone: str, machine: str, count: int | None) -> None:
    """Set how many machines a zone has for this account in all; None lifts the limit."""
    with account.transaction() as database:
        database.execute("DELETE FROM capacity WHERE zone = ? AND machine = ?", (zone, machine))
        if count is not None:
            database.execute("INSERT INTO capacity VALUES (?, ?, ?)", (zone, machine, count))


def place(
    account: Account,
    resource: tuple[str, str],
    placements: Iterable[Placement],
    zones: Iterable[str],
    refuse: Refusal,
) -> None:
    """Record where a resource's machines are, in place of what it had before. Call inside a transaction.

    Args:
        zones: the region's zones, to name those with room in the refusal.

    Raises:
        CloudError: a zone has not enough (made by `refuse`).
    """
    with account.transaction() as database:
        held = {
            (row["zone"], row["machine"]): int(row["count"])
            for row in database.execute("SELECT * FROM placements WHERE type = ? AND key = ?", resource)
        }
        database.execute("DELETE FROM placements WHERE type = ? AND key = ?", resource)
        for item in placements:
            left = available(account, item.zone, item.machine)
            if left is not None and item.count > left and item.count > held.get((item.zone, item.machine), 0):
                raise refuse(item, _zones_with_room(account, item, zones))
            _write(account, resource, item)


def put_back(account: Account, resource: tuple[str, str], placements: Iterable[Placement]) -> None:
    """Record placements without asking whether there is room: what a failed update had before."""
    with account.transaction() as database:
        database.execute("DELETE FROM placements WHERE type = ? AND key = ?", resource)
        for item in placements:
            _write(account, resource, item)


def _write(account: Account, resource: tuple[str, str], item: Placement) -> None:
    account.database.execute(
        "INSERT INTO placements VALUES (?, ?, ?, ?, ?, ?)", (*resource, item.zone, item.machine, item.spot, item.count)
    )


def _zones_with_room(account: Account, wanted: Placement, zones: Iterable[str]) -> list[str]:
    def has_room(zone: str) -> bool:
        left = available(account, zone, wanted.machine)
        return left is None or left >= wanted.count

    return [zone for zone in zones if zone != wanted.zone and has_room(zone)]
