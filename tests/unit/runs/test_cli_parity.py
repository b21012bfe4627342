"""isthmus parity: equal or the exact paths, and the exit code."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from isthmus.cli import parity as parity_command
from isthmus.cli import project
from isthmus.cli import run as run_command
from isthmus.cli.main import run as isthmus
from isthmus.specs.stack import StackSettings

from .conftest import Harness

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "training-operator", "namespace": "kubeflow", "labels": {"isthmus.dev/managed-by": "isthmus"}},
    "spec": {"template": {"spec": {"containers": [{"name": "m", "image": "operator:1"}]}}},
}
PLUGIN = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {
        "name": "nvidia-device-plugin-daemonset", "namespace": "kube-system", "labels": {"isthmus.dev/managed-by": "isthmus"},
    },
}  # fmt: skip
PATH = "spec.template.spec.containers[0].image"


@pytest.fixture
def stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Harness]:
    """An AWS and a GCP stack that carry the same, but for the device plugin that GKE has of its own."""
    found = {}
    for name in ("aws-sim", "gcp-sim"):
        (tmp_path / name).mkdir()
        found[name] = Harness(tmp_path / name)
        found[name].api.put(copy.deepcopy(DEPLOYMENT))
    found["aws-sim"].api.put(copy.deepcopy(PLUGIN))
    base = {
        "mode": "simulated", "account": "isthmus-demo", "region": "r", "zones": ["z"],
        "systemPool": {"name": "system", "instanceType": "m5.xlarge"},
    }  # fmt: skip
    monkeypatch.setattr(run_command, "cluster_of", lambda stack: found[stack].cluster)
    monkeypatch.setattr(
        project, "settings", lambda stack: StackSettings.model_validate({**base, "cloud": stack.partition("-")[0]})
    )
    monkeypatch.setattr(parity_command, "_rendered", lambda stack: [copy.deepcopy(DEPLOYMENT)])
    return found


def edit(harness: Harness) -> None:
    [item] = harness.api.of_kind("Deployment")
    item["spec"]["template"]["spec"]["containers"][0]["image"] = "operator:edited"


def test_equal_stacks_are_equal_and_the_binding_is_told(stacks: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert isthmus(["parity", "aws-sim", "gcp-sim"]) == 0
    printed = capsys.readouterr().out
    assert "equal: 1 objects, digest" in printed
    assert (
        "DaemonSet.apps kube-system/nvidia-device-plugin-daemonset: one of the clouds runs the device plugin itself"
        in printed
    )


def test_a_hand_edit_of_one_deployment_is_named_with_its_exact_path(
    stacks: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(stacks["gcp-sim"])
    assert isthmus(["parity", "aws-sim", "gcp-sim"]) == 1
    printed = capsys.readouterr().out
    assert f"Deployment.apps kubeflow/training-operator  {PATH}" in printed
    assert "aws-sim: operator:1" in printed
    assert "gcp-sim: operator:edited" in printed


def test_the_same_edit_on_both_sides_is_still_found(stacks: Any, capsys: pytest.CaptureFixture[str]) -> None:
    edit(stacks["aws-sim"])
    edit(stacks["gcp-sim"])
    assert isthmus(["parity", "aws-sim", "gcp-sim", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["between"] == {"gcp-sim": []}
    assert [item["path"] for item in report["against_program"]["aws-sim"]] == [PATH]


def test_an_empty_stack_is_not_equal_to_anything(stacks: Any, capsys: pytest.CaptureFixture[str]) -> None:
    stacks["gcp-sim"].api.objects.clear()
    assert isthmus(["parity", "aws-sim", "gcp-sim"]) == 1
    assert "holds no object of ours" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["aws-sim"], ["aws-sim", "aws-sim"]])
def test_one_stack_is_nothing_to_compare(stacks: Any, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert isthmus(["parity", *arguments]) == 2
    assert "two or more different stacks" in capsys.readouterr().err
