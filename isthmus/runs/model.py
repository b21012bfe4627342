"""What a run is, as values: no I/O here."""

import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from isthmus.specs.errors import InvalidSpec
from isthmus.specs.workload import WorkloadSpec

LONGEST_SECONDS = 7 * 24 * 3600
"""The longest time a run that only schedules may be told to take."""


class State(StrEnum):
    """Where a run is. Only the last four are final."""

    SUBMITTING = "Submitting"
    """Written down, not yet known to be in the cluster."""
    PENDING = "Pending"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    LOST = "Lost"
    """Its job is no longer in the cluster and we did not remove it."""

    @property
    def final(self) -> bool:
        """Whether it can no longer change."""
        return self in {State.SUCCEEDED, State.FAILED, State.CANCELLED, State.LOST}


@dataclass(frozen=True)
class Run:
    """One submission of a workload."""

    id: str
    spec: WorkloadSpec
    stack: str
    namespace: str
    job: str
    """Name of the job object."""
    state: State
    created: datetime
    simulated_seconds: float | None = None
    """None: it executes, and every time and metric of it is measured. A number: it only schedules and takes so long; its
    times are then never mixed with measured ones."""
    user: str = ""
    """Who asked for it; "" for what `up` itself deployed."""
    project: str = ""
    """What it is for; bills and budgets go by it."""
    cluster_uid: str = ""
    """Uid of the cluster's kube-system namespace: a stack that was deleted and made anew is another cluster. "" while no
    cluster has it: before it is submitted, and between two clusters of a move."""
    reason: str = ""
    """Of a final state other than Succeeded, in words."""
    started: datetime | None = None
    """When the first rank's container first started (its node's clock)."""
    finished: datetime | None = None
    """When the last rank's container ended."""

    @property
    def selector(self) -> dict[str, str]:
        """Labels of its pods: the operator's own, since a sample that `up` deployed carries no run's id."""
        return {self.spec.form.job_label: self.job}

    @property
    def api_version(self) -> str:
        """Of its job."""
        return self.spec.form.api_version

    @property
    def simulated(self) -> bool:
        """Whether it only schedules."""
        return self.simulated_seconds is not None

    @property
    def source(self) -> str:
        """What its times are: for every report that shows them."""
        return "simulated" if self.simulated else "measured"

    @property
    def seconds(self) -> float | None:
        """From the first rank's start to the last rank's end; None until both are known."""
        if self.started is None or self.finished is None:
            return None
        return (self.finished - self.started).total_seconds()


@dataclass(frozen=True)
class Replica:
    """One pod of a run as it was last seen."""

    uid: str
    name: str
    role: str
    rank: int
    phase: str
    node: str = ""
    exit_code: int | None = None
    restarts: int = 0
    reason: str = ""
    started: datetime | None = None
    finished: datetime | None = None
    card_parts: int = 0
    card_whole: int = 1
    """The fraction of a card it holds: 1 of 4 slices, 2 of 7 MIG slices, 3 of 1 for three cards."""


@dataclass(frozen=True)
class Node:
    """A node that pods of runs were on, as it was last seen."""

    uid: str
    name: str
    labels: dict[str, str]
    advertised: dict[str, int]
    """Devices it offers, by resource name (nvidia.com/gpu, nvidia.com/mig-1g.5gb)."""
    created: datetime
    seen: datetime


@dataclass(frozen=True)
class Metric:
    """One number that a rank printed. `value` None: it was not a number (NaN)."""

    name: str
    value: float | None
    epoch: int | None = None
    step: int | None = None
    role: str = ""
    rank: int = 0
    at: datetime | None = None
    """The node's time of the log line."""
    restart: int = 0
    """How often the container had been restarted when it printed this."""


@dataclass(frozen=True)
class Snapshot:
    """A run with its pods, and why those that wait do."""

    run: Run
    replicas: tuple[Replica, ...] = ()
    waiting: tuple[str, ...] = ()
    latest: dict[str, Metric] = field(default_factory=dict)
    """The metric each name had last."""


@dataclass(frozen=True)
class Verdict:
    """One metric a workload must reach, and what it came to."""

    name: str
    required: float
    reached: Metric | None

    @property
    def met(self) -> bool:
        """At least the required value."""
        return self.reached is not None and self.reached.value is not None and self.reached.value >= self.required


def verdicts(spec: WorkloadSpec, latest: dict[str, Metric]) -> list[Verdict]:
    """The metrics that a workload must reach, with the last value of each."""
    return [Verdict(name, required, latest.get(name)) for name, required in spec.metrics.items()]


def parse_duration(text: str) -> float:
    """Seconds of a duration as in Go: 90s, 2m, 1h30m, 1.5h; a bare number is seconds.

    Raises:
        InvalidSpec: it is no duration, not more than 0, or more than seven days.
    """
    units = {"h": 3600.0, "m": 60.0, "s": 1.0}
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    if not match or not any(match.groups()):
        raise InvalidSpec(f"{text!r} is no duration (examples: 90s, 2m, 1h30m)")
    seconds = sum(float(number) * unit for number, unit in zip(match.groups(), units.values(), strict=True) if number)
    if not 0 < seconds <= LONGEST_SECONDS:
        raise InvalidSpec(f"a duration must be more than 0 and at most seven days, not {text}")
    return seconds


def show_seconds(seconds: float | None) -> str:
    """Seconds for people: 43.2 s, 3 min 12 s, 2 h 5 min."""
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
