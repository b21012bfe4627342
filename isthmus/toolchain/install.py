"""Installing the tools of the table: PATH if it fits, else the publisher's release, else the Go build.

Each tool is its own small state machine under its own lock (isthmus.toolchain.state), so an install can be killed, repeated,
or run twice at once. At most two tools are worked on at a time. A tool that fails is reported with its log and leaves the
others usable. The ways to get a tool are a small interface, so that tests put their own in its place.
"""

import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from isthmus.specs.errors import IsthmusError, Refused
from isthmus.toolchain import debian, fetch, gobuild, home, launchers, probe, state
from isthmus.toolchain.rows import OPTIONAL, DebianPackage, Tool
from isthmus.toolchain.table import TOOLS, debian_packages, groups_of, select

AT_ONCE = 2
BUILD_SPACE_MB = 18_000
"""Disk that a build of the whole table takes beside the tools: modules and build cache (measured)."""
SPARE_MB = 1_000


class Listener(Protocol):
    """Hears what happens to each tool. Called from several threads."""

    def begin(self, tool: Tool) -> None: ...
    def say(self, tool: Tool, text: str) -> None: ...
    def end(self, tool: Tool, outcome: "Outcome") -> None: ...
    def note(self, text: str) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """How it went with one tool."""

    name: str
    how: str
    """"present", "path", "release", "build" or "failed"."""
    seconds: float = 0.0
    error: IsthmusError | None = None


@dataclass
class Ways:
    """The ways to get a tool. Each fills `work`/bin (and share); False means that this way leads nowhere here."""

    releases: bool = True
    """Whether to try the publishers; turned off by the first host that cannot be reached."""
    stop: threading.Event = field(default_factory=threading.Event)

    def from_path(self, tool: Tool, work: Path) -> bool:
        """Links to the programs on PATH, when their version fits."""
        found = probe.on_path(tool)
        if found is None:
            return False
        (work / "bin").mkdir(exist_ok=True)
        for program, place in found.items():
            (work / "bin" / program).symlink_to(place)
        return True

    def from_release(self, tool: Tool, work: Path, say: Callable[[str], None], note: Callable[[str], None]) -> bool:
        """The publisher's own build, when it can be had and has the right checksum."""
        if tool.release is None or not self.releases:
            return False
        say("asking the publisher")
        try:
            fetch.fetch(tool, tool.release, work / "bin", home.cache() / "downloads", say)
        except fetch.Unavailable as error:
            shutil.rmtree(work / "bin", ignore_errors=True)
            if error.offline and self.releases:
                self.releases = False
                note(f"no releases from here ({error.reason}): building from the Go module proxy")
            elif not error.offline:
                note(f"{tool.name}: {error.reason}; building it instead")
            return False
        return True

    def from_source(self, tool: Tool, work: Path, say: Callable[[str], None]) -> None:
        """The Go build."""
        gobuild.build(tool, work / "bin", state.build_log(tool), say, self.stop)

    def shared(self, tool: Tool, work: Path, say: Callable[[str], None]) -> None:
        """The files of the tool's module that we use."""
        if tool.shared:
            say("copying its files")
            gobuild.copy_shared(tool, work / "share", state.build_log(tool), lambda: home.tool("kubectl"), self.stop)

    def complete(self, tool: Tool, work: Path) -> None:
        """What a publisher's release has and a build lacks: Pulumi's Python language host."""
        if tool.name == "pulumi":
            launchers.write_language_host(work / "bin")

    def activate(self, tool: Tool) -> None:
        """Make a complete tool usable: links, and the start scripts, which name this environment."""
        state.link(tool)
        if tool.plugin:
            for plugins in launchers.plugin_folders():
                program = tool.programs[0]
                state.replace_link(plugins / tool.plugin / program, state.folder(tool) / "bin" / program)
        if tool.name == "pulumi":
            launchers.write_all(state.folder(tool) / "bin" / "pulumi")

    def packages(self, packages: Sequence[DebianPackage]) -> None:
        """The distribution's packages."""
        debian.install(packages, debian.log_file())


@dataclass(frozen=True)
class Plan:
    """What an install is about to do."""

    ready: tuple[Tool, ...]
    todo: tuple[Tool, ...]
    packages: tuple[DebianPackage, ...]

    @property
    def seconds(self) -> int:
        """Expected time if every tool has to be built."""
        return sum(tool.seconds for tool in self.todo)


def plan(names: Sequence[str] = ()) -> Plan:
    """What is there and what is missing of the named groups or tools (none: all).

    Raises:
        InvalidSpec: an unknown name.
    """
    tools = select(tuple(names))
    ready = tuple(tool for tool in tools if state.source(tool) is not None)
    packages = debian.missing(debian_packages(groups_of(tools)))
    return Plan(ready, tuple(tool for tool in tools if tool not in ready), tuple(packages))


def missing(names: Sequence[str] = ()) -> list[str]:
    """The tools and packages of the named groups that are not installed: the quick question before work starts."""
    found = plan(names)
    return [*(tool.name for tool in found.todo), *(package.name for package in found.packages)]


def install(
    names: Sequence[str] = (), *, listener: Listener, ways: Ways | None = None, keep_cache: bool = False
) -> list[Outcome]:
    """Install the named groups or tools (none: all) with what they need.

    Args:
        names: groups or tools of the table.
        listener: hears the progress.
        ways: how tools are got.
        keep_cache: leave Go's caches, which are otherwise dropped when the whole table is installed.

    Returns:
        One outcome per tool, in table order, and one for the packages if any were missing. Failures are outcomes too.

    Raises:
        InvalidSpec: an unknown name. Refused: not enough disk. Nothing has changed then.
    """
    ways = ways or Ways()
    work = plan(names)
    _check_disk(work)
    outcomes = [_packages(work.packages, ways, listener)] if work.packages else []
    outcomes += _tools((*work.ready, *work.todo), ways, listener)
    if not keep_cache and work.todo and all(state.source(tool) for tool in TOOLS if tool.group not in OPTIONAL):
        gobuild.drop_caches(modules=True)
    order = {tool.name: index for index, tool in enumerate(TOOLS)}
    return sorted(outcomes, key=lambda outcome: order.get(outcome.name, -1))


