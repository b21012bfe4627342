"""The clock of a simulated stack, as a bill reads it.

A simulated account's clock moves with its operations (isthmus.simulation.clock) and stands still between them; a run that
executes takes this machine's time. So the stack's clock is the account's, and it goes on as fast as this machine's while
runs execute, and only then: hours that the stack merely lies about on a laptop are not billed. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True)
class SimulatedTime:
    """Maps this machine's time, during runs, to the stack's.

    Args:
        begins: the simulated moment at which the stack's first run is put.
        spans: of each run its start and end by this machine's clock; they may overlap.
    """

    begins: datetime
    spans: tuple[tuple[datetime, datetime], ...]

    @classmethod
    def of(cls, begins: datetime, spans: Iterable[tuple[datetime, datetime]]) -> "SimulatedTime":
        """With the spans joined where they overlap."""
        joined: list[tuple[datetime, datetime]] = []
        for start, end in sorted(spans):
            if joined and start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((start, end))
        return cls(begins, tuple(joined))

    def at(self, moment: datetime) -> datetime:
        """The simulated moment of one by this machine's clock; between runs the clock stands."""
        passed = timedelta(0)
        for start, end in self.spans:
            passed += max(min(moment, end) - start, timedelta(0))
        return self.begins + passed

    @property
    def executing(self) -> timedelta:
        """How long runs executed, together."""
        return sum((end - start for start, end in self.spans), timedelta(0))
