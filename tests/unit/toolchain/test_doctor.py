"""The doctor: a verdict and a cure for each lack, and an exit code that follows what is needed."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from isthmus.specs.errors import IsthmusError
from isthmus.toolchain import debian, doctor
from isthmus.toolchain.doctor import Check, Machine
from isthmus.toolchain.rows import DebianPackage
from isthmus.toolchain.table import DEBIAN_PACKAGES

GOOD = Machine(
    system="Linux",
    root=True,
    capabilities=1 << doctor.CAP_SYS_RESOURCE,
    cgroup=2,
    overlay=True,
    disk_mb=100_000,
    memory_mb=16_000,
    inotify_instances=8192,
    inotify_watches=1_000_000,
    docker="/var/run/docker.sock",
    home_mode=0o700,
)


def checks_of(machine: Machine) -> dict[str, Check]:
    return {check.name: check for check in doctor.machine_checks(machine)}


def test_a_good_machine(isthmus_home: Path) -> None:
    checks = list(doctor.machine_checks(GOOD))
    assert {check.verdict for check in checks} == {"found"}
    assert doctor.healthy(checks)


@pytest.mark.parametrize(
    ("lack", "name"),
    [({"system": "Darwin"}, "Linux"), ({"root": False}, "root"), ({"cgroup": 0}, "cgroups")],
)
def test_what_the_embedded_runtime_cannot_do_without(isthmus_home: Path, lack: dict[str, object], name: str) -> None:
    checks = checks_of(replace(GOOD, **lack))  # type: ignore[arg-type]
    assert checks[name].verdict == "missing"
    assert checks[name].remedy
    assert not doctor.healthy(list(checks.values()))


@pytest.mark.parametrize(
    ("lack", "name", "cure"),
    [
        ({"capabilities": 0}, "CAP_SYS_RESOURCE", ""),
        ({"overlay": False}, "overlay file system", "modprobe overlay"),
        ({"disk_mb": 100}, "disk", "ISTHMUS_HOME"),
        ({"memory_mb": 100}, "memory", "larger machine"),
        ({"inotify_instances": 128}, "inotify instances", "fs.inotify.max_user_instances"),
        ({"inotify_watches": 128}, "inotify watches", "fs.inotify.max_user_watches"),
        ({"inotify_watches": 0}, "inotify watches", ""),
        ({"docker": ""}, "Docker", ""),
        ({"home_mode": 0o755}, "privacy", "chmod 700"),
    ],
)
def test_what_only_narrows_it(isthmus_home: Path, lack: dict[str, object], name: str, cure: str) -> None:
    checks = checks_of(replace(GOOD, **lack))  # type: ignore[arg-type]
    assert checks[name].verdict == "warning"
    assert cure in checks[name].remedy
    assert doctor.healthy(list(checks.values()))


def test_an_empty_home_lacks_every_tool_and_says_which_group(isthmus_home: Path) -> None:
    checks = {check.name: check for check in doctor.tool_checks()}
    assert {check.verdict for check in checks.values()} == {"missing"}
    assert checks["mpi-operator"].remedy == "isthmus install mpi"
    assert not checks["mpi-operator"].needed, "not every stack has it"
    assert checks["pulumi"].remedy == "isthmus install engine"
    assert not checks["kind"].needed
    assert not doctor.healthy(list(checks.values()))


def test_a_package_is_there_whoever_put_it(tmp_path: Path) -> None:
    package = DebianPackage("nail", ("cluster",), "holds", file="/a", alternatives=("/b",))
    assert debian.is_present(package, exists=lambda path: path == "/b")
    assert not debian.is_present(package, exists=lambda path: False)
    program = tmp_path / "hammer"
    program.write_text("")
    program.chmod(0o755)
    assert debian.is_present(DebianPackage("hammer", ("cluster",), "hits", program="hammer"), search=str(tmp_path))


def test_who_is_not_root_is_told_what_to_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda program, path=None: "/usr/bin/apt-get")
    with pytest.raises(IsthmusError, match="only root") as caught:
        debian.install(DEBIAN_PACKAGES[:2], tmp_path / "apt.log")
    assert caught.value.remedy.startswith("sudo apt-get install -y --no-install-recommends runc ")


def test_another_distribution_is_told_the_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda program, path=None: None)
    with pytest.raises(IsthmusError, match="no apt-get"):
        debian.install(DEBIAN_PACKAGES[:1], tmp_path / "apt.log")
