"""Makes the plan of a move from what is known of both ends. Pure: it asks nobody and changes nothing.

Each section is a function that gives lines. A line that cannot be moved as it is says what to decide; `--accept ID` takes it as
it is, `--class FROM=TO` maps a storage class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

from isthmus import catalog as facts
from isthmus.catalog import Catalog, sharing
from isthmus.costs.parts import HOURS_PER_MONTH, Part, egress, money
from isthmus.migration import residency
from isthmus.migration.plan import cluster
from isthmus.migration.plan.model import SECTIONS, Choices, Data, End, Line, Plan, Rate
from isthmus.runs.model import Run
from isthmus.specs.cluster import NodePool
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.offer import Purchase, Shape
from isthmus.specs.stack import StackSettings

GIB = Decimal(1 << 30)
ALTERNATIVES = 3


def make(
    source: End,
    destination: End,
    runs: Sequence[Run],
    *,
    catalog: Catalog | None = None,
    choices: Choices | None = None,
    rate: Rate | None = None,
) -> Plan:
    """The plan of a move.

    Args:
        runs: those of the source that have not ended.
        rate: a measured rate of copying between the two; None where none was measured.
    """
    catalog = catalog or facts.load()
    choices = choices or Choices()
    found = [
        *_place(source, destination),
        *_machines(source, destination, catalog),
        *_quotas(destination, catalog),
        *_data(source, destination),
        *cluster.volumes(source, destination, choices),
        *cluster.identities(source, destination),
        *cluster.jobs(source, destination, runs),
        *cluster.images(source),
        *cluster.services(source, destination),
        *cluster.others(source),
    ]
    lines = [replace(line, undecided="") if line.id in choices.accepted else line for line in found]
    lines.sort(key=lambda line: SECTIONS.index(line.section))
    return Plan(
        source.name,
        destination.name,
        tuple(lines),
        source.data,
        _bill(source, catalog),
        rate,
        (monthly(source.settings, catalog), monthly(destination.settings, catalog)),
    )


def check_accepted(plan: Plan, choices: Choices) -> None:
    """Refuse an --accept that names nothing, or what cannot be accepted: it would be silently ignored.

    Raises:
        InvalidSpec: naming it and what there is.
    """
    known = {line.id for line in plan.lines}
    for name in sorted(choices.accepted - known):
        raise InvalidSpec(
            f"--accept {name}: the plan has no such line",
            subject=name,
            remedy=f"those that are undecided: {', '.join(line.id for line in plan.undecided) or 'none'}",
        )


def _place(source: End, destination: End) -> Iterator[Line]:
    one, other = source.settings, destination.settings
    yield Line(
        "place",
        "place",
        f"{one.cloud} {one.region}",
        f"{other.cloud} {other.region}",
        undecided=residency.problem(one, other),
    )
    if one.kubernetes_version != other.kubernetes_version:
        versions = (one.kubernetes_version, other.kubernetes_version)
        older = _minor(versions[1]) < _minor(versions[0])
        yield Line(
            "place",
            "kubernetes",
            f"Kubernetes {versions[0]}",
            versions[1],
            undecided=f"the destination is older: set kubernetesVersion of {destination.name}" if older else "",
        )


def _machines(source: End, destination: End, catalog: Catalog) -> Iterator[Line]:
    """Pools by GPU model, cards and purchase; the system pool by what it is."""
    ends = [(end.settings.cloud, end.settings.region) for end in (source, destination)]
    for pool in source.settings.cluster.pools:
        machine = catalog.machine_for(*ends[0], pool.gpu, pool.instance_type)
        counterpart = _counterpart(pool, destination.settings.cluster.pools, destination, catalog)
        name = f"pool {pool.name}: {pool.size} x {machine.name}{_price(machine, ends[0][1], pool, catalog)}"
        if counterpart is None:
            yield Line("machines", f"pool/{pool.name}", name, "", *_no_machine(machine, destination, pool, catalog))
            continue
        there = catalog.machine_for(*ends[1], counterpart.gpu, counterpart.instance_type)
        undecided = ""
        if counterpart.sharing != pool.sharing:
            undecided = _sharing(pool, destination, counterpart, catalog)
        elif counterpart.max < pool.size:
            undecided = f"it may grow to {counterpart.max} nodes there, {pool.size} are in use: raise max"
        to = f"pool {counterpart.name}: {counterpart.size} x {there.name}{_price(there, ends[1][1], counterpart, catalog)}"
        yield Line(
            "machines", f"pool/{pool.name}", name, to, _alternatives(machine, there, ends[1], pool, catalog), undecided
        )


def _counterpart(pool: NodePool, there: Iterable[NodePool], destination: End, catalog: Catalog) -> NodePool | None:
    """The destination's pool of that purpose: the system pool, or one with the same model and cards, the same purchase first."""
    pools = list(there)
    if pool.gpu is None:
        return destination.settings.system_pool
    model = catalog.gpu(pool.gpu.model).model
    fitting = [
        one for one in pools
        if one.gpu is not None and catalog.gpu(one.gpu.model).model == model and one.gpu.count == pool.gpu.count
    ]  # fmt: skip
    return min(fitting, key=lambda one: (one.spot != pool.spot, one.name != pool.name), default=None)


