"""What faults do to a stack on its way up and down: kill -9, an API server that dies, two at once. Each test has a home of its
own.
"""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from isthmus.specs.errors import IsthmusError
from tests.stacks import Stacks, eventually

pytestmark = pytest.mark.local

AWS, GCP = "aws-sim", "gcp-sim"


def test_kill_9_while_the_cluster_is_made_then_up_then_down(alone: Stacks) -> None:
    killed(alone)
    alone.isthmus("up", AWS, "--yes")
    assert len(alone.clusters()) == 1
    alone.isthmus("down", AWS, "--yes")
    alone.expect_nothing_left()


def test_kill_9_while_the_cluster_is_made_then_down(alone: Stacks) -> None:
    killed(alone)
    alone.isthmus("down", AWS, "--yes")
    alone.expect_nothing_left()


def killed(alone: Stacks) -> None:
    """An `up` whose engine is killed as soon as the cluster's folder is there. No samples: their training would only cost
    time."""
    alone.settings(AWS, samples=[], costReport="false")
    process = alone.start("pulumi", "up", "-s", AWS, "--yes", "--skip-preview", "--non-interactive")
    eventually(lambda: any((alone.home / "clusters").glob("aws-sim*")), seconds=120, what="a cluster is being made")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
def test_the_api_server_is_killed_during_up(alone: Stacks) -> None:
    """Its supervisor brings it back; whatever that `up` made of it, the next one goes on to the end."""
    process = alone.start("pulumi", "up", "-s", AWS, "--yes", "--skip-preview", "--non-interactive")
    eventually(lambda: serves_jobs(alone), seconds=180, what="the first types of the operator are served")
    [found] = alone.clusters()
    server = next(item for item in found.status().processes if item.name == "kube-apiserver")
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    process.communicate(timeout=600)
    alone.isthmus("up", AWS, "--yes")
    assert json.loads(alone.isthmus("preview", AWS, "--json").stdout)["changes"] == {}


def serves_jobs(alone: Stacks) -> bool:
    try:
        return bool(alone.cluster(AWS).list("apiextensions.k8s.io/v1", "CustomResourceDefinition"))
    except (IsthmusError, ValueError):  # no cluster yet, or it does not answer yet
        return False


def test_two_ups_at_once_and_the_second_is_told(alone: Stacks) -> None:
    first = alone.start("pulumi", "up", "-s", AWS, "--yes", "--skip-preview", "--non-interactive")
    eventually(
        lambda: any((alone.home / "state").rglob("locks/**/*.json")), seconds=90, what="the first holds the lock"
    )
    second = alone.isthmus("up", AWS, "--yes", code=3)
    assert "another update" in second.stderr
    assert first.poll() is None, "the first up ended before the second could meet it"
    os.killpg(first.pid, signal.SIGTERM)
    first.wait()


def test_unknown_stack_starts_nothing(alone: Stacks) -> None:
    done = alone.isthmus("up", "aws-smi", code=2)
    assert "nearest: aws-sim" in done.stderr
    assert not (alone.home / "state" / ".pulumi").exists()


def test_a02_preview_needs_no_cluster_and_no_kubeconfig(alone: Stacks) -> None:
    """pulumi/pulumi-kubernetes#2346: everything is to be created, and no other cluster's context is fallen back to."""
    alone.environment["KUBECONFIG"] = str(alone.home / "none")
    for stack in (AWS, GCP):
        plan = json.loads(alone.isthmus("preview", stack, "--json").stdout)
        assert set(plan["changes"]) == {"create"}
        assert any(step["type"] == "kubernetes:kubeflow.org/v1:PyTorchJob" for step in plan["steps"])
    assert not alone.clusters()


def test_python_of_the_tests_runs_the_commands() -> None:
    """The commands under test are this checkout's."""
    assert Path(sys.executable).with_name("pulumi").exists()
