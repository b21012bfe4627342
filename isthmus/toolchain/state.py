"""What is installed: the record of one tool under tools/<name>-<version>, and the only code that changes it.

A tool is complete when `.complete` says so, and that file is written last, by an atomic rename. Everything else happens in
a stage folder beside it, so a kill at any moment leaves either the old tool, or none and the next install begins again. One
lock per tool lets two installs share the work.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isthmus.toolchain import home
from isthmus.toolchain.gobuild import module_folder
from isthmus.toolchain.rows import Tool
from isthmus.toolchain.table import TOOLS

COMPLETE = ".complete"
STAGE = ".stage-"


def folder(tool: Tool) -> Path:
    """Where the tool is, or will be."""
    return home.tools() / tool.folder


def build_log(tool: Tool) -> Path:
    """The words of the tool's last build."""
    return folder(tool) / "build.log"


def recipe(tool: Tool) -> str:
    """A digest of everything that decides what the tool is: its row and its module files. Another recipe, another build."""
    digest = hashlib.sha256()
    digest.update(repr((tool.name, tool.version, tool.go, tool.shared)).encode())
    for path in sorted(module_folder(tool).glob("*")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def source(tool: Tool) -> str | None:
    """How the tool was got ("path", "release", "build") when it is complete and all of it is there; else None."""
    place = folder(tool)
    try:
        record = json.loads((place / COMPLETE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(record, dict) or record.get("recipe") != recipe(tool):
        return None
    programs = all(os.access(place / "bin" / program, os.X_OK) for program in tool.programs)
    shared = all((place / "share" / item.target).exists() for item in tool.shared)
    return str(record.get("source")) if programs and shared else None


@contextmanager
def locked(tool: Tool) -> Iterator[None]:
    """Hold the tool's lock; waits for another process that installs it. The lock dies with the process."""
    locks = home.tools() / ".locks"
    locks.mkdir(mode=0o700, exist_ok=True)
    with (locks / tool.name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_locked(tool: Tool) -> bool:
    """Whether some process holds the tool's lock now."""
    path = home.tools() / ".locks" / tool.name
    if not path.exists():
        return False
    with path.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def stage(tool: Tool) -> Iterator[Path]:
    """An empty folder to make the tool in; gone afterwards, whatever happens. Needs the lock."""
    place = folder(tool)
    place.mkdir(mode=0o755, exist_ok=True)
    for old in place.glob(f"{STAGE}*"):  # left by a killed install
        shutil.rmtree(old, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=STAGE, dir=place))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def commit(tool: Tool, work: Path, how: str) -> None:
    """Put what was made in a stage in place, and say that it is complete. Needs the lock.

    Args:
        tool: the row.
        work: the stage, with bin/ and share/.
        how: "path", "release" or "build".
    """
    place = folder(tool)
    (place / COMPLETE).unlink(missing_ok=True)
    for name in ("bin", "share"):
        if (place / name).exists():
            (place / name).rename(work / f"old-{name}")
        if (work / name).exists():
            (work / name).rename(place / name)
    os.chmod(place, 0o755)
    record = {"tool": tool.name, "version": tool.version, "recipe": recipe(tool), "source": how}
    temporary = work / COMPLETE
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, place / COMPLETE)


def link(tool: Tool) -> None:
    """Links in tools/bin to the tool's programs (relative, so that the home can be moved)."""
    if not tool.linked:
        return
    for program in tool.programs:
        replace_link(home.tools_bin() / program, Path("..") / tool.folder / "bin" / program)


def replace_link(place: Path, target: Path) -> None:
    """Make `place` a symbolic link to `target` in one step, whatever was there."""
    if place.is_symlink() and Path(os.readlink(place)) == target:
        return
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    os.replace(temporary, place)


def remove_stale() -> list[str]:
    """Remove other versions of the tools in the table, stages of killed installs and dead links; names what went.

    A tool that is being installed now is left alone.
    """
    removed = []
    for tool in TOOLS:
        if is_locked(tool):
            continue
        for place in home.tools().glob(f"{tool.name}-*"):
            if place.name != tool.folder and _is_version_of(tool, place):
                shutil.rmtree(place, ignore_errors=True)
                removed.append(place.name)
        for old in folder(tool).glob(f"{STAGE}*"):
            shutil.rmtree(old, ignore_errors=True)
            removed.append(f"{tool.folder}/{old.name}")
    for place in home.tools_bin().iterdir():
        if place.is_symlink() and not place.exists():
            place.unlink(missing_ok=True)
            removed.append(f"bin/{place.name}")
    return removed


def _is_version_of(tool: Tool, place: Path) -> bool:
    """`pulumi-3.1` is a version of pulumi, `pulumi-kubernetes-4.1` is not."""
    return place.is_dir() and place.name.removeprefix(f"{tool.name}-")[:1].isdigit()
