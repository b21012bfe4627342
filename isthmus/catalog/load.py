"""From the files in data/ to a Catalog. Rows are checked one by one here; offers.py makes offers of their prices."""

from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import cast

from isthmus.catalog.allocatable import RULES
from isthmus.catalog.catalog import Catalog
from isthmus.catalog.facts import (
    Cloud,
    Commitment,
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
from isthmus.catalog.offers import Prices, attached_offers, committed_offers, is_of, plain_offers
from isthmus.catalog.rows import Row, Table
from isthmus.specs.offer import Purchase, Shape
from isthmus.specs.sharing import MODES

DATA = Path(__file__).parent / "data"
PURCHASES: tuple[Purchase, ...] = ("on-demand", "spot")
TERMS: tuple[Purchase, ...] = ("1-year", "3-year")
FIDELITIES = ("recorded", "documented", "assumed")


@lru_cache(maxsize=1)
def load() -> Catalog:
    """The catalog that comes with isthmus, read once.

    Raises:
        InvalidSpec: a fact file has a wrong row; file and row are named.
    """
    return read_catalog(DATA, today=date.today())


def read_catalog(folder: Path, *, today: date) -> Catalog:
    """A catalog from any folder that has the same files as isthmus/catalog/data."""
    clouds = [_cloud(row) for row in Table(folder, today, None).rows("clouds.csv", _CLOUD, key=("cloud",))]
    table = Table(folder, today, tuple(cloud.name for cloud in clouds))
    gpus = [_gpu(row) for row in table.rows("gpus.csv", _GPU, key=("model",))]
    models = {gpu.model for gpu in gpus}
    shapes = [_shape(row, models) for row in table.rows("shapes.csv", _SHAPE, key=("cloud", "instance_type"))]
    names = {(shape.cloud, shape.instance_type) for shape in shapes}
    prices = _prices(table, "prices.csv", "instance_type", names)
    cards = _prices(table, "card_prices.csv", "gpu_model", {(c.name, m) for c in clouds for m in models})
    hosts = list(table.rows("card_hosts.csv", _HOST, key=("cloud", "family", "gpu_model", "gpu_count")))
    by_name = {(shape.cloud, shape.instance_type): shape for shape in shapes}
    attached = [with_cards for row in hosts for with_cards in _attached(row, shapes, gpus)]
    commitments = [
        _commitment(row, names)
        for row in table.rows("commitments.csv", _COMMITMENT, key=("cloud", "region", "machines", "term"))
    ]
    offers = [*plain_offers(prices, by_name), *attached_offers(attached, prices, cards)]
    return Catalog(
        clouds=clouds,
        gpus=gpus,
        shapes=[*shapes, *attached],
        offers=[*offers, *committed_offers(offers, commitments)],
        services=[
            _service(row) for row in table.rows("services.csv", _SERVICE, key=("cloud", "service", "item", "region"))
        ],
        parts=dict(_part(row) for row in table.rows("parts.csv", _PART, key=("cloud", "part"))),
        managed=[
            _managed(row, names)
            for row in table.rows("managed_prices.csv", _MANAGED, key=("cloud", "service", "instance_type", "region"))
        ],
        resources=[_resource(row) for row in table.rows("resources.csv", _RESOURCE, key=("type",))],
        skus=[_sku(row) for row in table.rows("gcp_skus.csv", _SKU, key=("machines", "part"))],
        zones=[_zone(row) for row in table.rows("zones.csv", _ZONE, key=("cloud", "zone"))],
        quotas=[_quota(row) for row in table.rows("quotas.csv", _QUOTA, key=("cloud", "code"))],
        host_rates=[_host_rate(row) for row in table.rows("host_rates.csv", _HOST_RATE, key=("cloud", "region"))],
        limits=[_limits(row) for row in table.rows("aws_node_limits.csv", _LIMITS, key=("instance_type",))],
        advice=[_advice(row) for row in table.rows("aws_spot_advisor.csv", _ADVICE, key=("region", "instance_type"))],
        bands=[_band(row) for row in table.rows("spot_bands.csv", _BAND, key=("band",))],
        mig=[_mig(row) for row in table.rows("mig_profiles.csv", _MIG, key=("gpu_model", "profile"))],
        sharing=[
            _property(row)
            for row in table.rows("sharing_properties.csv", _PROPERTY, key=("mode", "property", "source"))
        ],
        sharing_measurements=[
            _measurement(row)
            for row in table.rows("sharing_measurements.csv", _MEASUREMENT, key=("mode", "what", "jobs_on_card"))
        ],
        limits_of_sharing=[
            SharingLimit(name=row.text("name"), value=row.integer("value"), source=row.source, as_of=row.as_of)
            for row in table.rows("sharing_limits.csv", "name value", key=("name",))
        ],
        latencies=[_latency(row) for row in table.rows("latencies.csv", _LATENCY, key=("cloud", "operation"))],
    )


_CLOUD = "cloud name node_rule"
_PART = "cloud part service item"
_COMMITMENT = "cloud region machines term usd_per_hour discount"
_MANAGED = "cloud service instance_type region usd_per_hour self_managed_usd_per_hour note"
_RESOURCE = "type pricing what"
_SKU = "machines part description"
_BAND = "band least most"
_GPU = "model aliases nvml_name memory_mib compute_capability architecture mig pci_device_id gke_accelerator"
_SHAPE = "cloud instance_type vcpus memory_gib gpu_model gpu_count gpu_memory_gib accelerator"
_HOST = "cloud family gpu_model gpu_count min_vcpus max_vcpus"
_SERVICE = "cloud service item region value unit tier_from_gib tier_to_gib note"
_HOST_RATE = "cloud region usd_per_vcpu_hour usd_per_gib_hour"
_ZONE = "cloud region zone families attachable_gpus control_plane"
_QUOTA = "cloud code name unit purchase families gpu_model default scope"
_LIMITS = (
    "instance_type vcpus memory_mib default_max_enis ipv4_per_eni max_pods kube_reserved_cpu_m "
    "kube_reserved_memory_mib karpenter_allocatable_cpu_m karpenter_allocatable_memory_mib karpenter_pods gpu_count "
    "network_mbps local_nvme_gb efa_interfaces"
)
_ADVICE = "region instance_type savings_over_ondemand_pct interruption_frequency"
_MIG = (
    "gpu_model profile profile_id nvml_index compute_slices memory_slices sms memory_mib max_instances placements "
    "copy_engines decoders jpeg ofa"
)
_PROPERTY = "mode property value"
_MEASUREMENT = "mode what jobs_on_card value unit gpu"
_LATENCY = "cloud operation seconds fidelity"


def _gpu(row: Row) -> Gpu:
    return Gpu(
        model=row.text("model"),
        aliases=row.words("aliases"),
        nvml_name=row.text("nvml_name"),
        memory_mib=row.integer("memory_mib"),
        compute_capability=row.text("compute_capability"),
        architecture=row.text("architecture"),
        mig=row.flag("mig"),
        pci_device_id=int(row.text("pci_device_id"), 16),
        gke_accelerator=row.maybe("gke_accelerator"),
        source=row.source,
        as_of=row.as_of,
    )


def _shape(row: Row, models: set[str]) -> Shape:
    model = row.maybe("gpu_model")
    if model is not None and model not in models:
        raise row.wrong(f"gpu_model {model!r} is not in gpus.csv")
    count = row.integer("gpu_count")
    if (model is None) != (count == 0):
        raise row.wrong("gpu_model and gpu_count must be given together")
    _ = row.source, row.as_of  # checked, not kept: a shape's source matters to whoever edits the file
    return Shape(
        cloud=row.cloud,
        instance_type=row.text("instance_type"),
        vcpus=row.integer("vcpus"),
        memory_gib=row.decimal("memory_gib"),
        gpu_model=model,
        gpu_count=count,
        gpu_memory_gib=row.decimal("gpu_memory_gib") if model else None,
        accelerator=row.maybe("accelerator"),
    )


def _prices(table: Table, file: str, thing: str, known: set[tuple[str, str]]) -> Prices:
    columns = f"cloud region {thing} purchase usd_per_hour"
    found: Prices = {}
    for row in table.rows(file, columns, key=("cloud", "region", thing, "purchase")):
        cloud, name = row.cloud, row.text(thing)
        if (cloud, name) not in known:
            raise row.wrong(f"{thing} {name!r} of {cloud} is not known; add it first")
        purchase = cast(Purchase, row.one_of("purchase", PURCHASES))
        found[cloud, row.text("region"), name, purchase] = (row.price("usd_per_hour"), row.source, row.as_of)
    return found


def _attached(row: Row, shapes: Iterable[Shape], gpus: Iterable[Gpu]) -> list[Shape]:
    """The machines of a family that may carry this many cards of this model, cards included."""
    cloud, family, model = row.text("cloud"), row.text("family"), row.text("gpu_model")
    least, most, count = row.integer("min_vcpus"), row.integer("max_vcpus"), row.integer("gpu_count")
    card = next((gpu for gpu in gpus if gpu.model == model), None)
    if card is None:
        raise row.wrong(f"gpu_model {model!r} is not in gpus.csv")
    _ = row.source, row.as_of
    return [
        shape.model_copy(
            update={
                "gpu_model": model,
                "gpu_count": count,
                "gpu_memory_gib": Decimal(card.memory_mib) / 1024,
                "accelerator": card.gke_accelerator,
                "cards_apart": True,
            }
        )
        for shape in shapes
        if shape.cloud == cloud and shape.instance_type.startswith(f"{family}-") and least <= shape.vcpus <= most
    ]


def _commitment(row: Row, names: Iterable[tuple[str, str]]) -> Commitment:
    rate, discount = row.maybe("usd_per_hour"), row.maybe("discount")
    if (rate is None) == (discount is None):
        raise row.wrong("give one of usd_per_hour and discount")
    part = row.decimal("discount") if discount else None
    if part is not None and not 0 < part < 1:
        raise row.wrong(f"discount must be a part between 0 and 1, not {discount!r}")
    cloud, machines = row.cloud, row.text("machines")
    if not any(its == cloud and is_of(name, machines) for its, name in names):
        raise row.wrong(f"no machine of {cloud} is {machines!r} or starts with it")
    return Commitment(
        cloud=cloud,
        region=row.text("region"),
        machines=machines,
        term=cast(Purchase, row.one_of("term", TERMS)),
        usd_per_hour=row.price("usd_per_hour") if rate else None,
        discount=part,
        source=row.source,
        as_of=row.as_of,
    )


def _managed(row: Row, names: set[tuple[str, str]]) -> ManagedPrice:
    cloud, instance_type = row.cloud, row.text("instance_type")
    if (cloud, instance_type) not in names:
        raise row.wrong(f"instance_type {instance_type!r} of {cloud} is not known; add it first")
    price, own = row.price("usd_per_hour"), row.price("self_managed_usd_per_hour")
    if price is None or own is None:
        raise row.wrong("a premium needs both prices; leave the row out where one is unknown")
    return ManagedPrice(
        cloud=cloud,
        service=row.text("service"),
        instance_type=instance_type,
        region=row.text("region"),
        usd_per_hour=price,
        self_managed_usd_per_hour=own,
        source=row.source,
        as_of=row.as_of,
        note=row.maybe("note") or "",
    )


def _cloud(row: Row) -> Cloud:
    _ = row.source, row.as_of
    return Cloud(row.text("cloud"), row.text("name"), row.one_of("node_rule", tuple(RULES)))


def _part(row: Row) -> tuple[tuple[str, str], tuple[str, str]]:
    _ = row.source, row.as_of
    return (row.cloud, row.text("part")), (row.text("service"), row.text("item"))


def _sku(row: Row) -> Sku:
    part = row.one_of("part", ("core", "ram", "gpu"))
    return Sku(row.text("machines"), part, row.text("description"), row.source, row.as_of)


def _resource(row: Row) -> ResourcePricing:
    return ResourcePricing(row.text("type"), row.text("pricing"), row.maybe("what") or "", row.source, row.as_of)


def _band(row: Row) -> SpotBand:
    return SpotBand(
        band=row.text("band"),
        least=row.decimal("least"),
        most=row.decimal("most") if row.maybe("most") else None,
        source=row.source,
        as_of=row.as_of,
    )


def _service(row: Row) -> ServicePrice:
    first, last = row.maybe("tier_from_gib"), row.maybe("tier_to_gib")
    return ServicePrice(
        cloud=row.cloud,
        service=row.text("service"),
        item=row.text("item"),
        region=row.text("region"),
        value=None if row.text("value") == "unknown" else row.decimal("value"),
        unit=row.text("unit"),
        tier_from_gib=row.integer("tier_from_gib") if first else None,
        tier_to_gib=row.integer("tier_to_gib") if last else None,
        source=row.source,
        as_of=row.as_of,
        note=row.maybe("note") or "",
    )


def _host_rate(row: Row) -> HostRate:
    return HostRate(
        cloud=row.cloud,
        region=row.text("region"),
        usd_per_vcpu_hour=row.decimal("usd_per_vcpu_hour"),
        usd_per_gib_hour=row.decimal("usd_per_gib_hour"),
        source=row.source,
        as_of=row.as_of,
    )


def _zone(row: Row) -> Zone:
    return Zone(
        cloud=row.cloud,
        region=row.text("region"),
        name=row.text("zone"),
        families=frozenset(row.words("families")),
        attachable_gpus=frozenset(row.words("attachable_gpus")),
        control_plane=row.flag("control_plane"),
        source=row.source,
        as_of=row.as_of,
    )


def _quota(row: Row) -> Quota:
    purchase = row.maybe("purchase")
    if purchase is not None:
        row.one_of("purchase", PURCHASES)
    return Quota(
        cloud=row.cloud,
        code=row.text("code"),
        name=row.text("name"),
        unit=row.text("unit"),
        purchase=cast(Purchase | None, purchase),
        families=frozenset(row.words("families")),
        gpu_model=row.maybe("gpu_model"),
        default=row.integer("default"),
        scope=row.one_of("scope", ("region", "zone", "global")),
        source=row.source,
        as_of=row.as_of,
    )


def _limits(row: Row) -> NodeLimits:
    return NodeLimits(
        instance_type=row.text("instance_type"),
        max_pods=row.integer("max_pods"),
        kube_reserved_cpu_m=row.integer("kube_reserved_cpu_m"),
        kube_reserved_memory_mib=row.integer("kube_reserved_memory_mib"),
        allocatable_cpu_m=row.integer("karpenter_allocatable_cpu_m"),
        allocatable_memory_mib=row.integer("karpenter_allocatable_memory_mib"),
        source=row.source,
        as_of=row.as_of,
    )


def _advice(row: Row) -> SpotAdvice:
    return SpotAdvice(
        region=row.text("region"),
        instance_type=row.text("instance_type"),
        savings_pct=row.integer("savings_over_ondemand_pct"),
        interruption=row.text("interruption_frequency"),
        source=row.source,
        as_of=row.as_of,
    )


def _mig(row: Row) -> MigProfile:
    return MigProfile(
        gpu_model=row.text("gpu_model"),
        profile=row.text("profile"),
        profile_id=row.integer("profile_id"),
        nvml_index=row.integer("nvml_index"),
        compute_slices=row.integer("compute_slices"),
        memory_slices=row.integer("memory_slices"),
        sms=row.integer("sms"),
        memory_mib=row.integer("memory_mib"),
        max_instances=row.integer("max_instances"),
        placements=tuple(int(start) for start in row.words("placements")),
        copy_engines=row.integer("copy_engines"),
        decoders=row.integer("decoders"),
        jpeg=row.integer("jpeg"),
        ofa=row.integer("ofa"),
        source=row.source,
        as_of=row.as_of,
    )


def _measurement(row: Row) -> SharingMeasurement:
    return SharingMeasurement(
        mode=row.one_of("mode", MODES),
        what=row.text("what"),
        jobs_on_card=row.integer("jobs_on_card"),
        value=row.decimal("value"),
        unit=row.text("unit"),
        gpu=row.text("gpu"),
        source=row.source,
        as_of=row.as_of,
    )


def _property(row: Row) -> SharingProperty:
    return SharingProperty(
        mode=row.one_of("mode", MODES),
        property=row.text("property"),
        value=row.text("value"),
        source=row.source,
        as_of=row.as_of,
    )


def _latency(row: Row) -> Latency:
    return Latency(
        cloud=row.cloud,
        operation=row.text("operation"),
        seconds=row.decimal("seconds"),
        fidelity=row.one_of("fidelity", FIDELITIES),
        source=row.source,
        as_of=row.as_of,
    )