def _no_machine(machine: Shape, destination: End, pool: NodePool, catalog: Catalog) -> tuple[str, str]:
    """Detail and decision where the destination's stack has no such pool: what is sold there instead."""
    cloud, region = destination.settings.cloud, destination.settings.region
    assert pool.gpu is not None
    try:
        offered = catalog.machine_for(cloud, region, pool.gpu)
    except InvalidSpec as error:
        other = _larger(machine, cloud, region, catalog)
        return f"instead: {other}" if other else "", f"{error.message}"
    price = _price(offered, region, pool, catalog)
    wanted = f"{{model: {pool.gpu.model}, count: {pool.gpu.count}}}"
    return "", f"stack {destination.name} has no pool with {wanted}: add one ({offered.name}{price})"


def _larger(machine: Shape, cloud: str, region: str, catalog: Catalog) -> str:
    """The cheapest machines with as many cards of at least as much memory, in words."""
    found = [
        offer
        for offer in catalog.offers(cloud=cloud, region=region, purchase="on-demand")
        if offer.shape.gpu_count >= machine.gpu_count > 0
        and (offer.shape.gpu_memory_gib or 0) >= (machine.gpu_memory_gib or 0)
        and offer.usd_per_hour is not None
    ]
    return ", ".join(f"{o.shape.name} ({o.shape.gpu_model}, {o.usd_per_hour} USD/h)" for o in found[:ALTERNATIVES])


def _alternatives(machine: Shape, there: Shape, place: tuple[str, str], pool: NodePool, catalog: Catalog) -> str:
    """How the machines differ, and what else has the same cards there."""
    said = (
        f"{machine.vcpus} vCPU, {_plain(machine.memory_gib)} GiB -> {there.vcpus} vCPU, {_plain(there.memory_gib)} GiB"
    )
    if machine.gpu_model is None:
        return said
    others = [
        f"{offer.shape.name} {offer.usd_per_hour if offer.usd_per_hour is not None else 'unknown'} USD/h"
        for offer in catalog.offers(cloud=place[0], region=place[1], gpu=machine.gpu_model, purchase=_purchase(pool))
        if offer.shape.gpu_count == machine.gpu_count and offer.shape.name != there.name
    ]
    return f"{said}; else: {', '.join(others[:ALTERNATIVES])}" if others else said


def _sharing(pool: NodePool, destination: End, counterpart: NodePool, catalog: Catalog) -> str:
    assert pool.gpu is not None
    cloud = destination.settings.cloud
    try:
        sharing.check(catalog, pool.sharing, pool.gpu.model, cloud, subject=f"pool {pool.name}")
    except InvalidSpec as error:
        return f"cards are shared by {pool.sharing.mode} here, which {cloud} does not take: {error.message}"
    return f"cards are shared by {pool.sharing.mode} here and by {counterpart.sharing.mode} there: make them the same"


