"""The steps of a move and of the way back, in order. Each may be ended anywhere and done again: it asks what is there.

Nothing of the source is deleted but the jobs that are made anew at the destination, each after its last state was written down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from isthmus.migration.move.record import OVER, Record, RunStage, Stage, VolumeRow
from isthmus.runs.model import Run
from isthmus.specs.errors import IsthmusError, Refused

Detail = Mapping[str, Any]


class World(Protocol):
    """Everything a move does outside its own record. `here` is the source of the move, `there` its destination."""

    def up(self) -> Detail:
        """Bring the destination's platform up; nothing to change is no change."""
        ...

    def parity(self) -> Detail:
        """Compare the platforms. Raises Refused naming what differs."""
        ...

    def identities(self) -> Detail:
        """Look at what binds the runs' service account to the bucket there. Raises Refused naming what is missing (case A27)."""
        ...

    def copy_objects(self, *, back: bool, final: bool) -> Detail:
        """Copy what is new or changed of the objects and read it back; `final` reads back every object.

        Raises:
            IsthmusError: naming objects that are corrupt or could not be copied.
        """
        ...

    def hold(self) -> None:
        """Let nobody submit to the source. Idempotent."""
        ...

    def release(self) -> None:
        """Let everybody submit to the source again. Idempotent."""
        ...

    def runs_here(self) -> list[Run]:
        """The source's runs that have not ended, as they are now; not those that the program itself deploys."""
        ...

    def runs_there(self) -> list[Run]:
        """The same of the destination."""
        ...

    def wait(self, run: Run) -> None:
        """Wait until a run at the source has ended."""
        ...

    def run(self, identity: str) -> Run:
        """A run as runs.db has it."""
        ...

    def suspended(self, run: Run, *, there: bool) -> bool | None:
        """Whether a run's job is suspended, by a person or a queue; None where it has no job."""
        ...

    def stop(self, run: Run, *, there: bool) -> bool:
        """Stop a run's job, its last metrics written down, its volumes kept. False when it has ended by itself. Idempotent."""
        ...

    def copy_volumes(self, run: Run, *, back: bool) -> list[VolumeRow]:
        """Copy a stopped run's volumes and compare them by content. Idempotent."""
        ...

    def start(self, run: Run, *, there: bool, suspended: bool) -> None:
        """Make a run's job anew, under its own id; suspended where it was. Idempotent."""
        ...


Tell = Callable[[str], None]


@dataclass(frozen=True)
class Step:
    """One step."""

    name: str
    what: str
    do: Callable[[World, Record, Tell], Detail]


def go(steps: tuple[Step, ...], world: World, record: Record, tell: Tell) -> None:
    """Do the steps that are not done, in order."""
    for step in steps:
        known = record.steps().get(step.name)
        if known is not None and known.done:
            continue
        tell(step.what)
        record.begin_step(step.name)
        record.end_step(step.name, step.do(world, record, tell))


def move(world: World, record: Record, tell: Tell) -> None:
    """Begin or go on with a move, to the cutover.

    Raises:
        Refused: a step found what must be put right first; everything done so far is kept.
    """
    if record.stage is not Stage.MOVING:
        raise Refused(f"this move is {record.stage}: there is nothing to go on with", subject=record.path.stem)
    go(MOVE, world, record, tell)
    record.enter(Stage.CUT_OVER)


def roll_back(world: World, record: Record, tell: Tell) -> None:
    """Return to the source with what was done since at the destination, from wherever the move is.

    Raises:
        Refused: the move is finished, or was never begun.
    """
    if record.stage is None or record.stage in OVER:
        raise Refused(
            f"this move is {record.stage or 'not begun'}: nothing can be rolled back", subject=record.path.stem
        )
    record.enter(Stage.ROLLING_BACK)
    go(BACK, world, record, tell)
    record.enter(Stage.ROLLED_BACK)


def finish(world: World, record: Record) -> None:
    """Give up the way back. Raises Refused before the cutover."""
    if record.stage is not Stage.CUT_OVER:
        raise Refused(
            f"this move is {record.stage or 'not begun'}: only one that is cut over can be finished",
            subject=record.path.stem,
        )
    world.release()
    record.enter(Stage.FINISHED)


def _up(world: World, record: Record, tell: Tell) -> Detail:
    return world.up()


def _parity(world: World, record: Record, tell: Tell) -> Detail:
    return world.parity()


def _identities(world: World, record: Record, tell: Tell) -> Detail:
    return world.identities()


def _copy_ahead(world: World, record: Record, tell: Tell) -> Detail:
    return world.copy_objects(back=False, final=False)


def _hold(world: World, record: Record, tell: Tell) -> Detail:
    """After this nobody submits to the source, so the list of its runs is final."""
    world.hold()
    for run in world.runs_here():
        record.choose(run.id, suspended=bool(world.suspended(run, there=False)))
    return {"runs": [row.id for row in record.runs()]}


