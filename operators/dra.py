"""Cards given out on claim (Dynamic Resource Allocation, resource.k8s.io/v1): device classes and claim templates.

The driver behind them is NVIDIA's on real nodes (Helm chart nvidia-dra-driver-gpu; docs/sharing.md has the command, with
the feature gates that `gates` names) and the node agent on local ones; both answer to the same names. A strategy that a
driver's gate does not allow is rejected as unknown although the field is valid (case A12:
kubernetes-sigs/dra-driver-nvidia-gpu#762), so the gates are worked out here and checked before a claim is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from isthmus.specs import labels
from isthmus.specs.cluster import NodePool
from isthmus.specs.errors import InvalidSpec, Refused
from isthmus.specs.sharing import DeviceClaim
from operators import manifests as helpers
from operators.manifests import Object

if TYPE_CHECKING:
    import pulumi

API = "resource.k8s.io/v1"
DRIVER = "gpu.nvidia.com"
CLASSES = {"gpu": "gpu.nvidia.com", "mig": "mig.nvidia.com"}
"""Names of the device classes, as NVIDIA's chart has them."""

GATES = {"TimeSlicing": "TimeSlicingSettings", "MPS": "MPSSupport"}
"""Sharing strategy to the driver's feature gate for it (PR kubernetes-sigs/dra-driver-nvidia-gpu#1026)."""

CONFIG_API = "resource.nvidia.com/v1beta1"
_CONFIG_KINDS = {"gpu": "GpuConfig", "mig": "MigDeviceConfig"}


def deploy(
    provider: pulumi.ProviderResource, pools: Iterable[NodePool], *, depends_on: Iterable[pulumi.Resource] = ()
) -> list[pulumi.ComponentResource]:
    """Deploy the classes and templates of these pools; nothing where no pool gives out cards on claim."""
    from operators import deploy as deployment

    objects = manifests(pools)
    return [deployment.objects("dra", objects, provider, depends_on=list(depends_on))] if objects else []


def manifests(pools: Iterable[NodePool]) -> list[Object]:
    """The device classes, and the claim templates in the namespace of runs. Pure."""
    claims = {claim.name: claim for pool in pools for claim in pool.sharing.claims}
    if not claims:
        return []
    classes = [_device_class(kind, name) for kind, name in CLASSES.items()]
    return helpers.marked([*classes, *(template(claims[name]) for name in sorted(claims))])


def template(claim: DeviceClaim, namespace: str = labels.RUNS_NAMESPACE) -> Object:
    """A claim template: pods name it, and each gets a claim of its own."""
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": claim.name, "namespace": namespace},
        "spec": {"spec": {"devices": devices(claim)}},
    }


def shared(claim: DeviceClaim, namespace: str = labels.RUNS_NAMESPACE) -> Object:
    """A claim that several pods name: they share its devices."""
    metadata = {"name": claim.name, "namespace": namespace}
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": devices(claim)}}


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


def gates(pools: Iterable[NodePool]) -> list[str]:
    """The feature gates that the claims of these pools need of NVIDIA's driver."""
    return sorted({GATES[claim.strategy] for pool in pools for claim in pool.sharing.claims if claim.strategy})


def check_gates(item: Mapping[str, Any], enabled: Iterable[str]) -> None:
    """Refuse a claim, or a template of claims, whose sharing strategy the driver would reject.

    Args:
        item: the object.
        enabled: the driver's feature gates that are on.

    Raises:
        Refused: names the gate to turn on.
        InvalidSpec: the object is no claim.
    """
    spec = item.get("spec") or {}
    spec = spec.get("spec", spec) if item.get("kind") == "ResourceClaimTemplate" else spec
    if item.get("kind") not in ("ResourceClaim", "ResourceClaimTemplate") or "devices" not in spec:
        raise InvalidSpec("this is neither a ResourceClaim nor a ResourceClaimTemplate", subject=str(item.get("kind")))
    subject = f"{item['kind']} {item['metadata']['name']}"
    for config in spec["devices"].get("config") or ():
        strategy = ((config.get("opaque") or {}).get("parameters") or {}).get("sharing", {}).get("strategy")
        if strategy is None:
            continue
        if strategy not in GATES:
            raise InvalidSpec(
                f"sharing strategy {strategy}; legal: {', '.join(GATES)}", subject=subject, remedy="change it"
            )
        if GATES[strategy] not in set(enabled):
            raise Refused(
                f"the driver rejects strategy {strategy} as unknown unless its feature gate {GATES[strategy]} is on",
                subject=subject,
                remedy=f"turn on featureGates.{GATES[strategy]} of the driver, or --gates {GATES[strategy]} if it is",
            )


def _sharing(claim: DeviceClaim) -> Object:
    if claim.strategy == "TimeSlicing":
        return {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": claim.interval or "Default"}}
    return {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 100 // (claim.clients or 1)}}


def _device_class(kind: str, name: str) -> Object:
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'"
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }
