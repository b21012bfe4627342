"""The operators of training jobs: which a stack has, and what we change of the MPI operator's manifests."""

from typing import Any

import pytest
import yaml

from isthmus.specs.errors import Refused
from isthmus.specs.kinds import KINDS
from isthmus.specs.stack import StackSettings
from isthmus.specs.workload import WorkloadSpec
from operators import mpi_operator, trainer, training, training_operator

UPSTREAM = list(
    yaml.safe_load_all("""
apiVersion: v1
kind: Namespace
metadata: {name: mpi-operator}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: mpi-operator, namespace: mpi-operator}
spec:
  template:
    spec:
      containers:
      - args: [-alsologtostderr, --lock-namespace=mpi-operator]
        image: mpioperator/mpi-operator:0.8.0
        name: mpi-operator
""")
)


def test_the_mpi_operator_is_upstreams_with_limits_and_without_privileges() -> None:
    space, deployment = mpi_operator.manifests(upstream=UPSTREAM)
    assert space["metadata"]["labels"]["isthmus.dev/managed-by"] == "isthmus"
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == mpi_operator.IMAGE
    assert container["args"][:2] == ["-alsologtostderr", "--lock-namespace=mpi-operator"]
    assert "--kube-api-qps=50" in container["args"]
    assert container["securityContext"]["runAsNonRoot"] is True
    assert "resources" not in UPSTREAM[1]["spec"]["template"]["spec"]["containers"][0], "upstream's is left as it is"


def test_every_kind_has_an_operator_that_a_stack_can_list() -> None:
    wanted = {kind.operator for kind in KINDS.values()} - {""}
    assert wanted | {"trainer"} == set(training.OPERATORS)
    assert StackSettings.model_fields["operators"].default == ("training-operator",)
    ours = {kind.name for kind in KINDS.values() if kind.operator == "training-operator"}
    assert ours <= set(training_operator.KINDS)
    assert "MPIJob" not in training_operator.KINDS, "one name, one type: the MPI operator's"


def spec(kind: str, roles: dict[str, Any]) -> WorkloadSpec:
    values = {"apiVersion": "isthmus.dev/v1", "name": "train", "image": "i:1", "command": ["true"]}
    return WorkloadSpec.model_validate(values | {"kind": kind, "roles": roles})


def test_a_sample_without_its_operator_is_refused_by_name() -> None:
    ring = spec("MPIJob", {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}})
    with pytest.raises(Refused, match="train is a MPIJob, and the stack does not have mpi-operator") as caught:
        training.check([ring], ("training-operator",), stack="aws-sim")
    assert caught.value.remedy == "list mpi-operator under isthmus:operators in stacks/Pulumi.aws-sim.yaml"
    training.check([ring, spec("Job", {"Worker": {"replicas": 1}})], ("mpi-operator",), stack="aws-sim")


TRAINER = list(
    yaml.safe_load_all("""
apiVersion: apps/v1
kind: Deployment
metadata: {name: kubeflow-trainer-controller-manager}
spec:
  template:
    spec:
      containers:
      - name: manager
        image: ghcr.io/kubeflow/trainer/trainer-controller-manager
        readinessProbe: {initialDelaySeconds: 10}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kubeflow-trainer-controller-manager}
subjects: [{kind: ServiceAccount, name: kubeflow-trainer-controller-manager}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: validator.trainer.kubeflow.org}
webhooks: [{name: a, clientConfig: {service: {name: s, namespace: system}}}]
""")
)


def test_trainers_parts_are_put_where_upstreams_overlay_puts_them() -> None:
    items = {item["kind"]: item for item in trainer.trainer_manifests(TRAINER)}
    assert items["Namespace"]["metadata"]["name"] == "kubeflow-system"
    assert items["Deployment"]["metadata"]["namespace"] == "kubeflow-system"
    assert items["Secret"]["metadata"]["namespace"] == "kubeflow-system"
    assert "namespace" not in items["ClusterRoleBinding"]["metadata"]
    assert items["ClusterRoleBinding"]["subjects"][0]["namespace"] == "kubeflow-system"
    hook = items["ValidatingWebhookConfiguration"]["webhooks"][0]
    assert hook["clientConfig"]["service"]["namespace"] == "kubeflow-system"
    (container,) = items["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == trainer.IMAGE
