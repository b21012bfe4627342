"""Time in a simulated account: one seeded clock, and how long operations take.

The account's clock starts at EPOCH and moves on by each operation's simulated duration, so equal histories give equal
timestamps. Real waiting is that duration times the account's latency scale: 0 (default) waits not at all, 1 as long as
the real cloud, 0.01 a hundredth. A simulated duration is never added to a measured one.
"""

import os
import random
import threading
from datetime import UTC, datetime, timedelta

from isthmus.simulation.account import Account
from isthmus.specs import labels

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SCALE_SETTING = "latency-scale"
SCALE_VARIABLE = "ISTHMUS_SIM_LATENCY_SCALE"
ELAPSED_SETTING = "elapsed"


class Cancelled(Exception):
    """The engine asked the provider to stop while an operation was waiting."""


def now(account: Account) -> str:
    """The account's time as the clouds write it, 2026-01-01T00:00:00Z."""
    return moment(account).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(account: Account) -> datetime:
    """The account's time."""
    return EPOCH + timedelta(seconds=float(account.setting(ELAPSED_SETTING, "0")))


def advance(account: Account, seconds: float) -> datetime:
    """Let simulated time pass in which nothing happens (the stack stands idle); returns the account's time then."""
    with account.transaction():
        elapsed = float(account.setting(ELAPSED_SETTING, "0")) + seconds
        account.set_setting(ELAPSED_SETTING, f"{elapsed:.3f}")
    return moment(account)


def made_at(account: Account) -> dict[str, datetime]:
    """When each node pool of the account was made, by the name in its nodes' label, and under "" the first cluster."""
    found: dict[str, datetime] = {}
    for row in account.rows():
        at = datetime.fromisoformat(row.created_at)
        kind = row.type.rpartition(":")[2]
        if kind == "Cluster":
            found[""] = min(at, found.get("", at))
        if kind in ("NodeGroup", "NodePool"):
            marks = row.inputs.get("labels") or (row.inputs.get("nodeConfig") or {}).get("labels") or {}
            if labels.POOL in marks:
                found[str(marks[labels.POOL])] = at
    return found


def scale(account: Account) -> float:
    """Real seconds per simulated second: the environment's ISTHMUS_SIM_LATENCY_SCALE, else the account's setting."""
    return float(os.environ.get(SCALE_VARIABLE) or account.setting(SCALE_SETTING, "0"))


def duration(account: Account, key: str, seconds: tuple[float, float]) -> float:
    """A duration between the two, the same for the same account and key."""
    low, high = seconds
    return random.Random(f"{account.name}\0{key}").uniform(low, high)


def spend(account: Account, seconds: float, cancelled: threading.Event) -> None:
    """Let an operation take `seconds` of simulated time: move the clock on and wait its scaled share.

    Raises:
        Cancelled: the engine gave up while we waited.
    """
    with account.transaction():
        elapsed = float(account.setting(ELAPSED_SETTING, "0")) + max(seconds, 1.0)
        account.set_setting(ELAPSED_SETTING, f"{elapsed:.3f}")
    wait(seconds * scale(account), cancelled)


def wait(real_seconds: float, cancelled: threading.Event) -> None:
    """Wait that long unless the engine gives up.

    Raises:
        Cancelled: it did.
    """
    if real_seconds > 0 and cancelled.wait(real_seconds):
        raise Cancelled("the operation was cancelled")
