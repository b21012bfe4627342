"""isthmus migrate: from one stack to another, and back."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from isthmus.cli import migration_ends as ends
from isthmus.cli import project
from isthmus.cli.output import Progress, confirm, print_json, print_rows
from isthmus.specs.errors import InvalidSpec, IsthmusError, Refused

app = App(name="migrate", help="Move from one stack to another, and back.", help_format="plaintext")

Flag = Annotated[bool, Parameter(negative="")]
REFUSED = 3


@app.command
def plan(
    source: str,
    destination: str,
    *,
    classes: Annotated[tuple[str, ...], Parameter(name="--class", negative="")] = (),
    accept: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    json: Flag = False,
) -> int:
    """Show everything of a stack and where it would go, what that costs, and what must be decided first. Changes nothing.

    The exit code is 3 while anything is undecided.

    Parameters
    ----------
    source
        The stack to move from; it must be up.
    destination
        The stack to move to. What it cannot be asked for while it is not up is taken from its settings.
    classes
        Map a storage class: --class gp3-retain=premium-rwo. May be given again.
    accept
        Take a line as it is, by its id: --accept object/ConfigMap/mine. May be given again.
    output
        Write the plan as a page (FILE.html) or as data (FILE.json).
    json
        Print the plan as JSON.
    """
    from isthmus.migration.plan import make, report
    from isthmus.migration.plan.model import Choices

    ends.check_pair(source, destination, residency=False)
    if output is not None and output.suffix not in {".html", ".json"}:
        raise InvalidSpec(f"-o takes a file .html or .json, not {output}", subject="-o", remedy="-o plan.html")
    choices = Choices(dict(_pair(text) for text in classes), frozenset(accept))
    progress = Progress(f"plan {source} to {destination}")
    one, other, runs, rate = ends.gather(source, destination, progress)
    made = make.make(one, other, runs, choices=choices, rate=rate)
    make.check_accepted(made, choices)
    if output is not None and output.suffix == ".html":
        report.write(made, output)
    elif output is not None:
        import json as encoding

        output.write_text(encoding.dumps(report.document(made), indent=2), encoding="utf-8")
    if json:
        print_json(report.document(made))
    else:
        report.show(made)
        print(
            f"nothing is undecided; next: isthmus migrate run {source} {destination}"
            if not made.undecided
            else f"next: decide the above, then isthmus migrate plan {source} {destination} again"
        )
    return REFUSED if made.undecided else 0


@app.command
def objects(
    source: str,
    destination: str,
    *,
    delete: Flag = False,
    repair: Flag = False,
    verify_all: Flag = False,
    threads: int = 16,
    json: Flag = False,
) -> int:
    """Copy the objects of one stack's bucket to another's, and read every one back. Run it again: it does what is left.

    The exit code is 1 when an object is corrupt at the destination or could not be copied; each is named.

    Parameters
    ----------
    source
        The stack whose objects are copied.
    destination
        The stack they are copied to. Its bucket must be empty the first time.
    delete
        Delete at the destination what was copied before and is no longer at the source.
    repair
        Copy anew what was found corrupt, or was written at both ends.
    verify_all
        Read back every object, also those that were verified before.
    threads
        Objects copied at the same time.
    json
        Print the outcome as JSON.
    """
    from isthmus.migration.objects import report

    ends.check_pair(source, destination)
    if not 1 <= threads <= 64:
        raise InvalidSpec(f"--threads is 1 to 64, not {threads}", subject="--threads")
    progress = Progress(f"objects of {source}")
    outcome, urls = ends.copy(
        source, destination, threads, progress, delete=delete, repair=repair, verify_all=verify_all
    )
    if json:
        print_json(report.document(outcome, source=urls[0], destination=urls[1]))
    else:
        progress.done("every object is at the destination, and equal" if outcome.ok else "not everything is equal")
        print("\n".join(report.lines(outcome)))
    return 0 if outcome.ok else 1


@app.command
def run(
    source: str,
    destination: str,
    *,
    drain: Flag = False,
    checkpoint: Flag = False,
    classes: Annotated[tuple[str, ...], Parameter(name="--class", negative="")] = (),
    accept: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="")] = False,
) -> int:
    """Move a stack: platform, objects, volumes and runs, in recorded steps. The source is kept until `migrate finish`.

    Parameters
    ----------
    source
        The stack to move from.
    destination
        The stack to move to.
    drain
        Wait for runs that have started; those that wait are moved.
    checkpoint
        Stop runs and let them go on at the destination from their checkpoints.
    classes
        As for plan.
    accept
        As for plan.
    yes
        Do not ask.
    """
    from isthmus.cli import migration_world as worlds
    from isthmus.migration.move import steps
    from isthmus.migration.move.record import OVER
    from isthmus.migration.plan import make, report
    from isthmus.migration.plan.model import Choices

    ends.check_pair(source, destination)
    if drain == checkpoint:
        raise InvalidSpec("give one of --drain and --checkpoint: what becomes of runs", subject="isthmus migrate run")
    with worlds.moving(source, destination) as (world, record):
        if record.stage is not None and record.stage not in OVER:
            raise Refused(
                f"a move from {source} to {destination} is {record.stage} already",
                subject=f"{source} to {destination}",
                remedy=f"isthmus migrate resume {source} {destination}, or status, rollback, finish",
            )
        progress = Progress(f"move {source} to {destination}")
        choices = Choices(dict(_pair(text) for text in classes), frozenset(accept))
        one, other, runs, rate = ends.gather(source, destination, progress)
        made = make.make(one, other, runs, choices=choices, rate=rate)
        make.check_accepted(made, choices)
        report.show(made)
        if made.undecided:
            return REFUSED
        if not confirm(f"move {source} to {destination}; go on?", yes=yes):
            raise Refused(
                "not confirmed; nothing changed",
                subject=f"{source} to {destination}",
                remedy=f"isthmus migrate run {source} {destination} --yes",
            )
        record.begin("drain" if drain else "checkpoint")
        _go(steps.move, world, record, progress, f"{source} {destination}")
    return 0


@app.command
def resume(source: str, destination: str) -> int:
    """Go on with a move, or with a way back, that was ended in the middle.

    Parameters
    ----------
    source
        The stack the move is from.
    destination
        The stack it is to.
    """
    from isthmus.cli import migration_world as worlds
    from isthmus.migration.move import steps
    from isthmus.migration.move.record import Stage

    ends.check_pair(source, destination)
    with worlds.moving(source, destination) as (world, record):
        act = steps.roll_back if record.stage is Stage.ROLLING_BACK else steps.move
        _go(act, world, record, Progress(f"move {source} to {destination}"), f"{source} {destination}")
    return 0


@app.command
def rollback(
    source: str, destination: str, *, yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="")] = False
) -> int:
    """Return to the source with what was done since at the destination: objects, volumes, runs.

    Parameters
    ----------
    source
        The stack the move is from.
    destination
        The stack it is to.
    yes
        Do not ask.
    """
    from isthmus.cli import migration_world as worlds
    from isthmus.migration.move import steps

    ends.check_pair(source, destination)
    with worlds.moving(source, destination) as (world, record):
        if not confirm(f"return from {destination} to {source}; go on?", yes=yes):
            raise Refused("not confirmed; nothing changed", subject=f"{source} to {destination}")
        _go(steps.roll_back, world, record, Progress(f"back to {source}"), f"{source} {destination}")
    return 0


@app.command
def finish(source: str, destination: str) -> int:
    """Give up the way back. The source's stack is left as it is: `isthmus down` deletes it.

    Parameters
    ----------
    source
        The stack the move was from.
    destination
        The stack it was to.
    """
    from isthmus.cli import migration_world as worlds
    from isthmus.migration.move import steps

    ends.check_pair(source, destination)
    with worlds.moving(source, destination) as (world, record):
        steps.finish(world, record)
    print(f"finished; {source} is no longer needed; next: isthmus down {source}")
    return 0


@app.command
def status(source: str, destination: str, *, json: Flag = False) -> int:
    """Show a move: its steps, its runs with their downtime, its volumes, bytes, digests and differences, and its bill.

    Parameters
    ----------
    source
        The stack the move is from.
    destination
        The stack it is to.
    json
        Print everything as JSON: the report of the move.
    """
    from isthmus import catalog
    from isthmus.cli import migration_world as worlds
    from isthmus.migration.move import bill, report

    ends.check_pair(source, destination, residency=False)
    record = worlds.record_of(source, destination)
    if record.stage is None:
        raise Refused(
            f"there is no move from {source} to {destination}",
            subject=f"{source} to {destination}",
            remedy=f"isthmus migrate run {source} {destination}",
        )
    paid = bill.bill(
        record, project.settings(source), project.settings(destination), catalog.load(), now=datetime.now(UTC)
    )
    told = report.document(record, worlds.downtimes(record), paid, source=source, destination=destination)
    if json:
        print_json(told)
        return 0
    print(f"{told['state']}; began {told['began']}" + (f", ended {told['ended']}" if told["ended"] else ""))
    print_rows(told["steps"], ["step", "state", "seconds", "what"])
    print_rows(told["runs"], ["run", "state", "downtime"], empty="no runs")
    print_rows(told["volumes"], ["volume", "files", "bytes", "digest"], empty="no volumes")
    print("\n".join(report.lines(told)))
    return 0


def _go(act: Callable[..., None], world: object, record: object, progress: Progress, pair: str) -> None:
    from isthmus.migration.move import steps

    try:
        act(world, record, progress.note)
    except IsthmusError as error:
        raise steps.failed(error, pair=pair) from error
    progress.done(f"next: isthmus migrate status {pair}, then finish or rollback")


def _pair(text: str) -> tuple[str, str]:
    before, sign, after = text.partition("=")
    if not (before and sign and after):
        raise InvalidSpec(f"--class takes FROM=TO, not {text!r}", subject="--class", remedy="--class gp3=standard-rwo")
    return before, after
