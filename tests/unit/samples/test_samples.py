"""What a sample workload promises and what its program does have to agree. The programs run in tests/local."""

import ast
import re
from pathlib import Path

import pytest

from workloads import load as loading
from workloads import render

SAMPLES = loading.SAMPLES
NAMES = loading.samples()


def program(name: str) -> Path:
    """The program a sample starts, as it lies in the sample's folder."""
    return SAMPLES / name / Path(render.load(name).command[-1]).name


def calls(path: Path, function: str) -> list[dict[str, object]]:
    """Keyword arguments (constants only) of every call of a function in a program."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
            constants = {
                word.arg: word.value.value
                for word in node.keywords
                if word.arg and isinstance(word.value, ast.Constant)
            }
            found.append({word.arg: None for word in node.keywords if word.arg} | constants)
    return found


def test_the_samples_are_there() -> None:
    assert NAMES == ["ddp-digits", "sendrecv"]


def test_the_samples_are_one_master_and_three_workers_and_fit_a_node_of_four_cards_together() -> None:
    """If each asked for four, each could get some of the node's cards and wait for ever for the rest."""
    specs = [render.load(name) for name in NAMES]
    for spec in specs:
        assert {role: part.replicas for role, part in spec.roles.items()} == {"Master": 1, "Worker": 3}
    assert {spec.name: spec.gpus for spec in specs} == {"ddp-digits": 4, "sendrecv": 0}
    assert sum(spec.gpus for spec in specs) <= 4


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_survives_the_restart_of_all_its_pods(name: str) -> None:
    """The operator adds up the restarts of all pods (training-operator v1.9.3, PastBackoffLimit); one failure restarts all."""
    spec = render.load(name)
    assert spec.restart_policy == "OnFailure"
    assert spec.backoff_limit >= 2 * spec.pods


@pytest.mark.parametrize("name", NAMES)
def test_the_metrics_it_must_reach_are_those_it_prints(name: str) -> None:
    printed = [call for call in calls(program(name), "say") if "metric" in call]
    assert {call["metric"] for call in printed} >= set(render.load(name).metrics)
    for call in printed:
        assert {"metric", "value", "epoch", "step"} == set(call)


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_of_the_file_is_read_by_the_program(name: str) -> None:
    read = set(re.findall(r'os\.environ\.get\("(\w+)"', program(name).read_text(encoding="utf-8")))
    assert set(render.load(name).env) - {"OMP_NUM_THREADS"} <= read
    documented = ast.get_docstring(ast.parse(program(name).read_text(encoding="utf-8"))) or ""
    assert {setting for setting in read if not setting.startswith(("LOCAL_RANK", "RANK", "NVIDIA_"))} <= set(
        re.findall(r"^ +([A-Z]+) ", documented, re.MULTILINE)
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_volume_is_where_the_program_writes(name: str) -> None:
    for volume in render.load(name).volumes:
        assert f'"{volume.mount_path}"' in program(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_says_what_to_expect(name: str) -> None:
    text = (SAMPLES / name / "README.md").read_text(encoding="utf-8")
    assert "Expected" in text
    assert re.search(r"measured \d{4}-\d{2}-\d{2}", text)
