"""Roles, ranks and states of every kind, from labels and conditions as their operators set them."""

from typing import Any

import pytest

from isthmus.runs.model import Replica, State
from isthmus.runs.observe import container_name, failure, job_state, replica, role_and_rank
from isthmus.specs.kinds import KINDS

KUBEFLOW = "training.kubeflow.org/"
BATCH = "batch.kubernetes.io/"


def pod(labels: dict[str, str], *containers: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    variables = [{"name": name, "value": value} for name, value in (env or {}).items()]
    return {
        "metadata": {"uid": "u", "name": "p", "labels": labels},
        "spec": {"containers": [{"name": name, "env": variables} for name in containers]},
        "status": {
            "phase": "Failed",
            "containerStatuses": [
                {"name": name, "state": {"terminated": {"exitCode": number}}} for number, name in enumerate(containers)
            ],
        },
    }


@pytest.mark.parametrize(
    ("labels", "containers", "env", "expected"),
    [
        ({"replica-type": "master", "replica-index": "0", "job-role": "master"}, ["pytorch"], {"RANK": "0"}, ("Master", 0)),
        ({"replica-type": "worker", "replica-index": "2"}, ["pytorch"], {"RANK": "3"}, ("Worker", 3)),
        ({"replica-type": "ps", "replica-index": "1"}, ["tensorflow"], {}, ("PS", 1)),
        ({"replica-type": "chief", "replica-index": "0", "job-role": "master"}, ["tensorflow"], {}, ("Chief", 0)),
        ({"replica-type": "evaluator", "replica-index": "0"}, ["tensorflow"], {}, ("Evaluator", 0)),
        # Without a chief the operator takes worker 0 for the master; it is still a worker.
        ({"replica-type": "worker", "replica-index": "0", "job-role": "master"}, ["tensorflow"], {}, ("Worker", 0)),
        ({"replica-type": "worker", "replica-index": "1"}, ["xgboost"], {"RANK": "2"}, ("Worker", 2)),
        ({"replica-type": "worker", "replica-index": "1"}, ["jax"], {"PROCESS_ID": "1"}, ("Worker", 1)),
        ({"job-role": "launcher"}, ["main"], {}, ("Launcher", 0)),
        ({"job-role": "worker", "replica-index": "1"}, ["main"], {}, ("Worker", 1)),
    ],
)  # fmt: skip
def test_role_and_rank_of_kubeflows_pods(
    labels: dict[str, str], containers: list[str], env: dict[str, str], expected: tuple[str, int]
) -> None:
    marks = {KUBEFLOW + name: value for name, value in labels.items()}
    assert role_and_rank(pod(marks, *containers, env=env)) == expected


def test_role_and_rank_of_a_batch_jobs_pods() -> None:
    assert role_and_rank(pod({BATCH + "job-name": "j", BATCH + "job-completion-index": "3"}, "main")) == ("Worker", 3)
    assert role_and_rank(pod({BATCH + "job-name": "j"}, "main")) == ("Worker", 0), "not indexed, as users write them"


def test_the_training_container_is_the_one_that_the_operator_looks_for() -> None:
    both = pod({}, "proxy", "tensorflow")
    assert container_name(both) == "tensorflow"
    assert replica(both).exit_code == 1, "the second container's"
    assert container_name(pod({}, "mine", "proxy")) == "mine"
    assert container_name({"metadata": {}, "spec": {}}) == ""


def conditions(*types: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": name, "status": "True", "message": "why"} for name in types]}}


@pytest.mark.parametrize(
    ("job", "state"),
    [
        (conditions("Created"), State.PENDING),
        (conditions("Created", "Running"), State.RUNNING),
        (conditions("Created", "Running", "Restarting"), State.RESTARTING),
        (conditions("Created", "Running", "Succeeded"), State.SUCCEEDED),
        (conditions("Created", "Restarting", "Failed"), State.FAILED),
        # Kubernetes' own Job counts while it runs.
        ({"status": {"active": 2, "ready": 0}}, State.PENDING),
        ({"status": {"active": 2, "ready": 1}}, State.RUNNING),
        ({"status": {"active": 1, "ready": 0, "failed": 1}}, State.RESTARTING),
        ({"status": {**conditions("SuccessCriteriaMet")["status"], "ready": 0}}, State.PENDING),
        (conditions("SuccessCriteriaMet", "Complete"), State.SUCCEEDED),
        (conditions("FailureTarget", "Failed"), State.FAILED),
        ({"status": {"jobsStatus": [{"name": "node", "active": 1, "ready": 0}]}}, State.PENDING),
        ({"status": {"jobsStatus": [{"name": "node", "active": 1, "ready": 1}]}}, State.RUNNING),
        ({"status": {"jobsStatus": [{"name": "node", "active": 1, "ready": 0, "failed": 1}]}}, State.RESTARTING),
        ({}, State.PENDING),
    ],
)
def test_states(job: dict[str, Any], state: State) -> None:
    assert job_state(job) == (state, "why" if state is State.FAILED else "")


def test_every_kind_of_kubeflow_says_its_job_in_the_same_label() -> None:
    assert {kind.job_label for kind in KINDS.values() if kind.api_version.startswith("kubeflow.org/")} == {
        KUBEFLOW + "job-name"
    }


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("job j failed because 1 replica failed", "Master rank 0 ended with exit code 1"),
        ("it has reached the specified backoff limit", "it has reached the specified backoff limit: Master rank 0 ended with exit code 1"),
        ("it was active longer than specified deadline", "it was active longer than specified deadline"),
    ],
)  # fmt: skip
def test_a_failure_tells_exit_codes_and_what_only_the_operator_knows(message: str, expected: str) -> None:
    first = Replica(uid="a", name="p", role="Master", rank=0, phase="Failed", exit_code=137)
    second = Replica(uid="b", name="p", role="Master", rank=0, phase="Failed", exit_code=1)
    assert failure([first, second], message) == expected, "of a pod that was made anew only the newest counts"


def test_an_init_container_that_failed_tells_why_the_program_never_started() -> None:
    words = "job-master-0 port 23456 did not open in 8 tries\n"
    waited = pod({KUBEFLOW + "replica-type": "worker", KUBEFLOW + "replica-index": "1"}, "pytorch", env={"RANK": "2"})
    waited["status"] = {
        "phase": "Failed",
        "initContainerStatuses": [{"name": "init-pytorch", "state": {"terminated": {"exitCode": 1, "message": words}}}],
        "containerStatuses": [{"name": "pytorch", "state": {"waiting": {"reason": "PodInitializing"}}}],
    }
    assert failure([replica(waited)], "") == f"Worker rank 2 ended with exit code 1 ({words.strip()})"
