"""What a run took, from its pods: time, waiting, restarts, exit codes and the cards it held. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from isthmus.runs.model import Replica, Run


@dataclass(frozen=True)
class Figures:
    """A run in numbers; its source (measured or simulated) is the run's own."""

    seconds: float | None
    """First rank's start to last rank's end; None until it is over."""
    queue_seconds: float | None
    """Submission (our clock) to the first rank's start (its node's clock, whole seconds); None until it has started."""
    restarts: int
    """Containers started again in their pod, and pods made anew."""
    exit_codes: dict[str, int]
    """How many pods of a role ended last with a code, by "Worker 137"."""
    gpu_seconds: dict[str, float]
    """Seconds of a whole card that its pods held, by the share that each held: "1 card", "1/4 card", "2 cards"."""

    @property
    def all_gpu_seconds(self) -> float:
        """Of all shares together."""
        return sum(self.gpu_seconds.values())


def figures(run: Run, replicas: Iterable[Replica], *, now: datetime) -> Figures:
    """The figures of a run as it stands.

    Args:
        now: until when pods count that still run.
    """
    pods = list(replicas)
    codes: dict[str, int] = {}
    held: dict[Fraction, float] = {}
    places = {(item.role, item.rank) for item in pods}
    for item in pods:
        if item.exit_code is not None:
            key = f"{item.role} {item.exit_code}"
            codes[key] = codes.get(key, 0) + 1
        share = Fraction(item.card_parts, item.card_whole)
        if share and item.started:
            # A pod that was taken away while it ran tells no end; the run's own is the latest it can be.
            end = item.finished or run.finished or now
            held[share] = held.get(share, 0.0) + max((end - item.started).total_seconds(), 0.0) * float(share)
    return Figures(
        seconds=run.seconds,
        queue_seconds=None if run.started is None else max(0.0, (run.started - run.created).total_seconds()),
        restarts=sum(item.restarts for item in pods) + len(pods) - len(places),
        exit_codes=dict(sorted(codes.items())),
        gpu_seconds={share_words(share): held[share] for share in sorted(held)},
    )


def share_words(share: Fraction) -> str:
    """A share of a card in words."""
    if share.denominator == 1:
        return f"{share.numerator} card" + ("" if share == 1 else "s")
    return f"{share} card"
