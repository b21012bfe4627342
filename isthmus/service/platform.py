"""What the service asks of the clusters: one small interface, so that queue and worker know nothing of Kubernetes.

`stacks.py` is the real one. Every method may raise NotReady where the cluster cannot be reached; the caller tries again.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from isthmus.billing.budgets import Amount, Standing
from isthmus.service.model import Order, RunState, Seen
from isthmus.specs.errors import Refused


@dataclass(frozen=True)
class Place:
    """A stack that runs may be sent to."""

    name: str
    cloud: str
    region: str
    mode: str
    """`real` or `simulated`: what is measured there, and what is not."""
    cards: Mapping[str, int] = field(default_factory=dict)
    """GPU model to the number of cards that its pools have now."""


@dataclass(frozen=True)
class LogLine:
    """One line that a rank printed."""

    role: str
    rank: int
    at: datetime | None
    text: str


class Platform(Protocol):
    """The clusters of every stack that the service serves."""

    def places(self) -> list[Place]:
        """The stacks that runs may be sent to, by name."""
        ...

    def forecast(self, order: Order) -> Amount:
        """What a run is expected to use."""
        ...

    def check_budgets(self, order: Order, *, queued: Callable[[], Amount], now: datetime) -> None:
        """Refuse a run that a budget does not allow; `queued` tells what its user or project was promised and the cluster has
        not had yet."""
        ...

    def budgets(self, *, project: str, now: datetime) -> list[Standing]:
        """How the budgets of a project stand."""
        ...

    def submit(self, order: Order) -> None:
        """Give a run to its cluster. Idempotent by the order's id, whoever does it and whatever died before: a run that
        the cluster has, or has had, is left alone.

        Raises:
            Refused, InvalidSpec, NotFound: it cannot run there. Nothing of it is in the cluster.
            NotReady: not known; ask again.
        """
        ...

    def look(self, order: Order) -> Seen:
        """The run as its cluster shows it now, with the metrics that are new."""
        ...

    def cancel(self, order: Order) -> RunState:
        """Take a run out of its cluster, keep its volumes. Idempotent; fine for one that never was there. Returns
        Cancelled, or what the run ended as before."""
        ...

    def changes(self, stack: str, stop: threading.Event) -> Iterator[str]:
        """Ids of runs of which something changed in the cluster, as it happens, until `stop`."""
        ...

    def logs(self, order: Order, *, role: str | None, rank: int | None, follow: bool) -> Iterator[LogLine]:
        """What the pods of a run printed; with `follow` until they end."""
        ...

    def artefacts(self, order: Order) -> list[dict[str, Any]]:
        """What a run left behind: its volumes, with the role and path that wrote them."""
        ...


def place(platform: Platform, name: str) -> Place:
    """A stack by name. Refused where the service does not serve it."""
    found = {item.name: item for item in platform.places()}
    if name not in found:
        raise Refused(
            f"the service sends no runs to a stack {name!r}; it serves: {', '.join(sorted(found)) or 'none'}",
            subject=f"stack {name}",
            remedy="GET /v1/stacks",
        )
    return found[name]


def check_residency(project: str, clouds: tuple[str, ...], where: Place) -> None:
    """Refuse a place where a project's data may not be.

    Args:
        clouds: `aws` (all of it) or `aws/us-east-1`; empty: anywhere.
    """
    if clouds and where.cloud not in clouds and f"{where.cloud}/{where.region}" not in clouds:
        raise Refused(
            f"the data of project {project} must stay in {', '.join(clouds)}; stack {where.name} is in "
            f"{where.cloud}/{where.region}",
            subject=f"project {project}",
            remedy="choose a stack there: GET /v1/stacks",
        )
