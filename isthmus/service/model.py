"""What the service speaks of, as values: roles, states, principals, orders. No I/O here."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum

from isthmus.specs.errors import IsthmusError
from isthmus.specs.workload import WorkloadSpec


class Role(IntEnum):
    """What a user may do in a project; each may all that those before it may."""

    VIEWER = 1
    """Read everything of the project."""
    MEMBER = 2
    """Also submit runs, and cancel, retry and replay them."""
    MAINTAINER = 3
    """Also change algorithms, and say who belongs to the project."""


ROLES = {role.name.lower(): role for role in Role}
"""Roles by the names they have in the API."""


class RunState(StrEnum):
    """Where a run is, from the request to its end. The first two are the service's, the rest the cluster's."""

    QUEUED = "Queued"
    """In the database; nobody has told the cluster."""
    SUBMITTING = "Submitting"
    """Claimed: the cluster may know it already, or not yet."""
    PENDING = "Pending"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    LOST = "Lost"
    """Its job is no longer in the cluster and we did not remove it."""
    REFUSED = "Refused"
    """A check refused it when its turn came; the cluster never had it."""

    @property
    def final(self) -> bool:
        """Whether it can no longer change."""
        return self in FINAL


FINAL = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.LOST, RunState.REFUSED})
IN_CLUSTER = frozenset({RunState.PENDING, RunState.RUNNING, RunState.RESTARTING})
"""States in which the cluster has it."""
ACTIVE = IN_CLUSTER | {RunState.SUBMITTING}
"""States in which it counts against its project's share."""


@dataclass(frozen=True)
class Principal:
    """Who asks: a user that a key or a token has shown."""

    user_id: int
    name: str
    administrator: bool = False
    key_id: str = ""
    """Of an API key; empty for a token of an identity provider."""


@dataclass(frozen=True)
class Project:
    """A project as the rest of the service needs it."""

    id: int
    name: str
    namespace: str
    clouds: tuple[str, ...] = ()
    """Where its data may be: `aws`, or `aws/us-east-1`. Empty: anywhere."""


@dataclass(frozen=True)
class Order:
    """What the cluster is asked for: one run, complete."""

    id: str
    spec: WorkloadSpec
    stack: str
    namespace: str
    user: str
    project: str
    simulated_seconds: float | None = None


@dataclass(frozen=True)
class Measured:
    """One number that a rank printed."""

    name: str
    value: float | None
    epoch: int | None
    step: int | None
    role: str
    rank: int
    at: datetime | None
    restart: int


@dataclass(frozen=True)
class Seen:
    """A run as the cluster shows it."""

    state: RunState
    reason: str = ""
    waiting: tuple[str, ...] = ()
    started: datetime | None = None
    finished: datetime | None = None
    image_digest: str = ""
    metrics: tuple[Measured, ...] = field(default=())
    """New since the look before."""


class QueueFull(IsthmusError):
    """Too many runs wait already: come back later."""


class TooManyRequests(IsthmusError):
    """This user asks faster than is allowed.

    Attributes:
        seconds: when to ask again.
    """

    def __init__(self, message: str, *, seconds: float, subject: str = "", remedy: str = "") -> None:
        super().__init__(message, subject=subject, remedy=remedy)
        self.seconds = seconds


class Unauthenticated(IsthmusError):
    """No key or token, or one that is not good."""


class Forbidden(IsthmusError):
    """The user is known and may not do this."""


class Conflict(IsthmusError):
    """What is there already contradicts the request."""
