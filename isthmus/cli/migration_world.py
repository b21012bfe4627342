"""A move's world on this machine: the engine, the parity check, the copier, and the two clusters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from isthmus.cli import migration_ends as ends
from isthmus.cli import project
from isthmus.cli.output import Progress
from isthmus.specs import labels
from isthmus.specs.errors import IsthmusError, Refused
from isthmus.toolchain import home

if TYPE_CHECKING:
    from pathlib import Path

    from isthmus.migration.move.record import Record, VolumeRow
    from isthmus.runs.model import Run

THREADS = 16
LOCK_SECONDS = 5.0


class Stacks:
    """See isthmus.migration.move.steps.World."""

    def __init__(self, source: str, destination: str) -> None:
        from isthmus.cli.engine import kubeconfig_of
        from isthmus.cli.run import open_store
        from isthmus.migration.move.clusters import Clusters, Side
        from workloads import bindings

        self._source, self._destination = source, destination
        here, there = (
            Side(stack, bindings.for_cloud(project.settings(stack).cloud), lambda stack=stack: kubeconfig_of(stack))  # type: ignore[misc]
            for stack in (source, destination)
        )
        self._clusters = Clusters(here, there, open_store())

    def up(self) -> Mapping[str, Any]:
        """See World."""
        from isthmus.cli.engine import Engine

        watch = Engine(self._destination).up()
        return {"changes": watch.made()}

    def parity(self) -> Mapping[str, Any]:
        """See World."""
        from isthmus.cli import parity

        compared = parity.compared([self._source, self._destination])
        if not compared.equal:
            raise Refused(
                f"{self._source} and {self._destination} do not carry the same platform: {compared.count} differences",
                subject=f"{self._source} and {self._destination}",
                remedy=f"isthmus parity {self._source} {self._destination} names them",
            )
        return {"digest": compared.digest}

    def identities(self) -> Mapping[str, Any]:
        """See World."""
        from isthmus.cli.engine import Engine
        from isthmus.cli.run import cluster_of
        from isthmus.migration.move import identity

        cloud = project.settings(self._destination).cloud
        missing = identity.missing(
            cloud, Engine(self._destination).resources(), labels.RUNS_NAMESPACE, labels.RUNS_ACCOUNT
        )
        account = cluster_of(self._destination).get("v1", "ServiceAccount", labels.RUNS_ACCOUNT, labels.RUNS_NAMESPACE)
        missing += identity.missing_annotation(cloud, account)
        if missing:
            raise Refused(
                f"pods of {self._destination} could not use the bucket: {'; '.join(missing)}",
                subject=f"service account {labels.RUNS_NAMESPACE}/{labels.RUNS_ACCOUNT}",
                remedy=f"isthmus up {self._destination}",
            )
        return {"serviceAccount": f"{labels.RUNS_NAMESPACE}/{labels.RUNS_ACCOUNT}"}

    def copy_objects(self, *, back: bool, final: bool) -> Mapping[str, Any]:
        """See World."""
        from isthmus.migration.objects import report

        pair = (self._destination, self._source) if back else (self._source, self._destination)
        outcome, urls = ends.copy(*pair, THREADS, Progress(f"objects of {pair[0]}"), delete=final, verify_all=final)
        if not outcome.ok:
            bad = [key for key, _ in (*outcome.corrupt, *outcome.problems)]
            raise IsthmusError(
                f"{len(bad)} objects are not at the destination as they are at the source: {', '.join(bad[:5])}",
                subject=urls[1],
                remedy=f"isthmus migrate objects {pair[0]} {pair[1]} tells how, with --repair it copies them anew",
            )
        return report.document(outcome, source=urls[0], destination=urls[1])

    def hold(self) -> None:
        """See World."""
        held = {"to": self._destination, "since": datetime.now(UTC).isoformat(timespec="seconds")}
        path = hold_file(self._source)
        if not path.exists():
            path.write_text(json.dumps(held), encoding="utf-8")

    def release(self) -> None:
        """See World."""
        hold_file(self._source).unlink(missing_ok=True)

    def runs_here(self) -> list[Run]:
        """See World."""
        return self._clusters.active(there=False)

    def runs_there(self) -> list[Run]:
        """See World."""
        return self._clusters.active(there=True)

    def wait(self, run: Run) -> None:
        """See World."""
        self._clusters.wait(run)

    def run(self, identity: str) -> Run:
        """See World."""
        return self._clusters.run(identity)

    def suspended(self, run: Run, *, there: bool) -> bool | None:
        """See World."""
        return self._clusters.suspended(run, there=there)

    def stop(self, run: Run, *, there: bool) -> bool:
        """See World."""
        return self._clusters.stop(run, there=there)

    def copy_volumes(self, run: Run, *, back: bool) -> list[VolumeRow]:
        """See World."""
        return self._clusters.copy_volumes(run, back=back)

    def start(self, run: Run, *, there: bool, suspended: bool) -> None:
        """See World."""
        self._clusters.start(run, there=there, suspended=suspended)


def hold_file(stack: str) -> Path:
    """What says that nobody submits to a stack now."""
    return home.migrations() / f"{stack}.held"


def check_hold(stack: str) -> None:
    """Refuse a submission to a stack that is being moved, or was.

    Raises:
        Refused: naming where to submit instead.
    """
    path = hold_file(stack)
    if not path.exists():
        return
    held = json.loads(path.read_text(encoding="utf-8"))
    raise Refused(
        f"stack {stack} is being moved to {held['to']} since {held['since']}: it takes no more runs",
        subject=f"stack {stack}",
        remedy=f"submit to {held['to']} once the move is cut over (isthmus migrate status {stack} {held['to']})",
    )


def record_of(source: str, destination: str) -> Record:
    """The record of a move between two stacks."""
    from isthmus.migration.move.record import Record

    return Record(home.migrations() / f"{source}--{destination}.move.db")


@contextmanager
def moving(source: str, destination: str) -> Iterator[tuple[Stacks, Record]]:
    """The world and the record, with the lock that only one command may have."""
    from isthmus.localcluster import locks

    pair = "--".join(sorted((source, destination)))
    what = f"the move between {source} and {destination}"
    with locks.exclusive(home.migrations() / f"{pair}.move.lock", what=what, doing="move", seconds=LOCK_SECONDS):
        yield Stacks(source, destination), record_of(source, destination)


def downtimes(record: Record) -> dict[str, float | None]:
    """Seconds from each run's stop to the first start of a pod after it."""
    from isthmus.cli.run import open_store

    store, found = open_store(), dict[str, float | None]()
    for row in record.runs():
        if not row.stopped:
            continue
        stopped = datetime.fromisoformat(row.stopped)
        starts = [item.started for item in store.replicas(store.get(row.id)) if item.started and item.started > stopped]
        found[row.id] = round((min(starts) - stopped).total_seconds(), 1) if starts else None
    return found
