"""Changing how the nodes of a pool share their cards, in an order that loses nothing unasked.

A card is cut, or its plugin configured anew, only while no pod holds it; and a MIG strategy is changed only when the layout
that it needs is there: the other way round the device plugin crashes (case A10: NVIDIA/gpu-operator#460). So for each node in
turn: cordon, drain, cut, wait for the MIG manager, configure, wait for what the node advertises, uncordon. Every step looks
first whether it is done, and what is under way is marked on the node: a change that was cut short is simply asked for again.

The stack's file says what is wanted; `up` afterwards finds the nodes as it wants them. On GKE there is nothing to do here:
sharing is a field of the node pool, and the cloud makes the pool anew.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from isthmus.kube import Cluster, wait
from isthmus.kube.client import FIELD_MANAGER
from isthmus.sharing import offers
from isthmus.specs import labels
from isthmus.specs.cluster import NodePool
from isthmus.specs.errors import NotFound, NotReady, Refused
from isthmus.specs.sharing import MIG_OFF, GpuSharing
from operators import device_plugin

Action = Literal["cordon", "drain", "layout", "wait-layout", "configure", "wait-node", "uncordon"]

MARK = labels.PREFIX + "sharing-change"
"""Node annotation while a change is under way: what it changes to. Who finds it uncordons the node at the end."""

LAYOUT_SECONDS = 300.0
"""For a MIG manager: it stops GPU clients, cuts and starts them again (assumed; the local one takes a second)."""
DRAIN_SECONDS = 300.0


@dataclass(frozen=True)
class Holder:
    """A pod that holds cards of a node."""

    namespace: str
    name: str
    owner: str
    """What makes another pod in its place, "Job train"; "" for nothing: then it is lost."""

    def __str__(self) -> str:
        fate = f"{self.owner} makes another" if self.owner else "nothing makes another: it is lost"
        return f"{self.namespace}/{self.name} ({fate})"


@dataclass(frozen=True)
class NodeState:
    """A node as far as sharing is concerned."""

    name: str
    labels: dict[str, str]
    advertised: dict[str, int]
    cordoned: bool
    change: str
    """What a change under way changes to; "" for none."""
    holders: tuple[Holder, ...]


@dataclass(frozen=True)
class Step:
    """One step of a plan."""

    node: str
    action: Action
    text: str


def read(kube: Cluster, pool: str) -> list[NodeState]:
    """The nodes of a pool that run containers or stand for such, by name."""
    pods = kube.list("v1", "Pod")
    return [
        _state(node, [pod for pod in pods if pod["spec"].get("nodeName") == node["metadata"]["name"]])
        for node in kube.list("v1", "Node", selector={labels.POOL: pool})
    ]


def plan(nodes: Iterable[NodeState], wanted: GpuSharing, cards: int, *, evict: bool = False) -> tuple[Step, ...]:
    """The steps that bring nodes to a way of sharing, in order; none for nodes that are there. Pure.

    Args:
        cards: cards of each node.
        evict: whether pods that hold cards may be ended.

    Raises:
        Refused: pods hold cards of a node that must change; they are named, and what becomes of each.
    """
    changing = [node for node in nodes if not _is_done(node, wanted, cards)]
    held = [holder for node in changing for holder in node.holders]
    if held and not evict:
        raise Refused(
            f"{len(held)} pods hold cards that would change under them: {', '.join(map(str, held))}",
            subject=f"sharing mode {wanted.mode}",
            remedy="wait until they have ended, or --evict",
        )
    return tuple(step for node in changing for step in _steps(node, wanted, cards))


def prepare(kube: Cluster, pools: Iterable[NodePool]) -> None:
    """Bring the operators that the pools' sharing needs, and their configurations, as the program will deploy them. A
    configuration of another name stays: nodes that have not changed yet use it. Nothing of it is kept as ours afterwards, so
    that the program's own apply finds no other owner."""
    for item in device_plugin.manifests(pools):
        metadata = item["metadata"]
        where = (item["apiVersion"], item["kind"], metadata["name"])
        if item["kind"] == "ConfigMap" and _exists(kube, item):
            kube.patch(*where, {"data": item["data"]}, namespace=metadata["namespace"])
        else:
            kube.apply(item)
        fields = kube.get(*where, metadata.get("namespace"))["metadata"].get("managedFields") or []
        others = [entry for entry in fields if entry.get("manager") != FIELD_MANAGER]
        kube.patch(*where, {"metadata": {"managedFields": others or [{}]}}, namespace=metadata.get("namespace"))


