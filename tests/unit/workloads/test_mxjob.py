"""MXJob: retired upstream, read as users have it, and run as a TFJob with the same roles and environment."""

import json
from typing import Any

import pytest

from isthmus.specs.errors import InvalidSpec
from isthmus.specs.workload import WorkloadSpec
from workloads import bindings, render
from workloads.load import parse

MXJOB = """
apiVersion: kubeflow.org/v1
kind: MXJob
metadata: {name: mnist}
spec:
  jobMode: MXTrain
  mxReplicaSpecs:
    Scheduler:
      replicas: 1
      restartPolicy: Never
      template: {spec: {containers: [{name: mxnet, image: mx:1}]}}
    Server:
      replicas: 1
      restartPolicy: Never
      template: {spec: {containers: [{name: mxnet, image: mx:1}]}}
    Worker:
      replicas: 2
      restartPolicy: Never
      template: {spec: {containers: [{name: mxnet, image: mx:1, command: [python], env: [{name: A, value: b}]}]}}
"""


def job(text: str = MXJOB) -> dict[str, Any]:
    spec = parse(text, origin="mx.yaml")
    assert WorkloadSpec.model_validate_json(spec.model_dump_json(by_alias=True)) == spec
    return render.render(spec, namespace="runs", binding=bindings.for_cloud("aws"), run="r12345")[0]


def environment(job: dict[str, Any], role: str) -> dict[str, str]:
    [container] = job["spec"]["tfReplicaSpecs"][role]["template"]["spec"]["containers"]
    assert container["name"] == "tensorflow", "the operator looks for this name"
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}


def test_the_roles_are_kept_under_the_names_that_a_tfjob_has() -> None:
    translated = job()
    assert (translated["kind"], translated["metadata"]["name"]) == ("TFJob", "mnist-r12345")
    counts = {role: entry["replicas"] for role, entry in translated["spec"]["tfReplicaSpecs"].items()}
    assert counts == {"Chief": 1, "PS": 1, "Worker": 2}
    assert translated["spec"]["runPolicy"]["cleanPodPolicy"] == "Running", "servers never end by themselves"
    marks = translated["spec"]["tfReplicaSpecs"]["PS"]["template"]["metadata"]["labels"]
    assert marks["isthmus.dev/run"] == "r12345"


@pytest.mark.parametrize(("role", "word"), [("Chief", "scheduler"), ("PS", "server"), ("Worker", "worker")])
def test_each_role_is_told_what_the_mx_operator_told_it(role: str, word: str) -> None:
    values = environment(job(), role)
    assert values["DMLC_ROLE"] == word
    assert values["DMLC_PS_ROOT_URI"] == "mnist-r12345-chief-0", "the Service of the scheduler's pod"
    assert (values["DMLC_PS_ROOT_PORT"], values["DMLC_NUM_SERVER"], values["DMLC_NUM_WORKER"]) == ("9091", "1", "2")
    config = json.loads(values["MX_CONFIG"].replace("$(MX_INDEX)", "1"))
    assert config["task"] == {"type": word, "index": 1}
    assert config["cluster"]["worker"][1] == {"url": "mnist-r12345-worker-1", "port": 9091}
    assert values.get("A") == ("b" if role == "Worker" else None), "its own environment stays"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("    Server:", "    Servers:"), "MXJob has no role 'Servers'; known: Scheduler, Server, Worker"),
        (("    Scheduler:", "    Server2:"), "spec.mxReplicaSpecs.Scheduler is missing"),
        (("jobMode: MXTrain", "jobMode: MXTune"), "line 6: spec.jobMode is MXTune: only MXTrain can be run"),
        (("mxReplicaSpecs:", "replicaSpecs:"), "spec.mxReplicaSpecs is missing"),
        (("template: {spec: {containers: [{name: mxnet, image: mx:1}]}}", "template: {}"), "Scheduler.template.spec is missing"),
        (("name: mxnet, image", "name: mx, image"), "there must be one named mxnet"),
        (("name: mnist", "name: Mnist"), "line 4: metadata.name: 'Mnist' cannot be the name of a Service"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_by_name(change: tuple[str, str], words: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse(MXJOB.replace(change[0], change[1], 1), origin="mx.yaml")
    assert words in caught.value.message
