"""From the files in data/ to a Catalog. Rows are checked one by one here, and against each other in `_offers`."""

from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import cast

from isthmus.catalog.catalog import Catalog
from isthmus.catalog.facts import Gpu, HostRate, Latency, MigProfile, NodeLimits, Quota, ServicePrice, SpotAdvice, Zone
from isthmus.catalog.rows import Row, read
from isthmus.specs.offer import Offer, Purchase, Shape

DATA = Path(__file__).parent / "data"
PURCHASES: tuple[Purchase, ...] = ("on-demand", "spot")
CLOUDS = ("aws", "gcp")
FIDELITIES = ("recorded", "documented", "assumed")

Prices = dict[tuple[str, str, str, Purchase], tuple[Decimal | None, str, date | None]]


@lru_cache(maxsize=1)
def load() -> Catalog:
    """The catalog that comes with isthmus, read once.

    Raises:
        InvalidSpec: a fact file has a wrong row; file and row are named.
    """
    return read_catalog(DATA, today=date.today())


def read_catalog(folder: Path, *, today: date) -> Catalog:
    """A catalog from any folder that has the same files as isthmus/catalog/data."""
    gpus = [_gpu(row) for row in read(folder, "gpus.csv", _GPU, key=("model",), today=today)]
    models = {gpu.model for gpu in gpus}
    shapes = [
        _shape(row, models) for row in read(folder, "shapes.csv", _SHAPE, key=("cloud", "instance_type"), today=today)
    ]
    names = {(shape.cloud, shape.instance_type) for shape in shapes}
    prices = _prices(folder, "prices.csv", "instance_type", names, today)
    cards = _prices(folder, "card_prices.csv", "gpu_model", {(cloud, m) for cloud in CLOUDS for m in models}, today)
    hosts = list(read(folder, "card_hosts.csv", _HOST, key=("cloud", "family", "gpu_model", "gpu_count"), today=today))
    by_name = {(shape.cloud, shape.instance_type): shape for shape in shapes}
    attached = [with_cards for row in hosts for with_cards in _attached(row, shapes, gpus)]
    return Catalog(
        gpus=gpus,
        shapes=[*shapes, *attached],
        offers=[*_offers(prices, by_name), *_attached_offers(attached, prices, cards)],
        services=[
            _service(row)
            for row in read(folder, "services.csv", _SERVICE, key=("cloud", "service", "item", "region"), today=today)
        ],
        zones=[_zone(row) for row in read(folder, "zones.csv", _ZONE, key=("cloud", "zone"), today=today)],
        quotas=[_quota(row) for row in read(folder, "quotas.csv", _QUOTA, key=("cloud", "code"), today=today)],
        host_rates=[
            _host_rate(row) for row in read(folder, "host_rates.csv", _HOST_RATE, key=("cloud", "region"), today=today)
        ],
        limits=[
            _limits(row) for row in read(folder, "aws_node_limits.csv", _LIMITS, key=("instance_type",), today=today)
        ],
        advice=[
            _advice(row)
            for row in read(folder, "aws_spot_advisor.csv", _ADVICE, key=("region", "instance_type"), today=today)
        ],
        mig=[_mig(row) for row in read(folder, "mig_profiles.csv", _MIG, key=("gpu_model", "profile"), today=today)],
        latencies=[
            _latency(row) for row in read(folder, "latencies.csv", _LATENCY, key=("cloud", "operation"), today=today)
        ],
    )


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
_MIG = "gpu_model profile compute_slices sms memory_mib max_instances placements"
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
        cloud=row.one_of("cloud", CLOUDS),
        instance_type=row.text("instance_type"),
        vcpus=row.integer("vcpus"),
        memory_gib=row.decimal("memory_gib"),
        gpu_model=model,
        gpu_count=count,
        gpu_memory_gib=row.decimal("gpu_memory_gib") if model else None,
        accelerator=row.maybe("accelerator"),
    )


def _prices(folder: Path, file: str, thing: str, known: set[tuple[str, str]], today: date) -> Prices:
    columns = f"cloud region {thing} purchase usd_per_hour"
    found: Prices = {}
    for row in read(folder, file, columns, key=("cloud", "region", thing, "purchase"), today=today):
        cloud, name = row.one_of("cloud", CLOUDS), row.text(thing)
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


def _offers(prices: Prices, shapes: dict[tuple[str, str], Shape]) -> list[Offer]:
    return [
        Offer(
            shape=shapes[cloud, instance_type],
            region=region,
            purchase=purchase,
            usd_per_hour=price,
            source=source,
            as_of=as_of,
        )
        for (cloud, region, instance_type, purchase), (price, source, as_of) in prices.items()
    ]


def _attached_offers(shapes: Iterable[Shape], prices: Prices, cards: Prices) -> list[Offer]:
    """Offers for machines with attached cards: host price plus card price times count (case A23)."""
    by_model: dict[tuple[str, str], list[Shape]] = {}
    for shape in shapes:
        by_model.setdefault((shape.cloud, shape.gpu_model or ""), []).append(shape)
    offers = []
    for (cloud, region, model, purchase), (card, card_source, card_as_of) in cards.items():
        for shape in by_model.get((cloud, model), ()):
            host = prices.get((cloud, region, shape.instance_type, purchase))
            if host is None:
                continue
            machine, source, as_of = host
            all_cards = None if card is None else card * shape.gpu_count
            whole = None if machine is None or all_cards is None else machine + all_cards
            offers.append(
                Offer(
                    shape=shape,
                    region=region,
                    purchase=purchase,
                    usd_per_hour=whole,
                    machine_usd_per_hour=machine,
                    gpu_usd_per_hour=all_cards,
                    source=source,
                    as_of=as_of,
                    gpu_source=f"{card_source}; derived: {shape.gpu_count} x the price of one card",
                    gpu_as_of=card_as_of,
                )
            )
    return offers


def _service(row: Row) -> ServicePrice:
    first, last = row.maybe("tier_from_gib"), row.maybe("tier_to_gib")
    return ServicePrice(
        cloud=row.one_of("cloud", CLOUDS),
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
        cloud=row.one_of("cloud", CLOUDS),
        region=row.text("region"),
        usd_per_vcpu_hour=row.decimal("usd_per_vcpu_hour"),
        usd_per_gib_hour=row.decimal("usd_per_gib_hour"),
        source=row.source,
        as_of=row.as_of,
    )


def _zone(row: Row) -> Zone:
    return Zone(
        cloud=row.one_of("cloud", CLOUDS),
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
        cloud=row.one_of("cloud", CLOUDS),
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
        compute_slices=row.integer("compute_slices"),
        sms=row.integer("sms"),
        memory_mib=row.integer("memory_mib"),
        max_instances=row.integer("max_instances"),
        placements=tuple(int(start) for start in row.words("placements")),
        source=row.source,
        as_of=row.as_of,
    )


def _latency(row: Row) -> Latency:
    return Latency(
        cloud=row.one_of("cloud", CLOUDS),
        operation=row.text("operation"),
        seconds=row.decimal("seconds"),
        fidelity=row.one_of("fidelity", FIDELITIES),
        source=row.source,
        as_of=row.as_of,
    )
