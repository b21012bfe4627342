"""runs.db: what was asked for and what came of it, in one SQLite file under ISTHMUS_HOME.

Every change is one short transaction, so a kill -9 leaves the state before or after it. A run is written down before
anything is sent to a cluster (see submit.py). The file holds no secret: kubeconfigs are asked for anew each time.
"""

import json
import os
import secrets
import sqlite3
import string
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from isthmus.kube.objects import digest
from isthmus.runs.model import Metric, Replica, Run, State
from isthmus.specs.errors import NotFound, Refused
from isthmus.specs.workload import WorkloadSpec

BUSY_SECONDS = 20.0
"""How long to wait for another process's transaction; ours take milliseconds."""

ID_LENGTH = 6
_ALPHABET = string.ascii_lowercase + string.digits

SCHEMA = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    workload TEXT NOT NULL,
    stack TEXT NOT NULL,
    namespace TEXT NOT NULL,
    job TEXT NOT NULL,
    spec TEXT NOT NULL,
    request TEXT NOT NULL,
    owner TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    simulated_seconds REAL,
    cluster_uid TEXT NOT NULL DEFAULT '',
    created TEXT NOT NULL,
    started TEXT,
    finished TEXT
) STRICT;
CREATE INDEX runs_by_request ON runs (stack, request, state);
CREATE TABLE pods (
    run TEXT NOT NULL REFERENCES runs (id),
    uid TEXT NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    rank INTEGER NOT NULL,
    phase TEXT NOT NULL,
    node TEXT NOT NULL,
    exit_code INTEGER,
    restarts INTEGER NOT NULL,
    reason TEXT NOT NULL,
    started TEXT,
    finished TEXT,
    PRIMARY KEY (run, uid)
) STRICT;
CREATE TABLE metrics (
    run TEXT NOT NULL REFERENCES runs (id),
    role TEXT NOT NULL,
    rank INTEGER NOT NULL,
    name TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    step INTEGER NOT NULL,
    value REAL,
    at TEXT NOT NULL,
    restart INTEGER NOT NULL,
    PRIMARY KEY (run, role, rank, name, epoch, step)
) STRICT;
"""
"""Epoch and step are -1 where the line had none: NULLs would all differ in a primary key."""

MONEY = """
ALTER TABLE runs ADD COLUMN user TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN project TEXT NOT NULL DEFAULT '';
ALTER TABLE pods ADD COLUMN card_parts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE pods ADD COLUMN card_whole INTEGER NOT NULL DEFAULT 1;
CREATE TABLE nodes (
    cluster TEXT NOT NULL,
    uid TEXT NOT NULL,
    name TEXT NOT NULL,
    labels TEXT NOT NULL,
    advertised TEXT NOT NULL,
    created TEXT NOT NULL,
    seen TEXT NOT NULL,
    PRIMARY KEY (cluster, uid)
) STRICT;
CREATE TABLE budgets (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    simulated INTEGER NOT NULL,
    period TEXT NOT NULL,
    usd TEXT,
    gpu_hours TEXT,
    PRIMARY KEY (kind, name, simulated)
) STRICT;
"""
"""What a bill and a budget need: whose a run is, the share of a card each pod had, the nodes (see ledger.py)."""

FORMATS = (SCHEMA, MONEY)
"""Each file format of runs.db as the statements that make it from the one before."""
VERSION = len(FORMATS)

NONE = -1


class Store:
    """runs.db. Safe to use from several processes; each method is one transaction."""

    def __init__(self, path: Path) -> None:
        """
        Args:
            path: the file; created with mode 0600 when it is not there.

        Raises:
            Refused: a newer isthmus wrote it.
        """
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            # SQLite gives its -wal and -shm files the mode of the database.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        with self.transaction() as database:
            version = int(database.execute("PRAGMA user_version").fetchone()[0])
            if version < VERSION:
                for statements in FORMATS[version:]:
                    for statement in filter(str.strip, statements.split(";")):
                        database.execute(statement)
                database.execute(f"PRAGMA user_version = {VERSION}")
            elif version > VERSION:
                raise Refused(
                    f"{path.name} was written by a newer isthmus (format {version}, this one knows {VERSION})",
                    subject=str(path),
                    remedy="use the newer isthmus, or another ISTHMUS_HOME",
                )

    def begin(
        self,
        spec: WorkloadSpec,
        *,
        stack: str,
        namespace: str,
        simulated_seconds: float | None,
        owner: str,
        job: str | None = None,
        created: datetime | None = None,
        user: str = "",
        project: str = "",
        identity: str | None = None,
    ) -> Run:
        """Write down a new run in state Submitting, with an id that no other run has.

        Args:
            identity: the id, where somebody has given it one already; a run that is there under it is returned as it is.
            owner: who submits it (see submit.owner), so that a later command can tell whether that one still lives.
            job: name of a job that is there already; default: made from the workload's name and the id.
            created: when that job was made; default: now.
            user, project: whose it is, for bills and budgets.
        """
        with self.transaction() as database:
            if identity is None:
                identity = new_id({row["id"] for row in database.execute("SELECT id FROM runs")})
            elif (row := database.execute("SELECT * FROM runs WHERE id = ?", (identity,)).fetchone()) is not None:
                return _run(row)
            run = Run(
                id=identity,
                spec=spec,
                stack=stack,
                namespace=namespace,
                job=job or f"{spec.name}-{identity}",
                state=State.SUBMITTING,
                created=created or datetime.now(UTC),
                simulated_seconds=simulated_seconds,
                user=user,
                project=project,
            )
            database.execute(
                "INSERT INTO runs (id, workload, stack, namespace, job, spec, request, owner, state, simulated_seconds,"
                " created, user, project) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (run.id, spec.name, stack, namespace, run.job, _spec_text(spec), request(spec, simulated_seconds), owner,
                 run.state, simulated_seconds, text_of(run.created), user, project),
            )  # fmt: skip
        return run

    def submitting(self, spec: WorkloadSpec, *, stack: str, simulated_seconds: float | None) -> list[tuple[Run, str]]:
        """Runs of exactly this request that were begun and not finished being submitted, with their owners."""
        with self.transaction() as database:
            rows = database.execute(
                "SELECT * FROM runs WHERE stack = ? AND request = ? AND state = ? ORDER BY created",
                (stack, request(spec, simulated_seconds), State.SUBMITTING),
            ).fetchall()
        return [(_run(row), str(row["owner"])) for row in rows]

    def own(self, run: Run, owner: str, *, instead_of: str) -> bool:
        """Take over the submission of a run. False when another command was faster."""
        with self.transaction() as database:
            changed = database.execute(
                "UPDATE runs SET owner = ? WHERE id = ? AND owner = ? AND state = ?",
                (owner, run.id, instead_of, State.SUBMITTING),
            )
            return changed.rowcount == 1

    def get(self, identity: str) -> Run:
        """A run by its id or by the name of its job.

        Raises:
            NotFound: there is none such; the latest are named.
        """
        with self.transaction() as database:
            row = database.execute(
                "SELECT * FROM runs WHERE id = ? OR job = ? ORDER BY created DESC", (identity, identity)
            ).fetchone()
            latest = [r["id"] for r in database.execute("SELECT id FROM runs ORDER BY created DESC LIMIT 5")]
        if row is None:
            known = f"the latest are {', '.join(latest)}" if latest else "there is no run yet"
            raise NotFound(f"there is no run {identity!r}; {known}", subject=f"run {identity}", remedy="isthmus runs")
        return _run(row)

    def find(self, identity: str) -> Run | None:
        """A run by its id; None where there is none."""
        with self.transaction() as database:
            row = database.execute("SELECT * FROM runs WHERE id = ?", (identity,)).fetchone()
        return None if row is None else _run(row)

    def runs(self, *, stack: str | None = None) -> list[Run]:
        """All runs, newest first."""
        with self.transaction() as database:
            rows = database.execute(
                "SELECT * FROM runs WHERE ?1 IS NULL OR stack = ?1 ORDER BY created DESC, id", (stack,)
            ).fetchall()
        return [_run(row) for row in rows]

    def set_cluster(self, run: Run, uid: str) -> Run:
        """Remember which cluster a run was sent to."""
        with self.transaction() as database:
            database.execute("UPDATE runs SET cluster_uid = ? WHERE id = ?", (uid, run.id))
        return replace(run, cluster_uid=uid)

    def move(self, run: Run, *, stack: str, cluster_uid: str) -> Run:
        """The run goes on in another stack's cluster, under its own id: what it has printed so far stays its own."""
        with self.transaction() as database:
            database.execute("UPDATE runs SET stack = ?, cluster_uid = ? WHERE id = ?", (stack, cluster_uid, run.id))
        return replace(run, stack=stack, cluster_uid=cluster_uid)

    def record(self, run: Run, state: State, *, reason: str = "", replicas: Iterable[Replica] = ()) -> Run:
        """Write what was seen. A final state stays; an earlier start and a later end win. Returns the run as it is now."""
        replicas = list(replicas)
        with self.transaction() as database:
            for replica in replicas:
                database.execute(
                    "INSERT INTO pods VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run, uid) DO UPDATE SET"
                    " phase = excluded.phase, node = excluded.node, exit_code = coalesce(excluded.exit_code, exit_code),"
                    " restarts = max(restarts, excluded.restarts), reason = excluded.reason,"
                    " started = min(coalesce(started, excluded.started), coalesce(excluded.started, started)),"
                    " finished = coalesce(excluded.finished, finished),"
                    " card_parts = excluded.card_parts, card_whole = excluded.card_whole",
                    (run.id, replica.uid, replica.name, replica.role, replica.rank, replica.phase, replica.node,
                     replica.exit_code, replica.restarts, replica.reason, text_of(replica.started), text_of(replica.finished),
                     replica.card_parts, replica.card_whole),
                )  # fmt: skip
            finals = tuple(item.value for item in State if item.final)
            database.execute(
                f"UPDATE runs SET state = ?, reason = ? WHERE id = ? AND state NOT IN ({', '.join('?' * len(finals))})",
                (state, reason, run.id, *finals),
            )
            # Times of the run are those of its pods: first start of any, last end of all once it is over.
            database.execute(
                "UPDATE runs SET started = (SELECT min(started) FROM pods WHERE run = ?1),"
                " finished = CASE WHEN state IN ('Succeeded', 'Failed', 'Cancelled', 'Lost')"
                " THEN (SELECT max(finished) FROM pods WHERE run = ?1) END WHERE id = ?1",
                (run.id,),
            )
            return _run(database.execute("SELECT * FROM runs WHERE id = ?", (run.id,)).fetchone())

    def replicas(self, run: Run) -> list[Replica]:
        """The pods of a run as they were last seen, by rank; a pod made anew comes after the one it replaced."""
        with self.transaction() as database:
            rows = database.execute(
                "SELECT * FROM pods WHERE run = ? ORDER BY rank, coalesce(started, 'z'), uid", (run.id,)
            ).fetchall()
        return [_replica(row) for row in rows]

    def add_metrics(self, run: Run, metrics: Iterable[Metric]) -> int:
        """Add metrics; returns how many were new or changed.

        A rank has one value for a metric at an epoch and step. When it is printed again, because the log is read again or a
        restarted container repeats the epoch, the later line wins, so nothing is counted twice.
        """
        count = 0
        with self.transaction() as database:
            for metric in metrics:
                changed = database.execute(
                    "INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                    " ON CONFLICT (run, role, rank, name, epoch, step) DO UPDATE SET"
                    " value = excluded.value, at = excluded.at, restart = excluded.restart WHERE excluded.at > at",
                    (run.id, metric.role, metric.rank, metric.name, _or_none(metric.epoch), _or_none(metric.step),
                     metric.value, text_of(metric.at) or "", metric.restart),
                )  # fmt: skip
                count += changed.rowcount
        return count

    def metrics(self, run: Run, name: str | None = None) -> list[Metric]:
        """Metrics of a run in the order they were printed."""
        with self.transaction() as database:
            rows = database.execute(
                "SELECT * FROM metrics WHERE run = ?1 AND (?2 IS NULL OR name = ?2) ORDER BY at, rank, name, epoch, step",
                (run.id, name),
            ).fetchall()
        return [_metric(row) for row in rows]

    def latest(self, run: Run) -> dict[str, Metric]:
        """The last value of each metric; of ranks that printed it at the same moment, the lowest."""
        found: dict[str, Metric] = {}
        for metric in self.metrics(run):
            kept = found.get(metric.name)
            if kept is None or metric.at is None or kept.at is None or metric.at > kept.at:
                found[metric.name] = metric
        return found

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction, for this module and ledger.py: all of it or nothing of it."""
        database = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        database.row_factory = sqlite3.Row
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA foreign_keys = ON")
            database.execute("PRAGMA synchronous = FULL")  # an intent must survive the machine, too
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")
        finally:
            database.close()


def request(spec: WorkloadSpec, simulated_seconds: float | None) -> str:
    """Digest of what was asked for: equal for equal requests."""
    return digest({"spec": json.loads(_spec_text(spec)), "simulated": simulated_seconds})


def new_id(taken: Container[str] = frozenset()) -> str:
    """An id for a run that is none of those taken."""
    while True:
        # A letter first: the id is also a label value and the end of object names, never a number to YAML.
        identity = secrets.choice(string.ascii_lowercase) + "".join(
            secrets.choice(_ALPHABET) for _ in range(ID_LENGTH - 1)
        )
        if identity not in taken:
            return identity


def _spec_text(spec: WorkloadSpec) -> str:
    return spec.model_dump_json(by_alias=True)


def _run(row: Any) -> Run:
    return Run(
        id=row["id"],
        spec=WorkloadSpec.model_validate_json(row["spec"]),
        stack=row["stack"],
        namespace=row["namespace"],
        job=row["job"],
        state=State(row["state"]),
        created=datetime.fromisoformat(row["created"]),
        simulated_seconds=row["simulated_seconds"],
        user=row["user"],
        project=row["project"],
        cluster_uid=row["cluster_uid"],
        reason=row["reason"],
        started=time_of(row["started"]),
        finished=time_of(row["finished"]),
    )


def _replica(row: Any) -> Replica:
    names = "uid name role rank phase node exit_code restarts reason card_parts card_whole"
    fields = {key: row[key] for key in names.split()}
    return Replica(**fields, started=time_of(row["started"]), finished=time_of(row["finished"]))


def _metric(row: Any) -> Metric:
    return Metric(
        name=row["name"],
        value=row["value"],
        epoch=None if row["epoch"] == NONE else row["epoch"],
        step=None if row["step"] == NONE else row["step"],
        role=row["role"],
        rank=row["rank"],
        at=time_of(row["at"]),
        restart=row["restart"],
    )


def _or_none(number: int | None) -> int:
    return NONE if number is None else number


def text_of(moment: datetime | None) -> str | None:
    """A moment as it is stored: always with microseconds and in UTC, so that texts sort as times do."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="microseconds")


def time_of(text: str | None) -> datetime | None:
    """The moment that `text_of` wrote."""
    return datetime.fromisoformat(text) if text else None
