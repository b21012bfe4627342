"""Questions to the catalog that comes with isthmus."""

import itertools
from decimal import Decimal

import pytest

from isthmus.catalog import Catalog, load
from isthmus.catalog.allocatable import gke_reserved_memory_mib, reserved_cpu_m
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import InvalidSpec


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load()


def t4(count: int) -> GpuCards:
    return GpuCards(model="T4", count=count)


# Places


def test_clouds_and_regions(catalog: Catalog) -> None:
    assert catalog.clouds() == ("aws", "gcp")
    assert catalog.regions("aws") == ("eu-west-1", "us-east-1", "us-west-2")
    assert catalog.regions("gcp") == ("europe-west4", "us-central1", "us-west1")


def test_zones_say_what_can_be_had_there(catalog: Catalog) -> None:
    a2 = catalog.shape("gcp", "a2-highgpu-1g")
    having = [zone.name for zone in catalog.zones("gcp", "us-central1") if zone.has(a2)]
    assert having == ["us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f"]
    assert not catalog.zone("gcp", "us-west1", "us-west1-a").has(a2)
    p100 = catalog.shape("gcp", "n1-standard-8", GpuCards(model="P100", count=1))
    assert [zone.name for zone in catalog.zones("gcp", "europe-west4") if zone.has(p100)] == ["europe-west4-a"]
    assert [z.name for z in catalog.zones("aws", "us-east-1") if not z.control_plane] == ["us-east-1e"]


