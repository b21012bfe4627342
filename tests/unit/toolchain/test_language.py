"""The parts of the language host that need no engine; the whole is tested with the real one in tests/local."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import language_pb2

from isthmus.toolchain import language_host, language_program


def request(directory: Path, **options: str) -> Any:
    info = language_pb2.ProgramInfo(root_directory=str(directory), program_directory=str(directory), entry_point=".")
    settings = Struct()
    settings.update(options)
    info.options.CopyFrom(settings)
    return language_pb2.RunRequest(project="p", stack="s", info=info, parallel=4)


def test_the_virtualenv_of_the_project_is_used_when_it_is_there(tmp_path: Path) -> None:
    assert language_host._python(request(tmp_path, virtualenv="venv")) == Path(sys.executable)
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("")
    python.chmod(0o755)
    assert language_host._python(request(tmp_path, virtualenv="venv")) == python


def fake_python(tmp_path: Path, body: str) -> Any:
    """A run request whose interpreter is a shell script: what the host sees is an exit code."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{body}\n")
    python.chmod(0o755)
    return request(tmp_path, virtualenv="venv")


@pytest.mark.parametrize(
    ("body", "error", "bail"),
    [
        ("cat > /dev/null & exit 0", "", False),
        (f"exit {language_program.SHOWN}", "", True),
        ("exit 7", "the program ended with exit code 7", False),
        ("kill -9 $$", "the program was killed by SIGKILL", False),
    ],
)
def test_how_a_program_ended(tmp_path: Path, body: str, error: str, bail: bool) -> None:
    result = language_host.Program(fake_python(tmp_path, body), "127.0.0.1:1").wait()
    assert (result.error, result.bail) == (error, bail)


def test_a_cancelled_program_needs_no_words(tmp_path: Path) -> None:
    program = language_host.Program(fake_python(tmp_path, "exec sleep 600"), "127.0.0.1:1")
    program.cancel()
    result = program.wait()
    assert (result.error, result.bail) == ("", True)


def test_the_request_is_handed_over_by_pipe_and_never_by_argument(tmp_path: Path) -> None:
    asked = fake_python(tmp_path, f'echo "$@" > {tmp_path}/arguments')
    asked.config["p:password"] = "hunter2"
    language_host.Program(asked, "127.0.0.1:1").wait()
    assert "hunter2" not in (tmp_path / "arguments").read_text()


def test_a_traceback_begins_in_the_program(tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text("def dig():\n    raise ValueError('stone')\ndig()\n")
    with pytest.raises(ValueError, match="stone") as caught:
        language_program._program(tmp_path)
    words = language_program._described(caught.value, tmp_path)
    assert words.splitlines()[0] == "Program failed with an unhandled exception:"
    assert "runpy" not in words
    assert words.count("ValueError: stone") == 1
    assert "line 2, in dig" in words


def test_nothing_is_asked_to_be_downloaded() -> None:
    host = language_host.Host("engine")
    context = SimpleNamespace()
    assert not host.GetRequiredPackages(None, context).packages  # type: ignore[arg-type]
    assert not host.GetRequiredPlugins(None, context).plugins  # type: ignore[arg-type]


def test_dependencies_are_the_installed_packages() -> None:
    host = language_host.Host("engine")
    asked = language_pb2.GetProgramDependenciesRequest(transitiveDependencies=True)
    every = {item.name for item in host.GetProgramDependencies(asked, SimpleNamespace()).dependencies}  # type: ignore[arg-type]
    asked.transitiveDependencies = False
    direct = {item.name for item in host.GetProgramDependencies(asked, SimpleNamespace()).dependencies}  # type: ignore[arg-type]
    assert {"pulumi", "grpcio"} <= every
    assert "grpcio" not in direct
    assert direct < every


@pytest.mark.parametrize(
    ("line", "name"),
    [("grpcio>=1.5", "grpcio"), ("semver ~=2", "semver"), ("a.b_c[x]; extra == 'y'", "a.b_c"), ("plain", "plain")],
)
def test_the_name_in_a_requirement(line: str, name: str) -> None:
    assert language_host._requirement_name(line) == name
