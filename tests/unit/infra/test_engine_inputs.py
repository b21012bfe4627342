"""What every stack hands the engine: the same for a pair, only what the SDK knows, and nothing that needs an answer."""

import json
from typing import Any

import pytest

from isthmus.specs.stack import SIMULATED_PLUGIN_VERSION, StackSettings
from tests.unit.infra import sdk
from tests.unit.infra.recording import Recording, record
from tests.unit.infra.stacks import NAMES, PAIRS, infrastructure, settings


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording]:
    return {name: record(infrastructure(settings(name))) for name in NAMES}


def equalised(real: str, other: str) -> StackSettings:
    """The other stack's settings with the account, protection and samples of the real one: only the mode differs."""
    base = settings(real)
    return settings(
        other,
        account=base.account,
        deletion_protection=base.deletion_protection,
        samples=base.samples,
        cost_report=base.cost_report,
    )


@pytest.mark.parametrize(("real", "other"), PAIRS)
def test_a_pair_differs_in_the_mode_alone(real: str, other: str) -> None:
    assert equalised(real, other).model_copy(update={"mode": "real"}) == settings(real)


@pytest.mark.parametrize(("real", "other"), PAIRS)
def test_a_pair_hands_the_engine_the_same_inputs(real: str, other: str, recordings: dict[str, Recording]) -> None:
    first, second = recordings[real], record(infrastructure(equalised(real, other)))
    assert first.inputs() == second.inputs()
    assert [
        (item.urn, item.protect, item.ignored, item.depends_on) for item in sorted(first.resources, key=lambda r: r.urn)
    ] == [
        (item.urn, item.protect, item.ignored, item.depends_on)
        for item in sorted(second.resources, key=lambda r: r.urn)
    ]
    assert first.calls == second.calls


@pytest.mark.parametrize(("real", "other"), PAIRS)
def test_the_plugin_version_is_the_only_difference(real: str, other: str, recordings: dict[str, Recording]) -> None:
    token = f"pulumi:providers:{real}"
    assert recordings[other].one(token).version == SIMULATED_PLUGIN_VERSION
    assert recordings[real].one(token).version != SIMULATED_PLUGIN_VERSION


@pytest.mark.parametrize("name", NAMES)
def test_every_input_is_known_to_the_sdk(name: str, recordings: dict[str, Recording]) -> None:
    checked = [item for item in recordings[name].resources if item.custom]
    assert len(checked) > (2 if name == "kind" else 15)
    assert [problem for item in checked for problem in sdk.problems(item.token, item.inputs)] == []


def test_the_check_itself_finds_wrong_and_missing_inputs() -> None:
    wrong = sdk.problems(
        "aws:eks/cluster:Cluster", {"roleArn": "x", "vpcConfig": {"subnetIds": [], "subnets": []}, "zone": 1}
    )
    assert len(wrong) == 2 and "'zone'" in wrong[0] and "'subnets'" in wrong[1]
    missing = sdk.problems("gcp:container/nodePool:NodePool", {"nodeConfig": {"taints": [{"key": "a", "value": "b"}]}})
    assert "cluster is required" in missing[0] and "effect is required" in missing[1]


@pytest.mark.parametrize("name", NAMES)
def test_a02_a_preview_on_an_empty_account_knows_no_output_and_still_runs(name: str) -> None:
    kubeconfigs: dict[str, Any] = {}
    made = record(infrastructure(settings(name), kubeconfigs), preview=True)
    full = record(infrastructure(settings(name)))
    assert {item.urn for item in made.resources} == {item.urn for item in full.resources}
    assert kubeconfigs == {}, "a kubeconfig that is known before the cluster is points to another cluster"


@pytest.mark.parametrize("name", NAMES)
def test_a07_a_kubeconfig_holds_a_command_and_no_secret(name: str) -> None:
    kubeconfigs: dict[str, Any] = {}
    chosen = settings(name)
    record(infrastructure(chosen, kubeconfigs))
    user = kubeconfigs["exec"]["users"][0]["user"]
    assert list(user) == ["exec"]
    assert user["exec"]["command"] == "isthmus"
    assert user["exec"]["apiVersion"] == "client.authentication.k8s.io/v1"
    assert user["exec"]["interactiveMode"] == "Never"
    expected = ["kube-token", "--cloud", chosen.cloud, "--account", chosen.account, "--region", chosen.region]
    assert user["exec"]["args"] == [*expected, "--cluster", chosen.cluster_name]
    assert kubeconfigs["exec"]["clusters"][0]["cluster"]["server"].startswith("https://")
    for text in (json.dumps(kubeconfigs["exec"]), json.dumps(kubeconfigs["native"])):
        assert not any(word in text for word in ("client-key", '"token"', "password", "client-certificate"))


def test_a07_the_kubeconfig_is_the_same_in_every_run() -> None:
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    record(infrastructure(settings("aws"), first))
    record(infrastructure(settings("aws"), second))
    assert first == second


def test_native_kubeconfigs_ask_the_clouds_own_programs() -> None:
    found: dict[str, Any] = {}
    record(infrastructure(settings("aws"), found))
    command = found["native"]["users"][0]["user"]["exec"]
    assert command["command"] == "aws" and command["args"][-5:] == [
        "get-token",
        "--cluster-name",
        "isthmus",
        "--output",
        "json",
    ]
    record(infrastructure(settings("gcp"), found))
    command = found["native"]["users"][0]["user"]["exec"]
    assert command["command"] == "gke-gcloud-auth-plugin" and command["provideClusterInfo"] is True


def test_deletion_protection_is_off_only_by_setting() -> None:
    for name, token in (("aws", "aws:eks/cluster:Cluster"), ("gcp", "gcp:container/cluster:Cluster")):
        assert settings(name).deletion_protection
        off = record(infrastructure(settings(name, deletion_protection=False))).one(token)
        assert off.inputs["deletionProtection"] is False and not off.protect
