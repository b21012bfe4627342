"""Whether a workload can ever fit a cluster, asked before anything is created. Pure: nodes come in as numbers.

It looks at cards only. What else a pod may wait for (CPU, memory, cards in use now) passes with time, and
isthmus.kube.explain says it in words; cards that no node has do not come by waiting.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from isthmus.catalog import Catalog
from isthmus.specs.cluster import NodePool
from isthmus.specs.errors import Refused
from isthmus.specs.labels import GPU_RESOURCE
from isthmus.specs.sharing import GpuSharing, WorkloadClaim
from isthmus.specs.workload import WorkloadSpec

WHOLE = "whole cards"
"""Key of NodeCapacity.claimable for claims of device class gpu; those of class mig go by their profile."""


@dataclass(frozen=True)
class NodeCapacity:
    """The cards of one node, or of one that a pool may still add."""

    name: str
    gpus: int
    """Devices under the name nvidia.com/gpu."""
    model: str | None = None
    """Value of the node's isthmus.dev/gpu-model label."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Devices under other names: nvidia.com/gpu.shared, nvidia.com/mig-1g.5gb."""
    claimable: Mapping[str, int] = field(default_factory=dict)
    """What pods may claim of it at most: WHOLE, or a MIG profile, to the number of devices."""
    one_each: bool = False
    """Its devices are shares of which a container may ask for one."""

    def has(self, resource: str) -> int:
        """Devices that it offers under a name."""
        return self.gpus if resource == GPU_RESOURCE else self.parts.get(resource, 0)

    @property
    def offers(self) -> bool:
        """Whether it has anything for pods with cards."""
        return bool(self.gpus or self.parts or self.claimable)


def check(spec: WorkloadSpec, nodes: Iterable[NodeCapacity], *, remedy: str = "") -> None:
    """Refuse a workload that these nodes can never run.

    Args:
        remedy: the way out to name, besides asking for less.

    Raises:
        Refused: a pod asks for more cards than any node has (the largest is named), for a card model that none has, or all
            pods together for more cards than there are; the same of shares, MIG devices and claims. Or it asks for several
            shares of which a container gets one.
    """
    if not spec.on_cards:
        return
    usable = _of_model(spec, list(nodes), remedy)
    for resource in dict.fromkeys(role.resource for role in spec.roles.values() if role.gpus):
        _check_resource(spec, resource, usable, remedy)
    for claim in spec.claims:
        _check_claim(spec, claim, usable, remedy)


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
    offered = pool.sharing.advertised(count)
    gpus = offered.pop(GPU_RESOURCE, 0)
    given = claimable(facts, model, count) if model and pool.sharing.mode == "dra" else {}
    return NodeCapacity(f"a node of pool {pool.name}", gpus, model, offered, given, one_each(pool.sharing))


def claimable(facts: Catalog, model: str, cards: int) -> dict[str, int]:
    """What pods may claim of so many cards: all of them whole, or each cut into as many instances as it can be."""
    cut = {profile.profile: cards * profile.max_instances for profile in facts.mig_profiles(model)}
    return {WHOLE: cards, **cut} if cards else {}


def one_each(sharing: GpuSharing) -> bool:
    """Whether a container may ask for one share only (failRequestsGreaterThanOne of the device plugin)."""
    return sharing.fail_greater_than_one and sharing.replicas * sharing.clients > 1


def pool_nodes(pools: Iterable[NodePool], facts: Catalog, cloud: str, region: str) -> list[NodeCapacity]:
    """Every node that these pools may have."""
    return [node for pool in pools for node in [pool_node(pool, facts, cloud, region)] * pool.max]


def _check_resource(spec: WorkloadSpec, resource: str, usable: Sequence[NodeCapacity], remedy: str) -> None:
    roles = {name: role for name, role in spec.roles.items() if role.gpus and role.resource == resource}
    subject = f"workload {spec.name}"
    largest = max(usable, key=lambda node: node.has(resource), default=None)
    if largest is None or largest.has(resource) == 0:
        others = sorted({name for node in usable for name in (*node.parts, *([GPU_RESOURCE] * bool(node.gpus)))})
        there = f"; they have {', '.join(others)}" if others else ""
        what = "GPUs" if resource == GPU_RESOURCE else resource
        raise Refused(
            f"the workload asks for {what} and no node has any{there}",
            subject=subject,
            remedy=remedy or (f"set roles.{next(iter(roles))}.resource to {others[0]}" if others else ""),
        )
    for name, role in roles.items():
        asked = _amount(role.gpus, resource)
        if role.gpus > largest.has(resource):
            raise Refused(
                f"each {name} pod asks for {asked}; the largest node, {largest.name}, has {largest.has(resource)}",
                subject=subject,
                remedy=remedy or f"set roles.{name}.gpus to at most {largest.has(resource)}",
            )
        if role.gpus > 1 and all(node.one_each for node in usable if node.has(resource)):
            # Case A09: the kubelet would refuse such a pod, and a controller make more of them without end.
            raise Refused(
                f"each {name} pod asks for {asked}, and those of {largest.name} are shares of cards: 1 is a grant of"
                " access, and more buy no more compute",
                subject=subject,
                remedy=f"set roles.{name}.gpus to 1",
            )
    wanted = sum(role.replicas * role.gpus for role in roles.values())
    total = sum(node.has(resource) for node in usable)
    if wanted > total:
        pods = sum(role.replicas for role in roles.values())
        raise Refused(
            f"its {pods} pods ask for {_amount(wanted, resource)} together; the nodes have {total}"
            f" (the largest, {largest.name}, has {largest.has(resource)})",
            subject=subject,
            remedy=remedy or "ask for fewer, or give the stack a larger pool",
        )


def _check_claim(spec: WorkloadSpec, claim: WorkloadClaim, usable: Sequence[NodeCapacity], remedy: str) -> None:
    """What a claim's selectors leave over, and what other claims take, only the scheduler knows."""
    key, subject = claim.profile or WHOLE, f"workload {spec.name}, claim {claim.name}"
    what = f"{claim.profile} devices" if claim.profile else WHOLE
    most = max((node.claimable.get(key, 0) for node in usable), default=0)
    if most < claim.count:
        there = f"no node gives out more than {most}" if most else "no node gives any out on claim"
        raise Refused(
            f"it asks for {claim.count} {what}; {there}",
            subject=subject,
            remedy=remedy or "give the stack a pool with sharing mode dra and such cards",
        )
    wanted = claim.count * (spec.holders(claim) if claim.scope == "pod" else 1)
    total = sum(node.claimable.get(key, 0) for node in usable)
    if wanted > total:
        raise Refused(
            f"the pods ask for {wanted} {what} together; the nodes have {total} at most",
            subject=subject,
            remedy=remedy or "ask for fewer, let pods share the claim (scope: run), or give the stack a larger pool",
        )


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


def _amount(count: int, resource: str) -> str:
    if resource != GPU_RESOURCE:
        return f"{count} {resource}"
    return f"{count} GPU" if count == 1 else f"{count} GPUs"
