"""Which of a machine's own cards the nodes of a kind cluster get."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from isthmus.localcluster.kind import docker, nodes, real_cards
from isthmus.localcluster.runtime import LocalNode
from isthmus.specs.cluster import GpuCards

T4 = "Tesla T4"
ASKED = (LocalNode(), LocalNode(cards=GpuCards(model="T4", count=2)), LocalNode(cards=GpuCards(model="T4", count=1)))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str], str], None]:
    """A machine with these cards, whose engine has this default runtime."""

    def make(names: list[str], runtime: str) -> None:
        monkeypatch.setattr(real_cards, "installed", lambda: names)
        monkeypatch.setattr(docker, "docker", lambda *arguments: f"{runtime}\n")

    return make


def chosen(asked: tuple[LocalNode, ...] = ASKED) -> tuple[list[list[int]], str]:
    said: list[str] = []
    return real_cards.choose(asked, said.append), " ".join(said)


def test_a_machine_without_cards_says_nothing(machine: Callable[[list[str], str], None]) -> None:
    machine([], "runc")
    assert chosen() == ([[], [], []], "")


def test_nodes_without_cards_take_none(machine: Callable[[list[str], str], None]) -> None:
    machine([T4], "nvidia")
    assert chosen((LocalNode(),)) == ([[]], "")


def test_each_card_goes_to_one_node_and_other_models_stay(machine: Callable[[list[str], str], None]) -> None:
    machine([T4, "NVIDIA L4", T4, T4], "nvidia")
    assert chosen()[0] == [[], [0, 2], [3]]


def test_too_few_cards_of_the_model_leave_the_driver_root_and_say_so(
    machine: Callable[[list[str], str], None],
) -> None:
    machine([T4, T4, "NVIDIA L4"], "nvidia")
    given, said = chosen()
    assert given == [[], [], []]
    assert "not used" in said and T4 in said and "NVIDIA L4" in said


def test_an_engine_that_does_not_hand_cards_on_says_how_it_would(machine: Callable[[list[str], str], None]) -> None:
    machine([T4] * 3, "runc")
    given, said = chosen()
    assert given == [[], [], []]
    assert "nvidia-ctk runtime configure --runtime=docker" in said


def test_without_the_driver_no_program_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_cards, "DRIVER_VERSION", tmp_path / "version")
    assert real_cards.installed() == []


def test_a_driver_whose_program_is_missing_counts_no_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "version").touch()
    monkeypatch.setattr(real_cards, "DRIVER_VERSION", tmp_path / "version")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert real_cards.installed() == []


def test_cards_are_read_by_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "version").touch()
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'Tesla T4'\necho 'NVIDIA L4'\n")
    program.chmod(0o755)
    monkeypatch.setattr(real_cards, "DRIVER_VERSION", tmp_path / "version")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert real_cards.installed() == [T4, "NVIDIA L4"]


def test_a_node_with_real_cards_has_no_driver_root_and_no_labels_that_nobody_read(tmp_path: Path) -> None:
    node = LocalNode({"pool": "gpu"}, GpuCards(model="T4", count=2))
    nodes.write_folder(tmp_path, node, real=True)
    assert [path.name for path in tmp_path.iterdir()] == ["oci-runtime"]
    assert nodes.labels(node, real=True) == {"pool": "gpu"}


def test_before_the_toolkit_is_there_containers_start_with_runc(tmp_path: Path) -> None:
    nodes.write_folder(tmp_path, LocalNode(cards=GpuCards(model="T4", count=1)), real=True)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("runc", "nvidia-container-runtime"):
        (tools / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (tools / name).chmod(0o755)

    def run() -> str:
        command = ["/bin/sh", str(tmp_path / "oci-runtime"), "create", "one two"]
        return subprocess.run(command, capture_output=True, text=True, check=True, env={"PATH": str(tools)}).stdout

    assert run() == "nvidia-container-runtime create one two\n"
    (tools / "nvidia-container-runtime").unlink()
    assert run() == "runc create one two\n"


def test_the_script_is_one_that_bash_reads() -> None:
    subprocess.run(["bash", "-n", str(Path(real_cards.__file__).parent / "real_cards.sh")], check=True)
