"""The kinds of job a workload may be, as data: who runs each, its roles, and how its pods are told apart.

Sources: training-operator v1.9.3 (pkg/apis/kubeflow.org/v1, pkg/webhooks), mpi-operator v0.8.0 (pkg/apis/kubeflow/v2beta1,
pkg/apis/kubeflow/validation), trainer v2.2.0 (pkg/apis/trainer/v1alpha1, pkg/constants), Kubernetes 1.36 (batch/v1).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

RESTART_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
"""Restart policies of a role. ExitCode: 0 is done, 1 to 127 a permanent error, 128 to 255 is tried again."""

REPLICA_TYPE_LABEL = "training.kubeflow.org/replica-type"
REPLICA_INDEX_LABEL = "training.kubeflow.org/replica-index"
_JOB_LABEL = "training.kubeflow.org/job-name"


@dataclass(frozen=True)
class Kind:
    """One kind of job."""

    name: str
    api_version: str
    plural: str
    operator: str
    """Who runs it: a name of the stack setting `operators`; "" for Kubernetes itself."""
    roles: tuple[str, ...]
    """Names of the roles, in the order of ranks."""
    needs: tuple[str, ...]
    """At least one of these roles must be there."""
    alone: tuple[str, ...] = ()
    """Roles of exactly one pod."""
    container: str = ""
    """The container's name that the operator looks for; "" where any will do."""
    replicas_field: str = ""
    """Where in the job's spec its roles are; "" for a kind with one pod template."""
    restart_policies: tuple[str, ...] = RESTART_POLICIES
    clean_pod_policy: str = "None"
    """What is done with pods once the job is over, where the workload does not say; "" if the kind has no such policy."""
    job_label: str = _JOB_LABEL
    """Label of its pods that names the job."""


KINDS: Mapping[str, Kind] = MappingProxyType({
    kind.name: kind
    for kind in (
        Kind(
            name="PyTorchJob", api_version="kubeflow.org/v1", plural="pytorchjobs", operator="training-operator",
            roles=("Master", "Worker"), needs=("Master",), alone=("Master",),
            container="pytorch", replicas_field="pytorchReplicaSpecs",
        ),
        Kind(
            name="TFJob", api_version="kubeflow.org/v1", plural="tfjobs", operator="training-operator",
            roles=("Chief", "Master", "PS", "Worker", "Evaluator"), needs=("Chief", "Master", "Worker"),
            alone=("Chief", "Master", "Evaluator"), container="tensorflow", replicas_field="tfReplicaSpecs",
        ),
        Kind(
            name="XGBoostJob", api_version="kubeflow.org/v1", plural="xgboostjobs", operator="training-operator",
            roles=("Master", "Worker"), needs=("Master",), alone=("Master",),
            container="xgboost", replicas_field="xgbReplicaSpecs",
        ),
        Kind(
            name="JAXJob", api_version="kubeflow.org/v1", plural="jaxjobs", operator="training-operator",
            roles=("Worker",), needs=("Worker",), container="jax", replicas_field="jaxReplicaSpecs",
        ),
        Kind(
            name="MPIJob", api_version="kubeflow.org/v2beta1", plural="mpijobs", operator="mpi-operator",
            roles=("Launcher", "Worker"), needs=("Launcher",), alone=("Launcher",), replicas_field="mpiReplicaSpecs",
            restart_policies=("Never", "OnFailure"),
            # Its workers wait for connections and never end by themselves.
            clean_pod_policy="Running",
        ),
        Kind(
            name="TrainJob", api_version="trainer.kubeflow.org/v1alpha1", plural="trainjobs", operator="trainer",
            roles=("Node",), needs=("Node",), container="node",
            restart_policies=("OnFailure", "Never", "ExitCode"), clean_pod_policy="",
            job_label="jobset.sigs.k8s.io/jobset-name",
        ),
        Kind(
            name="Job", api_version="batch/v1", plural="jobs", operator="",
            roles=("Worker",), needs=("Worker",), restart_policies=("Never", "OnFailure"), clean_pod_policy="",
            job_label="batch.kubernetes.io/job-name",
        ),
    )
})  # fmt: skip
"""By name."""
