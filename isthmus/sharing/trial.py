"""Trying a way to share cards on a local node: what the real device plugin makes of it, and what pods get.

The cards come from the driver root, everything above NVML is the real thing: NVIDIA's device plugin, its MPS control
daemon, the kubelet, pods. What a card itself would do - hold a memory limit, slice time - does not happen here.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from isthmus.kube import Cluster, claims, wait
from isthmus.localcluster.runtime import LocalCluster
from isthmus.sharing import offers
from isthmus.specs import labels
from isthmus.specs.cluster import GpuCards, NodePool, cards_of
from isthmus.specs.sharing import GpuSharing
from operators import device_plugin, dra, training_operator

NAMESPACE = labels.RUNS_NAMESPACE
IMAGE = training_operator.INIT_IMAGE

_LOOK = (
    "nvidia-smi -L 2>/dev/null; echo NVIDIA_VISIBLE_DEVICES=$NVIDIA_VISIBLE_DEVICES; "
    'if [ -n "$CUDA_MPS_PIPE_DIRECTORY" ]; then echo CUDA_MPS_PIPE_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY; '
    "printf 'get_default_active_thread_percentage\\nget_default_device_pinned_mem_limit 0\\n' | nvidia-cuda-mps-control; "
    "fi"
)


@dataclass(frozen=True)
class Trial:
    """What one mode came to."""

    resource: str
    """The resource that the pods asked for."""
    node: dict[str, Any]
    """The node's name, NVIDIA labels, capacity and allocatable; of one whose cards are claimed, the devices it publishes."""
    given: tuple[str, ...]
    """What a pod with one share saw."""
    refused: str
    """Why a pod that asked for more was not run."""


def install(kube: Cluster, sharings: Iterable[GpuSharing]) -> list[dict[str, Any]]:
    """Deploy the operators of these ways to share, and claim templates; the objects, for who wants to remove them."""
    cards = GpuCards(model="T4", count=1)  # what the pools have does not matter to the operators
    pools = [NodePool(name=f"pool-{index}", gpu=cards, sharing=item) for index, item in enumerate(sharings)]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": labels.RUNS_NAMESPACE}}
    classes = dra.manifests(pools)
    objects = [*device_plugin.manifests(pools), *([namespace, *classes] if classes else [])]
    for item in objects:
        kube.apply(item)
    return objects


def put(cluster: LocalCluster, kube: Cluster, sharing: GpuSharing, model: str, count: int) -> None:
    """Give the local node these cards, shared so, and wait until it advertises them.

    Raises:
        NotReady: it did not; what it advertises instead is in the message.
    """
    # Before the cards: the node's agent would cut new ones as an old label says.
    kube.patch("v1", "Node", cluster.local_node(), {"metadata": {"labels": {labels.MIG_CONFIG: None}}})
    cluster.set_cards(cards_of(model, count, sharing))
    every = (labels.DEVICE_PLUGIN_CONFIG, labels.MPS_CAPABLE, labels.GPU_SHARING, labels.MIG_CONFIG, labels.MIG_STATE)
    wanted: dict[str, str | None] = dict.fromkeys(every)
    wanted |= {name: value for name, value in sharing.node_labels.items() if name != labels.MIG_MANAGER}
    if sharing.mode == "mig":  # the driver root is cut already: what a MIG manager would have done
        wanted[labels.MIG_STATE] = "success"
    wanted[labels.GPU_MODEL] = model
    kube.patch("v1", "Node", cluster.local_node(), {"metadata": {"labels": wanted}})
    offers.expect_anew(kube, cluster.local_node(), sharing.advertised(count))


def run(cluster: LocalCluster, kube: Cluster, sharing: GpuSharing, model: str, count: int) -> Trial:
    """Put a mode on the node, then run a pod that gets a share and one that asks for too much."""
    put(cluster, kube, sharing, model, count)
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    wait.until(lambda: _has_account(kube), seconds=30, what=f"the service account of {NAMESPACE}")
    good, bad, resource, amount = _pods(sharing, count)
    if sharing.mode == "dra":
        claim = sharing.claims[0].model_copy(update={"name": "more-than-there-are", "count": amount})
        kube.apply(claims.template(claim, {"name": claim.name, "namespace": NAMESPACE}))
    given = _given(kube, good, resource)
    refused = _refused(kube, bad, f"{amount} {resource}")
    node = shown(kube.get("v1", "Node", cluster.local_node()))
    if sharing.mode == "dra":
        node["devices"] = _devices(kube, cluster.local_node())
    return Trial(resource, node, given, refused)


