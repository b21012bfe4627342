"""Questions to the facts. Pure: nothing is read or changed here, and no answer depends on the clock.

What the catalog does not know it says: a price is None, a name is InvalidSpec with the nearest ones. It never guesses
a price, and a fact that is derived or assumed says so in its source.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType

from isthmus.catalog import allocatable
from isthmus.catalog.facts import (
    Cloud,
    Gpu,
    HostRate,
    Latency,
    ManagedPrice,
    MigProfile,
    NodeLimits,
    Quota,
    ResourcePricing,
    ServicePrice,
    SharingLimit,
    SharingMeasurement,
    SharingProperty,
    Sku,
    SpotAdvice,
    SpotBand,
    Zone,
)
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.names import unknown
from isthmus.specs.offer import Offer, Purchase, Shape

ANYWHERE = "global"
"""The region of a service price that holds in every region without a price of its own."""


class Catalog:
    """All facts, indexed. Make one with `isthmus.catalog.load()`."""

    def __init__(
        self,
        *,
        gpus: Sequence[Gpu],
        shapes: Sequence[Shape],
        offers: Sequence[Offer],
        services: Sequence[ServicePrice],
        zones: Sequence[Zone],
        quotas: Sequence[Quota],
        limits: Sequence[NodeLimits],
        advice: Sequence[SpotAdvice],
        mig: Sequence[MigProfile],
        latencies: Sequence[Latency],
        clouds: Sequence[Cloud] = (),
        parts: Mapping[tuple[str, str], tuple[str, str]] = MappingProxyType({}),
        managed: Sequence[ManagedPrice] = (),
        bands: Sequence[SpotBand] = (),
        resources: Sequence[ResourcePricing] = (),
        skus: Sequence[Sku] = (),
        host_rates: Sequence[HostRate] = (),
        sharing: Sequence[SharingProperty] = (),
        limits_of_sharing: Sequence[SharingLimit] = (),
        sharing_measurements: Sequence[SharingMeasurement] = (),
    ) -> None:
        self._clouds = {cloud.name: cloud for cloud in clouds}
        self._parts = parts
        self._managed = tuple(managed)
        self._resources = {item.type: item for item in resources}
        self.skus = tuple(skus)
        self._bands = {band.band: band for band in bands}
        self._gpus = {gpu.model: gpu for gpu in gpus}
        self._aliases = {alias.lower(): gpu.model for gpu in gpus for alias in (gpu.model, gpu.nvml_name, *gpu.aliases)}
        self._shapes = tuple(shapes)
        self._offers: dict[tuple[str, str, Purchase], list[Offer]] = {}
        for offer in offers:
            self._offers.setdefault((offer.shape.cloud, offer.region, offer.purchase), []).append(offer)
        for group in self._offers.values():
            group.sort(key=_cheapest_first)
        self._by_machine = {(o.shape.cloud, o.region, o.purchase, o.shape.name): o for o in offers}
        self._regions: dict[str, tuple[str, ...]] = {}
        for cloud in sorted({cloud for cloud, _, _ in self._offers}):
            self._regions[cloud] = tuple(sorted({region for known, region, _ in self._offers if known == cloud}))
        self._services: dict[tuple[str, str, str], dict[str, ServicePrice]] = {}
        for price in services:
            self._services.setdefault((price.cloud, price.service, price.item), {})[price.region] = price
        self._zones = tuple(zones)
        self._placeable: dict[tuple[str, str, str], bool] = {}
        self._quotas = tuple(quotas)
        self._limits = {limit.instance_type: limit for limit in limits}
        self._advice = {(item.region, item.instance_type): item for item in advice}
        self._mig = tuple(mig)
        self._host_rates = {(rate.cloud, rate.region): rate for rate in host_rates}
        self._sharing = tuple(sharing)
        self._sharing_measurements = tuple(sharing_measurements)
        self._limits_of_sharing = {limit.name: limit for limit in limits_of_sharing}
        self._latencies = {(item.cloud, item.operation): item for item in latencies}

    # Places

    def clouds(self) -> tuple[str, ...]:
        """The clouds that have prices, sorted."""
        return tuple(self._regions)

    def has_prices(self, cloud: str) -> bool:
        """Whether anything of this cloud has a price: a cluster on this machine has none."""
        return cloud in self._regions

    def cloud_title(self, cloud: str) -> str:
        """What people call a cloud: AWS. Its own name where none is given."""
        return self._clouds[cloud].title if cloud in self._clouds else cloud

    def regions(self, cloud: str) -> tuple[str, ...]:
        """The regions of a cloud that have prices, sorted. InvalidSpec for an unknown cloud."""
        self._check_cloud(cloud)
        return self._regions[cloud]

    def zones(self, cloud: str, region: str) -> tuple[Zone, ...]:
        """The zones of a region, by name. InvalidSpec for an unknown cloud or region."""
        self._check_region(cloud, region)
        return tuple(zone for zone in self._zones if zone.cloud == cloud and zone.region == region)

    def placeable(self, shape: Shape, region: str) -> bool:
        """Whether a zone of the region is recorded to have the machine; a region without recorded zones is not judged."""
        key = (shape.cloud, region, shape.name)
        if key not in self._placeable:
            zones = self.zones(shape.cloud, region)
            self._placeable[key] = not zones or any(zone.has(shape) for zone in zones)
        return self._placeable[key]

    def zone(self, cloud: str, region: str, name: str) -> Zone:
        """One zone. InvalidSpec if the region does not have it."""
        zones = {zone.name: zone for zone in self.zones(cloud, region)}
        if name not in zones:
            raise unknown("zone", name, zones, where=f"in {cloud} {region}")
        return zones[name]

    # Cards and machines

    def gpu(self, model: str) -> Gpu:
        """A card model, by its name, an alias or its NVML name, whatever the case. InvalidSpec if unknown."""
        known = self._aliases.get(model.lower())
        if known is None:
            raise unknown("GPU model", model, self._gpus)
        return self._gpus[known]

    def gpus(self) -> tuple[Gpu, ...]:
        """Every card model."""
        return tuple(self._gpus.values())

    def mig_profiles(self, model: str) -> tuple[MigProfile, ...]:
        """The MIG profiles of a card; empty for a card without MIG. InvalidSpec for an unknown model."""
        known = self.gpu(model).model
        return tuple(profile for profile in self._mig if profile.gpu_model == known)

    def sharing_properties(self, mode: str) -> tuple[SharingProperty, ...]:
        """What is known of one way to share a card, a row for each source; empty for an unknown mode."""
        return tuple(item for item in self._sharing if item.mode == mode)

    def sharing_measurements(self, mode: str) -> tuple[SharingMeasurement, ...]:
        """Published figures of one way to share a card, as their sources give them."""
        return tuple(item for item in self._sharing_measurements if item.mode == mode)

    def sharing_limit(self, name: str) -> SharingLimit:
        """A number that sharing is held to (sharing_limits.csv). InvalidSpec if unknown."""
        if name not in self._limits_of_sharing:
            raise unknown("sharing limit", name, self._limits_of_sharing)
        return self._limits_of_sharing[name]

    def shape(self, cloud: str, instance_type: str, cards: GpuCards | None = None) -> Shape:
        """An instance type; with `cards`, the same with these cards attached where the cloud attaches them.

        Raises:
            InvalidSpec: unknown instance type (nearest names given), or it cannot have these cards (those that can are
                named).
        """
        self._check_cloud(cloud)
        named = [shape for shape in self._shapes if (shape.cloud, shape.instance_type) == (cloud, instance_type)]
        if not named:
            known = {shape.instance_type for shape in self._shapes if shape.cloud == cloud}
            raise unknown("instance type", instance_type, known, where=f"on {cloud}")
        if cards is None:
            return named[0]
        model = self.gpu(cards.model).model
        for shape in named:
            if (shape.gpu_model, shape.gpu_count) == (model, cards.count):
                return shape
        having = [shape.name for shape in self._shapes if shape.cloud == cloud and _has(shape, model, cards.count)]
        raise InvalidSpec(
            f"{instance_type} on {cloud} does not have {cards.count} x {model}; "
            f"those that have: {', '.join(having) or 'none'}",
            subject=f"instance type {instance_type}",
            remedy=f"use {having[0]}"
            if having
            else f"choose a count of {model} that is sold: {self._counts(cloud, model)}",
        )

    def shapes(self, cloud: str, gpu: str | None = None) -> tuple[Shape, ...]:
        """The machines of a cloud, those with attached cards included; with `gpu`, only those with that model."""
        self._check_cloud(cloud)
        model = self.gpu(gpu).model if gpu else None
        return tuple(s for s in self._shapes if s.cloud == cloud and (model is None or s.gpu_model == model))

    def machine_for(self, cloud: str, region: str, cards: GpuCards | None, instance_type: str | None = None) -> Shape:
        """The machine of a node pool: the cheapest on-demand one with exactly these cards, or the one named.

        Args:
            cards: model and count per node; None for a machine without cards, which then must be named.
            instance_type: takes this one instead of the cheapest, if it is sold there and has the cards.

        Raises:
            InvalidSpec: unknown names; a machine that the region does not sell; no machine with these cards there (what
                there is instead is named).
        """
        self._check_region(cloud, region)
        if instance_type is not None:
            shape = self.shape(cloud, instance_type, cards)
            if not any(offer.shape == shape for offer in self.offers(cloud=cloud, region=region)):
                raise InvalidSpec(
                    f"{shape.name} is not sold in {cloud} {region}; it is in: {', '.join(self._sold_in(shape)) or 'none'}",
                    subject=f"instance type {instance_type}",
                    remedy="choose another region or instance type",
                )
            return shape
        if cards is None:
            raise InvalidSpec("give an instance type or a GPU model and count", subject=f"{cloud} {region}")
        model = self.gpu(cards.model).model
        sold = self.offers(cloud=cloud, region=region, gpu=model, purchase="on-demand")
        for offer in sold:
            if offer.shape.gpu_count == cards.count:
                return offer.shape
        raise self._none_with(cloud, region, model, cards.count, [offer.shape for offer in sold])

    def allocatable(self, cloud: str, shape: Shape) -> dict[str, int]:
        """What a node of this shape leaves for pods: `cpu_millicores`, `memory_mib`, `pods`."""
        self._check_cloud(cloud)
        rule = allocatable.RULES[self._clouds[cloud].node_rule]
        return rule(shape, self._limits.get(shape.instance_type))

    # Prices

    def offers(
        self,
        cloud: str | None = None,
        region: str | None = None,
        gpu: str | None = None,
        purchase: Purchase | None = None,
    ) -> list[Offer]:
        """Offers by any of these, cheapest first; those without a known price last.

        Args:
            gpu: a model of the catalog; None for every machine, with and without cards.

        Raises:
            InvalidSpec: an unknown cloud, region or model.
        """
        if cloud is not None and region is not None:
            self._check_region(cloud, region)
        elif cloud is not None:
            self._check_cloud(cloud)
        elif region is not None and region not in self._all_regions():
            raise unknown("region", region, self._all_regions())
        model = self.gpu(gpu).model if gpu else None
        groups = [
            group
            for (its_cloud, its_region, its_purchase), group in self._offers.items()
            if cloud in (None, its_cloud) and region in (None, its_region) and purchase in (None, its_purchase)
        ]
        found = [offer for group in groups for offer in group if model is None or offer.shape.gpu_model == model]
        return found if len(groups) == 1 else sorted(found, key=_cheapest_first)

    def offer(self, shape: Shape, region: str, purchase: Purchase) -> Offer | None:
        """The offer for one machine in a region under a purchase option; None where it is not sold so."""
        return self._by_machine.get((shape.cloud, region, purchase, shape.name))

    def service(self, cloud: str, service: str, item: str, region: str) -> ServicePrice:
        """The price of a service in a region: the region's own row, else the one for all regions, else value None.

        Raises:
            InvalidSpec: unknown cloud, region, service or item. A known item without a price there is not an error.
        """
        self._check_region(cloud, region)
        rows = self._services.get((cloud, service, item))
        if rows is None:
            known = {f"{s}: {i}" for c, s, i in self._services if c == cloud}
            raise unknown("service price", f"{service}: {item}", known, where=f"on {cloud}")
        if region in rows:
            return rows[region]
        if ANYWHERE in rows:
            return rows[ANYWHERE]
        other = next(iter(rows.values()))
        return ServicePrice(
            cloud, service, item, region, None, other.unit, other.tier_from_gib, other.tier_to_gib,
            source=f"no price of {service} ({item}) in {region} is in the catalog", as_of=None, note="",
        )  # fmt: skip

    def part(self, cloud: str, part: str, region: str) -> ServicePrice | None:
        """The price of a part of every bill (control-plane, disk, nat-gateway) in a region; None where the cloud has no such
        thing to pay. A part it has without a price there has value None."""
        named = self._parts.get((cloud, part))
        return None if named is None else self.service(cloud, *named, region)

    def part_tiers(self, cloud: str, part: str, region: str) -> tuple[ServicePrice, ...]:
        """The steps of a part's price that depends on the monthly amount; empty where the cloud has no such thing to pay."""
        named = self._parts.get((cloud, part))
        return () if named is None else self.tiers(cloud, *named, region)

    def managed(self, cloud: str | None = None, region: str | None = None) -> tuple[ManagedPrice, ...]:
        """What managed training services ask for machines, by cloud and region."""
        return tuple(p for p in self._managed if cloud in (None, p.cloud) and region in (None, p.region))

    def resource_pricing(self, kind: str) -> ResourcePricing | None:
        """How a type of resource is charged (Pulumi's token); None for one that the catalog does not know."""
        return self._resources.get(kind)

    def spot_band(self, band: str) -> SpotBand | None:
        """What an interruption band means; None for one that is not known."""
        return self._bands.get(band)

    def tiers(self, cloud: str, service: str, prefix: str, region: str) -> tuple[ServicePrice, ...]:
        """The steps of a price that depends on the monthly amount, smallest first. Items start with `prefix`."""
        items = [i for c, s, i in self._services if (c, s) == (cloud, service) and i.startswith(prefix)]
        if not items:
            known = {i for c, s, i in self._services if (c, s) == (cloud, service)}
            raise unknown("service price", f"{service}: {prefix}", known, where=f"on {cloud}")
        steps = [self.service(cloud, service, item, region) for item in items]
        return tuple(sorted(steps, key=lambda step: step.tier_from_gib or 0))

    def spot_advice(self, region: str, instance_type: str) -> SpotAdvice | None:
        """AWS's own band of how often this spot machine is taken back; None where it gives none."""
        return self._advice.get((region, instance_type))

    def host_rate(self, cloud: str, region: str) -> HostRate | None:
        """What a vCPU and a GiB are worth in a region, to divide a price by; None where it is not known."""
        return self._host_rates.get((cloud, region))

    # Limits

    def quotas(self, cloud: str) -> tuple[Quota, ...]:
        """Every quota of a cloud."""
        self._check_cloud(cloud)
        return tuple(quota for quota in self._quotas if quota.cloud == cloud)

    def quota(self, cloud: str, code: str) -> Quota:
        """One quota by its code. InvalidSpec if the cloud has none of that code."""
        quotas = {quota.code: quota for quota in self.quotas(cloud)}
        if code not in quotas:
            raise unknown("quota", code, quotas, where=f"on {cloud}")
        return quotas[code]

    def quotas_for(self, shape: Shape, purchase: Purchase) -> tuple[Quota, ...]:
        """The quotas that a machine of this shape counts against (see Quota.amount)."""
        return tuple(quota for quota in self.quotas(shape.cloud) if quota.amount(shape, purchase) > 0)

    def latency(self, cloud: str, operation: str) -> Latency:
        """How long an operation takes on a real cloud. InvalidSpec for an operation without a figure."""
        if (cloud, operation) not in self._latencies:
            known = [name for its_cloud, name in self._latencies if its_cloud == cloud]
            raise unknown("operation", operation, known, where=f"on {cloud}")
        return self._latencies[cloud, operation]

    # Helpers

    def _check_cloud(self, cloud: str) -> None:
        if cloud not in self._regions:
            raise unknown("cloud", cloud, self._regions)

    def _check_region(self, cloud: str, region: str) -> None:
        regions = self.regions(cloud)
        if region not in regions:
            raise unknown("region", region, regions, where=f"on {cloud}")

    def _all_regions(self) -> set[str]:
        return {region for regions in self._regions.values() for region in regions}

    def _sold_in(self, shape: Shape) -> list[str]:
        return sorted({offer.region for offer in self.offers(cloud=shape.cloud) if offer.shape == shape})

    def _counts(self, cloud: str, model: str) -> str:
        counts = sorted(
            {shape.gpu_count for shape in self._shapes if shape.cloud == cloud and shape.gpu_model == model}
        )
        return ", ".join(map(str, counts)) or "none"

    def _none_with(self, cloud: str, region: str, model: str, count: int, sold: Iterable[Shape]) -> InvalidSpec:
        counts = sorted({shape.gpu_count for shape in sold})
        if counts:
            has = f"machines there have {', '.join(map(str, counts))} of them"
            remedy = f"set the count to {max((c for c in counts if c <= count), default=counts[0])}"
        else:
            models = sorted({o.shape.gpu_model for o in self.offers(cloud=cloud, region=region) if o.shape.gpu_model})
            has = f"the region has {', '.join(models)}"
            remedy = "choose another GPU model or region"
        return InvalidSpec(
            f"no machine in {cloud} {region} has {count} x {model}; {has}", subject=f"{count} x {model}", remedy=remedy
        )


def _has(shape: Shape, model: str, count: int) -> bool:
    return shape.gpu_model == model and shape.gpu_count == count


def _cheapest_first(offer: Offer) -> tuple[bool, Decimal, str, str, str]:
    price = offer.usd_per_hour
    return (price is None, price or Decimal(0), offer.shape.cloud, offer.region, offer.shape.name)
