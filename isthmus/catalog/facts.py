"""What the catalog knows besides machines and their prices. Plain frozen records; every one says where it was read.

`as_of` is the date the source gives for the fact, None where the source has no date. A figure we remember but did not
see is marked "(memory, to verify)" in `source`, one we chose "(assumed)".
"""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import takewhile

from isthmus.specs.offer import Purchase, Shape


@dataclass(frozen=True, slots=True)
class Gpu:
    """A card model as NVML, the GPU operators and the clouds know it."""

    model: str
    aliases: tuple[str, ...]
    nvml_name: str
    """What nvmlDeviceGetName answers."""
    memory_mib: int
    """What nvmlDeviceGetMemoryInfo answers as total."""
    compute_capability: str
    architecture: str
    mig: bool
    pci_device_id: int
    """PCI device id; the vendor is always 0x10de."""
    gke_accelerator: str | None
    """Value of cloud.google.com/gke-accelerator; None where GKE does not sell the card."""
    source: str
    as_of: date | None


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One way to cut a card."""

    gpu_model: str
    profile: str
    profile_id: int
    """The id that nvidia-smi mig -lgip shows."""
    nvml_index: int
    """The number of the profile in NVML's calls (NVML_GPU_INSTANCE_PROFILE_...)."""
    compute_slices: int
    memory_slices: int
    sms: int
    memory_mib: int
    max_instances: int
    placements: tuple[int, ...]
    """Memory slices at which an instance may start."""
    copy_engines: int
    decoders: int
    jpeg: int
    ofa: int
    source: str
    as_of: date | None


@dataclass(frozen=True, slots=True)
class SharingProperty:
    """What one source says about one way to share a card. Sources may disagree: then there is a row for each."""

    mode: str
    """A mode of isthmus.specs.sharing."""
    property: str
    value: str
    source: str
    as_of: date | None


@dataclass(frozen=True, slots=True)
class SharingMeasurement:
    """A published figure of jobs that shared a card. Measured by its source, never by us."""

    mode: str
    what: str
    jobs_on_card: int
    value: Decimal
    unit: str
    gpu: str
    """The card as the source names it, or that it does not."""
    source: str
    as_of: date | None


@dataclass(frozen=True, slots=True)
class SharingLimit:
    """A number that a device plugin or a cloud holds sharing to."""

    name: str
    value: int
    source: str
    as_of: date | None


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone and what can be had there. Capacity at a given moment is not a fact and not kept here."""

    cloud: str
    region: str
    name: str
    families: frozenset[str]
    """Machine families (Shape.family); `*` stands for every one the region has."""
    attachable_gpus: frozenset[str]
    """Models that can be attached to a machine there; `*` for no limit."""
    control_plane: bool
    """Whether a managed control plane can be placed there."""
    source: str
    as_of: date | None

    def has(self, shape: Shape) -> bool:
        """Whether the zone offers this machine, cards included."""
        if "*" not in self.families and shape.family not in self.families:
            return False
        return not shape.cards_apart or "*" in self.attachable_gpus or shape.gpu_model in self.attachable_gpus

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit on what an account may hold at once, and what counts against it."""

    cloud: str
    code: str
    name: str
    unit: str
    """vcpus, gpus, or a kind of thing (clusters, vpcs, nat-gateways, elastic-ips)."""
    purchase: Purchase | None
    """Which purchase option counts against it; None for both."""
    families: frozenset[str]
    """AWS: leading letters of instance types; GCP: machine families by their first part. `*` for all."""
    gpu_model: str | None
    """The card model that is counted; `*` for any."""
    default: int
    scope: str
    """region, zone or global."""
    source: str
    as_of: date | None

    def amount(self, shape: Shape, purchase: Purchase) -> int:
        """How much one machine counts against this quota; 0 when it does not."""
        if self.purchase not in (None, "spot" if purchase == "spot" else "on-demand"):
            return 0
        if self.unit == "gpus":
            counted = shape.gpu_model is not None and self.gpu_model in ("*", shape.gpu_model)
            return shape.gpu_count if counted else 0
        if self.unit == "vcpus":
            return shape.vcpus if "*" in self.families or _bucket(shape) in self.families else 0
        return 0


def _bucket(shape: Shape) -> str:
    if shape.cloud != "aws":
        return shape.family.partition("-")[0]
    return "".join(takewhile(str.isalpha, shape.family))


