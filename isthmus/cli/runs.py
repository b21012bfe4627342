"""isthmus runs: list, show and follow runs."""

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from isthmus.cli.output import print_json, print_rows
from isthmus.specs.errors import InvalidSpec, IsthmusError

if TYPE_CHECKING:
    from isthmus.runs.model import Run, Snapshot
    from isthmus.runs.store import Store

app = App(name="runs", help="List and show runs.")

Json = Annotated[bool, Parameter(negative="")]


@app.default
def runs(*, stack: Annotated[str | None, Parameter(name=["--stack", "-s"])] = None, json: Json = False) -> None:
    """List runs, newest first.

    Parameters
    ----------
    stack
        Only those of this stack.
    json
        Print JSON.
    """
    from isthmus.cli.project import settings
    from isthmus.cli.run import open_store
    from isthmus.runs import summary

    store = open_store()
    kept = store.runs(stack=stack)
    if stack is not None and not kept:
        settings(stack)  # a stack may be gone and its runs be kept; one that never was is a slip of the keyboard
    found, silent = _refreshed(store, kept)
    columns = ["run", "workload", "stack", "state", "created", "time", "source", "reason"]
    print_rows(
        [summary.row(run) for run in found], columns, as_json=json, empty="no runs yet; isthmus run ddp-digits -s STACK"
    )
    for name, problem in silent.items():
        print(f"runs on {name} are shown as they were last seen: {problem}", file=sys.stderr)


@app.command
def show(run: str, *, json: Json = False) -> int:
    """Show one run: its pods, what they wait for, its metrics. The exit code is 0 unless it failed.

    Parameters
    ----------
    run
        Id of the run, or name of its job.
    json
        Print JSON.
    """
    from isthmus.cli.run import open_store
    from isthmus.runs import summary
    from isthmus.runs.model import State

    store = open_store()
    snapshot, problem = look(store, store.get(run))
    if json:
        print_json(summary.as_dict(snapshot) | ({"as_last_seen": problem} if problem else {}))
        return int(snapshot.run.state in {State.FAILED, State.LOST})
    print("\n".join(summary.ending(snapshot)))
    if problem:
        print(f"  as it was last seen: {problem}")
    for sentence in snapshot.waiting:
        print(f"  {sentence}")
    pods = summary.as_dict(snapshot)["pods"]
    columns = ["pod", "role", "rank", "phase", "node", "exit_code", "restarts", "reason"]
    print_rows(pods, columns, empty="no pods were seen")
    return int(snapshot.run.state in {State.FAILED, State.LOST})


@app.command
def follow(run: str, *, json: Json = False) -> int:
    """Follow a run to its end. Ctrl-C leaves it going.

    The exit code is 0 only when it succeeded and reached every metric its workload requires.

    Parameters
    ----------
    run
        Id of the run, or name of its job.
    json
        Print the run as JSON at the end.
    """
    from isthmus.cli.run import cluster_of, follow_to_end, open_store

    store = open_store()
    its_run = store.get(run)
    return follow_to_end(cluster_of(its_run.stack), store, its_run, as_json=json)


@app.command
def compare(*runs: str, json: Json = False) -> None:
    """Set runs side by side: what was asked for, what each took, and the last value of each metric.

    Parameters
    ----------
    runs
        Two or more ids of runs, or names of their jobs.
    json
        Print JSON.
    """
    from datetime import UTC, datetime

    from isthmus.cli.run import open_store
    from isthmus.runs import compare as comparison

    if len(runs) < 2:
        raise InvalidSpec(
            f"a comparison takes two runs or more, not {len(runs)}",
            subject="runs compare",
            remedy="isthmus runs compare RUN RUN",
        )
    store, now = open_store(), datetime.now(UTC)
    looked = [look(store, store.get(name)) for name in runs]
    sides = [comparison.side(snapshot, now=now) for snapshot, _ in looked]
    if json:
        print_json(comparison.as_dict(sides))
        return
    columns = [f"{item.run.id}" for item in sides]
    rows = [
        {"": name} | {column: comparison.words(name, value) for column, value in zip(columns, values, strict=True)}
        for name, values in comparison.rows(sides)
    ]
    print_rows(rows, ["", *columns])
    for snapshot, problem in looked:
        if problem:
            print(f"run {snapshot.run.id} is shown as it was last seen: {problem}", file=sys.stderr)


def _refreshed(store: "Store", found: "list[Run]") -> "tuple[list[Run], dict[str, str]]":
    """The runs, those that may have changed looked at once; and of stacks that do not answer, why. Each is asked once."""
    silent: dict[str, str] = {}
    result = []
    for run in found:
        if run.state.final or run.stack in silent:
            result.append(run)
            continue
        snapshot, problem = look(store, run)
        if problem:
            silent[run.stack] = problem
        result.append(snapshot.run)
    return result, silent


def look(store: "Store", run: "Run") -> "tuple[Snapshot, str]":
    """A run as it is now; or as it was last seen, and why it cannot be asked."""
    from isthmus.cli.run import cluster_of
    from isthmus.runs import watch
    from isthmus.runs.model import Snapshot

    problem = ""
    if not run.state.final:
        try:
            return watch.refresh(cluster_of(run.stack), store, run), ""
        except IsthmusError as error:
            problem = error.message
    return Snapshot(run, tuple(store.replicas(run)), (), store.latest(run)), problem
