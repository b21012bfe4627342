"""The real Pulumi engine with our launcher and our language host, on programs that need no provider."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isthmus.specs.errors import NotFound
from isthmus.toolchain import home, launchers

pytestmark = pytest.mark.local

GOOD = """
import pulumi
print("said by the program")
pulumi.export("word", pulumi.Config().require("word"))
pulumi.export("hidden", pulumi.Config().require_secret("key"))
class Thing(pulumi.ComponentResource):
    def __init__(self, name):
        super().__init__("tiny:index:Thing", name)
        self.register_outputs({})
for number in range(20):
    Thing(f"thing-{number}")
"""


class Project:
    """A Pulumi project in a home of its own, run by plain `pulumi`."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment

    def program(self, text: str) -> None:
        (self.folder / "__main__.py").write_text(text)

    def pulumi(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["pulumi", *arguments, "--non-interactive"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["pulumi", *arguments, "--non-interactive"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    try:
        real = home.tool("pulumi")
    except NotFound:
        pytest.skip("pulumi is not installed")
    installed = next((path for path in home.tools().glob("pulumi-3*/bin/pulumi")), real)
    own = tmp_path / "home"
    (own / "tools" / "bin").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("ISTHMUS_HOME", str(own))
    launchers.write_pulumi(own / "tools" / "bin", installed)
    folder = tmp_path / "project"
    (folder / "stacks").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text("name: tiny\nruntime: python\nstackConfigDir: stacks\n")
    (folder / "stacks" / "Pulumi.sim.yaml").write_text(
        f"encryptionsalt: {home.SHIPPED_SALT}\nconfig:\n  isthmus:mode: simulated\n  tiny:word: hello\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PULUMI_")}
    environment["PATH"] = f"{own}/tools/bin:{environment['PATH']}"
    yield Project(folder, environment)


def until(found: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def test_from_nothing_to_nothing_by_the_plain_command(project: Project) -> None:
    stack_file = project.folder / "stacks" / "Pulumi.sim.yaml"
    before = stack_file.read_text()
    project.program(GOOD)
    created = project.pulumi("stack", "init", "sim")
    assert created.returncode == 0, created.stderr
    assert stack_file.read_text() == before, "the tracked stack file must stay as it is"
    assert project.pulumi("config", "set", "--secret", "key", "hunter2", "-s", "sim").returncode == 0
    preview = project.pulumi("preview", "-s", "sim")
    assert preview.returncode == 0, preview.stdout + preview.stderr
    assert "said by the program" in preview.stdout
    assert "21 to create" in preview.stdout
    up = project.pulumi("up", "--yes", "-s", "sim", "--parallel", "8")
    assert up.returncode == 0, up.stdout + up.stderr
    assert "hunter2" not in up.stdout
    assert project.pulumi("stack", "output", "hidden", "--show-secrets", "-s", "sim").stdout.strip() == "hunter2"
    again = project.pulumi("preview", "-s", "sim", "--expect-no-changes")
    assert again.returncode == 0, again.stdout + again.stderr
    about = project.pulumi("about", "-s", "sim")
    assert about.returncode == 0, about.stderr
    assert "python" in about.stdout
    gone = project.pulumi("destroy", "--run-program", "--yes", "-s", "sim")
    assert gone.returncode == 0, gone.stdout + gone.stderr
    assert project.pulumi("stack", "rm", "--yes", "--preserve-config", "sim").returncode == 0
    state = "".join(path.read_text() for path in (home.state() / ".pulumi").rglob("*.json"))
    assert "hunter2" not in state


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise ValueError('deliberate')", "ValueError: deliberate"),
        ("import pulumi\nraise pulumi.RunError('a plain sentence')", "a plain sentence"),
        ("import os\nos._exit(7)", "exit code 7"),
        ("import sys\nsys.exit('no thanks')", "no thanks"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("def (", "SyntaxError"),
    ],
)
def test_a_failing_program_shows_its_error_once(project: Project, text: str, words: str) -> None:
    project.program(text)
    project.pulumi("stack", "init", "sim")
    result = project.pulumi("up", "--yes", "--skip-preview", "-s", "sim")
    assert result.returncode != 0
    diagnostics = result.stdout.partition("Diagnostics:")[2]
    assert diagnostics.count(words) == 1, result.stdout
    assert "runpy" not in diagnostics
    assert "language_program" not in diagnostics


SLEEPING = """
import os, pathlib, time
pathlib.Path("pid").write_text(str(os.getpid()))
time.sleep(600)
"""


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def started(project: Project) -> int:
    pid_file = project.folder / "pid"
    until(lambda: pid_file.exists() and bool(pid_file.read_text()))
    return int(pid_file.read_text())


def test_an_interruption_ends_quietly(project: Project) -> None:
    project.program(SLEEPING)
    project.pulumi("stack", "init", "sim")
    process = project.start("up", "--yes", "--skip-preview", "-s", "sim")
    program = started(project)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "Traceback" not in output
    assert "KeyboardInterrupt" not in output
    until(lambda: not running(program))


def test_a_killed_engine_takes_its_programs_along_and_its_lock_is_cleared(project: Project) -> None:
    """Two `up` at once: the second is told. kill -9 of the first: nothing of it stays, and the next `up` works."""
    project.program(SLEEPING)
    project.pulumi("stack", "init", "sim")
    process = project.start("up", "--yes", "--skip-preview", "-s", "sim")
    program = started(project)
    second = project.pulumi("up", "--yes", "--skip-preview", "-s", "sim")
    assert second.returncode != 0
    assert "currently locked" in second.stderr
    assert "removed the lock" not in second.stderr
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    until(lambda: not running(program))
    project.program("")
    after = project.pulumi("up", "--yes", "--skip-preview", "-s", "sim")
    assert after.returncode == 0, after.stdout + after.stderr
    assert f"removed the lock of stack sim: its process {process.pid} is gone" in after.stderr


def test_the_launcher_costs_little(project: Project) -> None:
    """At most 60 ms of processor time, the least of several tries: other work on the machine only adds."""
    fake = project.folder / "fake"
    shutil.copy("/bin/true", fake)
    launcher = launchers.write_pulumi(project.folder, fake)

    def least(command: list[str]) -> float:
        times = []
        for _ in range(10):
            before = os.times()
            subprocess.run(command, env=project.environment, cwd=project.folder, check=True)
            after = os.times()
            user, system = after.children_user - before.children_user, after.children_system - before.children_system
            times.append(user + system)
        return min(times)

    assert least([str(launcher), "up", "-s", "sim"]) - least([str(fake)]) <= 0.06