@dataclass(frozen=True, slots=True)
class ServicePrice:
    """The price of something that is not a machine, in the unit given."""

    cloud: str
    service: str
    item: str
    region: str
    """The region asked for; the row may be one for all regions."""
    value: Decimal | None
    """None: no price is known for this region. Never taken as 0."""
    unit: str
    tier_from_gib: int | None
    """Where the price depends on the monthly amount: the span it holds for, in GiB. None elsewhere."""
    tier_to_gib: int | None
    source: str
    as_of: date | None
    note: str


@dataclass(frozen=True, slots=True)
class Cloud:
    """A cloud that the catalog has prices of."""

    name: str
    title: str
    """As people write it: AWS."""
    node_rule: str
    """Which rule says what a node leaves for pods: a name in isthmus.catalog.allocatable.RULES."""


@dataclass(frozen=True, slots=True)
class Commitment:
    """A price for machines that are paid for a whole term. Exactly one of `usd_per_hour` and `discount` is given."""

    cloud: str
    region: str
    machines: str
    """An instance type, or the family that all its machines start with (n1-standard)."""
    term: Purchase
    usd_per_hour: Decimal | None
    discount: Decimal | None
    """Part of the on-demand price that is taken off."""
    source: str
    as_of: date | None


@dataclass(frozen=True, slots=True)
class ManagedPrice:
    """What a managed training service asks for a machine, next to the machine's own price in the same source."""

    cloud: str
    service: str
    instance_type: str
    region: str
    usd_per_hour: Decimal
    self_managed_usd_per_hour: Decimal
    source: str
    as_of: date | None
    note: str

    @property
    def premium(self) -> Decimal:
        """What it costs more, as a part of the machine's own price: 0.2005 for 0.461 against 0.384."""
        return self.usd_per_hour / self.self_managed_usd_per_hour - 1

    @property
    def saving(self) -> Decimal:
        """What running it yourself saves, as a part of the managed price: 0.167 for the same two."""
        return 1 - self.self_managed_usd_per_hour / self.usd_per_hour


@dataclass(frozen=True, slots=True)
class SpotBand:
    """One of the bands that a cloud gives for how many spot machines are taken back within a month."""

    band: str
    least: Decimal
    most: Decimal | None
    """None: no upper end is given."""
    source: str
    as_of: date | None


@dataclass(frozen=True, slots=True)
class Sku:
    """Which entry of the Cloud Billing Catalog prices which part of a machine, by its description."""

    machines: str
    """A family that instance types start with, or a card's model."""
    part: str
    """core, ram or gpu."""
    description: str
    """What comes before " running in", without what marks spot."""
    source: str
    as_of: date | None


@dataclass(frozen=True, slots=True)
class ResourcePricing:
    """How a type of resource that a plan makes is charged."""

    type: str
    """As Pulumi names it: aws:eks/cluster:Cluster."""
    pricing: str
    """free; use (by use, which no plan knows); unknown (charged, and no price of it is known); else the name of a rule in
    isthmus.costs.plan."""
    what: str
    """What is charged, for a reader."""
    source: str
    as_of: date | None


@dataclass(frozen=True, slots=True)
class HostRate:
    """What a vCPU and a GiB of memory are worth in a region: for dividing a machine's price, never for making one."""

    cloud: str
    region: str
    usd_per_vcpu_hour: Decimal
    usd_per_gib_hour: Decimal
    source: str
    as_of: date | None


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """What an EC2 instance type allows a node (awslabs/amazon-eks-ami) and what Karpenter counts on."""

    instance_type: str
    max_pods: int
    kube_reserved_cpu_m: int
    kube_reserved_memory_mib: int
    allocatable_cpu_m: int
    allocatable_memory_mib: int
    source: str
    as_of: date | None


@dataclass(frozen=True, slots=True)
class SpotAdvice:
    """How often a spot machine is taken back, by AWS's own bands."""

    region: str
    instance_type: str
    savings_pct: int
    interruption: str
    """<5%, 5-10%, 10-15%, 15-20% or >20%."""
    source: str
    as_of: date | None


@dataclass(frozen=True, slots=True)
class Latency:
    """How long a cloud operation takes."""

    cloud: str
    operation: str
    seconds: Decimal
    fidelity: str
    """recorded, documented or assumed."""
    source: str
    as_of: date | None
