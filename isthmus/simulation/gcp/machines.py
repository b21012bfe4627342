"""What a GKE node pool's settings mean: its machine, where its nodes are, what they are called, labelled and tainted.

Pure over a node pool's inputs and the catalog. Sources: GKE's node labels and taints as in isthmus/catalog and
karpenter-provider-gcp docs/gpu-nodes.md (2026-08); the rule for the GPU taint is that of case A13.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus import catalog
from isthmus.catalog import mig
from isthmus.simulation.gcp.base import CLOUD_NAME
from isthmus.simulation.resource import CloudError
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.labels import DEVICE_PLUGIN_CONFIG, GPU_TAINT
from isthmus.specs.offer import Purchase, Shape
from isthmus.specs.sharing import GpuSharing
from isthmus.toolchain.values import Properties

DEFAULT_MACHINE = "e2-medium"
TAINT_EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
    "NO_EXECUTE": "NoExecute",
}
AUTOMATIC_TAINT = {"key": GPU_TAINT, "value": "present", "effect": "NO_SCHEDULE"}


def config(inputs: Properties) -> Mapping[str, Any]:
    """The node settings of a pool."""
    return inputs.get("nodeConfig") or {}


def cards(inputs: Properties) -> Mapping[str, Any] | None:
    """The first (GKE takes only one) kind of card of a pool's nodes."""
    found = config(inputs).get("guestAccelerators") or []
    return found[0] if found else None


def machine(inputs: Properties) -> Shape:
    """The machine of a pool, with its cards.

    Raises:
        CloudError: there is no such machine type or accelerator, or they do not go together.
    """
    machine_type, accelerator, known = (
        str(config(inputs).get("machineType", DEFAULT_MACHINE)),
        cards(inputs),
        catalog.load(),
    )
    try:
        plain = known.shape(CLOUD_NAME, machine_type)
    except InvalidSpec as error:
        text = f"Machine type with name '{machine_type}' does not exist"
        raise CloudError("badRequest", text, remedy=error.remedy) from error
    if accelerator is None:
        return plain
    wanted = GpuCards(model=_model(str(accelerator["type"])), count=int(accelerator["count"]))
    try:
        return known.shape(CLOUD_NAME, machine_type, wanted)
    except InvalidSpec as error:
        text = (
            f"[{machine_type}, {wanted.count} x {accelerator['type']}] is not a valid combination of machine type and"
            " accelerators"
        )
        raise CloudError("badRequest", text, remedy=error.remedy) from error


def purchase(inputs: Properties) -> Purchase:
    """Spot (or its predecessor, preemptible) or on demand."""
    return "spot" if config(inputs).get("spot") or config(inputs).get("preemptible") else "on-demand"


def nodes_per_zone(inputs: Properties) -> int:
    """Nodes in each zone: the count asked for, else what an autoscaled pool starts with."""
    for key in ("nodeCount", "initialNodeCount"):
        if inputs.get(key) is not None:
            return int(inputs[key])
    return 0 if inputs.get("autoscaling") else 1


def taints(inputs: Properties, *, automatic: bool) -> list[dict[str, str]]:
    """The taints of a pool's nodes as the API shows them: those asked for, and GKE's own GPU taint.

    Args:
        automatic: whether GKE adds its taint to a pool with cards: only if a pool without cards was there before.
    """
    asked = [dict(taint) for taint in config(inputs).get("taints") or []]
    if cards(inputs) is not None and automatic and AUTOMATIC_TAINT not in asked:
        return [*asked, dict(AUTOMATIC_TAINT)]
    return asked


def node_taints(shown: list[dict[str, str]]) -> tuple[dict[str, str], ...]:
    """Taints as a Node has them, from those the API shows."""
    return tuple(
        {"key": taint["key"], "value": taint["value"], "effect": TAINT_EFFECTS[taint["effect"]]} for taint in shown
    )


