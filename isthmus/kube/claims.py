"""Claims on cards as Kubernetes writes them (Dynamic Resource Allocation, resource.k8s.io/v1). Pure.

Device classes, attributes and parameters are those of NVIDIA's driver (kubernetes-sigs/dra-driver-nvidia-gpu), which the
local nodes' driver answers to as well: one claim serves every cluster.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from isthmus.specs.sharing import DeviceClaim

API = "resource.k8s.io/v1"
DRIVER = "gpu.nvidia.com"
CLASSES = {"gpu": "gpu.nvidia.com", "mig": "mig.nvidia.com", "vfio": "vfio.gpu.nvidia.com"}
"""Names of the device classes, as NVIDIA's chart has them."""

CONFIG_API = "resource.nvidia.com/v1beta1"
_CONFIG_KINDS = {"gpu": "GpuConfig", "mig": "MigDeviceConfig"}

Object = dict[str, Any]


def template(claim: DeviceClaim, metadata: Mapping[str, Any]) -> Object:
    """A claim template: pods name it, and each gets a claim of its own, with the template's labels."""
    marks = {"metadata": {"labels": dict(metadata["labels"])}} if "labels" in metadata else {}
    spec = {**marks, "spec": {"devices": devices(claim)}}
    return {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": dict(metadata), "spec": spec}


def shared(claim: DeviceClaim, metadata: Mapping[str, Any]) -> Object:
    """A claim that several pods name: they share its devices."""
    spec = {"devices": devices(claim)}
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": dict(metadata), "spec": spec}


def devices(claim: DeviceClaim) -> Object:
    """What a claim asks for."""
    selectors = [*claim.selectors]
    if claim.profile:
        selectors.append(f"device.attributes['{DRIVER}'].profile == '{claim.profile}'")
    exactly: Object = {"deviceClassName": CLASSES[claim.device_class], "count": claim.count}
    if selectors:
        exactly["selectors"] = [{"cel": {"expression": text}} for text in selectors]
    found: Object = {"requests": [{"name": "cards", "exactly": exactly}]}
    if claim.same_card:
        parent = "parentUUID" if claim.device_class == "mig" else "uuid"
        found["constraints"] = [{"matchAttribute": f"{DRIVER}/{parent}", "requests": ["cards"]}]
    if claim.strategy:
        parameters = {
            "apiVersion": CONFIG_API,
            "kind": _CONFIG_KINDS[claim.device_class],
            "sharing": _sharing(claim),
        }
        found["config"] = [{"requests": ["cards"], "opaque": {"driver": DRIVER, "parameters": parameters}}]
    return found


def of_pod(pod: Mapping[str, Any]) -> list[str]:
    """Names of the ResourceClaims that a pod holds: those it names, and those made for it from templates."""
    named = (item.get("resourceClaimName") for item in (pod.get("spec") or {}).get("resourceClaims") or ())
    made = (item.get("resourceClaimName") for item in (pod.get("status") or {}).get("resourceClaimStatuses") or ())
    return [str(name) for name in (*named, *made) if name]


def published(slices: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Mapping[str, Any]]:
    """The devices of NVIDIA's driver in ResourceSlices, by pool and name."""
    return {
        (str(item["spec"]["pool"]["name"]), str(device["name"])): device
        for item in slices
        if item["spec"].get("driver") == DRIVER
        for device in item["spec"].get("devices") or ()
    }


def attribute(device: Mapping[str, Any], name: str) -> str:
    """A text attribute of a device; "" where it has none of the name."""
    return str(((device.get("attributes") or {}).get(name) or {}).get("string", ""))


def _sharing(claim: DeviceClaim) -> Object:
    if claim.strategy == "TimeSlicing":
        return {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": claim.interval or "Default"}}
    return {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 100 // (claim.clients or 1)}}
