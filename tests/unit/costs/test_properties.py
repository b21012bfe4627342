"""What holds for any prices: parts sum to totals, cheaper never costs more, more cards never cost less, unknown never wins."""

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.catalog import Catalog
from isthmus.catalog.facts import Cloud, ServicePrice
from isthmus.costs.compare import Ranking, compare
from isthmus.costs.options import Options
from isthmus.specs.offer import Offer, Shape
from isthmus.specs.workload import WorkloadSpec

SHAPES = [
    Shape(
        cloud="aws", instance_type=f"x{vcpus}.{cards}", vcpus=vcpus, memory_gib=Decimal(4 * vcpus), gpu_model="V100",
        gpu_count=cards, gpu_memory_gib=Decimal(16),
    )
    for vcpus, cards in ((4, 1), (16, 2), (48, 4), (96, 8))
]  # fmt: skip

prices = st.none() | st.decimals("0.0001", "99.9999", places=4)
price_lists = st.lists(prices, min_size=len(SHAPES), max_size=len(SHAPES))


def catalog(base: Catalog, machine_prices: list[Decimal | None], disk: Decimal | None = Decimal("0.1")) -> Catalog:
    offers = [
        Offer(shape=shape, region="us-east-1", purchase="on-demand", usd_per_hour=price, source="made up", as_of=None)
        for shape, price in zip(SHAPES, machine_prices, strict=True)
    ]
    services = [
        base.service("aws", "eks", "control plane, standard support", "us-east-1"),
        ServicePrice("aws", "ebs", "gp3 storage", "us-east-1", disk, "USD/GB-month", None, None, "made up", None, ""),
        *base.tiers("aws", "data-transfer", "internet egress", "us-east-1"),
    ]
    parts = {
        ("aws", "control-plane"): ("eks", "control plane, standard support"),
        ("aws", "disk"): ("ebs", "gp3 storage"),
        ("aws", "egress"): ("data-transfer", "internet egress"),
    }
    return Catalog(
        clouds=[Cloud("aws", "AWS", "eks")], parts=parts, gpus=base.gpus(), shapes=SHAPES, offers=offers, services=services,
        zones=[], quotas=[], limits=[], advice=[], mig=[], latencies=[],
    )  # fmt: skip


def ranked(
    base: Catalog, spec: WorkloadSpec, machine_prices: list[Decimal | None], **options: Decimal | None
) -> Ranking:
    return compare([spec], catalog(base, machine_prices, **options), Options(purchases=("on-demand",))).rankings[0]


def spec_with(workload, replicas: int, gpus: int, **cost) -> WorkloadSpec:
    roles = {"Master": {"replicas": 1, "gpus": gpus}, "Worker": {"replicas": replicas, "gpus": gpus}}
    made = workload(gpu=None, roles=roles, cost=cost)
    assert isinstance(made, WorkloadSpec)
    return made


@given(price_lists, st.integers(1, 30), st.integers(0, 20_000), st.decimals("0.01", "999", places=2), prices)
def test_parts_sum_to_the_total(sample, workload, machine_prices, replicas, egress, hours, disk) -> None:
    spec = spec_with(workload, replicas, 1, hours=hours, storageGib=7, egressGib=egress)
    for estimate in ranked(sample, spec, machine_prices, disk=disk).estimates:
        amounts = [part.usd for part in estimate.parts]
        if None in amounts:
            assert estimate.total is None
        else:
            assert estimate.total == sum(amount for amount in amounts if amount is not None)


@given(price_lists, st.integers(0, 3), st.integers(1, 30))
def test_a_cheaper_price_never_costs_more(sample, workload, machine_prices, which, replicas) -> None:
    spec = spec_with(workload, replicas, 1)
    before = ranked(sample, spec, machine_prices).best
    old = machine_prices[which]
    cheaper = list(machine_prices)
    cheaper[which] = Decimal("0.0001") if old is None else old / 2
    after = ranked(sample, spec, cheaper).best
    assert after is not None and after.total is not None
    assert before is None or before.total is None or after.total <= before.total


@given(price_lists, st.integers(1, 30), st.integers(1, 8), st.integers(1, 5))
def test_more_pods_with_cards_never_cost_less(sample, workload, machine_prices, replicas, gpus, more) -> None:
    few = ranked(sample, spec_with(workload, replicas, gpus), machine_prices).best
    many = ranked(sample, spec_with(workload, replicas + more, gpus), machine_prices).best
    assert (few is None) == (many is None)
    if few is not None and many is not None and few.total is not None and many.total is not None:
        assert many.total >= few.total


@given(price_lists, st.integers(1, 30), st.integers(1, 7))
def test_more_cards_per_pod_never_cost_less(sample, workload, machine_prices, replicas, gpus) -> None:
    few = ranked(sample, spec_with(workload, replicas, gpus), machine_prices).best
    many = ranked(sample, spec_with(workload, replicas, gpus + 1), machine_prices).best
    if few is not None and many is not None and few.total is not None and many.total is not None:
        assert many.total >= few.total


@settings(max_examples=200)
@given(price_lists, st.integers(1, 30), prices)
def test_an_unknown_price_never_wins(sample, workload, machine_prices, replicas, disk) -> None:
    found = ranked(sample, spec_with(workload, replicas, 1, storageGib=5), machine_prices, disk=disk)
    lacking = [estimate.total is None for estimate in found.estimates]
    assert lacking == sorted(lacking), "unknown totals come last"
    if found.best is not None:
        assert not found.best.unknown
    known = [price for price in machine_prices if price is not None]
    assert (found.best is None) == (not known or disk is None)


@given(price_lists, st.integers(1, 30))
def test_a_price_that_becomes_unknown_never_makes_it_cheaper(sample, workload, machine_prices, replicas) -> None:
    spec = spec_with(workload, replicas, 1)
    before = ranked(sample, spec, machine_prices).best
    for which in range(len(SHAPES)):
        after = ranked(sample, spec, [None if i == which else p for i, p in enumerate(machine_prices)]).best
        if after is not None and after.total is not None:
            assert before is not None and before.total is not None and after.total >= before.total
