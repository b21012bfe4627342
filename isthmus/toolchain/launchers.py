"""Writes the small start scripts: pulumi, the Python language host, and the provider plugins that are ours.

They are written anew by every install (they name this environment's Python by its path). Each is a shell script of a few
lines that execs its program, so that signals and process numbers are the program's own.
"""

import os
import shlex
import sys
import tempfile
from pathlib import Path

from isthmus.specs.stack import LOCAL_PLUGIN_VERSION, SIMULATED_PLUGIN_VERSION
from isthmus.toolchain import home

PLUGINS = {
    ("aws", SIMULATED_PLUGIN_VERSION): "isthmus.simulation.aws",
    ("gcp", SIMULATED_PLUGIN_VERSION): "isthmus.simulation.gcp",
    ("isthmus", LOCAL_PLUGIN_VERSION): "isthmus.localcluster.kind.provider",
}
"""Package and version of each provider plugin that is a Python module of ours."""

LANGUAGE_HOST = "pulumi-language-python"


def write_all(real_pulumi: Path) -> list[Path]:
    """Write every start script, for this environment and this home.

    Args:
        real_pulumi: the Pulumi command that the launcher starts.

    Returns:
        The files written.
    """
    written = [write_pulumi(folder, real_pulumi) for folder in _launcher_folders()]
    if is_ours(real_pulumi.parent / LANGUAGE_HOST):
        written.append(write_language_host(real_pulumi.parent))
    for plugins in plugin_folders():
        for (package, version), module in PLUGINS.items():
            folder = plugins / f"resource-{package}-v{version}"
            written.append(_script(folder / f"pulumi-resource-{package}", _python_module(module)))
    return written


def write_language_host(folder: Path) -> Path:
    """Write the Python language host's start script beside a pulumi that was built here, where the engine looks for it."""
    return _script(folder / LANGUAGE_HOST, _python_module("isthmus.toolchain.language_host"))


def write_pulumi(folder: Path, real_pulumi: Path) -> Path:
    """Write the pulumi launcher into a folder. Like `isthmus` itself it takes ISTHMUS_HOME from the environment."""
    launcher = Path(__file__).with_name("launcher.py")
    command = f'exec {_quoted(sys.executable)} -IS {_quoted(launcher)} {_quoted(real_pulumi)} "$@"\n'
    return _script(folder / "pulumi", command)


def _launcher_folders() -> list[Path]:
    """Where `pulumi` goes: tools/bin, and this virtual environment unless somebody put a pulumi of their own there."""
    theirs = environment_bin() / "pulumi"
    if sys.prefix == sys.base_prefix or (theirs.exists() and not is_ours(theirs)):
        return [home.tools_bin()]
    return [home.tools_bin(), environment_bin()]


def environment_bin() -> Path:
    """The bin folder of the Python environment we run in."""
    return Path(sys.executable).absolute().parent


def plugin_folders() -> list[Path]:
    """Where the engine looks for plugins: our PULUMI_HOME, and the user's own when one is set."""
    own = home.pulumi_home() / "plugins"
    users = os.environ.get("PULUMI_HOME")
    return [own, Path(users) / "plugins"] if users and Path(users) != own.parent else [own]


def _python_module(module: str) -> str:
    """Exec a module in the environment that started pulumi (two checkouts may share one home), else in ours.

    -P keeps the folder we are started in, which is the user's program, out of the module search.
    """
    name = home.PYTHON_VARIABLE
    return f'[ -n "${{{name}:-}}" ] || {name}={_quoted(sys.executable)}\nexport {name}\nexec "${name}" -P -u -m {module} "$@"\n'


_MARK = "# Written by `isthmus install`; changes are lost."


def _script(path: Path, body: str) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\n{_MARK}\n{body}")
    os.chmod(temporary, 0o755)
    os.replace(temporary, path)  # never a half-written program, even with two installs at once
    return path


def is_ours(path: Path) -> bool:
    """Whether a file is one of our start scripts."""
    try:
        return _MARK in path.read_bytes()[:200].decode("utf-8", "replace")
    except OSError:
        return False


def _quoted(value: Path | str) -> str:
    return shlex.quote(str(value))