def _quotas(destination: End, catalog: Catalog) -> Iterator[Line]:
    """What the destination's pools may grow to, against what its account may have, and what its zones have left."""
    its = destination.settings
    need: dict[str, float] = {}
    for pool in its.cluster.pools:
        machine = catalog.machine_for(its.cloud, its.region, pool.gpu, pool.instance_type)
        for quota in catalog.quotas_for(machine, _purchase(pool)):
            need[quota.code] = need.get(quota.code, 0) + quota.amount(machine, _purchase(pool)) * max(
                pool.size, pool.min
            )
        left = [destination.machines_left.get((zone, machine.instance_type)) for zone in its.zones]
        if pool.size and not destination.up and left and all(one is not None and one < pool.size for one in left):
            yield Line(
                "quotas", f"capacity/{pool.name}", f"{pool.size} x {machine.name}", "",
                undecided=f"no zone of {its.region} has them now (a stock-out): another region or machine, or wait",
            )  # fmt: skip
    for code, amount in sorted((code, amount) for code, amount in need.items() if amount):
        quota = catalog.quota(its.cloud, code)
        if destination.limits is None:
            undecided = (
                "" if quota.default >= amount else f"a new account has {quota.default}: ask for {amount:g} first"
            )
            limit = f"not known; a new account has {quota.default}"
        else:
            known = destination.limits[code]
            free = known.limit if destination.up else known.limit - known.used
            limit = f"{known.limit:g}, {known.used:g} in use"
            undecided = "" if free >= amount else f"{amount:g} are needed and {max(free, 0):g} left: ask for more first"
        yield Line("quotas", f"quota/{code}", f"{quota.name}: {amount:g} {quota.unit}", limit, undecided=undecided)


def _data(source: End, destination: End) -> Iterator[Line]:
    if source.data_problem:
        yield Line("data", "data/read", "objects", "", undecided=source.data_problem)
    if destination.data_problem:
        yield Line("data", "data/write", "objects", "", undecided=destination.data_problem)
    if source.data is not None:
        yield Line(
            "data",
            "data/objects",
            f"{source.data.objects} objects, {_size(source.data)}",
            f"bucket of {destination.name}",
        )
    if destination.data is not None and destination.data.objects:
        yield Line(
            "data", "data/not-empty", "", f"{destination.data.objects} objects are there already, {_size(destination.data)}",
            undecided="what is not of an earlier copy would be in the way: empty the bucket, or accept it",
        )  # fmt: skip


def _bill(source: End, catalog: Catalog) -> Part | None:
    if source.data is None:
        return None
    its = source.settings
    return egress(catalog, its.cloud, its.region, (Decimal(source.data.bytes) / GIB).quantize(Decimal("0.0001")))


def monthly(stack: StackSettings, catalog: Catalog) -> Decimal | None:
    """USD a month of the machines of a stack's pools at their present size, at list price; None where one is unknown."""
    total = Decimal(0)
    for pool in stack.cluster.pools:
        machine = catalog.machine_for(stack.cloud, stack.region, pool.gpu, pool.instance_type)
        offer = catalog.offer(machine, stack.region, _purchase(pool))
        if pool.size and (offer is None or offer.usd_per_hour is None):
            return None
        if offer is not None and offer.usd_per_hour is not None:
            total += pool.size * offer.usd_per_hour * HOURS_PER_MONTH
    return money(total)


def _purchase(pool: NodePool) -> Purchase:
    return "spot" if pool.spot else "on-demand"


def _price(machine: Shape, region: str, pool: NodePool, catalog: Catalog) -> str:
    offer = catalog.offer(machine, region, _purchase(pool))
    price = "unknown" if offer is None or offer.usd_per_hour is None else _plain(offer.usd_per_hour)
    return f", {price} USD/h{' spot' if pool.spot else ''}"


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"


def _minor(version: str) -> int:
    return int(version.partition(".")[2])


def _size(data: Data) -> str:
    return f"{data.bytes / 1e6:.1f} MB"
