"""Cards given out on claim (Dynamic Resource Allocation, resource.k8s.io/v1): device classes and claim templates.

The driver behind them is NVIDIA's on real nodes (Helm chart nvidia-dra-driver-gpu; docs/sharing.md has the command, with
the feature gates that `gates` names) and the node agent on local ones; both answer to the same names. A strategy that a
driver's gate does not allow is rejected as unknown although the field is valid (case A12:
kubernetes-sigs/dra-driver-nvidia-gpu#762), so the gates are worked out here and checked before a claim is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from isthmus.kube import claims
from isthmus.kube.claims import API, CLASSES, DRIVER
from isthmus.specs import labels
from isthmus.specs.cluster import NodePool
from isthmus.specs.errors import InvalidSpec, Refused
from operators import manifests as helpers
from operators.manifests import Object

if TYPE_CHECKING:
    import pulumi

GATES = {"TimeSlicing": "TimeSlicingSettings", "MPS": "MPSSupport"}
"""Sharing strategy to the driver's feature gate for it (PR kubernetes-sigs/dra-driver-nvidia-gpu#1026)."""

PASSTHROUGH = "PassthroughSupport"
"""The gate without which the driver publishes no vfio device (its cmd/gpu-kubelet-plugin)."""


def deploy(
    provider: pulumi.ProviderResource, pools: Iterable[NodePool], *, depends_on: Iterable[pulumi.Resource] = ()
) -> list[pulumi.ComponentResource]:
    """Deploy the classes and templates of these pools; nothing where no pool gives out cards on claim."""
    from operators import deploy as deployment

    objects = manifests(pools)
    return [deployment.objects("dra", objects, provider, depends_on=list(depends_on))] if objects else []


def manifests(pools: Iterable[NodePool]) -> list[Object]:
    """The device classes, and the claim templates in the namespace of runs. Pure."""
    giving = [pool for pool in pools if pool.sharing.mode == "dra"]
    if not giving:
        return []
    classes = [_device_class(kind, name) for kind, name in CLASSES.items()]
    offered = {claim.name: claim for pool in giving for claim in pool.sharing.claims}
    place = {"namespace": labels.RUNS_NAMESPACE}
    templates = [claims.template(claim, {"name": name, **place}) for name, claim in sorted(offered.items())]
    return helpers.marked([*classes, *templates])


def gates(pools: Iterable[NodePool]) -> list[str]:
    """The feature gates that the claims of these pools need of NVIDIA's driver."""
    every = [claim for pool in pools for claim in pool.sharing.claims]
    strategies = {GATES[claim.strategy] for claim in every if claim.strategy}
    return sorted(strategies | ({PASSTHROUGH} if any(claim.device_class == "vfio" for claim in every) else set()))


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
    asked = [str((item.get("exactly") or {}).get("deviceClassName")) for item in spec["devices"].get("requests") or ()]
    if CLASSES["vfio"] in asked and PASSTHROUGH not in set(enabled):
        raise Refused(
            f"the driver publishes no device of class {CLASSES['vfio']} unless its feature gate {PASSTHROUGH} is on",
            subject=subject,
            remedy=f"turn on featureGates.{PASSTHROUGH} of the driver, or --gates {PASSTHROUGH} if it is",
        )
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


def _device_class(kind: str, name: str) -> Object:
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'"
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }
