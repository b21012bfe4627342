"""Two stacks as plain data: what the steps of a move are tested against, with a kill at any moment of any act."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from isthmus.migration.move.record import VolumeRow
from isthmus.runs.model import Run, State
from isthmus.specs import labels
from isthmus.specs.errors import Refused
from workloads import render


class Killed(BaseException):
    """kill -9: nothing after it runs, and nothing can catch it."""


@dataclass
class FakeWorld:
    """Jobs, objects and volumes at both ends. Kills itself before or after the act of a given number."""

    runs: dict[str, Run]
    jobs: dict[str, set[str]]
    """End ("here", "there") to the runs that have a job."""
    objects: dict[str, dict[str, str]]
    volumes: dict[str, dict[str, str]]
    """End to claim to content."""
    held: bool = False
    up_there: bool = False
    kill_at: int = -1
    """Which moment; each act has two, before and after what it does."""
    moments: int = 0
    acts: list[str] = field(default_factory=list)
    """Names of the acts in the order they were begun."""
    stopped: list[tuple[str, str]] = field(default_factory=list)
    suspended_jobs: set[str] = field(default_factory=set)
    """Runs whose job, wherever it is, is suspended."""
    missing: tuple[str, ...] = ()
    corrupt: bool = False

    def up(self) -> Mapping[str, Any]:
        with self._act("up"):
            self.up_there = True
        return {}

    def parity(self) -> Mapping[str, Any]:
        assert self.up_there
        with self._act("parity"):
            return {"digest": "same"}

    def identities(self) -> Mapping[str, Any]:
        with self._act("identities"):
            if self.missing:
                raise Refused("; ".join(self.missing))
        return {}

    def copy_objects(self, *, back: bool, final: bool) -> Mapping[str, Any]:
        one, other = ("there", "here") if back else ("here", "there")
        with self._act("copy objects"):
            if self.corrupt:
                raise Refused("1 objects are not at the destination as they are at the source: a")
            self.objects[other] = dict(self.objects[one]) if final else {**self.objects[other], **self.objects[one]}
        count = len(self.objects[other])
        empty = {name: [] for name in ("corrupt", "problems", "gone", "removedAtSource", "metadataLost")}
        return {
            **empty,
            "copied": {"objects": count, "bytes": count << 29},
            "seconds": 64.0,
            "verified": {"objects": count, "bytes": count << 29, "digest": "d" * 64},
            "strangersAtDestination": 3,
        }

    def hold(self) -> None:
        with self._act("hold submissions"):
            self.held = True

    def release(self) -> None:
        with self._act("release submissions"):
            self.held = False

    def runs_here(self) -> list[Run]:
        return self._active("here")

    def runs_there(self) -> list[Run]:
        return self._active("there")

    def wait(self, run: Run) -> None:
        with self._act(f"wait for run {run.id[0]}"):
            self._end(run.id)

    def run(self, identity: str) -> Run:
        return self.runs[identity]

    def suspended(self, run: Run, *, there: bool) -> bool | None:
        return run.id in self.suspended_jobs if run.id in self.jobs["there" if there else "here"] else None

    def stop(self, run: Run, *, there: bool) -> bool:
        end = "there" if there else "here"
        with self._act(f"stop run {run.id[0]}"):
            if run.id in self.jobs[end]:
                self.jobs[end].discard(run.id)
                self.suspended_jobs.discard(run.id)
                self.stopped.append((run.id, end))
        return True

    def copy_volumes(self, run: Run, *, back: bool) -> list[VolumeRow]:
        one, other = ("there", "here") if back else ("here", "there")
        assert run.id not in self.jobs[one], "a volume is copied when nobody writes it"
        name = f"{run.job}-checkpoints"
        with self._act(f"copy volume of run {run.id[0]}"):
            self.volumes[other][name] = self.volumes[one][name]
        return [VolumeRow(name, run.id, 1, len(self.volumes[one][name]), self.volumes[one][name])]

    def start(self, run: Run, *, there: bool, suspended: bool) -> None:
        one, other = ("there", "here") if there else ("here", "there")
        assert run.id not in self.jobs[other], "a run has one job"
        with self._act(f"make job of run {run.id[0]}"):
            self.runs[run.id] = replace(run, stack=one, state=State.PENDING)
            self.jobs[one].add(run.id)
            (self.suspended_jobs.add if suspended else self.suspended_jobs.discard)(run.id)

    def seen(self) -> dict[str, Any]:
        """Everything that counts at the end."""
        return {
            "jobs": {end: sorted(found) for end, found in self.jobs.items()},
            "objects": self.objects,
            "volumes": self.volumes,
            "runs": {name: (run.stack, run.state) for name, run in sorted(self.runs.items())},
            "held": self.held,
            "suspended": sorted(self.suspended_jobs),
        }

    def _active(self, end: str) -> list[Run]:
        return [run for run in self.runs.values() if run.stack == end and not run.state.final]

    def _end(self, identity: str) -> None:
        self.runs[identity] = replace(self.runs[identity], state=State.SUCCEEDED)
        self.jobs["here"].discard(identity)

    @contextmanager
    def _act(self, name: str) -> Iterator[None]:
        self.acts.append(name)
        self._moment()
        yield
        self._moment()

    def _moment(self) -> None:
        self.moments += 1
        if self.moments - 1 == self.kill_at:
            self.kill_at = -1
            raise Killed


def world(**changes: Any) -> FakeWorld:
    """Three runs at the source, one of which has ended; two objects; a volume for each run."""
    made = datetime(2026, 11, 30, tzinfo=UTC)
    spec = render.load("ddp-digits")
    runs = {
        name: Run(
            id=name, spec=spec, stack="here", namespace=labels.RUNS_NAMESPACE, job=f"ddp-digits-{name}", state=state,
            created=made, started=made if state is not State.PENDING else None,
        )
        for name, state in (("aaaaaa", State.RUNNING), ("bbbbbb", State.PENDING), ("cccccc", State.SUCCEEDED))
    }  # fmt: skip
    values: dict[str, Any] = {
        "runs": runs,
        "jobs": {"here": {"aaaaaa", "bbbbbb"}, "there": set()},
        "objects": {"here": {"a": "1", "b": "2"}, "there": {}},
        "suspended_jobs": {"bbbbbb"},
        "volumes": {"here": {f"ddp-digits-{name}-checkpoints": name for name in runs}, "there": {}},
    }
    return FakeWorld(**{**values, **changes})
