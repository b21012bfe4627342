"""Faults that a user orders: what to fail, what to slow down, what to leave lying about.

A fault names an operation and a resource type (a glob over tokens) and acts on the n-th matching call and the
`times - 1` after it (0: for ever). Kinds: `error` (refuse with a code and text), `latency` (wait real seconds), and
`detach` (network interfaces of deleted machines stay attached for so many seconds, case A04). Counting is kept in the
account's file, so it survives the provider's process.
"""

import fnmatch
import threading
import time
from dataclasses import dataclass

from isthmus.simulation import clock
from isthmus.simulation.account import Account
from isthmus.simulation.resource import CloudError

KINDS = ("error", "latency", "detach")
OPERATIONS = ("create", "read", "update", "delete", "invoke")
DEFAULT_CODE = "InternalFailure"
DEFAULT_MESSAGE = "An internal error has occurred (a fault ordered by isthmus sim fault)"


@dataclass(frozen=True)
class Fault:
    """One ordered fault."""

    kind: str
    operation: str = "create"
    type: str = "*"
    nth: int = 1
    times: int = 1
    seconds: float = 0.0
    code: str = DEFAULT_CODE
    message: str = DEFAULT_MESSAGE
    id: int = 0
    seen: int = 0

    @property
    def spent(self) -> bool:
        """Whether it will never act again."""
        return self.times > 0 and self.seen >= self.nth + self.times - 1


def add(account: Account, fault: Fault) -> int:
    """Order a fault and return its number."""
    with account.transaction() as database:
        cursor = database.execute(
            "INSERT INTO faults (kind, operation, type, nth, times, seconds, code, message) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (fault.kind, fault.operation, fault.type, fault.nth, fault.times, fault.seconds, fault.code, fault.message),
        )
    return int(cursor.lastrowid or 0)


def ordered(account: Account) -> list[Fault]:
    """All faults, spent ones too, in the order they were given."""
    return [Fault(**dict(row)) for row in account.database.execute("SELECT * FROM faults ORDER BY id")]


def remove(account: Account, number: int | None = None) -> int:
    """Take back one fault, or all; returns how many there were."""
    with account.transaction() as database:
        return database.execute("DELETE FROM faults WHERE ?1 IS NULL OR id = ?1", (number,)).rowcount


def strike(account: Account, operation: str, token: str, cancelled: threading.Event) -> None:
    """Count one call and let the faults that are due act.

    Raises:
        CloudError: an `error` fault is due.
        Cancelled: the engine gave up during a `latency` fault.
    """
    if not account.database.execute("SELECT 1 FROM faults LIMIT 1").fetchone():
        return
    due = [fault for fault in _count(account, operation, token) if fault.kind != "detach"]
    for fault in due:
        if fault.kind == "latency":
            clock.wait(fault.seconds, cancelled)
    for fault in due:
        if fault.kind == "error":
            raise CloudError(fault.code, fault.message, status=500, remedy=f"isthmus sim fault list {account.name}")


def detach_seconds(account: Account) -> float:
    """How long interfaces of a machine deleted now stay attached, in real seconds."""
    return max((fault.seconds for fault in ordered(account) if fault.kind == "detach"), default=0.0)


def linger(account: Account, token: str, key: str, holder: str, seconds: float) -> None:
    """Leave an interface attached to a resource for some real seconds."""
    with account.transaction() as database:
        database.execute(
            "INSERT OR REPLACE INTO lingering VALUES (?, ?, ?, ?)", (token, key, holder, time.time() + seconds)
        )


def lingering(account: Account, token: str, key: str) -> list[tuple[str, float]]:
    """What is still attached to a resource: (interface, real seconds left)."""
    found = account.database.execute(
        "SELECT holder, until FROM lingering WHERE type = ? AND key = ? AND until > ?", (token, key, time.time())
    )
    return [(row["holder"], row["until"] - time.time()) for row in found]


def _count(account: Account, operation: str, token: str) -> list[Fault]:
    """Count this call for every fault that matches it; returns those that act on it."""
    due = []
    with account.transaction() as database:
        for fault in ordered(account):
            if fault.operation != operation or not fnmatch.fnmatchcase(token, fault.type):
                continue
            database.execute("UPDATE faults SET seen = seen + 1 WHERE id = ?", (fault.id,))
            call = fault.seen + 1
            if call >= fault.nth and (fault.times == 0 or call < fault.nth + fault.times):
                due.append(fault)
    return due
