"""What a sample workload promises and what its program does have to agree. The programs run in tests/local."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from isthmus.localcluster import recipes
from isthmus.localcluster.recipes import ImageRecipe
from isthmus.localcluster.recipes.recipe import ROOT
from isthmus.specs.workload import WorkloadSpec
from workloads import load as loading
from workloads import render

SAMPLES = loading.SAMPLES
NAMES = loading.samples()
DEPLOYED = ["ddp-digits", "sendrecv"]
"""Those that stacks deploy themselves, and so may run at the same time."""

COMMON = {"OMP_NUM_THREADS", "PYTHONUNBUFFERED"}
"""Settings that libraries read."""


def image(name: str) -> ImageRecipe:
    """The recipe of a sample's image."""
    wanted = render.load(name).image
    every = [*recipes.required(), *recipes.required(ROOT / recipes.FRAMEWORKS)]
    return next(recipe for recipe in every if recipe.image == wanted)


def program(name: str) -> Path:
    """The program a sample starts, where its image has it from."""
    started = next(word for word in render.load(name).command if word.endswith(".py"))
    sources = {path: source for source, path in image(name).copy_files.items()}
    return (image(name).folder / sources[started]).resolve()


def sources(name: str) -> str:
    """A sample's program with the modules of ours that it uses."""
    text = program(name).read_text(encoding="utf-8")
    beside = {Path(source).stem: (image(name).folder / source).resolve() for source in image(name).copy_files}
    used = {beside[module] for module in re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE) if module in beside}
    return "\n".join([text, *(path.read_text(encoding="utf-8") for path in sorted(used))])


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
    assert NAMES == [
        "allreduce-digits", "census-income", "data-parallel", "ddp-digits", "ddp-elastic", "hpo-grid", "model-parallel",
        "pipeline-parallel", "ps-digits", "sendrecv", "sklearn-iris", "small-inference", "tf-ps-digits", "tf-workers",
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_fits_a_node_of_four_cards(name: str) -> None:
    assert render.load(name).gpus <= 4


def test_samples_that_stacks_deploy_fit_a_node_of_four_cards_together() -> None:
    """If each asked for four, each could get some of the node's cards and wait for ever for the rest."""
    for path in (SAMPLES.parents[1] / "stacks").glob("Pulumi.*.yaml"):
        deployed = yaml.safe_load(path.read_text(encoding="utf-8"))["config"].get("isthmus:samples", [])
        assert set(deployed) <= set(DEPLOYED), path.name
    specs = [render.load(name) for name in DEPLOYED]
    for spec in specs:
        assert {role: part.replicas for role, part in spec.roles.items()} == {"Master": 1, "Worker": 3}
    assert sum(spec.gpus for spec in specs) <= 4


@pytest.mark.parametrize("name", [name for name in NAMES if render.load(name).kind in {"PyTorchJob", "TFJob"}])
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
        assert {"metric", "value", "epoch", "step"} <= set(call)


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_of_the_file_is_read_by_the_program(name: str) -> None:
    read = set(re.findall(r'os\.environ\.get\("(\w+)"', sources(name)))
    assert set(render.load(name).env) - COMMON <= read
    documented = ast.get_docstring(ast.parse(program(name).read_text(encoding="utf-8"))) or ""
    own = set(re.findall(r'os\.environ\.get\("(\w+)"', program(name).read_text(encoding="utf-8")))
    assert {setting for setting in own if not setting.startswith(("LOCAL_RANK", "RANK", "NVIDIA_", "PET_"))} <= set(
        re.findall(r"^ +([A-Z_]+) ", documented, re.MULTILINE)
    )


def test_mpirun_gives_the_ranks_every_setting() -> None:
    """SSH starts them without the container's environment."""
    spec = render.load("allreduce-digits")
    passed = {spec.command[place + 1] for place, word in enumerate(spec.command) if word == "-x"}
    assert passed == set(spec.env)


def test_the_two_strategies_are_asked_for_the_same() -> None:
    ring, server = render.load("allreduce-digits"), render.load("ps-digits")
    assert ring.image == server.image
    assert {key: value for key, value in ring.env.items() if key != "PYTHONUNBUFFERED"} == server.env
    assert ring.roles["Worker"] == server.roles["Worker"]


def test_three_ways_of_training_one_network_are_asked_for_the_same() -> None:
    specs = [render.load(name) for name in ("pipeline-parallel", "model-parallel", "data-parallel")]
    settings = [{key: value for key, value in spec.env.items() if key != "MICRO"} for spec in specs]
    assert settings[0] == settings[1] == settings[2]
    assert [spec.env["MICRO"] for spec in specs] == ["8", "1", "8"]


@pytest.mark.parametrize("name", NAMES)
def test_the_volume_is_where_the_program_writes(name: str) -> None:
    spec = render.load(name)
    for volume in spec.volumes:
        said = f'"{volume.mount_path}"' in sources(name)
        assert said or any(word.startswith(volume.mount_path) for word in spec.command)


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_says_what_to_expect(name: str) -> None:
    text = (SAMPLES / name / "README.md").read_text(encoding="utf-8")
    assert "Expected" in text
    assert re.search(r"measured \d{4}-\d{2}-\d{2}", text)


def test_small_inference_says_how_to_ask_in_every_mode() -> None:
    """tests/local/test_sharing.py runs it so."""
    ways = sharing_ways()
    assert len(ways) == 5
    asks = [(spec.roles["Worker"].resource if spec.gpus else [claim.scope for claim in spec.claims]) for spec in ways]
    assert asks == ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", ["run"], ["pod"]]


def sharing_ways() -> list[WorkloadSpec]:
    """The workloads that the table of small-inference's README describes."""
    text = (SAMPLES / "small-inference" / "README.md").read_text(encoding="utf-8")
    rows = [line.split("|")[2] for line in text.splitlines() if re.match(r"\| (none|time-slicing|mig|dra),", line)]
    return [
        render.load("small-inference", dict(re.findall(r"--set (\S+?)=(.+?)(?= --set|`)", settings)))
        for settings in rows
    ]
