"""A node's cards as Dynamic Resource Allocation knows them: devices, and the ResourceSlices that publish them. Pure.

Names and attributes are those of NVIDIA's driver (kubernetes-sigs/dra-driver-nvidia-gpu, cmd/gpu-kubelet-plugin), so that
claims and selectors written for it hold here. A card with MIG is published whole and as every instance that it can be cut
into; counters of its memory slices keep the scheduler from giving out two that overlap (KEP-4815, on by default in
Kubernetes 1.36). Every card is published a second time for the vfio driver; a counter keeps the two apart, where NVIDIA's
driver takes the other back when one is prepared. Their names here (gpu-vfio-0) are ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.catalog import Catalog
from isthmus.catalog.facts import Gpu, MigProfile
from isthmus.kube.claims import API, DRIVER
from isthmus.specs.cluster import GpuCards

Object = dict[str, Any]

DEVICES_EACH = 64
"""Devices with counters in one ResourceSlice, and COUNTER_SETS_EACH sets of counters (limits of k8s.io/api v0.36.4)."""
COUNTER_SETS_EACH = 3


@dataclass(frozen=True)
class Device:
    """A card, or an instance that it can be cut into."""

    name: str
    gpu: Gpu
    index: int
    """The card's, on the node."""
    uuid: str
    """The card's."""
    slices: int
    """The card's memory slices; 0 without MIG."""
    profile: MigProfile | None = None
    start: int = 0
    """The instance's first memory slice."""
    raw: bool = False
    """For the vfio driver."""

    @property
    def pci_bus_id(self) -> str:
        """The card's PCI address, as the driver root has it."""
        return f"0000:{self.index + 1:02x}:00.0"


def devices(facts: Catalog, cards: Sequence[GpuCards], uuids: Sequence[str]) -> list[Device]:
    """Every device of a node.

    Args:
        cards: in the order of the node's cards.
        uuids: the cards' UUIDs, in the same order.
    """
    models = [facts.gpu(group.model) for group in cards for _ in range(group.count)]
    found: list[Device] = []
    for index, (gpu, uuid) in enumerate(zip(models, uuids, strict=True)):
        profiles = facts.mig_profiles(gpu.model)
        slices = max((profile.memory_slices for profile in profiles), default=0)
        found.append(Device(f"gpu-{index}", gpu, index, uuid, slices))
        found.append(Device(f"gpu-vfio-{index}", gpu, index, uuid, slices, raw=True))
        for profile in profiles:
            words = profile.profile.replace(".", "-").replace("+", "-")
            found += [
                Device(f"gpu-{index}-mig-{words}-{start}", gpu, index, uuid, slices, profile, start)
                for start in profile.placements
            ]
    return found


def resource_slices(node: str, found: Sequence[Device], *, driver_version: str, cuda: tuple[int, int]) -> list[Object]:
    """The ResourceSlices of a node: the counters of its cards first, then its devices."""
    sets = [_counters(device) for device in found if device.profile is None and not device.raw]
    parts: list[Object] = [
        {"sharedCounters": sets[at : at + COUNTER_SETS_EACH]} for at in range(0, len(sets), COUNTER_SETS_EACH)
    ]
    items = [_device(device, driver_version, cuda) for device in found]
    parts += [{"devices": items[at : at + DEVICES_EACH]} for at in range(0, len(items), DEVICES_EACH)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": len(parts)}
    return [
        {
            "apiVersion": API,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-{DRIVER}-{number}"},
            "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, **part},
        }
        for number, part in enumerate(parts)
    ]


MEDIA = "media-extensions"
"""The counter of what only one instance of a card can have: the +me of a profile. Of a card without MIG it stands for the
card."""


def _counters(card: Device) -> Object:
    return {"name": _set(card), "counters": {name: {"value": "1"} for name in _taken(card)}}


def _taken(device: Device) -> list[str]:
    """The counters that a device uses up."""
    profile = device.profile
    if profile is None:
        return [*(f"memory-slice-{number}" for number in range(device.slices)), MEDIA]
    slices = range(device.start, device.start + profile.memory_slices)
    return [*(f"memory-slice-{number}" for number in slices), *([MEDIA] if profile.profile.endswith("+me") else [])]


def _set(device: Device) -> str:
    return f"gpu-{device.index}-counter-set"


def _device(device: Device, driver_version: str, cuda: tuple[int, int]) -> Object:
    gpu, profile = device.gpu, device.profile
    counters = {name: {"value": "1"} for name in _taken(device)}
    consumed = [{"counterSet": _set(device), "counters": counters}]
    if device.raw:
        raw = {
            "type": {"string": "vfio"},
            "productName": {"string": gpu.nvml_name},
            "uuid": {"string": device.uuid},
            "vendorID": {"string": "0x10de"},
            "deviceID": {"string": f"{gpu.pci_device_id:#06x}"},
            "resource.kubernetes.io/pciBusID": {"string": device.pci_bus_id},
        }
        capacity = {"addressableMemory": {"value": f"{gpu.memory_mib}Mi"}}
        return {"name": device.name, "attributes": raw, "capacity": capacity, "consumesCounters": consumed}
    attributes: Object = {
        "type": {"string": "gpu" if profile is None else "mig"},
        "productName": {"string": gpu.nvml_name},
        "brand": {"string": gpu.nvml_name.split(" ")[0].capitalize()},
        "architecture": {"string": gpu.architecture},
        "cudaComputeCapability": {"version": f"{gpu.compute_capability}.0"},
        "driverVersion": {"version": ".".join(str(int(part)) for part in driver_version.split("."))},
        "cudaDriverVersion": {"version": f"{cuda[0]}.{cuda[1]}.0"},
    }
    if profile is None:
        attributes["uuid"] = {"string": device.uuid}
        capacity = {"memory": {"value": f"{gpu.memory_mib}Mi"}}
    else:
        attributes["parentUUID"] = {"string": device.uuid}
        attributes["profile"] = {"string": profile.profile}
        capacity = {"memory": {"value": f"{profile.memory_mib}Mi"}, "multiprocessors": {"value": str(profile.sms)}}
    return {"name": device.name, "attributes": attributes, "capacity": capacity, "consumesCounters": consumed}
