"""A workload: one distributed training job, described without a cloud.

A WorkloadSpec file (workload.yaml) looks like this:

    apiVersion: isthmus.dev/v1
    kind: PyTorchJob
    name: ddp-digits
    image: docker.io/isthmus/torch:1
    command: [python3, /opt/isthmus/ddp_digits.py]
    roles:
      Master: {replicas: 1, gpus: 1, cpu: "1", memory: 1Gi}
      Worker: {replicas: 3, gpus: 1, cpu: "1", memory: 1Gi}
    volumes:
      - {name: checkpoints, size: 1Gi, mountPath: /checkpoints, role: Master}
    restartPolicy: OnFailure
    metrics: {accuracy: 0.95}
    cost: {hours: 1, storageGib: 1, egressGib: 0}
"""

from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from isthmus.specs.cluster import GpuCards

KINDS = {"PyTorchJob": ("Master", "Worker")}
"""Kinds we render, each with the role names its operator knows (training-operator v1.9.3, pkg/apis/kubeflow.org/v1)."""

RestartPolicy = Literal["Always", "OnFailure", "Never", "ExitCode"]


class Role(BaseModel):
    """The pods of one role. Amounts are per pod, as Kubernetes quantities; a bare number will do, as in manifests."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    replicas: int = Field(ge=1, le=10_000)
    gpus: int = Field(default=0, ge=0, le=16)
    cpu: str = "1"
    memory: str = "1Gi"


class Volume(BaseModel):
    """A claim mounted by one role (ReadWriteOnce). It outlives the job, so that a run can resume from it."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, coerce_numbers_to_str=True)

    name: str = Field(pattern=r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$")
    size: str
    mount_path: str = Field(alias="mountPath", pattern=r"^/.+")
    role: str


class CostAssumptions(BaseModel):
    """What an estimate of this workload assumes."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    hours: Decimal = Field(default=Decimal(1), gt=0, le=100_000)
    storage_gib: Decimal = Field(default=Decimal(0), ge=0, alias="storageGib")
    object_gib: Decimal = Field(default=Decimal(0), ge=0, alias="objectGib")
    """Data it keeps in the bucket while it runs."""
    egress_gib: Decimal = Field(default=Decimal(0), ge=0, alias="egressGib")
    """Data that must leave the cloud."""


class WorkloadSpec(BaseModel):
    """One distributed job. `gpu` names the card model it is meant for, used by cost and placement; None takes any."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, coerce_numbers_to_str=True)

    api_version: Literal["isthmus.dev/v1"] = Field(alias="apiVersion")
    kind: str
    name: str = Field(pattern=r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$")
    """A DNS-1035 label: the operator makes Services of it (case A17)."""
    image: str
    command: tuple[str, ...]
    env: dict[str, str] = {}
    roles: dict[str, Role] = Field(min_length=1)
    volumes: tuple[Volume, ...] = ()
    restart_policy: RestartPolicy = Field(default="OnFailure", alias="restartPolicy")
    clean_pod_policy: Literal["All", "Running", "None"] = Field(default="None", alias="cleanPodPolicy")
    backoff_limit: int = Field(default=3, ge=0, alias="backoffLimit")
    active_deadline_seconds: int | None = Field(default=None, ge=1, alias="activeDeadlineSeconds")
    gpu: GpuCards | None = None
    """The card model (and cards per node) the workload is meant for; defaults to any model."""
    metrics: dict[str, float] = {}
    """Final metrics a run must reach, for example accuracy 0.95."""
    cost: CostAssumptions = CostAssumptions()

    @property
    def gpus(self) -> int:
        """Cards of all pods together."""
        return sum(role.replicas * role.gpus for role in self.roles.values())

    @property
    def pods(self) -> int:
        """Pods of all roles together."""
        return sum(role.replicas for role in self.roles.values())

    @model_validator(mode="after")
    def _roles_known(self) -> "WorkloadSpec":
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind {self.kind!r}; known: {', '.join(KINDS)}")
        known = KINDS[self.kind]
        for role in self.roles:
            if role not in known:
                raise ValueError(f"{self.kind} has no role {role!r}; known: {', '.join(known)}")
        for volume in self.volumes:
            if volume.role not in self.roles:
                raise ValueError(f"volume {volume.name} names role {volume.role!r}, which the workload does not have")
        return self
