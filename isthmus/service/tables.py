"""The service's tables, the same on SQLite and PostgreSQL. migrations/ makes them; a test holds the two together.

A run is a row of `runs` from the moment it is asked for: that row is the queue's entry, too. Who works on it is said by a
lease: owner, token and an end. A change to a run that somebody has leased names the token, so that one whose lease ended
changes nothing.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator


class Moment(TypeDecorator[datetime]):
    """A point in time: given and taken with its zone, kept in UTC (SQLite has no type for zones)."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        moment: datetime = value
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

users = Table(
    "users",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(63), nullable=False, unique=True),
    Column("administrator", Boolean, nullable=False),
    Column("issuer", Text, nullable=False, server_default=""),
    Column("subject", Text, nullable=False, server_default=""),
    Column("disabled", Moment),
    Column("created", Moment, nullable=False),
    Index("ix_users_issuer_subject", "issuer", "subject"),
)
"""`issuer` and `subject`: who that is at the identity provider; empty for users of API keys alone."""

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("user_id", Integer, ForeignKey("users.id"), nullable=False, index=True),
    Column("label", String(63), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("created", Moment, nullable=False),
    Column("expires", Moment),
    Column("revoked", Moment),
)
"""`digest`: SHA-256 of the secret part, which has 256 random bits of its own and is never kept."""

projects = Table(
    "projects",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(40), nullable=False, unique=True),
    Column("namespace", String(63), nullable=False),
    Column("clouds", JSON, nullable=False),
    Column("weight", Double, nullable=False),
    Column("served", Integer, nullable=False, server_default="0"),
    Column("created", Moment, nullable=False),
    CheckConstraint("weight > 0", name="weight"),
)
"""`weight`: its share against other projects. `served`: a count of the queue's turns when it was last served."""

members = Table(
    "members",
    metadata,
    Column("project_id", Integer, ForeignKey("projects.id"), primary_key=True),
    Column("user_id", Integer, ForeignKey("users.id"), primary_key=True, index=True),
    Column("role", Integer, nullable=False),
    CheckConstraint("role BETWEEN 1 AND 3", name="role"),
)

algorithms = Table(
    "algorithms",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("project_id", Integer, ForeignKey("projects.id"), nullable=False),
    Column("name", String(40), nullable=False),
    Column("current", Integer, nullable=False),
    Column("deprecated", Moment),
    Column("created", Moment, nullable=False),
    UniqueConstraint("project_id", "name"),
)
"""`current`: the version that a run gets where it names none."""

versions = Table(
    "versions",
    metadata,
    Column("algorithm_id", Integer, ForeignKey("algorithms.id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("mapping", JSON, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("note", Text, nullable=False),
    Column("created", Moment, nullable=False),
    Column("created_by", Integer, ForeignKey("users.id"), nullable=False),
)
"""Never changed and never deleted. `digest`: SHA-256 over the mapping, checked when it is read."""

runs = Table(
    "runs",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("id", String(12), nullable=False, unique=True),
    Column("project_id", Integer, ForeignKey("projects.id"), nullable=False),
    Column("user_id", Integer, ForeignKey("users.id"), nullable=False),
    Column("algorithm_id", Integer, ForeignKey("algorithms.id"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("parameters", JSON, nullable=False),
    Column("workload", JSON, nullable=False),
    Column("words", Text, nullable=False),
    Column("stack", String(63), nullable=False),
    Column("namespace", String(63), nullable=False),
    Column("simulated_seconds", Double),
    Column("priority", Integer, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("gpu_model", String(40), nullable=False),
    Column("forecast_usd", Double),
    Column("forecast_gpu_hours", Double, nullable=False),
    Column("image_digest", Text, nullable=False, server_default=""),
    Column("retry_of", String(12)),
    Column("replay_of", String(12)),
    Column("state", String(12), nullable=False),
    Column("reason", Text, nullable=False, server_default=""),
    Column("remedy", Text, nullable=False, server_default=""),
    Column("waiting", JSON, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("created", Moment, nullable=False),
    Column("submitted", Moment),
    Column("started", Moment),
    Column("finished", Moment),
    Column("seen", Moment),
    Column("cancel_asked", Moment),
    Column("lease_owner", String(120), nullable=False, server_default=""),
    Column("lease_token", String(32), nullable=False, server_default=""),
    Column("lease_until", Moment),
    Index("ix_runs_state_project_id", "state", "project_id", "priority", "seq"),
    Index("ix_runs_project_id_seq", "project_id", "seq"),
)
"""`words`: what a search looks through. `seen`: when the cluster was last looked at. `submitted`: when it took the run."""

metrics = Table(
    "metrics",
    metadata,
    Column("run_seq", Integer, ForeignKey("runs.seq"), primary_key=True),
    Column("role", String(40), primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("name", String(120), primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("value", Double),
    Column("at", Moment),
    Column("restart", Integer, nullable=False),
)
"""Epoch and step are -1 where the line had none: NULLs would all differ in a primary key."""

latest = Table(
    "latest",
    metadata,
    Column("run_seq", Integer, ForeignKey("runs.seq"), primary_key=True),
    Column("name", String(120), primary_key=True),
    Column("value", Double),
    Column("at", Moment),
    Index("ix_latest_name_value", "name", "value"),
)
"""The last value of each metric of a run: what runs are searched by and compared on."""

idempotency = Table(
    "idempotency",
    metadata,
    Column("user_id", Integer, ForeignKey("users.id"), primary_key=True),
    Column("key", String(120), primary_key=True),
    Column("request", String(64), nullable=False),
    Column("run_id", String(12), nullable=False),
    Column("created", Moment, nullable=False),
)
"""`request`: SHA-256 over what was asked for under the key."""

leases = Table(
    "leases",
    metadata,
    Column("name", String(120), primary_key=True),
    Column("owner", String(120), nullable=False),
    Column("token", String(32), nullable=False),
    Column("until", Moment, nullable=False),
)
"""Work that one service at a time does, such as watching a stack."""

audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at", Moment, nullable=False),
    Column("user_name", String(63), nullable=False),
    Column("project_id", Integer, ForeignKey("projects.id")),
    Column("action", String(63), nullable=False),
    Column("object", Text, nullable=False),
    Column("request_id", String(40), nullable=False),
    Column("details", JSON, nullable=False),
    Index("ix_audit_project_id_id", "project_id", "id"),
)
"""Who did what: one row for each change that went through, written in the change's own transaction."""
