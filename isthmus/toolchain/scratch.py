"""Temporary files of Pulumi commands: a folder for each process, removed when that has ended.

The Kubernetes provider writes the kubeconfig of every run into a temporary file and leaves it (seen with v4.34.2): without
this the machine's own folder fills with files of clusters that are long gone. Standard library only: the launcher is in it.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from isthmus.toolchain import home


def folder() -> Path:
    """A new folder for this process's temporary files, and none any more of processes that have ended."""
    clear()
    made = home.scratch() / str(os.getpid())
    made.mkdir(mode=0o700, exist_ok=True)
    return made


def clear() -> None:
    """Remove the folders of processes that have ended. One whose number was given to another process stays for now."""
    ended = [path for path in home.scratch().iterdir() if path.name.isdecimal() and not _runs(int(path.name))]
    if ended:
        import shutil  # here: most commands have nothing to remove, and all of them wait for the launcher

        for path in ended:
            shutil.rmtree(path, ignore_errors=True)


def outlasting(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for processes that outlive the command which starts them: they must not count on its folder."""
    inside = Path(environment.get("TMPDIR", os.sep)).parent == home.scratch()
    return {name: value for name, value in environment.items() if not (inside and name == "TMPDIR")}


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
