"""The state machine of an install, with ways to get a tool that write a file instead of building for minutes."""

import errno
import json
import multiprocessing
import os
import select
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from isthmus.specs.errors import IsthmusError, Refused
from isthmus.toolchain import gobuild, home, install, state
from isthmus.toolchain.rows import DebianPackage, Tool


def put(work: Path, tool: Tool, text: str = "#!/bin/sh\n") -> None:
    (work / "bin").mkdir(exist_ok=True)
    for program in tool.programs:
        path = work / "bin" / program
        path.write_text(text)
        path.chmod(0o755)


class FakeWays(install.Ways):
    """Nothing on PATH, no release; a build writes a file. `fail` names tools whose build ends in an error."""

    def __init__(self, fail: dict[str, Exception] | None = None, path: bool = False, release: bool = False) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.fail, self.path, self.release = fail or {}, path, release
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()

    def from_path(self, tool: Tool, work: Path) -> bool:
        self.calls.append(f"path {tool.name}")
        if self.path:
            put(work, tool)
        return self.path

    def from_release(self, tool: Tool, work: Path, say: Callable[[str], None], note: Callable[[str], None]) -> bool:
        self.calls.append(f"release {tool.name}")
        if self.release:
            put(work, tool)
        return self.release

    def from_source(self, tool: Tool, work: Path, say: Callable[[str], None]) -> None:
        with self._lock:
            self.calls.append(f"build {tool.name}")
            self.at_once += 1
            self.most_at_once = max(self.at_once, self.most_at_once)
        put(work, tool)
        with self._lock:
            self.at_once -= 1
        if tool.name in self.fail:
            raise self.fail[tool.name]

    def packages(self, packages: Sequence[DebianPackage]) -> None:
        self.calls.append("packages")


@pytest.fixture(autouse=True)
def _no_module_files(isthmus_home: Path) -> None:
    """Every test here has a home of its own."""


def only(monkeypatch: pytest.MonkeyPatch, *tools: Tool) -> None:
    """Let the table be these tools, and the machine lack no package."""
    monkeypatch.setattr(install, "select", lambda names: tools)
    monkeypatch.setattr(install, "TOOLS", tools)
    monkeypatch.setattr(state, "TOOLS", tools)
    monkeypatch.setattr(install, "debian_packages", lambda groups: ())


def test_path_then_release_then_build(make_tool: Callable[..., Tool], heard: install.Listener) -> None:
    for ways, expected, calls in (
        (FakeWays(path=True), "path", ["path hammer"]),
        (FakeWays(release=True), "release", ["path hammer", "release hammer"]),
        (FakeWays(), "build", ["path hammer", "release hammer", "build hammer"]),
    ):
        tool = make_tool(version=f"1.0.{len(calls)}")
        outcome = install.install_one(tool, ways, heard)
        assert (outcome.how, ways.calls) == (expected, calls)
        assert state.source(tool) == expected


def test_a_complete_tool_is_not_made_again(make_tool: Callable[..., Tool], heard: install.Listener) -> None:
    tool, ways = make_tool(), FakeWays()
    install.install_one(tool, ways, heard)
    ways.calls.clear()
    assert install.install_one(tool, ways, heard).how == "present"
    assert ways.calls == []
    assert os.access(home.tool("hammer"), os.X_OK)


def test_a_lost_program_or_another_recipe_is_made_again(
    make_tool: Callable[..., Tool], heard: install.Listener
) -> None:
    tool = make_tool()
    install.install_one(tool, FakeWays(), heard)
    (state.folder(tool) / "bin" / "hammer").unlink()
    assert install.install_one(tool, FakeWays(), heard).how == "build"
    changed = make_tool(go=gobuild_row("-s"))
    assert state.source(changed) is None


def gobuild_row(ldflags: str) -> object:
    from isthmus.toolchain.rows import GoBuild

    return GoBuild("example.org/hammer", "v1.0.0", (("hammer", "example.org/hammer"),), ldflags=ldflags)


def test_a_dangling_link_to_path_is_not_complete(
    make_tool: Callable[..., Tool], heard: install.Listener, tmp_path: Path
) -> None:
    tool, elsewhere = make_tool(), tmp_path / "usr-bin-hammer"

    class OnPath(FakeWays):
        def from_path(self, tool: Tool, work: Path) -> bool:
            (work / "bin").mkdir()
            (work / "bin" / "hammer").symlink_to(elsewhere)
            return True

    elsewhere.write_text("")
    elsewhere.chmod(0o755)
    install.install_one(tool, OnPath(), heard)
    assert state.source(tool) == "path"
    elsewhere.unlink()
    assert state.source(tool) is None


