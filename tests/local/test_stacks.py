"""The product: `up` of both simulated clouds by the ordinary commands, and what runs on them.

One pair of stacks serves all tests, in the order they stand (test_stack_faults.py breaks stacks of its own).
"""

import json
import os
import re
import signal
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest

from isthmus.kube import wait
from isthmus.specs import labels
from tests.clusters import succeeded
from tests.stacks import Stacks, eventually

pytestmark = pytest.mark.local

AWS, GCP = "aws-sim", "gcp-sim"
SAMPLE_SECONDS = 420


@pytest.fixture(scope="module")
def stacks(can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stacks]:
    """Both simulated stacks, up: one by the plain pulumi command, the other by isthmus."""
    both = Stacks(tmp_path_factory.mktemp("stacks") / "home")
    try:
        both.pulumi("up", "-s", AWS, "--yes", "--skip-preview")
        both.isthmus("up", GCP, "--yes")
        yield both
    finally:
        both.end()


@pytest.mark.parametrize("stack", [AWS, GCP])
def test_the_samples_train_for_real(stacks: Stacks, stack: str) -> None:
    """Four processes each, in containers that the kubelet started from the operator's pods; figures from their logs."""
    kube = stacks.cluster(stack)
    for sample in ("sendrecv", "ddp-digits"):
        wait.until(
            lambda name=sample: succeeded(kube, name),
            seconds=SAMPLE_SECONDS, what=f"{sample} on {stack} to succeed",
            why=lambda: stacks.isthmus("status", stack, code=None).stdout,
        )  # fmt: skip
    lines = [
        json.loads(line) for line in kube.logs("ddp-digits-master-0", labels.RUNS_NAMESPACE) if line.startswith("{")
    ]
    accuracy = [line["value"] for line in lines if line.get("metric") == "accuracy"]
    assert accuracy[-1] >= 0.95
    pods = kube.list("v1", "Pod", labels.RUNS_NAMESPACE, selector={"training.kubeflow.org/job-name": "ddp-digits"})
    assert len(pods) == 4
    assert all(pod["status"]["containerStatuses"][0]["containerID"].startswith("containerd://") for pod in pods)


@pytest.mark.parametrize("stack", [AWS, GCP])
def test_a_second_preview_changes_nothing(stacks: Stacks, stack: str) -> None:
    shown = json.loads(stacks.isthmus("preview", stack, "--json").stdout)
    assert shown["changes"] == {}, shown["steps"]


def test_a07_the_state_holds_no_credential(stacks: Stacks) -> None:
    """pulumi/pulumi-digitalocean#77: an exec-style kubeconfig, so nothing in the state expires or opens the cluster."""
    for stack in (AWS, GCP):
        text = json.dumps(stacks.state(stack))
        assert "kube-token" in text
        assert not re.search(r"BEGIN [A-Z ]*PRIVATE KEY|client-key-data|\"token\": *\"", text)


@pytest.mark.parametrize("stack", [AWS, pytest.param(GCP, marks=pytest.mark.slow)])
def test_a07_hours_later_every_command_gets_a_fresh_credential(stacks: Stacks, stack: str) -> None:
    """The kept certificates are replaced by ones that ended three hours ago. Then every object is read back and one that
    somebody deleted is made anew, which takes credentials that work; nothing else is to change."""
    kube = stacks.cluster(stack)
    kube.delete("v1", "ConfigMap", "cost-report", labels.RUNS_NAMESPACE)
    files = stacks.expire(stack, timedelta(hours=3))
    expired = [path.read_text() for path in files]
    stacks.pulumi("refresh", "-s", stack, "--yes", "--skip-preview")
    assert [path.read_text() for path in files] != expired, "a credential that has ended is kept"
    stacks.expire(stack, timedelta(hours=3))
    plan = json.loads(stacks.isthmus("preview", stack, "--json").stdout)
    changes = {(step["operation"], step["type"]) for step in plan["steps"]}
    assert changes == {("create", "kubernetes:core/v1:ConfigMap")}
    stacks.isthmus("up", stack, "--yes")
    assert kube.get("v1", "ConfigMap", "cost-report", labels.RUNS_NAMESPACE)["data"]
    assert json.loads(stacks.isthmus("preview", stack, "--json").stdout)["changes"] == {}


def test_run_to_its_end_with_metrics_from_the_pods(stacks: Stacks) -> None:
    done = stacks.isthmus("run", "ddp-digits", "-s", AWS, "--follow", "--set", "env.EPOCHS=12", "--json")
    result = json.loads(done.stdout)
    assert result["state"] == "Succeeded"
    assert result["source"] == "measured"
    runs = json.loads(stacks.isthmus("runs", "--json").stdout)
    assert [run["state"] for run in runs if run["stack"] == AWS] == ["Succeeded"]