def _stop(world: World, record: Record, tell: Tell) -> Detail:
    for row in record.runs(RunStage.CHOSEN):
        run = world.run(row.id)
        if record.mode == "drain" and run.started is not None:
            tell(f"waiting for run {run.id} to end")
            world.wait(run)
            run = world.run(row.id)
        stopped = not run.state.final and world.stop(run, there=False)
        record.settle(row.id, RunStage.STOPPED if stopped else RunStage.ENDED)
    return {"stopped": len(record.runs(RunStage.STOPPED)), "ended": len(record.runs(RunStage.ENDED))}


def _copy_last(world: World, record: Record, tell: Tell) -> Detail:
    return world.copy_objects(back=False, final=True)


def _volumes(world: World, record: Record, tell: Tell) -> Detail:
    for row in record.runs(RunStage.STOPPED):
        tell(f"volumes of run {row.id}")
        for volume in world.copy_volumes(world.run(row.id), back=False):
            record.add_volume(volume)
        record.settle(row.id, RunStage.COPIED)
    return {"volumes": len(record.volumes()), "bytes": sum(volume.bytes for volume in record.volumes())}


def _jobs(world: World, record: Record, tell: Tell) -> Detail:
    for row in record.runs(RunStage.COPIED):
        tell(f"run {row.id}")
        world.start(world.run(row.id), there=True, suspended=row.suspended)
        record.settle(row.id, RunStage.MOVED)
    return {"moved": len(record.runs(RunStage.MOVED))}


MOVE = (
    Step("up", "bringing the destination up", _up),
    Step("parity", "comparing the platforms", _parity),
    Step("identities", "looking at what may use the bucket", _identities),
    Step("copy", "copying objects while runs go on", _copy_ahead),
    Step("hold", "holding submissions to the source", _hold),
    Step("stop", "stopping runs", _stop),
    Step("last", "copying the last objects and reading all back", _copy_last),
    Step("volumes", "copying volumes", _volumes),
    Step("jobs", "making jobs anew", _jobs),
)


def _look_there(world: World, record: Record, tell: Tell) -> Detail:
    """Before anything is stopped there: which jobs somebody has suspended, or let go, since they came."""
    for row in record.runs(RunStage.MOVED, RunStage.COPIED):
        found = world.suspended(world.run(row.id), there=True)
        if found is not None:
            record.suspend(row.id, found)
    return {"suspended": [row.id for row in record.runs() if row.suspended]}


def _stop_there(world: World, record: Record, tell: Tell) -> Detail:
    """A run whose job may be at the destination: one that was copied may have been started when the move was ended."""
    ended = []
    for row in record.runs(RunStage.MOVED, RunStage.COPIED):
        run = world.run(row.id)
        if run.state.final or not world.stop(run, there=True):
            ended.append(row.id)
    return {"endedThere": ended}


def _objects_back(world: World, record: Record, tell: Tell) -> Detail:
    began = record.steps().get("copy")
    return world.copy_objects(back=True, final=True) if began is not None and began.done else {}


def _volumes_back(world: World, record: Record, tell: Tell) -> Detail:
    done = []
    for row in record.runs(RunStage.MOVED):
        tell(f"volumes of run {row.id}")
        done += [volume.claim for volume in world.copy_volumes(world.run(row.id), back=True)]
    return {"volumes": done}


def _jobs_back(world: World, record: Record, tell: Tell) -> Detail:
    # A chosen one too: it may have been stopped and the move ended before that was written down.
    for row in record.runs(RunStage.CHOSEN, RunStage.STOPPED, RunStage.COPIED, RunStage.MOVED):
        run = world.run(row.id)
        if run.state.final:
            record.settle(row.id, RunStage.ENDED)
            continue
        world.start(run, there=False, suspended=row.suspended)
        record.settle(row.id, RunStage.RETURNED)
    return {"returned": [row.id for row in record.runs(RunStage.RETURNED)]}


def _release(world: World, record: Record, tell: Tell) -> Detail:
    world.release()
    left = [run.id for run in world.runs_there() if run.id not in {row.id for row in record.runs()}]
    return {"submittedThereMeanwhile": left}


BACK = (
    Step("back: look", "looking at runs at the destination", _look_there),
    Step("back: stop", "stopping runs at the destination", _stop_there),
    Step("back: objects", "copying objects back", _objects_back),
    Step("back: volumes", "copying volumes back", _volumes_back),
    Step("back: jobs", "making jobs anew at the source", _jobs_back),
    Step("back: release", "releasing the source", _release),
)


def failed(error: IsthmusError, *, pair: str) -> IsthmusError:
    """The same error with what to do about the move."""
    remedy = f"{error.remedy}; then " if error.remedy else ""
    result = type(error)(
        error.message, subject=error.subject, remedy=f"{remedy}isthmus migrate resume {pair}, or rollback"
    )
    result.__cause__ = error
    return result
