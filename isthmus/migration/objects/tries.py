"""Trying again, with an end: what may pass by itself is tried a few times, with growing pauses."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from isthmus.migration.objects.store import Transient

TRIES = 6
PAUSE, LONGEST = 0.2, 10.0
"""Seconds before the second try, doubled each time, with jitter: at most about 13 s in all."""

T = TypeVar("T")


def tried(act: Callable[[], T], *, sleep: Callable[[float], None] = time.sleep) -> T:
    """What `act` returns, tried again while it raises Transient.

    Raises:
        Transient: the last one, when every try failed.
    """
    for number in range(TRIES - 1):
        try:
            return act()
        except Transient:
            sleep(min(PAUSE * 2**number, LONGEST) * random.uniform(0.5, 1.0))
    return act()
