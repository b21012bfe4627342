"""The whole program, __main__.py, for every stack, without an engine."""

from __future__ import annotations

import json
import runpy
from functools import cache
from typing import Any

import pytest
import yaml
from pulumi.runtime.config import set_all_config

from isthmus.specs import stack
from isthmus.specs.errors import InvalidSpec, NotFound
from isthmus.specs.stack import CONFIG_DIR
from isthmus.toolchain import home
from tests.unit.infra import sdk
from tests.unit.infra.recording import Recording, record
from tests.unit.infra.stacks import NAMES, PAIRS, ROOT, settings


@pytest.fixture(autouse=True)
def _manifests() -> None:
    try:
        home.share("training-operator")
    except NotFound as error:
        pytest.skip(f"{error.message}: {error.remedy}")


def config(name: str) -> dict[str, str]:
    """A stack's configuration as the engine hands it to the program: structured values as JSON."""
    text = (ROOT / CONFIG_DIR / f"Pulumi.{name}.yaml").read_text(encoding="utf-8")
    return {key: _encoded(value) for key, value in yaml.safe_load(text)["config"].items()}


def _encoded(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def program(values: dict[str, str], *, preview: bool = False, into: Recording | None = None) -> Recording:
    """Runs __main__.py as the language host does."""
    set_all_config(values)
    try:
        path = str(ROOT / "__main__.py")
        return record(lambda: runpy.run_path(path, run_name="__main__"), preview=preview, into=into)
    finally:
        set_all_config({})


@cache
def made(name: str) -> Recording:
    return program(config(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_program_runs_for_every_stack(name: str) -> None:
    tokens = {item.token for item in made(name).resources}
    assert "kubernetes:apps/v1:Deployment" in tokens, "the training operator"
    assert ("kubernetes:kubeflow.org/v1:PyTorchJob" in tokens) == bool(settings(name).samples)


@pytest.mark.parametrize(("real", "other"), PAIRS)
def test_a_pair_hands_the_engine_the_same_inputs_for_the_whole_program(real: str, other: str) -> None:
    """Everything, with the simulated stack's samples on, and the account and protection of the real one."""
    extras = {key: value for key, value in config(other).items() if key in {"isthmus:samples", "isthmus:costReport"}}
    off = {"isthmus:deletionProtection": "true", "isthmus:account": config(real)["isthmus:account"]}
    first = program({**config(real), **extras})
    second = program({**config(other), **off})
    assert first.inputs() == second.inputs()
    assert {item.urn: (item.protect, item.ignored, item.depends_on) for item in first.resources} == {
        item.urn: (item.protect, item.ignored, item.depends_on) for item in second.resources
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_cloud_input_is_known_to_the_sdk(name: str) -> None:
    checked = [item for item in made(name).resources if item.custom and not item.token.startswith("kubernetes:")]
    assert [problem for item in checked for problem in sdk.problems(item.token, item.inputs)] == []


@pytest.mark.parametrize("name", NAMES)
def test_a02_preview_of_an_empty_account_finishes_and_plans_the_same(name: str) -> None:
    """pulumi/pulumi-kubernetes#2346: no output is known, so no kubeconfig and no API server."""
    previewed = program(config(name), preview=True)
    assert {item.urn for item in previewed.resources} == {item.urn for item in made(name).resources}


@pytest.mark.parametrize("name", NAMES)
def test_kubernetes_objects_go_before_nodes_and_access(name: str) -> None:
    recording = made(name)
    (provider,) = [item for item in recording.resources if item.token == "pulumi:providers:kubernetes"]
    needs = recording.depends(provider.urn)
    ends = (":NodeGroup", ":NodePool", "isthmus:kind:Cluster")  # kind's nodes come with the cluster
    nodes = [item for item in recording.resources if item.token.endswith(ends) and item.custom]
    assert len(nodes) == (1 if name == "kind" else 3) and {item.urn for item in nodes} <= needs
    access = [item for item in recording.resources if "accessPolicyAssociation" in item.token]
    assert {item.urn for item in access} <= needs
    for item in recording.resources:
        if item.token.startswith("kubernetes:"):
            assert item.provider.startswith(provider.urn), item.urn


def test_the_device_plugin_is_deployed_where_the_cloud_has_none_of_its_own() -> None:
    daemons = {
        name: {item.name for item in made(name).resources if item.token == "kubernetes:apps/v1:DaemonSet"}
        for name in NAMES
    }
    assert daemons["aws"] == daemons["aws-sim"] == daemons["kind"] and any(
        "device-plugin" in name for name in daemons["aws"]
    )
    assert daemons["gcp"] == daemons["gcp-sim"] == set()


@pytest.mark.parametrize("name", NAMES)
def test_no_secret_is_handed_to_the_engine(name: str) -> None:
    text = json.dumps([item.inputs for item in made(name).resources], default=str)
    for word in ("client-key-data", "BEGIN PRIVATE KEY", "BEGIN RSA PRIVATE KEY"):
        assert word not in text


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("isthmus:autopilot", "true", "no setting 'autopilot'"),
        ("isthmus:region", "us-esat-1", "us-east-1"),
        ("isthmus:zones", "[]", "zones"),
        ("isthmus:samples", '["dpd-digits"]', "ddp-digits"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_registered(key: str, value: str, words: str) -> None:
    registered = Recording()
    with pytest.raises((InvalidSpec, NotFound)) as refused:
        program({**config("aws-sim"), key: value}, into=registered)
    assert registered.resources == []
    assert words in f"{refused.value.message} {refused.value.remedy}"


def test_this_file_covers_every_stack() -> None:
    assert sorted(stack.names(ROOT)) == sorted(NAMES)
