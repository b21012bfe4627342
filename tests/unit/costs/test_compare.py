"""The comparison: which machines, what parts, in which order, and what is refused."""

from decimal import Decimal

import pytest

from isthmus.catalog import Catalog, load
from isthmus.costs.compare import Estimate, Ranking, compare
from isthmus.costs.options import Options
from isthmus.specs.errors import InvalidSpec

DISK_AND_TRAFFIC = {"hours": 73, "storageGib": 100, "egressGib": 20000}


def asked(**options) -> Options:
    """Options, on demand and spot unless told otherwise."""
    return Options(**{"purchases": ("on-demand", "spot")} | options)


def ranked(workload, catalog, **options) -> Ranking:
    return compare([workload], catalog, asked(**options)).rankings[0]


def parts(estimate: Estimate) -> dict[str, str]:
    return {part.name: str(part.usd) for part in estimate.parts if part.name != "object storage" or part.usd}


def test_a23_host_and_card_are_summed_when_costs_are_ranked(sample: Catalog, workload) -> None:
    """skypilot-org/skypilot-catalog#31: a GCP machine's host and card are separate rows; ranked by the host alone it
    looks four times too cheap. The parts are summed, and a family whose price has the card in it adds nothing."""
    v100 = ranked(workload(), sample, purchases=["on-demand"])
    machines = [(e.cloud, e.region, e.shape.name) for e in v100.estimates]
    assert machines == [
        ("gcp", "us-central1", "n1-highmem-8 + 1 x V100"),
        ("aws", "us-east-1", "p3.2xlarge"),
        ("aws", "us-west-2", "p3.2xlarge"),
    ]
    assert parts(v100.estimates[0]) == {
        "machine": "0.4730",
        "gpu": "2.4800",
        "control plane": "0.1000",
        "storage": "0",
        "egress": "0",
    }
    assert v100.estimates[0].total == Decimal("3.0530")
    assert v100.estimates[1].total == Decimal("3.1600")
    a100 = ranked(workload(gpu={"model": "A100", "count": 1}), sample, purchases=["on-demand"]).estimates
    assert [(e.shape.name, parts(e)["machine"], parts(e)["gpu"]) for e in a100] == [
        ("a2-highgpu-1g + 1 x A100", "0.9400", "2.9340")
    ]
    bundled = ranked(workload(gpu={"model": "H100", "count": 1}), sample, purchases=["on-demand"]).estimates
    assert [(e.shape.name, parts(e)["machine"]) for e in bundled] == [("a3-highgpu-1g", "11.0600")]
    assert "gpu" not in parts(bundled[0])


def test_every_part_by_hand(sample: Catalog, workload) -> None:
    """4 cards for 73 h, 100 GiB of disk, 20,000 GiB out: each line is computed here from the sample prices."""
    spec = workload(
        roles={"Master": {"replicas": 1, "gpus": 1}, "Worker": {"replicas": 3, "gpus": 1}},
        gpu=None,
        cost=DISK_AND_TRAFFIC,
    )
    found = ranked(spec, sample, regions=["us-east-1", "us-central1"], purchases=["on-demand"], gpus="V100").estimates
    aws, gcp = found[0], found[1]
    assert (aws.shape.name, aws.nodes, aws.cards) == ("p3.8xlarge", 1, 4), "as dear as four small ones, and one machine"
    assert parts(aws) == {
        "machine": "893.5200",  # 1 x 12.24 x 73
        "control plane": "7.3000",  # 0.1 x 73
        "storage": "0.8000",  # 100 x 0.08 x 73 / 730
        "egress": "1409.6000",  # 10240 x 0.09 + 9760 x 0.05
    }
    assert aws.total == Decimal("2311.2200")
    assert (gcp.shape.name, gcp.nodes) == ("n1-highmem-8 + 1 x V100", 4)
    assert parts(gcp) == {
        "machine": "138.1160",  # 4 x 0.473 x 73
        "gpu": "724.1600",  # 4 x 2.48 x 73
        "control plane": "7.3000",
        "storage": "1.0000",  # 100 x 0.10 x 73 / 730
        "egress": "1640.9600",  # 1024 x 0.12 + 18976 x 0.08
    }
    assert gcp.total == Decimal("2511.5360")


def test_order_is_by_total_not_by_machine(sample: Catalog, workload) -> None:
    spec = workload(gpu=None, cost={"hours": 1, "egressGib": 1000})
    found = ranked(spec, sample, purchases=["on-demand"], gpus="V100").estimates
    assert [e.cloud for e in found if e.total is not None] == ["aws", "gcp"], (
        "GCP's machine is cheaper, its traffic is not"
    )


def test_an_unknown_part_makes_the_total_unknown_and_comes_last(sample: Catalog, workload) -> None:
    found = ranked(workload(cost={"hours": 1, "storageGib": 1}), sample)
    assert [(e.region, e.purchase, e.total is None) for e in found.estimates] == [
        ("us-east-1", "spot", False),
        ("us-central1", "on-demand", False),
        ("us-east-1", "on-demand", False),
        ("us-west-2", "on-demand", True),
        ("us-central1", "spot", True),
    ]
    lacking = {e.region: e.unknown for e in found.estimates if e.total is None}
    assert lacking == {"us-central1": ("gpu",), "us-west-2": ("storage",)}
    assert found.best is found.estimates[0]


def test_what_is_not_needed_is_zero_and_needs_no_price(sample: Catalog, workload) -> None:
    """us-west-2 has no price for disks and traffic in the sample; without either the total is known."""
    found = ranked(workload(), sample, regions=["us-west-2"], purchases=["on-demand"]).estimates
    assert [(part.name, part.usd) for part in found[0].parts][-3:] == [
        ("storage", 0),
        ("object storage", 0),
        ("egress", 0),
    ]
    assert found[0].total == Decimal("3.1600")


