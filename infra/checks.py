"""What can be refused before anything is created: places and machines that a cloud does not have.

Facts come from the catalog alone; what only the cloud knows (quota, capacity now, rights) comes back from the cloud
itself when the resource is made.
"""

from isthmus.catalog import Catalog, sharing
from isthmus.specs.cluster import NodePool
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.offer import Shape
from isthmus.specs.stack import StackSettings


def places(catalog: Catalog, settings: StackSettings) -> None:
    """Refuses an unknown region or zone, a zone named twice, and zones where no control plane can be put.

    Raises:
        InvalidSpec: with the nearest names.
    """
    zones = [catalog.zone(settings.cloud, settings.region, name) for name in settings.zones]
    if len(set(settings.zones)) < len(zones):
        raise InvalidSpec(f"a zone is named twice: {', '.join(settings.zones)}", subject="setting zones")
    for zone in zones:
        if not zone.control_plane:
            others = [other.name for other in catalog.zones(settings.cloud, settings.region) if other.control_plane]
            raise InvalidSpec(
                f"no control plane can be placed in {zone.name}",
                subject="setting zones",
                remedy=f"choose from {', '.join(others)}",
            )


def machines(catalog: Catalog, settings: StackSettings) -> None:
    """Refuses a pool without a machine, a GPU pool without cards, a machine that no zone of the stack offers, and a way to
    share cards that they or the cloud do not take.

    Raises:
        InvalidSpec: names the pool, and the nearest names or what there is instead.
    """
    for pool in settings.cluster.pools:
        shape = machine(catalog, settings.cloud, settings.region, pool)
        offering_zones(catalog, settings, pool, shape)
    for pool in settings.gpu_pools:
        model = machine(catalog, settings.cloud, settings.region, pool).gpu_model
        if model is None:
            raise InvalidSpec(
                f"GPU pool {pool.name} asks for {pool.instance_type}, which has no cards",
                subject=f"pool {pool.name}",
                remedy="give a gpu (model and count), or an instance type with cards",
            )
        sharing.check(catalog, pool.sharing, model, settings.cloud, subject=f"pool {pool.name}")


def machine(catalog: Catalog, cloud: str, region: str, pool: NodePool) -> Shape:
    """The machine of a pool: the one it names, else the cheapest on-demand one with exactly its cards.

    Raises:
        InvalidSpec: names the pool.
    """
    try:
        return catalog.machine_for(cloud, region, pool.gpu, pool.instance_type)
    except InvalidSpec as error:
        raise InvalidSpec(
            f"pool {pool.name}: {error.message}", subject=f"pool {pool.name}", remedy=error.remedy
        ) from error


def offering_zones(catalog: Catalog, settings: StackSettings, pool: NodePool, shape: Shape) -> tuple[str, ...]:
    """Those zones of the stack that offer the machine, in the stack's order; never empty.

    Raises:
        InvalidSpec: none does; those of the region that do are named.
    """
    cloud, region = settings.cloud, settings.region
    offering = [zone.name for zone in catalog.zones(cloud, region) if zone.has(shape)]
    chosen = tuple(name for name in settings.zones if name in offering)
    if chosen:
        return chosen
    raise InvalidSpec(
        f"pool {pool.name}: {shape.name} is offered in none of {', '.join(settings.zones)}",
        subject=f"pool {pool.name}",
        remedy=f"add a zone: {', '.join(offering)}" if offering else "choose another region or machine",
    )
