"""A workload: one distributed training job, described without a cloud.

Its kind is one of isthmus.specs.kinds, and isthmus.specs.rules says what each kind allows. A WorkloadSpec file
(workload.yaml) looks like this:

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
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from isthmus.specs import names, rules
from isthmus.specs.cluster import GpuCards
from isthmus.specs.kinds import KINDS, Kind
from isthmus.specs.labels import GPU_RESOURCE
from isthmus.specs.sharing import WorkloadClaim

RestartPolicy = Literal["Always", "OnFailure", "Never", "ExitCode"]
CleanPodPolicy = Literal["All", "Running", "None"]

LONGEST_NAME = 40
"""Pods and Services add the run's id, the role and a number (-abc123-evaluator-9999), and may have 63 characters."""


class Role(BaseModel):
    """The pods of one role. Amounts are per pod, as Kubernetes quantities; a bare number will do, as in manifests."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    replicas: int = Field(ge=1, le=10_000)
    gpus: int = Field(default=0, ge=0, le=16)
    """Cards, or shares of cards where the nodes share them."""
    resource: str = Field(default=GPU_RESOURCE, pattern=r"^nvidia\.com/(gpu|mig-\d+g\.\d+gb)(\.shared)?$")
    """What `gpus` counts: nvidia.com/gpu, nvidia.com/gpu.shared (renamed), nvidia.com/mig-1g.5gb (strategy mixed)."""
    claims: tuple[str, ...] = ()
    """Names of the workload's claims that each pod holds (sharing mode dra)."""
    cpu: str = "1"
    memory: str = "1Gi"
    command: tuple[str, ...] = ()
    """What its pods run, where that is not the workload's own command. An MPIJob's workers wait for the launcher, by
    default with the operator's `/usr/sbin/sshd -De`."""
    env: dict[str, str] = {}
    """Laid over the workload's environment."""

    @property
    def on_cards(self) -> bool:
        """Whether its pods hold cards or parts of them."""
        return bool(self.gpus or self.claims)


class Elastic(BaseModel):
    """Bounds between which a job goes on with fewer or more workers than it asks for."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    min_replicas: int = Field(alias="minReplicas", ge=1, le=10_000)
    max_replicas: int = Field(alias="maxReplicas", ge=1, le=10_000)
    max_restarts: int = Field(default=10, alias="maxRestarts", ge=0)
    """How often all workers may meet anew: after each loss, and each time one joins."""


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
    name: str
    """A DNS-1035 label of at most LONGEST_NAME characters: the operators make Services of it (case A17)."""
    image: str
    command: tuple[str, ...]
    env: dict[str, str] = {}
    roles: dict[str, Role] = Field(min_length=1)
    volumes: tuple[Volume, ...] = ()
    restart_policy: RestartPolicy = Field(default="OnFailure", alias="restartPolicy")
    clean_pod_policy: CleanPodPolicy | None = Field(default=None, alias="cleanPodPolicy")
    """Which pods go once the job is over; without it as the kind has it (Kind.clean_pod_policy)."""
    backoff_limit: int = Field(default=3, ge=0, alias="backoffLimit")
    active_deadline_seconds: int | None = Field(default=None, ge=1, alias="activeDeadlineSeconds")
    ttl_seconds: int | None = Field(default=None, ge=0, alias="ttlSecondsAfterFinished")
    """How long the job stays once it is over; without it until somebody deletes it."""
    success_policy: Literal["Worker0", "AllWorkers"] | None = Field(default=None, alias="successPolicy")
    """TFJob without a Chief: done when worker 0 is (as the operator has it), or only when all workers are."""
    elastic: Elastic | None = None
    """PyTorchJob: go on with fewer workers when some are lost."""
    gpu: GpuCards | None = None
    """The card model (and cards per node) the workload is meant for; defaults to any model."""
    claims: tuple[WorkloadClaim, ...] = ()
    """Claims on cards that roles may name (Dynamic Resource Allocation)."""
    metrics: dict[str, float] = {}
    """Final metrics a run must reach, for example accuracy 0.95."""
    cost: CostAssumptions = CostAssumptions()
    manifest: dict[str, Any] | None = None
    """A user's own manifest (workloads/manifest.py), which is applied as it is; the other fields say what is in it. Not a
    field of workload files."""
    runtime: dict[str, Any] | None = None
    """The TrainingRuntime that a user's TrainJob brings in the same file; as `manifest`."""

    @property
    def gpus(self) -> int:
        """Cards, or shares of cards, that all pods together ask the device plugin for."""
        return sum(role.replicas * role.gpus for role in self.roles.values())

    @property
    def on_cards(self) -> bool:
        """Whether any of its pods holds cards or parts of them."""
        return any(role.on_cards for role in self.roles.values())

    def claims_of(self, role: str) -> list[WorkloadClaim]:
        """The claims that each pod of a role holds."""
        return [claim for claim in self.claims if claim.name in self.roles[role].claims]

    def holders(self, claim: WorkloadClaim) -> int:
        """Pods that name a claim."""
        return sum(role.replicas for role in self.roles.values() if claim.name in role.claims)

    @property
    def pods(self) -> int:
        """Pods of all roles together."""
        return sum(role.replicas for role in self.roles.values())

    @property
    def form(self) -> Kind:
        """What its kind is."""
        return KINDS[self.kind]

    @field_validator("kind")
    @classmethod
    def _kind_known(cls, kind: str) -> str:
        if kind not in KINDS:
            near = names.nearest(kind, KINDS)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ValueError(f"unknown kind {kind!r}{hint}; known: {', '.join(KINDS)}")
        return kind

    @field_validator("name")
    @classmethod
    def _name_legal(cls, name: str) -> str:
        problem = names.label_problem(name, longest=LONGEST_NAME)
        if problem:
            raise ValueError(f"{name!r} cannot be the name of a Service: {problem}")
        return name

    @model_validator(mode="after")
    def _keeps_the_rules(self) -> "WorkloadSpec":
        problems = rules.problems(self)
        if problems:
            raise ValueError("; ".join(problems))
        return self
