"""Telling one process from a later one with the same pid, by its start time; and processes that end with another."""

import shutil
from pathlib import Path

ENDS_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
"""Before a command: it is killed when the process that started it ends, however that does."""


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot (field 22 of /proc/PID/stat); None when there is none.

    A dead process that nobody has waited for counts as none.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def alive(pid: int, started: int) -> bool:
    """Whether that very process still runs."""
    return start_time(pid) == started
