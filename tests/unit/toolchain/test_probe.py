"""A program on PATH is taken only if it says a version in the range, and is not one of our own start scripts."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from isthmus.toolchain import launchers, probe
from isthmus.toolchain.rows import Probe, Tool
from isthmus.toolchain.table import TOOLS, tool_named

PROBE = Probe(("--version",), r"v(\d+\.\d+\.\d+)", (1, 2), (2,))


def program(folder: Path, name: str, text: str = "#!/bin/sh\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def says(text: str) -> Callable[[Sequence[str]], str]:
    return lambda command: text


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("hammer v1.2.0", (1, 2, 0)),
        ("hammer v1.99.1+dirty", (1, 99, 1)),
        ("hammer v1.1.9", None),
        ("hammer v2.0.0", None),
        ("hammer (devel)", None),
        ("", None),
    ],
)
def test_version_range(output: str, expected: tuple[int, ...] | None) -> None:
    assert probe.version_of(["hammer"], PROBE, run=says(output)) == expected


def test_all_programs_or_none(isthmus_home: Path, make_tool: Callable[..., Tool], tmp_path: Path) -> None:
    tool = make_tool("kit", "hammer", "saw", probes=(("hammer", PROBE), ("saw", PROBE)))
    hammer = program(tmp_path / "bin", "hammer")
    search = str(tmp_path / "bin")
    assert probe.on_path(tool, search=search, run=says("v1.5.0")) is None
    saw = program(tmp_path / "bin", "saw")
    assert probe.on_path(tool, search=search, run=says("v1.5.0")) == {"hammer": hammer, "saw": saw}


def test_a_tool_without_probes_never_comes_from_path(make_tool: Callable[..., Tool], tmp_path: Path) -> None:
    program(tmp_path, "hammer")
    assert probe.on_path(make_tool(), search=str(tmp_path), run=says("v1.5.0")) is None


def test_our_own_launcher_is_not_a_pulumi(isthmus_home: Path, tmp_path: Path) -> None:
    launchers.write_pulumi(tmp_path, tmp_path / "real")
    assert probe.on_path(tool_named("pulumi"), search=str(tmp_path), run=says("v3.274.1")) is None


def test_pulumi_needs_its_language_host_beside_it(isthmus_home: Path, tmp_path: Path) -> None:
    real = program(tmp_path / "opt", "pulumi")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pulumi").symlink_to(real)
    search = str(tmp_path / "bin")
    assert probe.on_path(tool_named("pulumi"), search=search, run=says("v3.274.1")) is None
    program(tmp_path / "opt", launchers.LANGUAGE_HOST)
    assert probe.on_path(tool_named("pulumi"), search=search, run=says("v3.274.1")) is not None


def test_the_folders_we_fill_are_not_searched(isthmus_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from isthmus.toolchain import home

    monkeypatch.setenv("PATH", f"{home.tools_bin()}:/usr/bin:{launchers.environment_bin()}")
    assert probe.foreign_path() == "/usr/bin"


# What each program really prints, taken from the built programs.
PRINTED = {
    "pulumi": "v3.274.1",
    "kubectl": "Client Version: v1.36.4\nKustomize Version: v5.8.1",
    "kubeadm": "v1.36.4",
    "kubelet": "Kubernetes v1.36.4",
    "kube-apiserver": "Kubernetes v1.36.4",
    "kube-controller-manager": "Kubernetes v1.36.4",
    "kube-scheduler": "Kubernetes v1.36.4",
    "kube-proxy": "Kubernetes v1.36.4",
    "etcd": "etcd Version: 3.6.16\nGit SHA: Not provided\nGo Version: go1.27.3",
    "containerd": "containerd github.com/containerd/containerd/v2 v2.4.2 ",
    "containerd-shim-runc-v2": "containerd-shim-runc-v2:\n  Version:  v2.4.2\n  Revision: ",
    "ctr": "ctr github.com/containerd/containerd/v2 v2.4.2",
    "kind": "kind v0.33.0 go1.27.3 linux/amd64",
    "crane": "0.22.1",
    "kwok": "kwok version v0.8.0 go1.27.3 (linux/amd64)",
}


def test_every_probe_reads_its_own_program() -> None:
    for tool in TOOLS:
        for name, asked in tool.probes:
            version = probe.version_of([name], asked, run=says(PRINTED[name]))
            assert version == tuple(map(int, tool.version.split("."))), name
