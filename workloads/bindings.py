"""The declared differences between clouds that a manifest may carry, and nothing else.

Everything rendered for one cloud equals what is rendered for another once these are taken out: `isthmus parity` drops
exactly the paths listed here before it compares. To allow one more difference is to add it to this file.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from isthmus.specs.errors import InvalidSpec


@dataclass(frozen=True)
class Binding:
    """What one cloud puts in place of a cloud-free name."""

    cloud: str
    storage_class: str | None
    """Storage class of volume claims; None leaves it to the cluster's default one."""
    node_labels: Mapping[str, str] = field(default_factory=dict)
    """Node labels that pods with cards must also ask for there; empty where isthmus.dev/gpu-model is enough."""
    provides_device_plugin: bool = False
    """Whether the cloud runs the device plugin itself, so that the platform deploys none."""


CLOUDS: Mapping[str, Binding] = MappingProxyType({
    # gp3: the class that infra/aws makes. Its pod identity keeps the link on the cloud's side: no annotation.
    "aws": Binding(cloud="aws", storage_class="gp3"),
    # standard-rwo comes with every GKE cluster; the device plugin is Google's own.
    "gcp": Binding(
        cloud="gcp",
        storage_class="standard-rwo",
        provides_device_plugin=True,
    ),
    "kind": Binding(cloud="kind", storage_class="standard"),
})  # fmt: skip


def for_cloud(cloud: str) -> Binding:
    """The binding of a cloud.

    Raises:
        InvalidSpec: we know no such cloud.
    """
    if cloud not in CLOUDS:
        raise InvalidSpec(
            f"there is no binding for cloud {cloud!r}; known: {', '.join(CLOUDS)}", subject=f"cloud {cloud}"
        )
    return CLOUDS[cloud]


@dataclass(frozen=True)
class Declared:
    """One difference that may be: a path in objects of a kind and name. * matches any kind, name or list index; as the
    whole path it means the object itself."""

    kind: str
    name: str
    path: str
    why: str


ALWAYS: tuple[Declared, ...] = (
    Declared("PersistentVolumeClaim", "*", "spec.storageClassName", "storage class"),
    Declared("ServiceAccount", "*", "metadata.annotations['eks.amazonaws.com/role-arn']", "identity"),
    Declared("ServiceAccount", "*", "metadata.annotations['iam.gke.io/gcp-service-account']", "identity"),
    Declared("StorageClass", "*", "*", "each cloud has its own disks"),
)
DEVICE_PLUGIN: tuple[Declared, ...] = tuple(
    Declared("*", name, "*", "one of the clouds runs the device plugin itself")
    for name in ("nvidia-device-plugin*", "nvidia-mps-control-daemon", "nvidia-mig-manager")
)


def declared(clouds: Iterable[str]) -> tuple[Declared, ...]:
    """What parity leaves out when it compares stacks of these clouds, and tells that it did.

    Raises:
        InvalidSpec: we know no such cloud.
    """
    provided = any(for_cloud(cloud).provides_device_plugin for cloud in clouds)
    return ALWAYS + (DEVICE_PLUGIN if provided else ())