def test_that_run_and_its_stack_are_billed_and_say_they_are_simulated(stacks: Stacks) -> None:
    """The run above on the machine that its node stands for, next to its estimate; and every node of the stack."""
    [run] = [item for item in json.loads(stacks.isthmus("runs", "--json").stdout) if item["stack"] == AWS]
    bill = json.loads(stacks.isthmus("cost", "run", run["run"], "--json").stdout)
    assert bill["simulated"] is True and bill["basis"].startswith("simulated")
    [node] = bill["nodes"]
    assert (node["machine"], node["usdPerHour"]) == ("g4dn.12xlarge", "3.912")
    assert 0 < float(bill["gpuHours"]) <= 4 * float(bill["hours"]) + 1e-6
    assert bill["estimate"]["total"] == "2.2041"
    steps = sum(Decimal(step["usd"]) for step in bill["differences"])
    assert abs(Decimal(bill["estimate"]["total"]) + steps - Decimal(bill["total"])) < Decimal("1e-9")
    whole = json.loads(stacks.isthmus("cost", "stack", AWS, "--json").stdout)
    assert "Times are the clock of account aws-sim" in whole["basis"]
    assert sorted(item["machine"] for item in whole["nodes"]) == ["g4dn.12xlarge", "m5.xlarge", "m5.xlarge"]
    for item in whole["nodes"]:
        parts = [Decimal(value) for side in ("used", "idle") for value in item[side].values()]
        assert abs(sum(parts) - Decimal(item["total"])) < Decimal("1e-9")
    assert {run["run"]} < {line["name"] for line in whole["byRun"]}, "the samples of `up` used the node as well"


def test_parity_is_equal_until_a_hand_edit_and_names_its_path(stacks: Stacks) -> None:
    assert "equal" in stacks.isthmus("parity", AWS, GCP).stdout
    kube = stacks.cluster(GCP)
    edit = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 77}}}}
    kube.patch("apps/v1", "Deployment", "training-operator", edit, "kubeflow")
    shown = stacks.isthmus("parity", AWS, GCP, code=1).stdout
    assert "Deployment" in shown
    assert "spec.template.spec.terminationGracePeriodSeconds" in shown
    assert "77" in shown
    before = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 10}}}}
    kube.patch("apps/v1", "Deployment", "training-operator", before, "kubeflow")


def test_the_cost_report_is_the_same_on_both(stacks: Stacks) -> None:
    reports = [
        stacks.cluster(stack).get("v1", "ConfigMap", "cost-report", labels.RUNS_NAMESPACE) for stack in (AWS, GCP)
    ]
    assert reports[0]["data"] == reports[1]["data"]
    outputs = [json.loads(stacks.pulumi("stack", "output", "--json", "-s", stack).stdout) for stack in (AWS, GCP)]
    assert outputs[0]["costReport"] == outputs[1]["costReport"]


def test_a_workload_larger_than_any_node_is_refused(stacks: Stacks) -> None:
    done = stacks.isthmus("run", "ddp-digits", "-s", AWS, "--set", "roles.Worker.gpus=16", code=3)
    assert "4" in done.stderr
    assert not [run for run in json.loads(stacks.isthmus("runs", "--json").stdout) if run["state"] == "Submitting"]


def test_a_killed_api_server_comes_back_and_status_says_so(stacks: Stacks) -> None:
    found = stacks.local(AWS)
    server = next(item for item in found.status().processes if item.name == "kube-apiserver")
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    eventually(
        lambda: any(item.name == "kube-apiserver" and item.ready and item.restarts > server.restarts
                    for item in found.status().processes),
        seconds=90, what="the API server is back",
    )  # fmt: skip
    assert "kube-apiserver" in stacks.isthmus("status", AWS, code=None).stdout


@pytest.mark.parametrize("stack", [AWS, GCP])
def test_a01_down_of_a_cluster_that_is_gone(stacks: Stacks, stack: str) -> None:
    """pulumi/pulumi-kubernetes#2517: plainly it fails and keeps the state; told that the cluster is gone, it finishes, with
    what is left of the cloud, in one run."""
    stacks.local(stack).delete()
    objects = [item for item in stacks.state(stack)["resources"] if item["type"].startswith("kubernetes:")]
    assert len(objects) > 12
    done = stacks.isthmus("down", stack, "--yes", code=1)
    assert "--cluster-gone" in done.stderr
    kept = [item for item in stacks.state(stack)["resources"] if item["type"].startswith("kubernetes:")]
    assert len(kept) == len(objects)
    stacks.isthmus("down", stack, "--yes", "--cluster-gone")
    assert not stacks.state(stack).get("resources")
    assert json.loads(stacks.isthmus("sim", "show", stack, "--json").stdout) == []


def test_nothing_is_left_of_either(stacks: Stacks) -> None:
    stacks.expect_nothing_left()