def test_one_failure_leaves_the_others_usable(
    make_tool: Callable[..., Tool], heard: install.Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad, child = make_tool("good"), make_tool("bad"), make_tool("child", needs=("bad",))
    only(monkeypatch, good, bad, child)
    error = gobuild.BuildFailed(
        "the build of bad failed: boom", subject="/logs/build.log", remedy="less /logs/build.log"
    )
    ways = FakeWays(fail={"bad": error})
    outcomes = install.install(listener=heard, ways=ways)
    assert [(outcome.name, outcome.how) for outcome in outcomes] == [
        ("good", "build"),
        ("bad", "failed"),
        ("child", "failed"),
    ]
    assert state.source(good) == "build"
    assert state.source(bad) is None
    assert "build child" not in ways.calls
    whole = install.failures(outcomes)
    assert whole is not None
    assert "bad, child" in whole.message
    assert whole.exit_code == 1


def test_a_single_failure_names_its_log(
    make_tool: Callable[..., Tool], heard: install.Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, make_tool("bad"))
    error = gobuild.BuildFailed(
        "the build of bad failed: boom", subject="/logs/build.log", remedy="less /logs/build.log"
    )
    outcomes = install.install(listener=heard, ways=FakeWays(fail={"bad": error}))
    assert install.failures(outcomes) is error


def test_needs_come_first(
    make_tool: Callable[..., Tool], heard: install.Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, make_tool("late", needs=("early",)), make_tool("early"))
    ways = FakeWays()
    install.install(listener=heard, ways=ways)
    assert ways.calls.index("build early") < ways.calls.index("path late")


def test_at_most_two_at_a_time(
    make_tool: Callable[..., Tool], heard: install.Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, *(make_tool(f"tool{index}") for index in range(6)))
    both = threading.Barrier(2, timeout=10)

    class Pairs(FakeWays):
        def from_source(self, tool: Tool, work: Path, say: Callable[[str], None]) -> None:
            with self._lock:
                self.at_once += 1
                self.most_at_once = max(self.at_once, self.most_at_once)
            both.wait()  # proves that two do run together
            put(work, tool)
            with self._lock:
                self.at_once -= 1

    ways = Pairs()
    outcomes = install.install(listener=heard, ways=ways)
    assert [outcome.how for outcome in outcomes] == ["build"] * 6
    assert ways.most_at_once == install.AT_ONCE == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_in_words_and_leaves_nothing(
    make_tool: Callable[..., Tool], heard: install.Listener, number: int
) -> None:
    tool = make_tool()
    outcome = install.install_one(tool, FakeWays(fail={"hammer": OSError(number, "no room")}), heard)
    assert outcome.error is not None
    assert "the disk is full" in outcome.error.message
    assert "isthmus install" in outcome.error.remedy
    assert [path.name for path in state.folder(tool).iterdir()] == []
    assert not (home.tools_bin() / "hammer").exists()


def test_a_full_disk_in_a_build_s_own_words(tmp_path: Path, isthmus_home: Path) -> None:
    log = tmp_path / "build.log"
    with pytest.raises(gobuild.DiskFull, match="the disk is full: hammer"):
        gobuild.run(
            ["sh", "-c", "echo 'write /x: No space left on device' >&2; exit 1"],
            folder=tmp_path,
            environment=dict(os.environ),
            log=log,
            subject="hammer",
            stop=threading.Event(),
        )


def test_a_failed_command_gives_its_last_words_and_its_log(tmp_path: Path, isthmus_home: Path) -> None:
    log = tmp_path / "build.log"
    with pytest.raises(gobuild.BuildFailed, match="hammer failed: undefined: nail") as caught:
        gobuild.run(
            ["sh", "-c", "echo first; echo 'undefined: nail' >&2; exit 2"],
            folder=tmp_path,
            environment=dict(os.environ),
            log=log,
            subject="hammer",
            stop=threading.Event(),
        )
    assert str(log) in caught.value.remedy
    assert "first" in log.read_text()


def test_an_interruption_ends_the_build_and_its_children(tmp_path: Path, isthmus_home: Path) -> None:
    stop, pid_file = threading.Event(), tmp_path / "pid"
    os.mkfifo(pid_file)
    problems: list[BaseException] = []

    def work() -> None:
        try:
            gobuild.run(
                ["sh", "-c", f"sleep 600 & echo $! > {pid_file}; wait"],
                folder=tmp_path,
                environment=dict(os.environ),
                log=tmp_path / "build.log",
                subject="hammer",
                stop=stop,
            )
        except BaseException as error:  # noqa: BLE001 handed to the test
            problems.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    child = os.pidfd_open(int(pid_file.read_text()))
    stop.set()
    thread.join(20)
    assert isinstance(problems[0], gobuild.Cancelled)
    assert _ends(child)


def _run_until_killed(folder: str) -> None:
    gobuild.run(
        ["sh", "-c", f"echo $$ > {folder}/pid; exec sleep 600"],
        folder=Path(folder),
        environment=dict(os.environ),
        log=Path(folder) / "build.log",
        subject="hammer",
        stop=threading.Event(),
    )


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv of util-linux")
def test_a_build_dies_with_a_killed_install(tmp_path: Path, isthmus_home: Path) -> None:
    os.mkfifo(tmp_path / "pid")
    worker = multiprocessing.get_context("fork").Process(target=_run_until_killed, args=(str(tmp_path),))
    worker.start()
    build = int((tmp_path / "pid").read_text())
    descriptor = os.pidfd_open(build)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join(20)
    assert _ends(descriptor)


def _ends(descriptor: int) -> bool:
    """Whether a process ends within 20 seconds: its descriptor becomes readable then."""
    ended, _, _ = select.select([descriptor], [], [], 20)
    os.close(descriptor)
    return bool(ended)


def test_too_little_disk_is_refused_before_anything_changes(
    make_tool: Callable[..., Tool], heard: install.Listener, monkeypatch: pytest.MonkeyPatch, isthmus_home: Path
) -> None:
    only(monkeypatch, make_tool(size_mb=1 << 40))
    ways = FakeWays()
    with pytest.raises(Refused, match="GB are free"):
        install.install(listener=heard, ways=ways)
    assert ways.calls == []
    assert not list((isthmus_home / "tools").glob("hammer*"))


def test_packages_are_named_before_apt_runs_and_their_failure_stops_nothing(
    make_tool: Callable[..., Tool], heard: install.Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, make_tool())
    monkeypatch.setattr(
        install,
        "debian_packages",
        lambda groups: (DebianPackage("nail", ("cluster",), "holds", file="/nonexistent/nail"),),
    )

    class NoApt(FakeWays):
        def packages(self, packages: Sequence[DebianPackage]) -> None:
            assert heard.notes == ["installing by apt: nail"]  # type: ignore[attr-defined]
            raise IsthmusError("only root may install nail", subject="nail", remedy="sudo apt-get install nail")

    outcomes = install.install(listener=heard, ways=NoApt())
    assert [(outcome.name, outcome.how) for outcome in outcomes] == [("packages", "failed"), ("hammer", "build")]


def test_caches_go_when_the_whole_table_is_there(
    make_tool: Callable[..., Tool], heard: install.Listener, monkeypatch: pytest.MonkeyPatch, isthmus_home: Path
) -> None:
    only(monkeypatch, make_tool())
    for part in ("go-build/00/x-d", "go/pkg/mod/m@v1/file"):
        path = isthmus_home / "cache" / part
        path.parent.mkdir(parents=True)
        path.write_text("x")
    (isthmus_home / "cache/go/pkg/mod/m@v1").chmod(0o555)
    install.install(listener=heard, ways=FakeWays(), keep_cache=True)
    assert (isthmus_home / "cache/go-build").exists()
    (state.folder(make_tool()) / ".complete").unlink()
    install.install(listener=heard, ways=FakeWays())
    assert not (isthmus_home / "cache/go-build").exists()
    assert not (isthmus_home / "cache/go").exists()


# Two processes, and a killed one: real processes with the fake ways.


def _tool() -> Tool:
    from isthmus.toolchain.rows import GoBuild

    build = GoBuild("example.org/hammer", "v1.0.0", (("hammer", "example.org/hammer"),))
    return Tool("hammer", "1.0.0", "cluster", build, 1, 1, "a tool")


class Quiet:
    """Hears nothing."""

    def begin(self, tool: Tool) -> None: ...
    def say(self, tool: Tool, text: str) -> None: ...
    def end(self, tool: Tool, outcome: install.Outcome) -> None: ...
    def note(self, text: str) -> None: ...


class Counting(FakeWays):
    """Adds a line to a file for each build, and waits in the middle for a word on a pipe when there is one."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def from_source(self, tool: Tool, work: Path, say: Callable[[str], None]) -> None:
        put(work, tool, "half")
        with (self.folder / "builds").open("a") as file:
            file.write("build\n")
        if (self.folder / "started").exists():
            (self.folder / "started").write_text("yes")  # a named pipe: tells the test, which then kills us
            (self.folder / "never").read_text()
        put(work, tool, "whole")


def _install_in_process(home_folder: str, folder: str, results: "multiprocessing.Queue[str]") -> None:
    os.environ["ISTHMUS_HOME"] = home_folder
    results.put(install.install_one(_tool(), Counting(Path(folder)), Quiet()).how)


def test_two_installs_at_once_build_once(isthmus_home: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[str] = context.Queue()
    workers = [
        context.Process(target=_install_in_process, args=(str(isthmus_home), str(tmp_path), results)) for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    assert sorted(results.get(timeout=20) for _ in workers) == ["build", "present"]
    for worker in workers:
        worker.join(20)
    assert (tmp_path / "builds").read_text() == "build\n"


def test_a_killed_install_leaves_nothing_complete_and_the_next_goes_on(isthmus_home: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started")
    os.mkfifo(tmp_path / "never")
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[str] = context.Queue()
    worker = context.Process(target=_install_in_process, args=(str(isthmus_home), str(tmp_path), results))
    worker.start()
    assert (tmp_path / "started").read_text() == "yes"
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join(20)
    tool = _tool()
    assert state.source(tool) is None
    assert list(state.folder(tool).glob(f"{state.STAGE}*")), "the kill came in the middle of the build"
    (tmp_path / "started").unlink()
    assert install.install_one(tool, Counting(tmp_path), Quiet()).how == "build"
    assert (state.folder(tool) / "bin" / "hammer").read_text() == "whole"
    assert not list(state.folder(tool).glob(f"{state.STAGE}*"))
    assert json.loads((state.folder(tool) / state.COMPLETE).read_text())["source"] == "build"