def failures(outcomes: Sequence[Outcome]) -> IsthmusError | None:
    """One error for everything that failed, or None."""
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if not failed:
        return None
    first = failed[0].error
    assert first is not None
    if len(failed) == 1:
        return first
    names = ", ".join(outcome.name for outcome in failed)
    return IsthmusError(f"{len(failed)} failed: {names}; the others are usable", subject=names, remedy=first.remedy)


def install_one(tool: Tool, ways: Ways, listener: Listener) -> Outcome:
    """Bring one tool from whatever state it is in to complete. Never raises for a tool's own trouble."""
    started = time.monotonic()
    listener.begin(tool)
    try:
        how = _install_locked(tool, ways, listener)
        outcome = Outcome(tool.name, how, time.monotonic() - started)
    except IsthmusError as error:
        outcome = Outcome(tool.name, "failed", time.monotonic() - started, error)
    except OSError as error:
        outcome = Outcome(tool.name, "failed", time.monotonic() - started, _own_trouble(tool, error))
    listener.end(tool, outcome)
    return outcome


def _install_locked(tool: Tool, ways: Ways, listener: Listener) -> str:
    def say(text: str) -> None:
        listener.say(tool, text)

    if state.is_locked(tool):
        say("waiting for another install")
    with state.locked(tool):
        if state.source(tool) is not None:
            ways.activate(tool)
            return "present"
        with state.stage(tool) as work:
            if ways.from_path(tool, work):
                how = "path"
            elif ways.from_release(tool, work, say, listener.note):
                how = "release"
            else:
                ways.from_source(tool, work, say)
                how = "build"
            ways.shared(tool, work, say)
            if how == "build":
                ways.complete(tool, work)
            state.commit(tool, work, how)
        ways.activate(tool)
        return how


def _own_trouble(tool: Tool, error: OSError) -> IsthmusError:
    if gobuild.is_no_space(error):
        return gobuild.disk_full(tool.name, state.build_log(tool))
    return IsthmusError(f"{tool.name} could not be installed: {error}", subject=tool.name, remedy="isthmus install")


def _tools(tools: Sequence[Tool], ways: Ways, listener: Listener) -> list[Outcome]:
    """Work through the tools, each after those it needs, at most AT_ONCE at a time."""
    waiting = list(tools)
    done: dict[str, Outcome] = {}
    running: dict[Future[Outcome], Tool] = {}
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        try:
            while waiting or running:
                for tool in _startable(waiting, done, AT_ONCE - len(running)):
                    waiting.remove(tool)
                    running[pool.submit(install_one, tool, ways, listener)] = tool
                for tool in [tool for tool in waiting if _lost(tool, done)]:
                    waiting.remove(tool)
                    done[tool.name] = _without_need(tool, done)
                    listener.end(tool, done[tool.name])
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    done[running.pop(future).name] = future.result()
        except BaseException:
            ways.stop.set()  # ends the builds, and with them the threads that the pool waits for
            raise
    return list(done.values())


def _startable(waiting: Sequence[Tool], done: dict[str, Outcome], places: int) -> list[Tool]:
    ready = [tool for tool in waiting if all(name in done and done[name].error is None for name in tool.needs)]
    return ready[: max(places, 0)]


def _lost(tool: Tool, done: dict[str, Outcome]) -> bool:
    return any(name in done and done[name].error is not None for name in tool.needs)


def _without_need(tool: Tool, done: dict[str, Outcome]) -> Outcome:
    needed = next(name for name in tool.needs if name in done and done[name].error is not None)
    error = IsthmusError(
        f"{tool.name} needs {needed}, which failed", subject=tool.name, remedy=f"isthmus install {needed}"
    )
    return Outcome(tool.name, "failed", 0.0, error)


def _packages(packages: Sequence[DebianPackage], ways: Ways, listener: Listener) -> Outcome:
    started = time.monotonic()
    listener.note(f"installing by apt: {', '.join(package.name for package in packages)}")
    try:
        ways.packages(packages)
    except IsthmusError as error:
        listener.note(f"{error.message}; {error.remedy}")
        return Outcome("packages", "failed", time.monotonic() - started, error)
    return Outcome("packages", "apt", time.monotonic() - started)


def _check_disk(work: Plan) -> None:
    """Refuse before anything changes when the builds cannot fit (they may need less: PATH and releases cost little)."""
    total = sum(tool.seconds for tool in TOOLS)
    building = BUILD_SPACE_MB * work.seconds // total
    needed = sum(tool.size_mb for tool in work.todo) + building + (SPARE_MB if work.todo else 0)
    free = shutil.disk_usage(home.home()).free >> 20
    if needed > free and needed > free + _cached_mb():
        raise Refused(
            f"installing {len(work.todo)} tools can take {needed / 1000:.0f} GB while building; {free / 1000:.1f} GB are free",
            subject=str(home.home()),
            remedy=f"free some space, or set {home.HOME_VARIABLE} to a folder on a larger disk",
        )


def _cached_mb() -> int:
    """What an earlier, unfinished install has already put into Go's caches. Read only when the disk looks too small."""
    total = 0
    for folder in (home.cache() / "go", home.cache() / "go-build"):
        for parent, _, files in os.walk(folder):
            total += sum(os.lstat(os.path.join(parent, name)).st_size for name in files)
    return total >> 20
