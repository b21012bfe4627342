"""The settings of a stack: the one place that knows their names, defaults and checks.

Settings live in stacks/Pulumi.<stack>.yaml under `config`, keys prefixed `isthmus:`. There is no Autopilot setting,
and the schema refuses unknown keys (case A05: node settings do not apply to GKE Autopilot clusters).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from isthmus.specs.cluster import NAME_PATTERN, ClusterSpec, NodePool
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.names import unknown

CONFIG_DIR = "stacks"
PROJECT = "isthmus"

Mode = Literal["real", "simulated"]
CloudName = Literal["aws", "gcp", "kind"]
TrainingOperator = Literal["training-operator", "mpi-operator", "trainer"]

SIMULATED_PLUGIN_VERSION = "0.1.0"
"""The provider plugin version that stands for a simulated cloud. `isthmus install` puts a plugin of that version under
PULUMI_HOME/plugins; no published pulumi-aws or pulumi-gcp has it among those the SDKs in use can ask for."""


LOCAL_PLUGIN_VERSION = "0.1.0"
"""The version of our own provider plugin for the kind cloud, which `isthmus install` puts beside the others."""


class StackSettings(BaseModel):
    """One stack: which cloud, where, which pools, and what is deployed on top."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    cloud: CloudName
    mode: Mode = "real"
    account: str = Field(pattern=r"^[a-z]([-a-z0-9]{4,28}[a-z0-9])$|^default$")
    """AWS: the credentials profile. GCP: the project. A simulated account is known by the same name."""
    region: str
    zones: tuple[str, ...] = Field(min_length=1, max_length=6)
    cluster_name: str = Field(default="isthmus", alias="clusterName", pattern=NAME_PATTERN)
    kubernetes_version: str = Field(default="1.36", alias="kubernetesVersion", pattern=r"^1\.\d+$")
    system_pool: NodePool = Field(alias="systemPool")
    gpu_pools: tuple[NodePool, ...] = Field(default=(), alias="gpuPools")
    deletion_protection: bool = Field(default=True, alias="deletionProtection")
    """Cloud and engine refuse to delete or replace the cluster, and buckets with objects stay. Turn it off to tear down."""
    nat_per_zone: bool = Field(default=False, alias="natPerZone")
    """AWS: a NAT gateway in every zone instead of one for all. Survives the loss of a zone; costs two more hourly prices."""
    admins: tuple[str, ...] = ()
    """Who may administer the cluster besides the one who creates it. AWS: IAM role or user ARNs. GCP: IAM members
    (user:..., group:...)."""
    operators: tuple[TrainingOperator, ...] = ("training-operator",)
    """Who runs training jobs: training-operator (PyTorchJob, TFJob, XGBoostJob, JAXJob), mpi-operator (MPIJob; its program
    comes by `isthmus install mpi`), trainer (what `isthmus convert` makes; `isthmus install trainjob`). A batch Job needs
    none."""
    samples: tuple[str, ...] = ()
    """Names under workloads/samples that `up` itself deploys."""
    cost_report: bool = Field(default=False, alias="costReport")
    """Write the samples' cost comparison as a stack output and a ConfigMap."""

    data_stays: Literal["anywhere", "cloud", "region"] = Field(default="anywhere", alias="dataStays")
    """Where the data of this stack may be taken: `isthmus migrate` refuses to move them out of their cloud, or region."""
    runtime: Literal["embedded", "kind"] | None = None
    """What runs the local cluster behind a simulated control plane; by default the first that can run here. Read by the
    pulumi launcher, which tells the far side: it is no input of any resource."""

    @property
    def cluster(self) -> ClusterSpec:
        """The cluster these settings ask for."""
        return ClusterSpec(
            name=self.cluster_name,
            region=self.region,
            zones=self.zones,
            kubernetes_version=self.kubernetes_version,
            system_pool=self.system_pool,
            gpu_pools=self.gpu_pools,
        )

    @property
    def provider_version(self) -> str | None:
        """Version of the cloud's provider plugin: None is the SDK's own (real)."""
        return SIMULATED_PLUGIN_VERSION if self.mode == "simulated" else None

    @model_validator(mode="after")
    def _cluster_valid(self) -> "StackSettings":
        _ = self.cluster
        if self.runtime is not None and self.mode == "real":
            raise ValueError("runtime is for simulated clouds; a real one runs its clusters itself")
        if self.cost_report and not self.samples:
            raise ValueError("costReport compares the samples: name at least one under samples")
        if len(set(self.operators)) < len(self.operators):
            raise ValueError("operators: one is named twice")
        return self


def parse(values: Mapping[str, Any], *, origin: str) -> StackSettings:
    """Settings from a plain mapping.

    Args:
        values: setting name (without the isthmus: prefix) to value, already decoded from YAML or JSON.
        origin: what to name in an error: the file or the stack.

    Raises:
        InvalidSpec: an unknown, missing or ill-formed setting; the message names each one.
    """
    try:
        return StackSettings.model_validate(dict(values))
    except ValidationError as error:
        problems = "; ".join(_problem(item) for item in error.errors())
        raise InvalidSpec(
            f"the stack settings are not valid: {problems}", subject=origin, remedy=f"edit {origin}"
        ) from error


def from_config(config: Mapping[str, str], *, stack: str) -> StackSettings:
    """Settings from the configuration the engine hands the program, so that `pulumi up -c isthmus:region=...` counts.

    Args:
        config: every configuration key with its prefix; structured values are JSON.
        stack: the stack's name, for errors.
    """
    prefix = f"{PROJECT}:"
    own = {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}
    origin = f"{CONFIG_DIR}/Pulumi.{stack}.yaml"
    return parse({key: _decoded(key, value, origin) for key, value in own.items()}, origin=origin)


def _decoded(key: str, value: str, origin: str) -> Any:
    if value[:1] not in {"{", "["}:
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise InvalidSpec(f"{key} is not valid JSON: {error}", subject=origin, remedy=f"edit {origin}") from error


def load(root: Path, stack: str) -> StackSettings:
    """The settings of a stack from its file under `root`/stacks.

    Raises:
        InvalidSpec: there is no such stack (the nearest names are given), its file is not valid YAML (file and line named),
            or a setting is wrong.
    """
    path = root / CONFIG_DIR / f"Pulumi.{stack}.yaml"
    if not path.is_file():
        raise unknown("stack", stack, names(root))
    shown = f"{CONFIG_DIR}/{path.name}"
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidSpec(f"{shown}{_where(error)}", subject=shown, remedy=f"edit {shown}") from error
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict):
        raise InvalidSpec(f"{shown} has no config section", subject=shown, remedy=f"edit {shown}")
    prefix = f"{PROJECT}:"
    return parse(
        {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}, origin=shown
    )


def _where(error: Exception) -> str:
    """Line and problem of a YAML error, as far as it knows them."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or error
    return f", line {mark.line + 1}: {problem}" if mark else f": {problem}"


def names(root: Path) -> list[str]:
    """The stacks that have a settings file, sorted."""
    return sorted(
        path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in (root / CONFIG_DIR).glob("Pulumi.*.yaml")
    )


def _problem(item: Any) -> str:
    where = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return f"there is no setting {where!r}"
    return f"{where}: {item['msg']}" if where else str(item["msg"])
