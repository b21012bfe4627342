"""From older jobs to TrainJobs: the same ranks and environment; what has no counterpart is listed, all of it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.cli import convert as command
from isthmus.specs.errors import InvalidSpec, Refused
from workloads import convert

HOST = "$(JOBSET_NAME)-node-0-{}.$(JOBSET_NAME)"


def pytorch(**change: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "t:1", "env": [{"name": "A", "value": "1"}]}]}}
    roles = {
        "Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": template},
        "Worker": {"replicas": 3, "restartPolicy": "OnFailure", "template": template},
    }
    policy = {"backoffLimit": 3, "activeDeadlineSeconds": 60}
    spec = {"runPolicy": policy, "pytorchReplicaSpecs": roles}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "j", "uid": "x"},
        "spec": spec | change,
    }


def tensorflow(*roles: str, **change: Any) -> dict[str, Any]:
    entry = {"replicas": 2, "template": {"spec": {"containers": [{"name": "tensorflow", "image": "t:1"}]}}}
    spec = {"tfReplicaSpecs": dict.fromkeys(roles, entry), "successPolicy": "AllWorkers"}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "j"}, "spec": spec | change}


def mpi(**change: Any) -> dict[str, Any]:
    launcher = {"template": {"spec": {"containers": [{"name": "main", "image": "m:1", "command": ["mpirun", "a"]}]}}}
    worker = {"replicas": 3, "template": {"spec": {"containers": [{"name": "main", "image": "m:1"}]}}}
    spec = {
        "slotsPerWorker": 2,
        "sshAuthMountPath": "/home/t/.ssh",
        "launcherCreationPolicy": "WaitForWorkersReady",
        "runPolicy": {"backoffLimit": 4, "cleanPodPolicy": "Running"},
        "mpiReplicaSpecs": {"Launcher": {"restartPolicy": "OnFailure", **launcher}, "Worker": worker},
    }
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "j"}, "spec": spec | change}


def node(converted: convert.Converted) -> tuple[dict[str, Any], dict[str, Any]]:
    runtime, _ = converted.objects
    [job] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    [container] = job["template"]["spec"]["template"]["spec"]["containers"]
    return job["template"], container


def test_a_pytorchjob_keeps_ranks_environment_and_policies() -> None:
    converted = convert.to_train_job(pytorch())
    assert converted.missing == ()
    runtime, train = converted.objects
    job, container = node(converted)
    assert runtime["spec"]["mlPolicy"] == {"numNodes": 4, "torch": {}}
    assert train["spec"]["runtimeRef"] == {"kind": "TrainingRuntime", "name": "j"}
    assert train["spec"]["activeDeadlineSeconds"] == 60
    assert "uid" not in train["metadata"]
    assert job["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert job["spec"]["backoffLimit"] == 3
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    values = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert container["name"] == "node"
    assert values == {
        "RANK": None, "WORLD_SIZE": "4", "MASTER_ADDR": HOST.format(0), "MASTER_PORT": "23456", "PYTHONUNBUFFERED": "1", "A": "1",
        "JOBSET_NAME": None,
    }  # fmt: skip
    assert "job-completion-index" in container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"]


def test_exit_codes_are_sorted_by_the_jobs_own_policy() -> None:
    roles = pytorch()["spec"]["pytorchReplicaSpecs"]
    exits = {role: {**entry, "restartPolicy": "ExitCode"} for role, entry in roles.items()}
    job, _ = node(convert.to_train_job(pytorch(pytorchReplicaSpecs=exits)))
    [rule] = job["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert (min(rule["onExitCodes"]["values"]), max(rule["onExitCodes"]["values"])) == (1, 127)
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_a_tfjob_of_workers_keeps_its_cluster() -> None:
    _, container = node(convert.to_train_job(tensorflow("Worker")))
    values = {entry["name"]: entry.get("value") for entry in container["env"]}
    config = json.loads(values["TF_CONFIG"].replace("$(RANK)", "1"))
    assert config["cluster"] == {"worker": [f"{HOST.format(index)}:2222" for index in (0, 1)]}
    assert config["task"] == {"type": "worker", "index": 1}


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (tensorflow("PS", "Worker"), ["role PS"]),
        (tensorflow("Chief", "PS", "Worker", "Evaluator"), ["role Chief", "role PS", "role Evaluator"]),
        (tensorflow("Worker", successPolicy=""), ["successPolicy of worker 0"]),
        (pytorch(elasticPolicy={"minReplicas": 1}), ["elasticPolicy"]),
        (pytorch(nprocPerNode="auto"), ["nprocPerNode auto"]),
        (
            pytorch(runPolicy={"ttlSecondsAfterFinished": 5, "cleanPodPolicy": "All", "schedulingPolicy": {"queue": "q"}}),
            ["ttlSecondsAfterFinished", "cleanPodPolicy All", "schedulingPolicy"],
        ),
        ({"kind": "XGBoostJob", "spec": {}}, ["XGBoostJob: only PyTorchJob, TFJob, MPIJob"]),
        (mpi(mpiImplementation="MPICH", runLauncherAsWorker=True), ["MPICH", "runLauncherAsWorker"]),
        (mpi(runPolicy={"cleanPodPolicy": "None"}), ["cleanPodPolicy None"]),
    ],
)  # fmt: skip
def test_what_has_no_counterpart_is_listed_and_nothing_is_converted(job: dict[str, Any], words: list[str]) -> None:
    converted = convert.to_train_job(job)
    assert converted.objects == ()
    assert len(converted.missing) == len(words)
    for said, word in zip(converted.missing, words, strict=True):
        assert word in said


def test_an_mpijob_keeps_its_launcher_workers_and_slots() -> None:
    runtime, train = convert.to_train_job(mpi()).objects
    assert train["spec"]["trainer"] == {"numNodes": 3, "numProcPerNode": 2}
    assert runtime["spec"]["mlPolicy"] == {
        "numNodes": 1,
        "mpi": {
            "numProcPerNode": 2, "mpiImplementation": "OpenMPI", "sshAuthMountPath": "/home/t/.ssh", "runLauncherAsNode": False
        },
    }  # fmt: skip
    template = runtime["spec"]["template"]["spec"]
    assert template["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["launcher"]}
    workers, launcher = template["replicatedJobs"]
    assert (workers["name"], launcher["name"]) == ("node", "launcher"), "what one depends on comes before it"
    assert launcher["dependsOn"] == [{"name": "node", "status": "Ready"}]
    assert launcher["template"]["metadata"]["labels"] and "metadata" not in workers["template"]
    assert launcher["template"]["spec"]["backoffLimit"] == 4
    [sshd], [starts] = (job["template"]["spec"]["template"]["spec"]["containers"] for job in (workers, launcher))
    assert sshd == {"name": "node", "image": "m:1", "command": ["/usr/sbin/sshd", "-De"]}
    assert starts["name"] == "node"
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": ""} in starts["env"]


def test_roles_that_differ_are_told_by_path() -> None:
    job = pytorch()
    worker = json.loads(json.dumps(job["spec"]["pytorchReplicaSpecs"]["Worker"]))
    worker["template"]["spec"]["volumes"] = []
    worker["restartPolicy"] = "Always"
    job["spec"]["pytorchReplicaSpecs"]["Worker"] = worker
    missing = "\n".join(convert.to_train_job(job).missing)
    assert "template.spec.volumes of Worker and Master differ" in missing
    assert "restartPolicy differs: Master OnFailure, Worker Always" in missing


def test_the_command_writes_both_objects_and_refuses_what_is_listed(tmp_path: Path) -> None:
    file, output = tmp_path / "job.yaml", tmp_path / "train.yaml"
    file.write_text(yaml.safe_dump(pytorch()))
    assert command.convert(file, to="TrainJob", output=output) == 0
    assert [item["kind"] for item in yaml.safe_load_all(output.read_text())] == ["TrainingRuntime", "TrainJob"]
    file.write_text(yaml.safe_dump(tensorflow("PS", "Worker")))
    with pytest.raises(Refused, match="no counterpart for:\n  role PS") as caught:
        command.convert(file, to="TrainJob", output=output)
    assert caught.value.exit_code == 3
    file.write_text(yaml.safe_dump({"apiVersion": "kubeflow.org/v1", "kind": "MXJob"}))
    with pytest.raises(Refused, match="MXJob"):
        command.convert(file, to="TrainJob")
    with pytest.raises(InvalidSpec, match="not to PyTorchJob"):
        command.convert(file, to="PyTorchJob")