@pytest.mark.parametrize(
    ("ask", "says", "remedy"),
    [
        (lambda c: c.regions("kind"), "there is no cloud 'kind'; known: aws, gcp", "use one of: aws, gcp"),
        (lambda c: c.zones("aws", "us-east1"), "nearest: us-east-1", "use us-east-1"),
        (lambda c: c.offers(region="us-centrall"), "nearest: us-central1", "use us-central1"),
        (
            lambda c: c.zone("gcp", "us-west1", "us-west1-q"),
            "there is no zone 'us-west1-q' in gcp us-west1",
            "use us-west1",
        ),
        (lambda c: c.gpu("A10"), "there is no GPU model 'A10'; nearest: A10G, A100", "use A10G"),
        (lambda c: c.gpu("Z9000"), "known: A100, A100-80GB, A10G, A30, H100", "use one of: A100"),
        (lambda c: c.shape("aws", "g4dn.12xlrge"), "nearest: g4dn.12xlarge", "use g4dn.12xlarge"),
        (lambda c: c.quota("aws", "L-DB2E81BB"), "nearest: L-DB2E81BA", "use L-DB2E81BA"),
        (lambda c: c.latency("gcp", "gke-cluster-creat"), "nearest: gke-cluster-create", "use gke-cluster-create"),
        (lambda c: c.service("aws", "ebs", "gp3", "us-east-1"), "nearest: ebs: gp3 storage", "use ebs: gp3 storage"),
    ],
)
def test_an_unknown_name_gets_the_nearest_and_the_legal_ones(catalog: Catalog, ask, says: str, remedy: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        ask(catalog)
    assert says in caught.value.message
    assert caught.value.remedy.startswith(remedy)


# Cards and machines


@pytest.mark.parametrize(
    ("cloud", "region", "cards", "expected"),
    [
        ("aws", "us-east-1", t4(1), "g4dn.xlarge"),
        ("aws", "us-east-1", t4(4), "g4dn.12xlarge"),
        ("aws", "us-west-2", GpuCards(model="A10G", count=4), "g5.12xlarge"),
        ("aws", "us-east-1", GpuCards(model="a100-40gb", count=8), "p4d.24xlarge"),
        ("aws", "us-east-1", GpuCards(model="A100-80GB", count=8), "p4de.24xlarge"),
        ("gcp", "us-central1", t4(1), "n1-standard-2 + 1 x T4"),
        ("gcp", "us-central1", t4(4), "n1-standard-8 + 4 x T4"),
        ("gcp", "europe-west4", GpuCards(model="L4", count=4), "g2-standard-48"),
        ("gcp", "us-central1", GpuCards(model="H200", count=8), "a3-ultragpu-8g"),
    ],
)
def test_the_machine_for_some_cards(catalog: Catalog, cloud: str, region: str, cards: GpuCards, expected: str) -> None:
    shape = catalog.machine_for(cloud, region, cards)
    assert shape.name == expected
    assert shape.gpu_count == cards.count
    assert shape.gpu_model == catalog.gpu(cards.model).model


def test_attached_cards_keep_the_clouds_own_names(catalog: Catalog) -> None:
    shape = catalog.machine_for("gcp", "us-central1", t4(4))
    assert (shape.instance_type, shape.accelerator, shape.cards_apart) == ("n1-standard-8", "nvidia-tesla-t4", True)
    assert catalog.shape("gcp", "n1-standard-8").gpu_count == 0
    bundled = catalog.machine_for("gcp", "us-central1", GpuCards(model="L4", count=1))
    assert (bundled.accelerator, bundled.cards_apart) == ("nvidia-l4", False)


def test_no_machine_with_that_many_names_the_counts_there_are(catalog: Catalog) -> None:
    with pytest.raises(
        InvalidSpec, match="no machine in aws us-east-1 has 2 x T4; machines there have 1, 4, 8 of them"
    ):
        catalog.machine_for("aws", "us-east-1", t4(2))
    with pytest.raises(InvalidSpec, match="no machine in gcp us-west1 has 8 x H200; the region has A100, H100, L4"):
        catalog.machine_for("gcp", "us-west1", GpuCards(model="H200", count=8))


def test_an_instance_type_without_that_gpu_names_those_that_have_it(catalog: Catalog) -> None:
    with pytest.raises(InvalidSpec) as caught:
        catalog.machine_for("aws", "us-east-1", t4(4), "g5.12xlarge")
    assert caught.value.message == "g5.12xlarge on aws does not have 4 x T4; those that have: g4dn.12xlarge"
    assert caught.value.remedy == "use g4dn.12xlarge"


def test_a_machine_named_is_taken_if_it_is_sold_there(catalog: Catalog) -> None:
    assert catalog.machine_for("gcp", "us-west1", t4(4), "n1-standard-32").name == "n1-standard-32 + 4 x T4"
    assert catalog.machine_for("aws", "us-east-1", None, "m5.xlarge").vcpus == 4
    with pytest.raises(InvalidSpec, match="g6.xlarge is not sold in aws eu-west-1; it is in: us-east-1, us-west-2"):
        catalog.machine_for("aws", "eu-west-1", None, "g6.xlarge")
    with pytest.raises(InvalidSpec, match="give an instance type or a GPU model and count"):
        catalog.machine_for("aws", "eu-west-1", None)


def test_gpu_by_alias_and_nvml_name(catalog: Catalog) -> None:
    assert catalog.gpu("tesla t4") is catalog.gpu("T4")
    assert catalog.gpu("H100-80GB").nvml_name == "NVIDIA H100 80GB HBM3"
    assert [p.profile for p in catalog.mig_profiles("A100")][:3] == ["1g.5gb", "1g.5gb+me", "1g.10gb"]
    assert catalog.mig_profiles("T4") == ()


# Node rules, by figures that the sources give


def test_eks_allocatable_is_what_the_sources_say(catalog: Catalog) -> None:
    known = catalog.allocatable("aws", catalog.shape("aws", "g5.12xlarge"))
    assert known == {"cpu_millicores": 47810, "memory_mib": 173400, "pods": 737}


def test_eks_formula_agrees_with_the_table_where_both_are_known(catalog: Catalog) -> None:
    """g4dn.12xlarge: 234 pods by its network cards, so by hand 11 x 234 + 255 MiB are kept, 7.5 % and 100 MiB besides."""
    from isthmus.catalog import allocatable

    shape = catalog.shape("aws", "p5.48xlarge")
    by_formula = allocatable.eks(shape, None)
    by_table = catalog.allocatable("aws", shape)
    assert by_formula["cpu_millicores"] == by_table["cpu_millicores"] == 191450
    assert (
        abs(by_formula["memory_mib"] - by_table["memory_mib"]) == 110
    )  # 10 pods more than the table's 100, 11 MiB each


def test_gke_reserves_in_steps() -> None:
    """150 GiB machine: 9.8577 GiB with the eviction threshold (hatemosphere/gke-node-allocatable-memory-calculator)."""
    reserved = gke_reserved_memory_mib(Decimal(150)) + 100
    assert round(reserved / 1024, 4) == Decimal("9.8577")
    assert gke_reserved_memory_mib(Decimal(1)) == 255


@pytest.mark.parametrize(("vcpus", "kept"), [(2, 70), (4, 80), (8, 90), (48, 190), (192, 550)])
def test_cpu_kept_back(vcpus: int, kept: int) -> None:
    assert reserved_cpu_m(vcpus) == kept


# Quotas


@pytest.mark.parametrize(
    ("cloud", "machine", "cards", "purchase", "expected"),
    [
        ("aws", "g4dn.12xlarge", None, "on-demand", {"L-DB2E81BA": 48}),
        ("aws", "p4d.24xlarge", None, "spot", {"L-7212CCBC": 96}),
        ("aws", "m5.large", None, "on-demand", {"L-1216C47A": 2}),
        (
            "gcp",
            "n1-standard-8",
            t4(4),
            "spot",
            {"PREEMPTIBLE_NVIDIA_T4_GPUS": 4, "GPUS_ALL_REGIONS": 4, "CPUS_ALL_REGIONS": 8, "CPUS": 8},
        ),
        ("gcp", "n2-standard-4", None, "on-demand", {"N2_CPUS": 4, "CPUS_ALL_REGIONS": 4}),
    ],
)
def test_what_a_machine_counts_against(catalog, cloud, machine, cards, purchase, expected) -> None:
    shape = catalog.shape(cloud, machine, cards)
    assert {q.code: q.amount(shape, purchase) for q in catalog.quotas_for(shape, purchase)} == expected


# Prices


def test_offers_are_cheapest_first_and_can_be_narrowed(catalog: Catalog) -> None:
    offers = catalog.offers(gpu="T4", purchase="on-demand")
    prices = [offer.usd_per_hour for offer in offers if offer.usd_per_hour is not None]
    assert prices == sorted(prices)
    assert {offer.shape.gpu_model for offer in offers} == {"T4"}
    assert {offer.region for offer in catalog.offers(cloud="aws", region="us-east-1")} == {"us-east-1"}


def test_host_and_cards_are_summed_and_say_so(catalog: Catalog) -> None:
    offer = next(
        o
        for o in catalog.offers(cloud="gcp", region="us-central1", gpu="T4", purchase="on-demand")
        if o.shape.name == "n1-standard-8 + 4 x T4"
    )
    assert offer.machine_usd_per_hour == Decimal("0.379998")
    assert offer.gpu_usd_per_hour == Decimal("1.40")
    assert offer.usd_per_hour == Decimal("1.779998")
    assert "derived: 4 x the price of one card" in (offer.gpu_source or "")


def test_a_service_price_of_another_region_is_not_borrowed(catalog: Catalog) -> None:
    assert catalog.service("aws", "nat-gateway", "gateway hour", "us-east-1").value == Decimal("0.045")
    elsewhere = catalog.service("aws", "nat-gateway", "gateway hour", "us-west-2")
    assert elsewhere.value is None
    assert "us-west-2" in elsewhere.source
    fee = "cluster management fee (all modes and topologies)"
    assert catalog.service("gcp", "gke", fee, "europe-west4").value == Decimal("0.1")


def test_egress_steps_are_in_order_and_without_gaps(catalog: Catalog) -> None:
    for cloud, prefix in (("aws", "internet egress"), ("gcp", "internet egress premium tier")):
        for region in catalog.regions(cloud):
            steps = catalog.tiers(cloud, "data-transfer", prefix, region)
            assert steps[0].tier_from_gib == 0
            assert steps[-1].tier_to_gib is None
            for one, following in itertools.pairwise(steps):
                assert one.tier_to_gib == following.tier_from_gib


# The data as a whole


def test_every_region_has_zones_and_every_machine_a_zone(catalog: Catalog) -> None:
    for cloud in catalog.clouds():
        for region in catalog.regions(cloud):
            zones = catalog.zones(cloud, region)
            assert zones, region
            for offer in catalog.offers(cloud=cloud, region=region):
                assert any(zone.has(offer.shape) for zone in zones), (region, offer.shape.name)


def test_every_machine_has_quotas_room_and_a_price_somewhere(catalog: Catalog) -> None:
    for cloud in catalog.clouds():
        for shape in catalog.shapes(cloud):
            assert catalog.quotas_for(shape, "on-demand"), shape.name
            assert min(catalog.allocatable(cloud, shape).values()) > 0, shape.name
            assert any(offer.usd_per_hour for offer in catalog.offers(cloud=cloud) if offer.shape == shape), shape.name


def test_gke_names_every_card_it_sells(catalog: Catalog) -> None:
    for shape in catalog.shapes("gcp"):
        assert (shape.accelerator is None) == (shape.gpu_count == 0), shape.name


def test_load_is_read_once() -> None:
    assert load() is load()
