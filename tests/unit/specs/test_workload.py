"""What a workload may be: the rules of each kind, told by field before anything is created."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from isthmus.specs import names
from isthmus.specs.kinds import KINDS
from isthmus.specs.workload import WorkloadSpec

ROLES: dict[str, dict[str, Any]] = {
    "PyTorchJob": {"Master": {"replicas": 1}, "Worker": {"replicas": 3}},
    "TFJob": {"Worker": {"replicas": 2}},
    "XGBoostJob": {"Master": {"replicas": 1}, "Worker": {"replicas": 2}},
    "JAXJob": {"Worker": {"replicas": 2}},
    "MPIJob": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}},
    "Job": {"Worker": {"replicas": 1}},
    "TrainJob": {"Node": {"replicas": 1}},
}
"""A smallest workload of each kind."""


def spec(kind: str = "PyTorchJob", /, **change: Any) -> WorkloadSpec:
    values: dict[str, Any] = {
        "apiVersion": "isthmus.dev/v1",
        "kind": kind,
        "name": "train",
        "image": "image:1",
        "command": ["true"],
        "roles": ROLES[kind],
        "restartPolicy": "OnFailure",
    }
    return WorkloadSpec.model_validate(values | change)


def refused(kind: str = "PyTorchJob", /, **change: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        spec(kind, **change)
    return str(caught.value)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_has_a_smallest_workload(kind: str) -> None:
    assert spec(kind).form.name == kind


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("PyTorchJob", {"roles": {"Worker": {"replicas": 2}}}, "a PyTorchJob needs Master"),
        ("PyTorchJob", {"roles": {"Master": {"replicas": 2}}}, "roles.Master.replicas is 2: a PyTorchJob has exactly 1"),
        ("PyTorchJob", {"roles": {"Master": {"replicas": 1}, "PS": {"replicas": 1}}}, "PyTorchJob has no role 'PS'"),
        ("TFJob", {"roles": {"PS": {"replicas": 1}}}, "a TFJob needs Chief or Master or Worker"),
        ("TFJob", {"roles": {"Chief": {"replicas": 1}, "Master": {"replicas": 1}}}, "keep one"),
        ("TFJob", {"roles": {"Chief": {"replicas": 2}}}, "roles.Chief.replicas is 2"),
        ("XGBoostJob", {"roles": {"Worker": {"replicas": 2}}}, "a XGBoostJob needs Master"),
        ("JAXJob", {"roles": {"Master": {"replicas": 1}, "Worker": {"replicas": 1}}}, "JAXJob has no role 'Master'"),
        ("MPIJob", {"roles": {"Launcher": {"replicas": 1}}}, "a MPIJob needs Worker"),
        ("MPIJob", {"roles": {"Worker": {"replicas": 2}}}, "a MPIJob needs Launcher"),
        (
            "MPIJob",
            {"roles": {"Launcher": {"replicas": 1, "gpus": 1}, "Worker": {"replicas": 2}}},
            "hides the cards from the launcher",
        ),
        ("MPIJob", {"restartPolicy": "ExitCode"}, "restartPolicy ExitCode: a MPIJob knows Never, OnFailure"),
        ("Job", {"restartPolicy": "Always"}, "restartPolicy Always: a Job knows Never, OnFailure"),
        ("Job", {"cleanPodPolicy": "All"}, "cleanPodPolicy: a Job has none"),
        ("Job", {"roles": {"Master": {"replicas": 1}}}, "Job has no role 'Master'; known: Worker"),
        ("PyTorchJob", {"restartPolicy": "Sometimes"}, "'Always', 'OnFailure', 'Never' or 'ExitCode'"),
        ("PyTorchJob", {"cleanPodPolicy": "Some"}, "'All', 'Running' or 'None'"),
        ("PyTorchJob", {"backoffLimit": -1}, "backoffLimit"),
        ("PyTorchJob", {"activeDeadlineSeconds": 0}, "activeDeadlineSeconds"),
        ("PyTorchJob", {"ttlSecondsAfterFinished": -1}, "ttlSecondsAfterFinished"),
        ("PyTorchJob", {"elastic": {"minReplicas": 4, "maxReplicas": 2}}, "elastic.minReplicas is 4, more than maxReplicas 2"),
        ("PyTorchJob", {"elastic": {"minReplicas": 4, "maxReplicas": 8}}, "roles.Worker.replicas is 3, not between"),
        ("TFJob", {"elastic": {"minReplicas": 1, "maxReplicas": 2}}, "elastic: a TFJob cannot be"),
        ("PyTorchJob", {"successPolicy": "AllWorkers"}, "successPolicy: a PyTorchJob has none"),
        (
            "TFJob",
            {"successPolicy": "AllWorkers", "roles": {"Chief": {"replicas": 1}, "Worker": {"replicas": 2}}},
            "with a Chief the job is done when the Chief is",
        ),
        ("TFJob", {"successPolicy": "Most"}, "'Worker0' or 'AllWorkers'"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_told_by_field(kind: str, change: dict[str, Any], words: str) -> None:
    assert words in refused(kind, **change)


def test_a_workload_tells_all_its_mistakes_at_once() -> None:
    said = refused("MPIJob", roles={"Boss": {"replicas": 1}}, restartPolicy="ExitCode")
    assert "no role 'Boss'" in said
    assert "needs Launcher" in said
    assert "restartPolicy ExitCode" in said


def test_a_volume_belongs_to_a_role_and_has_a_name_of_its_own() -> None:
    volume = {"name": "v", "size": "1Gi", "mountPath": "/v", "role": "Master"}
    assert "names role 'Nobody'" in refused(volumes=[{**volume, "role": "Nobody"}])
    assert "volume v is given twice" in refused(volumes=[volume, {**volume, "mountPath": "/w"}])


def test_an_unknown_kind_suggests_the_nearest() -> None:
    with pytest.raises(
        ValidationError, match=r"unknown kind 'PytorchJob' \(did you mean PyTorchJob\?\); known: PyTorchJob"
    ):
        spec(kind="PytorchJob")


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("7b-finetune", "first character must be a letter, not '7'"),
        ("bert.v2", "a dot is not allowed"),
        ("Bert", "only lower case letters are allowed"),
        ("b" * 64, "it has 64 characters and may have 40"),
        ("-bert", "first character must be a letter"),
        ("bert-", "must not end with '-'"),
        ("bert_v2", "'_' is not allowed"),
        ("", "it is empty"),
    ],
)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a17_a_name_that_no_service_can_have_is_refused_with_the_rule(kind: str, name: str, rule: str) -> None:
    """kubeflow/trainer#1745: legal for the object and not for a Service, the job would stay without one."""
    assert rule in refused(kind, name=name)
    assert spec(kind, name="bert-v2").name == "bert-v2"


@settings(deadline=None)  # busy machines
@given(st.text(alphabet="abzAZ019-_.é ", max_size=70))
def test_a17_what_is_refused_is_what_kubernetes_would_refuse(name: str) -> None:
    legal = re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name) is not None and len(name) <= 63
    assert (names.label_problem(name, longest=63) is None) == legal


def test_a_workload_survives_the_store_as_json() -> None:
    before = spec("PyTorchJob", elastic={"minReplicas": 2, "maxReplicas": 4}, ttlSecondsAfterFinished=5)
    assert WorkloadSpec.model_validate_json(before.model_dump_json(by_alias=True)) == before
