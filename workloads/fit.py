"""Whether a workload can ever fit a cluster, asked before anything is created. Pure: nodes come in as numbers.

It looks at cards only. What else a pod may wait for (CPU, memory, cards in use now) passes with time, and
isthmus.kube.explain says it in words; cards that no node has do not come by waiting.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isthmus.catalog import Catalog
from isthmus.specs.cluster import NodePool
from isthmus.specs.errors import Refused
from isthmus.specs.labels import GPU_RESOURCE
from isthmus.specs.workload import WorkloadSpec


@dataclass(frozen=True)
class NodeCapacity:
    """The cards of one node, or of one that a pool may still add."""

    name: str
    gpus: int
    model: str | None = None
    """Value of the node's isthmus.dev/gpu-model label."""


def check(spec: WorkloadSpec, nodes: Iterable[NodeCapacity], *, remedy: str = "") -> None:
    """Refuse a workload that these nodes can never run.

    Args:
        remedy: the way out to name, besides asking for less.

    Raises:
        Refused: a pod asks for more cards than any node has (the largest is named), for a card model that none has, or all
            pods together for more cards than there are.
    """
    asks = {name: role for name, role in spec.roles.items() if role.gpus}
    if not asks:
        return
    usable = _of_model(spec, list(nodes), remedy)
    largest = max(usable, key=lambda node: node.gpus, default=None)
    if largest is None or largest.gpus == 0:
        raise Refused("the workload asks for GPUs and no node has any", subject=f"workload {spec.name}", remedy=remedy)
    for name, role in asks.items():
        if role.gpus > largest.gpus:
            raise Refused(
                f"each {name} pod asks for {_gpus(role.gpus)}; the largest node, {largest.name}, has {largest.gpus}",
                subject=f"workload {spec.name}",
                remedy=remedy or f"set roles.{name}.gpus to at most {largest.gpus}",
            )
    total = sum(node.gpus for node in usable)
    if spec.gpus > total:
        raise Refused(
            f"its {spec.pods} pods ask for {_gpus(spec.gpus)} together; the nodes have {total}"
            f" (the largest, {largest.name}, has {largest.gpus})",
            subject=f"workload {spec.name}",
            remedy=remedy or "ask for fewer, or give the stack a larger pool",
        )


def pool_node(pool: NodePool, facts: Catalog, cloud: str, region: str) -> NodeCapacity:
    """What one node of a pool offers.

    Raises:
        InvalidSpec: the catalog has no machine for the pool.
    """
    model: str | None
    if pool.gpu is not None:  # whether the cloud has a machine with them is for its own check
        count, model = pool.gpu.count, facts.gpu(pool.gpu.model).model
    else:
        assert pool.instance_type is not None  # a pool names a machine or cards
        shape = facts.shape(cloud, pool.instance_type)
        count, model = shape.gpu_count, shape.gpu_model
    gpus = pool.sharing.advertised(count).get(GPU_RESOURCE, 0)  # shares under another name are not what roles ask for
    return NodeCapacity(f"a node of pool {pool.name}", gpus, model)


def pool_nodes(pools: Iterable[NodePool], facts: Catalog, cloud: str, region: str) -> list[NodeCapacity]:
    """Every node that these pools may have."""
    return [node for pool in pools for node in [pool_node(pool, facts, cloud, region)] * pool.max]


def _of_model(spec: WorkloadSpec, nodes: Sequence[NodeCapacity], remedy: str) -> list[NodeCapacity]:
    if spec.gpu is None:
        return list(nodes)
    model = spec.gpu.model
    usable = [node for node in nodes if node.model == model]
    if not usable:
        models = sorted({node.model for node in nodes if node.model})
        raise Refused(
            f"no node has {model} cards; there are: {', '.join(models) or 'none'}",
            subject=f"workload {spec.name}",
            remedy=remedy or "--set gpu=null takes any model",
        )
    return usable


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"
