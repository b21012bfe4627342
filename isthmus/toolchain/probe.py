"""Whether a program that is already on PATH will do: it says its version, and the version is in the table's range.

Nothing of ours counts: the folders isthmus itself fills are left out, or a launcher would find itself.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from isthmus.toolchain import home
from isthmus.toolchain.launchers import LANGUAGE_HOST, environment_bin, is_ours
from isthmus.toolchain.rows import Probe, Tool

PROBE_TIMEOUT_SECONDS = 10

Run = Callable[[Sequence[str]], str]
"""Runs a command and returns its output, both streams."""


def on_path(tool: Tool, *, search: str | None = None, run: Run | None = None) -> dict[str, Path] | None:
    """The tool's programs on PATH, when all are there in a version that fits; else None.

    Args:
        tool: the row; one without a probe for every program never comes from PATH.
        search: folders to look in, as PATH has them; default the process's own PATH without our folders.
        run: how to run a program.
    """
    probes = dict(tool.probes)
    if not tool.programs or any(program not in probes for program in tool.programs):
        return None
    search = foreign_path() if search is None else search
    found: dict[str, Path] = {}
    for program in tool.programs:
        place = shutil.which(program, path=search)
        if place is None or is_ours(Path(place)):
            return None
        if version_of([place], probes[program], run=run) is None:
            return None
        found[program] = Path(place).absolute()
    if tool.name == "pulumi" and not (found["pulumi"].resolve().parent / LANGUAGE_HOST).exists():
        return None  # a pulumi without its Python language host beside it cannot run a program
    return found


def version_of(command: Sequence[str], probe: Probe, *, run: Run | None = None) -> tuple[int, ...] | None:
    """The version a program says it has, if that is in the probe's range; None when it is not, or is not said."""
    output = (run or _run)([*command, *probe.arguments])
    match = re.search(probe.pattern, output)
    if match is None:
        return None
    version = tuple(int(part) for part in match.group(1).split("."))
    return version if probe.minimum <= version < probe.below else None


def foreign_path() -> str:
    """PATH without the folders that isthmus fills."""
    ours = {str(home.tools_bin()), str(environment_bin())}
    return os.pathsep.join(
        part for part in os.environ.get("PATH", os.defpath).split(os.pathsep) if part and part not in ours
    )


def _run(command: Sequence[str]) -> str:
    try:
        result = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout + result.stderr