def test_nothing_known_means_no_winner(sample: Catalog, workload) -> None:
    found = ranked(workload(), sample, regions=["us-central1"], purchases=["spot"])
    assert [e.total for e in found.estimates] == [None]
    assert found.best is None


def test_refused_places_say_why(sample: Catalog, workload) -> None:
    found = ranked(workload(gpu={"model": "A100", "count": 1}), sample, purchases=["on-demand"])
    assert {(r.region, r.reason) for r in found.refused} == {
        ("us-east-1", "not sold there"),
        ("us-west-2", "not sold there"),
    }
    four = ranked(workload(gpu={"model": "V100", "count": 4}), sample, purchases=["on-demand"])
    assert [e.shape.name for e in four.estimates] == ["p3.8xlarge"]
    assert ("us-central1", "not sold there with 4 per machine (there are: 1)") in {
        (r.region, r.reason) for r in four.refused
    }
    big = workload(gpu=None, roles={"Master": {"replicas": 1, "gpus": 1, "memory": "100Gi"}})
    fits = ranked(big, sample, purchases=["on-demand"], gpus="V100")
    assert [e.shape.name for e in fits.estimates] == ["p3.8xlarge"]
    reasons = {r.region: r.reason for r in fits.refused}
    assert reasons["us-central1"] == (
        "does not fit: a pod of Master: 1 GPU, 1 CPU, 102400 MiB is more than n1-highmem-8 + 1 x V100 "
        "(gcp: 1 x V100, 8 vCPUs, 52 GiB) has"
    )


def test_a_machine_passed_over_for_want_of_a_price_is_named(sample: Catalog, workload) -> None:
    found = ranked(workload(gpu=None), sample, regions=["us-east-1"], purchases=["spot"], gpus="V100")
    assert [e.shape.name for e in found.estimates] == ["p3.2xlarge"]
    assert [r.reason for r in found.refused] == ["price unknown: 1 x p3.8xlarge"]


def test_without_a_model_every_card_that_fits_is_looked_at(sample: Catalog, workload) -> None:
    found = ranked(workload(gpu=None), sample, purchases=["on-demand"])
    assert {e.shape.gpu_model for e in found.estimates} == {"V100", "A100", "H100"}


def test_without_gpus_only_machines_without_cards_are_taken(sample: Catalog, workload) -> None:
    spec = workload(gpu=None, roles={"Master": {"replicas": 1}, "Worker": {"replicas": 9, "cpu": "2"}})
    found = ranked(spec, sample, purchases=["on-demand"]).estimates
    assert [(e.shape.name, e.nodes) for e in found] == [("n1-highmem-8", 3), ("m5.xlarge", 9)]


def test_hours_and_model_can_be_set_for_all(sample: Catalog, workload) -> None:
    one = ranked(workload(), sample, purchases=["on-demand"]).best
    ten = ranked(workload(), sample, purchases=["on-demand"], hours=Decimal(10)).best
    assert one is not None and ten is not None and ten.total == Decimal("30.5300")
    assert ranked(workload(), sample, gpus="a100-40gb", purchases=["on-demand"]).demand.gpu_model == "A100"


def test_the_oldest_date_of_the_prices_that_count(sample: Catalog, workload) -> None:
    found = ranked(workload(cost={"hours": 1, "storageGib": 1}), sample, purchases=["on-demand"]).estimates
    dates = {e.region: (str(e.oldest), e.undated) for e in found}
    assert dates["us-central1"] == ("2026-03-01", ())
    assert dates["us-east-1"] == ("2026-03-01", ("storage",))


# Bad input


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"regions": ["us-east1"]}, "there is no region 'us-east1'; nearest: us-east-1"),
        ({"regions": []}, "name at least one region"),
        ({"gpus": "V101"}, "there is no GPU model 'V101'; nearest: V100"),
        ({"purchases": ["reserved"]}, "there is no purchase option 'reserved'"),
        ({"hours": Decimal(0)}, "hours must be more than 0 and at most 100000, not 0"),
        ({"hours": Decimal(-1)}, "not -1"),
        ({"hours": Decimal("NaN")}, "not NaN"),
        ({"hours": Decimal("1e9")}, "not 1E+9"),
    ],
)
def test_bad_input_is_refused(sample: Catalog, workload, options, says: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        compare([workload()], sample, asked(**options))
    assert says in caught.value.message


@pytest.mark.parametrize("hours", [-1, 0, 1_000_000])
def test_absurd_hours_of_a_workload_are_refused_when_it_is_read(workload, hours: int) -> None:
    with pytest.raises(ValueError, match="hours"):
        workload(cost={"hours": hours})


def test_no_workload(sample: Catalog) -> None:
    with pytest.raises(InvalidSpec, match="name at least one workload"):
        compare([], sample)


def test_a_workload_larger_than_any_node_names_the_largest(workload) -> None:
    catalog = load()
    with pytest.raises(InvalidSpec) as caught:
        compare([workload(gpu=None, roles={"Master": {"replicas": 1, "gpus": 16}})], catalog, Options(gpus="T4"))
    assert "no machine in the catalog holds a pod of Master: 16 GPU" in caught.value.message
    assert "the largest is g4dn.metal (aws: 8 x T4, 96 vCPUs, 384 GiB)" in caught.value.message
    with pytest.raises(InvalidSpec, match="the largest is m6i.24xlarge"):
        compare([workload(gpu=None, roles={"Master": {"replicas": 1, "cpu": "200"}})], catalog)
    with pytest.raises(InvalidSpec, match="no machine in the catalog has 3 x T4; counts there are: 1, 2, 4, 8"):
        compare([workload(gpu={"model": "T4", "count": 3})], catalog)
