"""TrainJobs: rendered with a runtime of their own, and read as users have them."""

from typing import Any

import pytest
import yaml

from isthmus.specs.errors import InvalidSpec
from isthmus.specs.workload import WorkloadSpec
from workloads import bindings, convert, render, trainjob
from workloads.load import parse

TRAIN = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: mine, labels: {team: a}, uid: x}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    image: docker.io/isthmus/torch:1
    command: [torchrun, train.py]
    numNodes: 2
    resourcesPerNode: {limits: {nvidia.com/gpu: 1, memory: 2Gi}, requests: {cpu: "1"}}
"""
RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: own}
spec:
  mlPolicy: {numNodes: 3}
  template:
    spec:
      replicatedJobs:
        - name: node
          template: {spec: {template: {spec: {containers: [{name: node, image: "i:1", command: [a]}]}}}}
"""
OWN = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: mine}
spec: {runtimeRef: {kind: TrainingRuntime, name: own}}
"""


def rendered(spec: WorkloadSpec) -> list[dict[str, Any]]:
    return render.render(
        spec, namespace="runs", binding=bindings.for_cloud("aws"), run="r1", pod_labels={"a": "b"}, pod_annotations={"c": "d"}
    )  # fmt: skip


def test_a_users_manifest_is_kept_and_its_pods_are_marked_by_a_patch() -> None:
    spec = parse(TRAIN, origin="job.yaml")
    role = spec.roles["Node"]
    assert (spec.kind, spec.name, spec.image) == ("TrainJob", "mine", "docker.io/isthmus/torch:1")
    assert (role.replicas, role.gpus, role.cpu, role.memory) == (2, 1, "1", "2Gi")
    [job] = rendered(spec)
    assert job["metadata"]["name"] == "mine-r1"
    assert job["metadata"]["labels"]["team"] == "a" and "uid" not in job["metadata"]
    assert {"runtimeRef", "trainer"} <= job["spec"].keys()
    assert job["spec"]["trainer"] == yaml.safe_load(TRAIN)["spec"]["trainer"]
    [patch] = job["spec"]["runtimePatches"]
    [node] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = node["template"]["spec"]["template"]
    assert pod["metadata"]["labels"]["a"] == "b" and pod["metadata"]["labels"]["isthmus.dev/run"] == "r1"
    assert pod["metadata"]["annotations"] == {"c": "d"}
    assert [entry["key"] for entry in pod["spec"]["tolerations"]] == ["nvidia.com/gpu"]
    assert not trainjob.brings_runtime(job)


def test_a_runtime_in_the_same_file_goes_with_the_run() -> None:
    spec = parse(f"{RUNTIME}\n---\n{OWN}", origin="job.yaml")
    assert (spec.image, spec.command, spec.roles["Node"].replicas) == ("i:1", ("a",), 3)
    runtime, job = rendered(spec)
    assert runtime["metadata"]["name"] == job["spec"]["runtimeRef"]["name"] == job["metadata"]["name"] == "mine-r1"
    assert runtime["metadata"]["labels"]["isthmus.dev/run"] == "r1"
    assert trainjob.brings_runtime(job) and not trainjob.brings_runtime(runtime)


def test_what_convert_writes_can_be_run() -> None:
    sample = render.load("ddp-digits", {"volumes": "[]"})
    [job] = render.render(sample, namespace="runs", binding=bindings.for_cloud("aws"))
    converted = convert.to_train_job(job)
    assert converted.missing == ()
    spec = parse(yaml.safe_dump_all(converted.objects), origin="train.yaml")
    assert (spec.kind, spec.name, spec.roles["Node"].replicas, spec.gpus) == ("TrainJob", "ddp-digits", 4, 4)


def test_nothing_in_a_runtime_names_its_job() -> None:
    """A run has a name of its own, which the hosts begin with."""
    sample = render.load("ddp-digits", {"volumes": "[]"})
    [job] = render.render(sample, namespace="runs", binding=bindings.for_cloud("aws"))
    runtime, _ = convert.to_train_job(job | {"metadata": {"name": "secret-name"}}).objects
    assert "secret-name" not in str(runtime["spec"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TRAIN.replace("runtimeRef: {name: torch-distributed}", "a: 1"), "line 5: spec.runtimeRef.name is missing"),
        (TRAIN.replace("v1alpha1", "v2"), "a TrainJob here is trainer.kubeflow.org/v1alpha1"),
        (TRAIN.replace("name: mine", "name: " + "a" * 39), "at most 38 characters for a TrainJob"),
        (f"{RUNTIME}\n---\n{TRAIN}", "does not name the TrainingRuntime own of the same file"),
        (f"{RUNTIME.replace('name: node, image', 'name: x, image')}\n---\n{OWN}", "no replicated job with a container"),
        (f"{OWN}\n---\n{OWN}", "2 documents: a file holds one job"),
        (RUNTIME, "1 documents: a file holds one job"),
    ],
)
def test_what_is_wrong_is_told(text: str, words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        parse(text, origin="job.yaml")


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("restartPolicy: Always", "a TrainJob knows OnFailure, Never, ExitCode"),
        ("ttlSecondsAfterFinished: 5", "a TrainJob has none; it stays"),
        ("cleanPodPolicy: All", "a TrainJob has none; its pods stay until it is deleted"),
    ],
)
def test_a_workload_says_only_what_a_trainjob_can(field: str, words: str) -> None:
    text = f"apiVersion: isthmus.dev/v1\nkind: TrainJob\nname: a\nimage: i\ncommand: [a]\nroles: {{Node: {{replicas: 1}}}}\n{field}\n"
    with pytest.raises(InvalidSpec, match=words):
        parse(text, origin="workload.yaml")
