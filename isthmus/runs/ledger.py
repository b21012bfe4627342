"""What bills and budgets are made from, kept in runs.db: the nodes that runs were on, and the budgets that were set.

A node is written down while it is there, since a bill is asked for when it may be gone.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from isthmus.runs.model import Node
from isthmus.runs.store import Store, text_of, time_of
from isthmus.specs.errors import NotFound

Kind = Literal["user", "project"]
Period = Literal["day", "week", "month"]


@dataclass(frozen=True)
class BudgetRow:
    """A limit on what one user or one project may use in a period. Simulated use has budgets of its own."""

    kind: Kind
    name: str
    period: Period
    usd: Decimal | None
    gpu_hours: Decimal | None
    simulated: bool


def record_nodes(store: Store, cluster_uid: str, nodes: Iterable[Node]) -> None:
    """Write down what nodes were seen; the last look wins."""
    with store.transaction() as database:
        for node in nodes:
            database.execute(
                "INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (cluster, uid) DO UPDATE SET"
                " labels = excluded.labels, seen = max(seen, excluded.seen), advertised = excluded.advertised",
                (
                    cluster_uid,
                    node.uid,
                    node.name,
                    json.dumps(node.labels, sort_keys=True),
                    json.dumps(node.advertised, sort_keys=True),
                    text_of(node.created),
                    text_of(node.seen),
                ),
            )


def nodes(store: Store, cluster_uid: str) -> list[Node]:
    """The nodes of a cluster that were ever seen, oldest first."""
    with store.transaction() as database:
        rows = database.execute(
            "SELECT * FROM nodes WHERE cluster = ? ORDER BY created, uid", (cluster_uid,)
        ).fetchall()
    return [
        Node(
            uid=row["uid"],
            name=row["name"],
            labels=json.loads(row["labels"]),
            advertised=json.loads(row["advertised"]),
            created=_moment(row["created"]),
            seen=_moment(row["seen"]),
        )
        for row in rows
    ]


def set_budget(store: Store, row: BudgetRow) -> None:
    """Set a budget; one that the user or project had is replaced."""
    with store.transaction() as database:
        database.execute(
            "INSERT OR REPLACE INTO budgets (kind, name, simulated, period, usd, gpu_hours) VALUES (?, ?, ?, ?, ?, ?)",
            (row.kind, row.name, int(row.simulated), row.period, _number(row.usd), _number(row.gpu_hours)),
        )


def remove_budget(store: Store, kind: Kind, name: str, *, simulated: bool) -> None:
    """Remove a budget. NotFound if there is none."""
    with store.transaction() as database:
        gone = database.execute(
            "DELETE FROM budgets WHERE kind = ? AND name = ? AND simulated = ?", (kind, name, int(simulated))
        )
    if gone.rowcount == 0:
        raise NotFound(
            f"{kind} {name} has no {'simulated ' if simulated else ''}budget",
            subject=f"{kind} {name}",
            remedy="isthmus cost budget list",
        )


def budgets(store: Store) -> list[BudgetRow]:
    """Every budget, by kind and name."""
    with store.transaction() as database:
        rows = database.execute("SELECT * FROM budgets ORDER BY kind, name, simulated").fetchall()
    return [
        BudgetRow(
            kind=row["kind"],
            name=row["name"],
            period=row["period"],
            usd=None if row["usd"] is None else Decimal(row["usd"]),
            gpu_hours=None if row["gpu_hours"] is None else Decimal(row["gpu_hours"]),
            simulated=bool(row["simulated"]),
        )
        for row in rows
    ]


def _number(value: Decimal | None) -> str | None:
    return None if value is None else str(value)


def _moment(text: Any) -> datetime:
    moment = time_of(text)
    assert moment is not None  # both columns are NOT NULL
    return moment
