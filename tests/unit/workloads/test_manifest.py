"""Manifests as users have them: run as they are, and refused by the name of what is wrong."""

import copy
from typing import Any

import pytest
import yaml

from isthmus.specs.errors import InvalidSpec
from isthmus.specs.workload import WorkloadSpec
from workloads import bindings, render
from workloads.load import parse

MANIFESTS: dict[str, str] = {
    "PyTorchJob": """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: mnist, namespace: team-a, annotations: {note: mine}, uid: 1-2-3}
spec:
  runPolicy: {cleanPodPolicy: All, backoffLimit: 2}
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template:
        metadata: {labels: {team: a}}
        spec:
          initContainers: [{name: fetch, image: busybox}]
          containers:
          - name: proxy
            image: envoy:1
          - name: pytorch
            image: pytorch:2
            command: [python3, mnist.py]
            args: [--epochs, "1"]
            resources: {limits: {nvidia.com/gpu: 1, cpu: 500m, memory: 2Gi}}
    Worker:
      replicas: 2
      template:
        spec:
          containers: [{name: pytorch, image: pytorch:2}]
status: {conditions: []}
""",
    "TFJob": """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {generateName: ps-}
spec:
  successPolicy: AllWorkers
  tfReplicaSpecs:
    PS: {replicas: 1, restartPolicy: Never, template: {spec: {containers: [{name: tensorflow, image: tf:1}]}}}
    Worker: {replicas: 2, restartPolicy: ExitCode, template: {spec: {containers: [{name: tensorflow, image: tf:1}]}}}
""",
    "XGBoostJob": """
apiVersion: kubeflow.org/v1
kind: XGBoostJob
metadata: {name: trees}
spec:
  xgbReplicaSpecs:
    Master: {replicas: 1, template: {spec: {containers: [{name: xgboost, image: x:1}]}}}
""",
    "JAXJob": """
apiVersion: kubeflow.org/v1
kind: JAXJob
metadata: {name: arrays}
spec:
  jaxReplicaSpecs:
    Worker: {replicas: 2, template: {spec: {containers: [{name: jax, image: x:1}]}}}
""",
    "MPIJob": """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: pi}
spec:
  slotsPerWorker: 1
  sshAuthMountPath: /home/mpiuser/.ssh
  mpiReplicaSpecs:
    Launcher: {replicas: 1, template: {spec: {containers: [{name: mpi-launcher, image: pi:1, command: [mpirun]}]}}}
    Worker: {replicas: 2, template: {spec: {containers: [{name: mpi-worker, image: pi:1}]}}}
""",
    "Job": """
apiVersion: batch/v1
kind: Job
metadata: {name: iris}
spec:
  backoffLimit: 4
  template:
    spec:
      restartPolicy: Never
      containers: [{name: train, image: sklearn:1, command: [python3, iris.py]}]
""",
}


def read(text: str, **changes: str) -> WorkloadSpec:
    return parse(text, origin="job.yaml", changes=changes)


def refused(text: str) -> str:
    with pytest.raises(InvalidSpec) as caught:
        read(text)
    return caught.value.message


@pytest.mark.parametrize("kind", sorted(MANIFESTS))
def test_a_manifest_of_each_kind_is_applied_as_it_is_but_for_the_runs_marks(kind: str) -> None:
    before = yaml.safe_load(MANIFESTS[kind])
    [job] = render.render(
        read(MANIFESTS[kind]), namespace="runs", binding=bindings.for_cloud("aws"), run="r12345", pod_labels={"x": "y"}
    )
    name = before["metadata"].get("name", "ps")
    assert job["metadata"]["name"] == f"{name}-r12345"
    assert job["metadata"]["namespace"] == "runs"
    assert job["metadata"]["labels"]["isthmus.dev/run"] == "r12345"
    after, expected = copy.deepcopy(job["spec"]), copy.deepcopy(before["spec"])
    for spec in (after, expected):
        for template in templates(spec):
            marks = template.pop("metadata", {}).get("labels", {})
            assert spec is expected or (marks["isthmus.dev/run"], marks["x"]) == ("r12345", "y")
            template["spec"].pop("tolerations", None)
    assert after == expected


def templates(spec: dict[str, Any]) -> list[dict[str, Any]]:
    roles = [value for key, value in spec.items() if key.endswith("ReplicaSpecs")]
    return [entry["template"] for role in roles for entry in role.values()] or [spec["template"]]


def test_what_a_manifest_asks_for_is_known_to_everything_that_knows_workloads() -> None:
    spec = read(MANIFESTS["PyTorchJob"])
    assert (spec.kind, spec.name, spec.image) == ("PyTorchJob", "mnist", "pytorch:2")
    assert spec.command == ("python3", "mnist.py", "--epochs", "1")
    assert (spec.roles["Master"].gpus, spec.roles["Master"].memory, spec.roles["Worker"].replicas) == (1, "2Gi", 2)
    assert (spec.backoff_limit, spec.clean_pod_policy, spec.restart_policy) == (2, "All", "OnFailure")
    assert read(MANIFESTS["TFJob"]).success_policy == "AllWorkers"
    assert read(MANIFESTS["Job"]).roles["Worker"].replicas == 1