def _devices(kube: Cluster, name: str) -> dict[str, int]:
    """What the DRA driver publishes of a node: type, and profile of MIG devices, to how many there are of it."""
    slices = kube.list(claims.API, "ResourceSlice", fields=f"spec.nodeName={name}")
    found = claims.published(slices).values()
    return dict(
        Counter(f"{claims.attribute(item, 'type')} {claims.attribute(item, 'profile')}".strip() for item in found)
    )


def _pods(sharing: GpuSharing, count: int) -> tuple[dict[str, Any], dict[str, Any], str, int]:
    """A pod that gets a share and one that asks for too much; what they ask for, and how much the second does."""
    if sharing.mode == "dra":
        claim = sharing.claims[0]
        good, bad = claiming("given", claim.name, "sh", "-c", _LOOK), claiming("refused", "more-than-there-are", "true")
        return good, bad, claims.CLASSES[claim.device_class], min(16, count * 8 + 1)
    offered = sharing.advertised(count)
    resource = list(offered)[-1]  # the smallest share
    shared_out = sharing.fail_greater_than_one and sharing.replicas * sharing.clients > 1
    too_many = 2 if shared_out else offered[resource] + 1
    return pod("given", resource, 1, "sh", "-c", _LOOK), pod("refused", resource, too_many, "true"), resource, too_many


def shown(node: dict[str, Any]) -> dict[str, Any]:
    """Of a node object, what sharing is about."""
    found = node["metadata"].get("labels") or {}
    return {
        "name": node["metadata"]["name"],
        "labels": {name: value for name, value in sorted(found.items()) if name.startswith("nvidia.com/")},
        "capacity": offers.advertised(node, "capacity"),
        "allocatable": offers.advertised(node),
    }


def _given(kube: Cluster, good: dict[str, Any], resource: str) -> tuple[str, ...]:
    kube.delete("v1", "Pod", "given", NAMESPACE, grace_seconds=0)
    kube.apply(good)
    phase = wait.until(lambda: _ended(kube, "given"), seconds=offers.SECONDS, what="a pod with one share to end")
    lines = tuple(kube.logs("given", NAMESPACE))
    kube.delete("v1", "Pod", "given", NAMESPACE, grace_seconds=0)
    return (f"{phase['phase']} with 1 {resource}", *lines)


def _refused(kube: Cluster, bad: dict[str, Any], asked: str) -> str:
    kube.delete("v1", "Pod", "refused", NAMESPACE, grace_seconds=0)
    kube.apply(bad)
    reason = wait.until(
        lambda: _refusal(kube), seconds=offers.SECONDS, what=f"a pod that asks for {asked} to be refused"
    )
    kube.delete("v1", "Pod", "refused", NAMESPACE, grace_seconds=0)
    return f"{asked}: {reason}"


def pod(name: str, resource: str, amount: int, *words: str) -> dict[str, Any]:
    """A pod that asks the device plugin for shares and runs a command."""
    return _pod(name, words, {"limits": {resource: str(amount)}})


def claiming(name: str, template: str, *words: str, containers: int = 1, claim: str | None = None) -> dict[str, Any]:
    """A pod whose containers share one claim: one of its own made from a template, or an existing one."""
    made = _pod(name, words, {"claims": [{"name": "cards"}]}, containers)
    source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
    made["spec"]["resourceClaims"] = [{"name": "cards", **source}]
    return made


def _pod(name: str, words: tuple[str, ...], resources: dict[str, Any], containers: int = 1) -> dict[str, Any]:
    names = ["main", *(f"main-{number}" for number in range(1, containers))]
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {"name": each, "image": IMAGE, "command": list(words), "resources": resources} for each in names
        ],
        "tolerations": [{"key": labels.GPU_TAINT, "operator": "Exists"}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def _ended(kube: Cluster, name: str) -> dict[str, Any] | None:
    status: dict[str, Any] = kube.get("v1", "Pod", name, NAMESPACE).get("status", {})
    return status if status.get("phase") in {"Succeeded", "Failed"} else None


def _refusal(kube: Cluster) -> str | None:
    """Why a pod does not run: the kubelet's refusal, or the scheduler's."""
    status = kube.get("v1", "Pod", "refused", NAMESPACE).get("status", {})
    if status.get("reason"):
        return f"{status['reason']}: {status.get('message', '')}"
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{condition['reason']}: {condition['message']}"
    return None


def _has_account(kube: Cluster) -> bool:
    return any(item["metadata"]["name"] == "default" for item in kube.list("v1", "ServiceAccount", NAMESPACE))