def labels(name: str, inputs: Properties) -> dict[str, str]:
    """Every label of a pool's nodes but those of place and machine type."""
    settings = config(inputs)
    found = {
        **settings.get("labels", {}),
        "cloud.google.com/gke-nodepool": name,
        "cloud.google.com/gke-os-distribution": "cos",
        "cloud.google.com/gke-container-runtime": "containerd",
        "cloud.google.com/machine-family": machine(inputs).family.partition("-")[0],
        "cloud.google.com/gke-provisioning": "spot" if purchase(inputs) == "spot" else "standard",
    }
    if settings.get("diskType"):
        found["cloud.google.com/gke-boot-disk"] = str(settings["diskType"])
    if settings.get("spot"):
        found["cloud.google.com/gke-spot"] = "true"
    if (settings.get("workloadMetadataConfig") or {}).get("mode") == "GKE_METADATA":
        found["iam.gke.io/gke-metadata-server-enabled"] = "true"
    accelerator = cards(inputs)
    return {**found, **_card_labels(accelerator)} if accelerator is not None else found


def _card_labels(accelerator: Mapping[str, Any]) -> dict[str, str]:
    driver = (accelerator.get("gpuDriverInstallationConfig") or {}).get("gpuDriverVersion", "DEFAULT")
    found = {
        "cloud.google.com/gke-accelerator": str(accelerator["type"]),
        "cloud.google.com/gke-accelerator-count": str(accelerator["count"]),
        "cloud.google.com/gke-gpu": "true",
        "cloud.google.com/gke-gpu-driver-version": {"INSTALLATION_DISABLED": "disabled"}.get(driver, driver.lower()),
    }
    if accelerator.get("gpuPartitionSize"):
        found["cloud.google.com/gke-gpu-partition-size"] = str(accelerator["gpuPartitionSize"])
    if shared := accelerator.get("gpuSharingConfig"):
        found["cloud.google.com/gke-gpu-sharing-strategy"] = str(shared["gpuSharingStrategy"]).lower().replace("_", "-")
        found["cloud.google.com/gke-max-shared-clients-per-gpu"] = str(shared["maxSharedClientsPerGpu"])
    # Not GKE's: how our stand-in for its device plugin knows which configuration the node uses.
    name = sharing(accelerator).config_name
    return {**found, **({DEVICE_PLUGIN_CONFIG: name} if name else {})}


def sharing(accelerator: Mapping[str, Any]) -> GpuSharing:
    """How GKE shares the cards of a pool: whole or cut into equal instances that fill them, each for several clients.

    Raises:
        CloudError: the partition size, the number of clients or their combination is not possible.
    """
    shared = accelerator.get("gpuSharingConfig") or {}
    clients, partition = int(shared.get("maxSharedClientsPerGpu", 1)), accelerator.get("gpuPartitionSize")
    known = catalog.load()
    least, most = known.sharing_limit("gke_clients_least").value, known.sharing_limit("gke_clients_most").value
    if shared and not least <= clients <= most:
        raise CloudError("badRequest", f"max_shared_clients_per_gpu must be between {least} and {most}, not {clients}.")
    if partition is None:
        if not shared:
            return GpuSharing()
        if shared["gpuSharingStrategy"] == "MPS":
            return GpuSharing(mode="mps", clients=clients)
        return GpuSharing(mode="time-slicing", replicas=clients)
    if shared.get("gpuSharingStrategy") == "MPS":
        raise CloudError("badRequest", "NVIDIA MPS is not supported with multi-instance GPU partitions.")
    try:
        count = mig.full(known, _model(str(accelerator["type"])), str(partition))
    except InvalidSpec as error:
        text = f"GPU partition size {partition} is not supported for {accelerator['type']}."
        raise CloudError("badRequest", text, remedy=error.message) from error
    return GpuSharing(mode="mig", strategy="single", layout={str(partition): count}, replicas=clients)


def _model(accelerator: str) -> str:
    """The catalog's model of an accelerator type."""
    known = {gpu.gke_accelerator: gpu.model for gpu in catalog.load().gpus() if gpu.gke_accelerator}
    if accelerator not in known:
        raise CloudError("badRequest", f'Accelerator type "{accelerator}" does not exist.')
    return known[accelerator]