def test_a_manifest_keeps_its_own_and_tolerates_gpu_nodes_where_it_asks_for_cards() -> None:
    [job] = render.render(read(MANIFESTS["PyTorchJob"]), namespace="runs", binding=bindings.for_cloud("aws"), run="r1")
    assert job["metadata"]["annotations"] == {"note": "mine"}
    assert "status" not in job
    assert "uid" not in job["metadata"]
    master, worker = templates(job["spec"])
    assert master["metadata"]["labels"]["team"] == "a"
    assert master["spec"]["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert "tolerations" not in worker["spec"]


def test_a_manifest_survives_the_store() -> None:
    spec = read(MANIFESTS["MPIJob"])
    assert WorkloadSpec.model_validate_json(spec.model_dump_json(by_alias=True)) == spec


def test_a_field_of_a_manifest_can_be_changed_for_one_run() -> None:
    spec = parse(MANIFESTS["Job"], origin="f", changes={"spec.backoffLimit": "1"})
    assert spec.backoff_limit == 1
    assert render.render(spec, namespace="r", binding=bindings.for_cloud("aws"))[0]["spec"]["backoffLimit"] == 1


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("PyTorchJob", ("kind: PyTorchJob", "kind: PytorchJobs"), "line 3: PytorchJobs is no kind of job (did you mean PyTorchJob?)"),
        ("Job", ("kind: Job", "kind: Deployment"), "Deployment is no kind of job; known: PyTorchJob"),
        ("MPIJob", ("v2beta1", "v1"), "line 2: apiVersion is kubeflow.org/v1: a MPIJob here is kubeflow.org/v2beta1"),
        ("JAXJob", ("    Worker:", "    Workers:"), "line 7: JAXJob has no role 'Workers' (did you mean Worker?); known: Worker"),
        ("XGBoostJob", ("    Master:", "    Chief:"), "XGBoostJob has no role 'Chief'"),
        (
            "XGBoostJob",
            ("template: {spec: {containers: [{name: xgboost, image: x:1}]}}", "template: {}"),
            "line 7: spec.xgbReplicaSpecs.Master.template.spec is missing",
        ),
        (
            "XGBoostJob",
            (", template: {spec: {containers: [{name: xgboost, image: x:1}]}}", ""),
            "spec.xgbReplicaSpecs.Master.template.spec is missing",
        ),
        ("JAXJob", ("containers: [{name: jax, image: x:1}]", "nodeName: a"), "template.spec.containers is missing"),
        ("JAXJob", ("{name: jax, image: x:1}", "{name: train, image: x:1}"), "the operator looks for one named jax; there is: train"),
        ("JAXJob", (", image: x:1", ""), "jax has no image"),
        ("JAXJob", ("jaxReplicaSpecs", "replicaSpecs"), "spec.jaxReplicaSpecs is missing"),
        ("Job", ("  template:", "  tmplate:"), "line 5: spec.template.spec is missing"),
        ("Job", ("restartPolicy: Never", "restartPolicy: Always"), "restartPolicy Always: a Job knows Never, OnFailure"),
        ("TFJob", ("restartPolicy: ExitCode", "restartPolicy: Mostly"), "spec.tfReplicaSpecs.Worker.restartPolicy is Mostly"),
        ("PyTorchJob", ("backoffLimit: 2", "backoffLimit: -2"), "line 6: spec.runPolicy.backoffLimit"),
        ("PyTorchJob", ("name: mnist", "name: Mnist"), "line 4: metadata.name: 'Mnist' cannot be the name of a Service"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_by_name_and_line(kind: str, change: tuple[str, str], words: str) -> None:
    assert change[0] in MANIFESTS[kind]
    assert words in refused(MANIFESTS[kind].replace(*change))


@pytest.mark.parametrize("name", ["7b-finetune", "bert.v2", "Bert", "b" * 64])
@pytest.mark.parametrize("kind", ["PyTorchJob", "TFJob"])
def test_a17_a_manifests_name_must_be_one_for_services(kind: str, name: str) -> None:
    """kubeflow/trainer#1745."""
    document = yaml.safe_load(MANIFESTS[kind])
    document["metadata"] = {"name": name}
    assert "cannot be the name of a Service" in refused(yaml.safe_dump(document))
    document["metadata"] = {"name": "bert-v2"}
    assert read(yaml.safe_dump(document)).name == "bert-v2"


def test_a_workload_file_has_no_manifest_in_it() -> None:
    assert "there is no field 'manifest'" in refused("apiVersion: isthmus.dev/v1\nkind: Job\nmanifest: {}\n")


def test_several_objects_in_a_file_are_refused() -> None:
    assert "2 documents: a file holds one job" in refused(MANIFESTS["Job"] + "---" + MANIFESTS["Job"])