def run(
    kube: Cluster,
    steps: Sequence[Step],
    wanted: GpuSharing,
    cards: int,
    *,
    say: Callable[[str], None],
    played: Callable[[Cluster, str], None] | None = None,
) -> None:
    """Do a plan's steps. Safe to call again after it was cut short, with a new plan.

    Args:
        say: told each step when it begins.
        played: called with a node's name after its labels changed, for nodes whose programs are played by somebody.

    Raises:
        NotReady: a step did not come to its end in time; the node stays cordoned and marked.
    """
    for step in steps:
        say(f"{step.node}: {step.text}")
        _ACTIONS[step.action](kube, step.node, wanted, cards)
        if played is not None and step.action in ("layout", "configure"):
            played(kube, step.node)


def _exists(kube: Cluster, item: dict[str, Any]) -> bool:
    try:
        kube.get(item["apiVersion"], item["kind"], item["metadata"]["name"], item["metadata"].get("namespace"))
    except NotFound:
        return False
    return True


def _state(node: dict[str, Any], pods: Iterable[dict[str, Any]]) -> NodeState:
    metadata = node["metadata"]
    return NodeState(
        name=metadata["name"],
        labels=dict(metadata.get("labels") or {}),
        advertised=offers.advertised(node),
        cordoned=bool(node["spec"].get("unschedulable")),
        change=(metadata.get("annotations") or {}).get(MARK, ""),
        holders=tuple(_holder(pod) for pod in pods if _holds(pod)),
    )


def _holds(pod: dict[str, Any]) -> bool:
    """Whether a pod has cards, by request or by claim, and has not ended."""
    if pod.get("status", {}).get("phase") not in ("Pending", "Running"):
        return False
    containers = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
    limits = (((container.get("resources") or {}).get("limits") or {}) for container in containers)
    return bool(pod["spec"].get("resourceClaims")) or any(
        name.startswith("nvidia.com/") for limit in limits for name in limit
    )


def _holder(pod: dict[str, Any]) -> Holder:
    metadata = pod["metadata"]
    owner = next((item for item in metadata.get("ownerReferences") or () if item.get("controller")), None)
    return Holder(metadata["namespace"], metadata["name"], f"{owner['kind']} {owner['name']}" if owner else "")


def _settings(wanted: GpuSharing) -> dict[str, str | None]:
    """The labels of a way of sharing, and None for those of other ways. The layout has steps of its own."""
    every = (labels.DEVICE_PLUGIN_CONFIG, labels.MPS_CAPABLE, labels.GPU_SHARING)
    return {name: wanted.node_labels.get(name) for name in every}


def _layout(node: NodeState, wanted: GpuSharing) -> str:
    """The layout to cut to, as the MIG manager's label has it; "" where MIG has no part in it, before or after."""
    if wanted.mode == "mig":
        return wanted.layout_name
    return MIG_OFF if node.labels.get(labels.MIG_CONFIG, MIG_OFF) != MIG_OFF else ""


def _is_cut(node: NodeState, wanted: GpuSharing) -> bool:
    layout = _layout(node, wanted)
    return not layout or (node.labels.get(labels.MIG_CONFIG), node.labels.get(labels.MIG_STATE)) == (layout, "success")


def _is_done(node: NodeState, wanted: GpuSharing, cards: int) -> bool:
    # Feature discovery writes `false` where a label of ours is not there.
    found = {name: None if value == "false" else value for name, value in node.labels.items()}
    settled = all(found.get(name) == value for name, value in _settings(wanted).items())
    return settled and not node.change and _is_cut(node, wanted) and node.advertised == wanted.advertised(cards)


