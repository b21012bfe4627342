"""The start scripts: for this environment, never over somebody else's program, safe in odd folders."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.specs.stack import LOCAL_PLUGIN_VERSION, SIMULATED_PLUGIN_VERSION
from isthmus.toolchain import launchers


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment's bin, as far as the start scripts care."""
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setattr(sys, "prefix", str(folder.parent))
    return folder


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A pulumi that was built here, with our language host beside it."""
    folder = tmp_path / "tool" / "bin"
    folder.mkdir(parents=True)
    (folder / "pulumi").write_text("#!/bin/sh\n")
    launchers.write_language_host(folder)
    return folder / "pulumi"


def test_all_scripts_are_written_and_runnable(isthmus_home: Path, environment: Path, real: Path) -> None:
    written = launchers.write_all(real)
    plugins = isthmus_home / "pulumi" / "plugins"
    assert set(written) == {
        isthmus_home / "tools/bin/pulumi",
        environment / "pulumi",
        real.parent / launchers.LANGUAGE_HOST,
        plugins / f"resource-aws-v{SIMULATED_PLUGIN_VERSION}/pulumi-resource-aws",
        plugins / f"resource-gcp-v{SIMULATED_PLUGIN_VERSION}/pulumi-resource-gcp",
        plugins / f"resource-isthmus-v{LOCAL_PLUGIN_VERSION}/pulumi-resource-isthmus",
    }
    assert all(os.access(path, os.X_OK) and launchers.is_ours(path) for path in written)


def test_a_foreign_pulumi_in_the_environment_is_left_alone(isthmus_home: Path, environment: Path, real: Path) -> None:
    (environment / "pulumi").write_text("#!/bin/sh\necho official\n")
    assert environment / "pulumi" not in launchers.write_all(real)
    assert "official" in (environment / "pulumi").read_text()


def test_the_official_language_host_is_left_alone(isthmus_home: Path, environment: Path, real: Path) -> None:
    host = real.parent / launchers.LANGUAGE_HOST
    host.write_text("official")
    assert host not in launchers.write_all(real)
    assert host.read_text() == "official"


def test_nothing_is_written_into_the_system_s_python(
    isthmus_home: Path, environment: Path, real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    launchers.write_all(real)
    assert not (environment / "pulumi").exists()


def test_the_user_s_own_pulumi_home_gets_the_plugins_too(
    isthmus_home: Path, environment: Path, real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "theirs"))
    written = launchers.write_all(real)
    assert sum(tmp_path / "theirs" in path.parents for path in written) == 3


def test_folders_with_spaces_and_quotes(isthmus_home: Path, tmp_path: Path) -> None:
    fake = tmp_path / 'my $HOME\'s "tools"' / "pulumi"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho "$ISTHMUS_HOME"; echo "$1"\n')
    fake.chmod(0o755)
    launcher = launchers.write_pulumi(tmp_path, fake)
    result = subprocess.run([launcher, "an argument"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stdout.splitlines() == [str(isthmus_home), "an argument"]


def test_plugins_run_in_the_environment_that_started_pulumi(isthmus_home: Path, environment: Path, real: Path) -> None:
    launchers.write_all(real)
    script = isthmus_home / f"pulumi/plugins/resource-aws-v{SIMULATED_PLUGIN_VERSION}/pulumi-resource-aws"
    result = subprocess.run(
        [script, "127.0.0.1:1"], capture_output=True, text=True, check=True, env={"ISTHMUS_PYTHON": "/bin/echo"}
    )
    assert result.stdout.strip() == "-P -u -m isthmus.simulation.aws 127.0.0.1:1"
