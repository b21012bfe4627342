"""The table of kill points in docs/migration.md: each act of a move and of the way back, killed before and after what it does.

`python -m tests.unit.migration.kill_points` writes it into the page; a test compares the two.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

from isthmus.migration.move import steps
from isthmus.migration.move.record import Record, Stage
from tests.unit.migration.fake_world import FakeWorld, Killed, world

PAGE = Path(__file__).resolve().parents[3] / "docs" / "migration.md"
BEGIN, END = "<!-- kill points: begin -->\n", "<!-- kill points: end -->\n"
FOLDER = tempfile.TemporaryDirectory()
"""Of the records; gone with this process."""
Act = Callable[[FakeWorld, Record], None]


def table() -> str:
    """The table as the page has it."""
    lines = [
        "| step | act | killed before it, then `resume` | killed after it, then `resume` | killed after it, then `rollback` |",
        "| --- | --- | --- | --- | --- |",
    ]
    for step, act, *cells in [*_rows(_move, ()), *_rows(_back, (_move,))]:
        lines.append(f"| {step} | {act} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def write() -> None:
    """Write it into the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + table() + END + after, encoding="utf-8")


def _rows(act: Act, first: tuple[Act, ...]) -> list[list[str]]:
    unbroken, record = _prepared(first)
    start, begun = unbroken.moments, len(unbroken.acts)
    act(unbroken, record)
    rows = []
    for number, name in enumerate(unbroken.acts[begun:]):
        before, after = start + 2 * number, start + 2 * number + 1
        step, resumed = _resumed(act, first, before, unbroken)
        rows.append([step, name, resumed, _resumed(act, first, after, unbroken)[1], _rolled_back(act, first, after)])
    return rows


def _prepared(first: tuple[Act, ...]) -> tuple[FakeWorld, Record]:
    there, record = world(), Record(Path(tempfile.mkdtemp(dir=FOLDER.name)) / "move.db")
    record.begin("checkpoint")
    for act in first:
        act(there, record)
    return there, record


def _killed(act: Act, first: tuple[Act, ...], moment: int) -> tuple[str, FakeWorld, Record]:
    """The step it was killed in, and what is there then."""
    there, record = _prepared(first)
    there.kill_at = moment
    try:
        act(there, record)
    except Killed:
        pass
    else:
        raise AssertionError(f"there is no moment {moment}")
    step = next(row.name for row in record.steps().values() if not row.done)
    return step, there, Record(record.path)


def _resumed(act: Act, first: tuple[Act, ...], moment: int, unbroken: FakeWorld) -> tuple[str, str]:
    step, there, record = _killed(act, first, moment)
    act(there, record)
    return step, "equal" if there.seen() == unbroken.seen() else "DIFFERENT"


def _rolled_back(act: Act, first: tuple[Act, ...], moment: int) -> str:
    _, there, record = _killed(act, first, moment)
    _back(there, record)
    whole = there.jobs == world().jobs and there.objects["here"] == world().objects["here"] and not there.held
    volumes = world().volumes["here"] == there.volumes["here"]
    return "as at the start" if whole and volumes and record.stage is Stage.ROLLED_BACK else "DIFFERENT"


def _move(there: FakeWorld, record: Record) -> None:
    steps.move(there, record, lambda text: None)


def _back(there: FakeWorld, record: Record) -> None:
    steps.roll_back(there, record, lambda text: None)


if __name__ == "__main__":
    write()