def _steps(node: NodeState, wanted: GpuSharing, cards: int) -> list[Step]:
    layout = _layout(node, wanted)
    offered = ", ".join(f"{name}: {count}" for name, count in wanted.advertised(cards).items()) or "nothing"
    texts: list[tuple[Action, str]] = [("cordon", "take no new pods")]
    if node.holders:
        texts.append(("drain", f"end {', '.join(map(str, node.holders))}"))
    if layout and not _is_cut(node, wanted):
        texts.append(("layout", f"cut the cards: {labels.MIG_CONFIG}={layout}"))
        texts.append(("wait-layout", "wait until the MIG manager reports success"))
    texts.append(("configure", f"configure the device plugin: {wanted.config_name or wanted.mode}"))
    texts.append(("wait-node", f"wait until the node advertises {offered}"))
    texts.append(("uncordon", "take pods again"))
    return [Step(node.name, action, text) for action, text in texts]


def _cordon(kube: Cluster, node: str, wanted: GpuSharing, cards: int) -> None:
    mark = {"metadata": {"annotations": {MARK: wanted.config_name or wanted.mode}}}
    kube.patch("v1", "Node", node, {**mark, "spec": {"unschedulable": True}})


def _drain(kube: Cluster, node: str, wanted: GpuSharing, cards: int) -> None:
    for pod in _holding(kube, node):
        kube.delete("v1", "Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])
    wait.until(
        lambda: not _holding(kube, node),
        seconds=DRAIN_SECONDS,
        what=f"the pods that hold cards of {node} to end",
        why=lambda: ", ".join(pod["metadata"]["name"] for pod in _holding(kube, node)),
        subject=f"node {node}",
    )


def _holding(kube: Cluster, node: str) -> list[dict[str, Any]]:
    return [pod for pod in kube.list("v1", "Pod", fields=f"spec.nodeName={node}") if _holds(pod)]


def _cut(kube: Cluster, node: str, wanted: GpuSharing, cards: int) -> None:
    layout = wanted.layout_name or MIG_OFF
    values = {labels.MIG_CONFIG: layout, labels.MIG_STATE: None}  # the state is of the layout before
    kube.patch("v1", "Node", node, {"metadata": {"labels": values}})


def _await_layout(kube: Cluster, node: str, wanted: GpuSharing, cards: int) -> None:
    def state() -> str:
        found = kube.get("v1", "Node", node)["metadata"].get("labels") or {}
        return str(found.get(labels.MIG_STATE, ""))

    answer = wait.until(
        lambda: state() if state() in ("success", "failed") else None,
        seconds=LAYOUT_SECONDS,
        what=f"the MIG manager to cut the cards of {node}",
        why=lambda: f"its state is {state() or 'not set'}",
        subject=f"node {node}",
    )
    if answer == "failed":
        raise NotReady(
            f"the MIG manager could not cut the cards of {node}",
            subject=f"node {node}",
            remedy="see its log; the node stays cordoned, ask for the change again",
        )


def _configure(kube: Cluster, node: str, wanted: GpuSharing, cards: int) -> None:
    settings = _settings(wanted)
    if wanted.mode != "mig":
        settings |= {labels.MIG_CONFIG: None, labels.MIG_STATE: None}
    kube.patch("v1", "Node", node, {"metadata": {"labels": settings}})


def _await_node(kube: Cluster, node: str, wanted: GpuSharing, cards: int) -> None:
    remedy = "the node stays cordoned; ask for the change again"
    offers.expect_anew(kube, node, wanted.advertised(cards), remedy=remedy)


def _uncordon(kube: Cluster, node: str, wanted: GpuSharing, cards: int) -> None:
    kube.patch("v1", "Node", node, {"metadata": {"annotations": {MARK: None}}, "spec": {"unschedulable": None}})


_ACTIONS: dict[Action, Callable[[Cluster, str, GpuSharing, int], None]] = {
    "cordon": _cordon,
    "drain": _drain,
    "layout": _cut,
    "wait-layout": _await_layout,
    "configure": _configure,
    "wait-node": _await_node,
    "uncordon": _uncordon,
}
