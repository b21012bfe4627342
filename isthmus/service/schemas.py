"""What goes over the wire: the documents of the API, taken by its client, too.

Every document that comes in is looked through before anything else: texts that no database takes (NUL, halves of
characters), numbers that are none, and nesting without end are refused in one place.
"""

import math
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from isthmus.service.mappings import LARGEST_INTEGER, NAME, AlgorithmMapping, Value

DEEPEST = 20
USER_NAME = r"^[a-z0-9]([-a-z0-9._@]{0,61}[a-z0-9])?$"
PROJECT_NAME = r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$"
"""A project's name is part of its namespace's: a DNS label."""
RUN_ID = r"^[a-z][a-z0-9]{5,11}$"
STACK_NAME = r"^[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?$"
CLOUD = r"^[a-z]+(/[-a-z0-9]+)?$"
KEY = r"^[\x21-\x7e]{1,120}$"

RoleName = Literal["viewer", "member", "maintainer"]
Priority = Literal["low", "normal", "high"]


def plain(text: str) -> str:
    """A text that every database takes."""
    if "\x00" in text or any(0xD800 <= ord(letter) <= 0xDFFF for letter in text):
        raise ValueError("holds a character that is no text")
    return text


Text = Annotated[str, AfterValidator(plain)]


def clean(value: Any, depth: int = 0) -> Any:
    """Refuse what no database or JSON reader takes, anywhere in a document."""
    if depth > DEEPEST:
        raise ValueError(f"is nested more than {DEEPEST} deep")
    if isinstance(value, str):
        plain(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("holds a number that is not finite")
    elif isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise ValueError(f"holds an integer beyond {LARGEST_INTEGER}")
    elif isinstance(value, dict):
        for key, part in value.items():
            clean(key, depth + 1)
            clean(part, depth + 1)
    elif isinstance(value, list):
        for part in value:
            clean(part, depth + 1)
    return value


class Incoming(BaseModel):
    """A document that a caller sends."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _clean(cls, value: Any) -> Any:
        return clean(value)


class NewUser(Incoming):
    """A user; `issuer` and `subject` as the identity provider's tokens have them, where there is one."""

    name: str = Field(pattern=USER_NAME)
    administrator: bool = False
    issuer: str = Field(default="", max_length=500)
    subject: str = Field(default="", max_length=500)


class User(BaseModel):
    name: str
    administrator: bool
    issuer: str
    subject: str
    disabled: datetime | None
    created: datetime


class NewKey(Incoming):
    label: str = Field(min_length=1, max_length=63)
    days: int | None = Field(default=90, ge=1, le=3650)
    """How long it is good; null: until it is revoked."""


class Key(BaseModel):
    id: str
    label: str
    created: datetime
    expires: datetime | None
    revoked: datetime | None


class SecretKey(Key):
    key: str
    """Shown this once."""


class Membership(BaseModel):
    project: str
    role: RoleName


class Me(BaseModel):
    name: str
    administrator: bool
    projects: list[Membership]


class Stack(BaseModel):
    name: str
    cloud: str
    region: str
    mode: Literal["real", "simulated"]


class NewProject(Incoming):
    name: str = Field(pattern=PROJECT_NAME)
    clouds: list[Annotated[str, Field(pattern=CLOUD)]] = Field(default=[], max_length=50)
    """Where its data may be: `aws`, or `aws/us-east-1`. Empty: anywhere."""
    weight: float = Field(default=1.0, gt=0, le=1000)
    """Its share of the clusters against other projects."""


class ProjectChange(Incoming):
    clouds: list[Annotated[str, Field(pattern=CLOUD)]] | None = Field(default=None, max_length=50)
    weight: float | None = Field(default=None, gt=0, le=1000)


class Project(BaseModel):
    name: str
    namespace: str
    clouds: list[str]
    weight: float
    created: datetime
    role: RoleName | None
    """The caller's; null for an administrator who does not belong to it."""


class RoleOf(Incoming):
    role: RoleName


class Member(BaseModel):
    user: str
    role: RoleName


class AuditEntry(BaseModel):
    id: int
    at: datetime
    user: str
    project: str | None
    action: str
    object: str
    request_id: str
    details: dict[str, Any]


class NewAlgorithm(Incoming):
    name: str = Field(pattern=NAME)
    mapping: AlgorithmMapping
    note: str = Field(default="", max_length=2000)


class NewVersion(Incoming):
    mapping: AlgorithmMapping
    note: str = Field(default="", max_length=2000)


class RollBack(Incoming):
    version: int = Field(ge=1, le=10**6)


class Version(BaseModel):
    algorithm: str
    version: int
    current: bool
    mapping: AlgorithmMapping
    digest: str
    note: str
    created: datetime
    created_by: str
    deprecated: datetime | None


class NewRun(Incoming):
    algorithm: str = Field(pattern=NAME)
    version: int | None = Field(default=None, ge=1, le=10**6)
    """Null: the current one."""
    parameters: dict[Annotated[str, Field(max_length=40)], Value] = Field(default={}, max_length=100)
    stack: str = Field(pattern=STACK_NAME)
    priority: Priority = "normal"
    simulated_seconds: float | None = Field(default=None, gt=0, le=7 * 24 * 3600)
    """Only schedule it, on simulated nodes, for so long: nothing is computed."""


class Replay(Incoming):
    stack: str = Field(pattern=STACK_NAME)


class Run(BaseModel):
    id: str
    project: str
    user: str
    algorithm: str
    version: int
    parameters: dict[str, Value]
    stack: str
    priority: Priority
    state: str
    reason: str
    next: str
    """What to do about a refusal."""
    waiting: list[str]
    """Why it waits, in words."""
    source: Literal["measured", "simulated"]
    """What its times and metrics are."""
    gpus: int
    gpu_model: str
    image: str
    image_digest: str
    retry_of: str | None
    replay_of: str | None
    created: datetime
    submitted: datetime | None
    started: datetime | None
    finished: datetime | None
    seen: datetime | None
    """When its cluster was last looked at."""
    cancelling: bool
    forecast_usd: float | None
    forecast_gpu_hours: float
    metrics: dict[str, float | None]
    """The last value of each."""


class Runs(BaseModel):
    runs: list[Run]
    next: str | None
    """`cursor` of the next page; null on the last one."""


class Metric(BaseModel):
    name: str
    value: float | None
    epoch: int | None
    step: int | None
    role: str
    rank: int
    restart: int
    at: datetime | None


class Artefact(BaseModel):
    volume: str
    role: str
    path: str
    size: str
    namespace: str
    present: bool


class Difference(BaseModel):
    """One thing that runs differ in; values in the order of the runs, null where one lacks it."""

    name: str
    values: list[Value | None]


class MetricComparison(BaseModel):
    name: str
    values: list[float | None]
    spread: float | None
    """Largest minus smallest; null where a run lacks it."""
    within: bool | None
    """Whether the spread is at most the tolerance times the largest amount."""


class Comparison(BaseModel):
    runs: list[Run]
    differences: list[Difference]
    metrics: list[MetricComparison]
    tolerance: float
    mixed: bool
    """True where measured and simulated runs are side by side: their times are not of one kind."""


class Statistic(BaseModel):
    """Execution metrics of a group of runs; measured and simulated ones are never in one group."""

    group: str
    source: Literal["measured", "simulated"]
    runs: int
    waiting: int
    active: int
    succeeded: int
    failed: int
    failures: dict[str, int]
    """Failed runs by cause."""
    failure_rate: float | None
    """Failed of those that ended by themselves."""
    availability: float | None
    """Of the runs that the cluster took and that ended: the share that it carried to an end of their own."""
    mean_run_seconds: float | None
    mean_queue_seconds: float | None
    gpus_active: int
    saturation: float | None
    """Cards that its active runs hold of all that the stacks have (by GPU model: of that model); null where they have none."""


class Budget(BaseModel):
    whose: str
    period: str
    usd: str | None
    usd_used: str | None
    gpu_hours: str | None
    gpu_hours_used: str
    source: Literal["measured", "simulated"]


class Health(BaseModel):
    status: Literal["ok"]


Search = Annotated[str, AfterValidator(plain), Field(max_length=200)]
