"""What a comparison can be asked: cards, sharing, speed, commitments, managed services, networks, quotas; and the three
worked examples of docs/cost.md, computed here from the cited prices."""

import csv
import shutil
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.catalog import Catalog, load, read_catalog
from isthmus.catalog.load import DATA
from isthmus.costs.compare import Comparison, Estimate, compare
from isthmus.costs.options import Options, parse_cards, parse_hours, parse_share, read_throughput
from isthmus.costs.parts import money, parts_of, total
from isthmus.costs.sensitivity import changes, premiums
from isthmus.specs.errors import InvalidSpec

TODAY = date(2026, 11, 30)


def offers(comparison: Comparison) -> tuple[Estimate, ...]:
    return comparison.rankings[0].estimates


def parts(estimate: Estimate) -> dict[str, Decimal | None]:
    return {part.name: part.usd for part in estimate.parts}


def find(comparison: Comparison, **fields: Any) -> Estimate:
    """The only offer with these fields."""
    found = [e for e in offers(comparison) if all(getattr(e, name) == value for name, value in fields.items())]
    assert len(found) == 1, found
    return found[0]


# The worked examples of docs/cost.md


def test_worked_example_4_a10g_for_100_hours() -> None:
    """g5.xlarge has one A10G and holds one such pod: 4 x 1.006 x 100, and EKS 0.1 x 100. One g5.12xlarge is dearer."""
    made = compare([], load(), Options(gpus="A10G:4", hours=Decimal(100), regions=("us-east-1",)))
    on_demand = find(made, purchase="on-demand")
    assert (on_demand.nodes, on_demand.shape.name) == (4, "g5.xlarge")
    assert parts(on_demand)["machine"] == Decimal("402.4") and Decimal("402.4") < Decimal("5.672") * 100
    assert parts(on_demand)["control plane"] == Decimal(10)
    assert on_demand.total == Decimal("412.4")
    spot = find(made, purchase="spot")
    assert spot.total == 4 * Decimal("0.5089") * 100 + 10 == Decimal("213.56")
    committed = find(made, purchase="1-year")
    assert committed.total == 4 * Decimal("0.63378") * 8760 + 10 == money(Decimal("22217.6512"))


def test_worked_example_8_a100_for_24_hours_on_spot() -> None:
    """AWS us-west-2: one p4d.24xlarge at 12.8763; GCP europe-west4: eight cards at the a2-highgpu-8g's 13.54268."""
    made = compare([], load(), Options(gpus="A100:8", hours=Decimal(24), purchases=("spot",)))
    best = offers(made)[0]
    assert (best.region, best.nodes, best.shape.name) == ("us-west-2", 1, "p4d.24xlarge")
    assert best.total == money(Decimal("12.8763") * 24) + Decimal("2.4") == Decimal("311.4312")
    rival = next(e for e in offers(made) if e.cloud == "gcp")
    assert (rival.region, rival.cards) == ("europe-west4", 8)
    assert rival.total == money(Decimal("13.54268") * 24) + Decimal("2.4") == Decimal("327.4243")
    lost = best.interruptions
    assert lost is not None and lost.band == ">20%" and lost.most is None
    assert lost.least == pytest.approx(Decimal("0.20") * 24 / 730, abs=Decimal("1e-20"))
    assert lost.lost_usd_least == lost.least * Decimal("0.25") * Decimal("12.8763")


def test_worked_example_one_t4_shared_by_four() -> None:
    """Four pods of a quarter card on one g4dn.xlarge cost what one pod with the whole card does: 0.526 + 0.1 in an hour."""
    shared = compare([], load(), Options(gpus="T4:1", share=parse_share("time-slicing:4"), regions=("us-east-1",)))
    whole = compare([], load(), Options(gpus="T4:1", regions=("us-east-1",)))
    one = find(shared, purchase="on-demand")
    assert shared.rankings[0].demand.count == 4
    assert (one.nodes, one.shape.name, one.total) == (1, "g4dn.xlarge", Decimal("0.626"))
    assert one.total == find(whole, purchase="on-demand").total
    four = compare([], load(), Options(gpus="T4:4", regions=("us-east-1",)))
    assert find(four, purchase="on-demand").total == 4 * Decimal("0.526") + Decimal("0.1") == Decimal("2.204")


# Cards


def test_cards_replace_a_workloads_pods_and_a_model_alone_only_its_model(sample: Catalog, workload) -> None:
    spec = workload(roles={"Master": {"replicas": 1, "gpus": 1}, "Worker": {"replicas": 3, "gpus": 1}}, gpu=None)
    model = compare([spec], sample, Options(gpus="v100"))
    assert (model.rankings[0].demand.gpu_model, model.rankings[0].demand.count) == ("V100", 4)
    cards = compare([spec], sample, Options(gpus="V100:2"))
    assert (cards.rankings[0].workload, cards.rankings[0].demand.gpus) == ("train", 2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("V101", "there is no GPU model 'V101'; nearest: V100"),
        ("V100:", "the number of cards must be 1 to 100000, not ''"),
        ("V100:0", "not '0'"),
        ("V100:-1", "not '-1'"),
        ("V100:many", "not 'many'"),
        ("V100:100001", "not '100001'"),
    ],
)
def test_cards_that_are_none_are_refused(sample: Catalog, text: str, says: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_cards(text, sample)
    assert says in caught.value.message


def test_cards_alone_need_a_number(sample: Catalog) -> None:
    with pytest.raises(InvalidSpec, match="name at least one workload, or cards as MODEL:N"):
        compare([], sample, Options(gpus="V100"))


@pytest.mark.parametrize("text", ["soon", "1,5", "0x10", ""])
def test_hours_that_are_no_number_are_refused(text: str) -> None:
    with pytest.raises(InvalidSpec, match="hours must be a number"):
        parse_hours(text, "--hours")


@pytest.mark.parametrize("hours", ["0", "-1", "NaN", "Infinity", "100001"])
def test_absurd_hours_between_checkpoints_are_refused(sample: Catalog, workload, hours: str) -> None:
    with pytest.raises(InvalidSpec, match="hours between checkpoints must be more than 0"):
        compare([workload()], sample, Options(checkpoint_hours=Decimal(hours)))


# Sharing


@pytest.mark.parametrize("text", ["time-slicing:4", "mps:48", "mig:1g.5gb"])
def test_shares_are_read_and_said_alike(text: str) -> None:
    assert str(parse_share(text)) == text


@pytest.mark.parametrize(
    "text", ["time-slicing", "time-slicing:0", "mps:49", "mig:7", "mig:", "half", "dra:2", "mps:²"]
)
def test_shares_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidSpec, match="a share is time-slicing:N or mps:N"):
        parse_share(text)


def test_mig_packs_as_many_instances_as_the_card_has() -> None:
    made = compare([], load(), Options(gpus="A100:1", share=parse_share("mig:1g.5gb"), purchases=("on-demand",)))
    assert made.rankings[0].demand.count == 7
    assert find(made, region="us-central1").nodes == 1


def test_a_card_without_mig_refuses_it_and_names_a_way_out(workload) -> None:
    with pytest.raises(InvalidSpec, match="T4 cannot be shared by mig:1g.5gb: it has no MIG"):
        compare([], load(), Options(gpus="T4:1", share=parse_share("mig:1g.5gb")))
    with pytest.raises(InvalidSpec, match="A100 cannot be shared by mig:1g.12gb: it has: 1g.5gb"):
        compare([workload(gpu={"model": "A100", "count": 8})], load(), Options(share=parse_share("mig:1g.12gb")))


def test_mps_on_an_older_card_has_fewer_clients() -> None:
    with pytest.raises(InvalidSpec, match="P100 cannot be shared by mps:48: it serves at most 16 clients"):
        compare([], load(), Options(gpus="P100:1", share=parse_share("mps:48"), regions=("us-central1",)))
    made = compare([], load(), Options(gpus="P100:1", share=parse_share("mps:16"), purchases=("on-demand",)))
    assert made.rankings[0].demand.count == 16


def test_other_cards_of_an_open_workload_are_refused_each_by_itself(workload) -> None:
    made = compare([workload(gpu=None)], load(), Options(share=parse_share("mig:1g.5gb"), purchases=("on-demand",)))
    assert {e.shape.gpu_model for e in offers(made)} == {"A100"}
    reasons = {(r.gpu_model, r.reason) for r in made.rankings[0].refused}
    assert ("T4", "cannot be shared by mig:1g.5gb") in reasons


@given(sharers=st.integers(1, 48), pods=st.integers(1, 60))
def test_sharing_never_costs_more_than_whole_cards(sample: Catalog, workload, sharers: int, pods: int) -> None:
    spec = workload(
        gpu=None, kind="JAXJob", roles={"Worker": {"replicas": pods, "gpus": 1, "cpu": "10m", "memory": "1Mi"}}
    )
    options = Options(gpus="V100", purchases=("on-demand",), regions=("us-east-1",))
    whole = compare([spec], sample, options).rankings[0].best
    shared = compare([spec], sample, replace(options, share=parse_share(f"time-slicing:{sharers}"))).rankings[0].best
    assert whole is not None and shared is not None and whole.total is not None and shared.total is not None
    assert shared.total <= whole.total


# Speed


def throughput(folder: Path, *rows: str) -> Path:
    path = folder / "speed.csv"
    path.write_text("\n".join(["gpu_model,steps_per_second,source,as_of", *rows]) + "\n", encoding="utf-8")
    return path


def test_hours_differ_by_card_with_steps_per_second(sample: Catalog, workload, tmp_path: Path) -> None:
    path = throughput(tmp_path, "V100,10,measured by us,2026-11-01", "A100,25,vendor's paper,undated")
    given_rates = read_throughput(path, sample, today=TODAY)
    spec = workload(gpu=None, cost={"hours": 50})
    made = compare([spec], sample, Options(throughput=given_rates, purchases=("on-demand",)))
    assert {e.shape.gpu_model: e.hours for e in offers(made)} == {"V100": Decimal(50), "A100": Decimal(20)}
    a100 = next(e for e in offers(made) if e.shape.gpu_model == "A100")
    assert parts(a100)["machine"] == Decimal("0.94") * 20 and parts(a100)["control plane"] == Decimal(2)
    assert ("H100", "no throughput is given for H100") in {(r.gpu_model, r.reason) for r in made.rankings[0].refused}
    assert any("A100 25 (vendor's paper, undated)" in text for text in made.assumptions)


def test_hours_are_those_of_the_workloads_own_card(sample: Catalog, workload, tmp_path: Path) -> None:
    path = throughput(tmp_path, "A100,25,s,undated", "V100,10,s,undated")
    spec = workload(gpu={"model": "V100", "count": 1}, cost={"hours": 50})
    made = compare([spec], sample, Options(throughput=read_throughput(path, sample, today=TODAY)))
    assert {e.hours for e in offers(made)} == {Decimal(50)}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("V101,1,s,undated", "speed.csv, row 2: there is no GPU model 'V101'"),
        ("V100,fast,s,undated", "speed.csv, row 2: steps_per_second must be a number, not 'fast'"),
        ("V100,-1,s,undated", "steps_per_second must be a number of 0 or more"),
        ("V100,0,s,undated", "steps_per_second is 0"),
        ("V100,1,,undated", "source is missing"),
        ("V100,1,s,2027-01-01", "as_of 2027-01-01 lies in the future"),
    ],
)
def test_a_wrong_row_of_steps_is_named(sample: Catalog, tmp_path: Path, row: str, says: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        read_throughput(throughput(tmp_path, row), sample, today=TODAY)
    assert says in caught.value.message
    assert "speed.csv" in caught.value.remedy


def test_a_file_of_steps_that_is_not_there_or_empty_is_refused(sample: Catalog, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"there is no file .*none\.csv"):
        read_throughput(tmp_path / "none.csv", sample, today=TODAY)
    with pytest.raises(InvalidSpec, match=r"speed\.csv has no row"):
        read_throughput(throughput(tmp_path), sample, today=TODAY)


# Commitments, managed services, network, control plane


def test_a_commitment_is_paid_for_its_term_and_more_hours_at_its_rate(sample: Catalog, workload) -> None:
    options = Options(purchases=("1-year",), regions=("us-east-1",))
    short = offers(compare([workload()], sample, options))[0]
    assert parts(short)["machine"] == Decimal(2) * 8760
    long = offers(compare([workload(cost={"hours": 10_000})], sample, options))[0]
    assert parts(long)["machine"] == Decimal(20_000)


def test_a_commitment_covers_the_host_and_leaves_cards_unknown(sample: Catalog, workload) -> None:
    made = offers(compare([workload()], sample, Options(purchases=("1-year",), regions=("us-central1",))))[0]
    assert parts(made)["machine"] == Decimal("0.473") * Decimal("0.6") * 8760
    assert parts(made)["gpu"] is None and made.total is None


def test_an_unknown_commitment_is_refused_not_guessed(sample: Catalog, workload) -> None:
    ranking = compare([workload()], sample, Options(purchases=("3-year",), regions=("us-east-1",))).rankings[0]
    assert ranking.estimates == ()
    assert [r.reason for r in ranking.refused] == [
        "not sold there under this option, or its price is not in the catalog"
    ]


def test_a_managed_service_costs_its_premium_and_no_control_plane(sample: Catalog, workload) -> None:
    options = Options(purchases=("on-demand",), regions=("us-east-1",), managed=True)
    made = compare([workload(cost={"hours": 10})], sample, options)
    managed, own = find(made, service="SageMaker"), find(made, service=None)
    assert parts(managed) | {"storage": 0, "object storage": 0, "egress": 0} == {
        "machine": Decimal("30.6"), "managed premium": Decimal("7.65"), "control plane": 0, "storage": 0,
        "object storage": 0, "egress": 0,
    }  # fmt: skip
    assert managed.total == Decimal("38.25") == Decimal("3.825") * 10
    assert own.total == Decimal("31.6"), "cheaper by 6.65 although it pays 1.00 for the control plane"


def test_a_stale_managed_price_is_its_ratio_of_todays(sample: Catalog, workload) -> None:
    """The source has 18 against 15 for a machine that now costs 12.24: 20 % of 12.24, and said to be derived."""
    spec = workload(gpu={"model": "V100", "count": 4}, roles={"Master": {"replicas": 1, "gpus": 4}})
    made = compare([spec], sample, Options(purchases=("on-demand",), managed=True))
    premium = next(part for part in find(made, service="SageMaker").parts if part.name == "managed premium")
    assert premium.usd == Decimal("2.448")
    assert "derived: its ratio of today's price" in premium.source


def test_the_missions_example_of_managed_against_ones_own_is_shown_whole() -> None:
    """SageMaker ml.m5.2xlarge 0.461 against EC2 0.384: a premium of 20.05 %, a saving of 16.7 %; with the control plane's
    0.1 one machine alone loses (0.484), and 0.1 / 0.077 = 1.30 machines are the break-even."""
    [row] = [row for row in premiums(load()) if row.instance_type == "m5.2xlarge"]
    assert (row.managed, row.own) == (Decimal("0.461"), Decimal("0.384"))
    assert f"{row.premium:.2f}" == "20.05" and f"{row.saving:.1f}" == "16.7"
    assert row.machines == Decimal("0.1") / Decimal("0.077")
    assert row.sentence == (
        "SageMaker asks 0.461 USD/h for m5.2xlarge against 0.384: a premium of 20.05 %, or a saving of 16.7 % by running it "
        "yourself. With the control plane's 0.1 USD/h one machine alone loses (0.484 against 0.461 USD/h), 2 or more win; "
        "break-even 1.30 machines."
    )


def test_the_break_even_of_machines_is_where_the_totals_cross(workload) -> None:
    """One m5.2xlarge by SageMaker is cheaper than one with a control plane; two are dearer."""
    totals = {}
    for pods in (1, 2):
        spec = workload(gpu=None, kind="JAXJob", roles={"Worker": {"replicas": pods, "cpu": "7", "memory": "20Gi"}})
        options = Options(purchases=("on-demand",), regions=("us-east-1",), managed=True)
        made = compare([spec], load(), options)
        totals[pods] = (find(made, service="SageMaker").total, find(made, service=None).total)
    assert totals[1] == (Decimal("0.461"), Decimal("0.484"))
    assert totals[2] == (Decimal("0.922"), Decimal("0.868"))


def test_the_network_is_a_gateway_its_traffic_and_a_load_balancer(workload) -> None:
    spec = workload(gpu={"model": "T4", "count": 4}, roles={"Master": {"replicas": 1, "gpus": 4}}, cost={"hours": 100, "egressGib": 50})  # fmt: skip
    made = compare([spec], load(), Options(network=True, purchases=("on-demand",)))
    aws, gcp = find(made, region="us-east-1"), find(made, region="us-central1")
    assert parts(aws)["network"] == money(100 * Decimal("0.045") + 50 * Decimal("0.045") + 100 * Decimal("0.0225"))
    assert parts(gcp)["network"] == money(100 * Decimal("0.0014") + 50 * Decimal("0.045") + 100 * Decimal("0.01"))
    elsewhere = find(made, region="us-west-2")
    assert parts(elsewhere)["network"] is None and elsewhere.total is None, "no price there is in the catalog"


def test_many_machines_behind_a_gcp_nat_pay_its_cap(workload) -> None:
    spec = workload(gpu=None, roles={"Master": {"replicas": 1}, "Worker": {"replicas": 99, "cpu": "31"}})
    made = compare([spec], load(), Options(network=True, purchases=("on-demand",), regions=("us-central1",)))
    assert offers(made)[0].nodes > 32
    assert parts(offers(made)[0])["network"] == money(Decimal("0.0448") + Decimal("0.01"))


def test_the_control_plane_by_support_and_free_tier(workload) -> None:
    spec = workload(gpu={"model": "T4", "count": 1}, cost={"hours": 1000})
    fees = {}
    for kind in ("standard", "extended", "free-tier"):
        made = compare([spec], load(), Options(control_plane=kind, purchases=("on-demand",)))  # type: ignore[arg-type]
        for region in ("us-east-1", "us-central1"):
            fees[kind, region] = parts(find(made, region=region))["control plane"]
    assert fees == {
        ("standard", "us-east-1"): 100, ("standard", "us-central1"): 100,
        ("extended", "us-east-1"): 600, ("extended", "us-central1"): 100,
        ("free-tier", "us-east-1"): 100, ("free-tier", "us-central1"): 0,
    }  # fmt: skip


def test_objects_are_kept_at_the_bucket_s_price(sample: Catalog, workload) -> None:
    made = compare([workload(cost={"hours": 730, "objectGib": 100})], sample, Options(purchases=("on-demand",)))
    kept = {e.region: parts(e)["object storage"] for e in offers(made)}
    assert kept == {"us-east-1": Decimal("2.3"), "us-central1": Decimal(2), "us-west-2": None}


# Quotas and capacity


def test_what_a_new_account_may_not_have_is_named_or_refused(workload) -> None:
    spec = workload(gpu={"model": "T4", "count": 4}, roles={"Master": {"replicas": 1, "gpus": 4}})
    options = Options(purchases=("on-demand",), regions=("us-east-1",))
    [offer] = offers(compare([spec], load(), options))
    assert offer.quota == ("48 vcpus of Running On-Demand G and VT instances (L-DB2E81BA), a new account has 0",)
    strict = compare([spec], load(), replace(options, within_quota=True)).rankings[0]
    assert strict.estimates == ()
    assert [r.reason for r in strict.refused] == [f"quota: {offer.quota[0]}"]


def test_a_machine_that_no_zone_is_recorded_to_have_is_refused(sample: Catalog, workload, tmp_path: Path) -> None:
    folder = tmp_path / "facts"
    shutil.copytree(Path(__file__).parent / "sample", folder)
    zones = (folder / "zones.csv").read_text(encoding="utf-8")
    (folder / "zones.csv").write_text(
        zones.replace("us-east-1,us-east-1a,*", "us-east-1,us-east-1a,m5"), encoding="utf-8"
    )
    ranking = compare([workload()], read_catalog(folder, today=TODAY), Options(regions=("us-east-1",))).rankings[0]
    assert ranking.estimates == ()
    assert "no zone of us-east-1 is recorded to have p3.2xlarge" in {r.reason for r in ranking.refused}


# Facts


def test_every_part_of_the_catalog_has_a_row_that_prices_it() -> None:
    """A name in parts.csv that services.csv does not have would only be found when a report needs it."""
    catalog = load()
    with (DATA / "parts.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            region = catalog.regions(row["cloud"])[0]
            assert catalog.part_tiers(row["cloud"], row["part"], region), row


def test_a_cloud_is_added_by_data_alone(sample: Catalog, workload, tmp_path: Path) -> None:
    folder = tmp_path / "facts"
    shutil.copytree(Path(__file__).parent / "sample", folder)
    more = {
        "clouds.csv": "acme,Acme Cloud,gke,sample,undated",
        "shapes.csv": "acme,big-1,16,64,V100,1,16,,sample,undated",
        "prices.csv": "acme,moon-1,big-1,on-demand,0.5,sample acme,2026-06-01",
        "services.csv": 'acme,kube,"cluster fee",moon-1,0.2,USD/cluster-hour,,,sample acme,2026-06-01,',
        "parts.csv": "acme,control-plane,kube,cluster fee,sample,undated",
    }
    for name, line in more.items():
        path = folder / name
        path.write_text(path.read_text(encoding="utf-8").rstrip("\n") + f"\n{line}\n", encoding="utf-8")
    catalog = read_catalog(folder, today=TODAY)
    best = compare([workload()], catalog, Options(purchases=("on-demand",))).rankings[0].best
    assert best is not None
    assert (best.cloud, best.region, best.total) == ("acme", "moon-1", Decimal("0.7"))
    disk = compare([workload(cost={"hours": 1, "storageGib": 1})], catalog, Options(regions=("moon-1",), purchases=("on-demand",)))  # fmt: skip
    assert parts(offers(disk)[0])["storage"] is None, "a part that was not added is unknown, not 0"


# What would change the answer


def test_break_evens_are_where_totals_cross(sample: Catalog, workload) -> None:
    """AWS's traffic is cheaper, GCP's machine is: priced again on both sides of each break-even, the order differs."""
    spec = workload(cost={"hours": 10})
    made = compare([spec], sample, Options(purchases=("on-demand",), gpus="V100"))
    ranking = made.rankings[0]
    best = ranking.best
    rival = next(e for e in ranking.estimates if best and e.cloud != best.cloud)
    assert best is not None
    told = {change.kind: change for change in changes(made, ranking)}
    gib = told["egress"].at
    assert gib is not None

    def price(estimate: Estimate, amount: Decimal) -> Decimal:
        offer = sample.offer(estimate.shape, estimate.region, estimate.purchase)
        assert offer is not None
        found = total(parts_of(sample, offer, estimate.nodes, replace(ranking.demand, egress_gib=amount), made.options))
        assert found is not None
        return found

    assert price(best, gib * Decimal("0.99")) < price(rival, gib * Decimal("0.99"))
    assert price(best, gib * Decimal("1.01")) > price(rival, gib * Decimal("1.01"))
    assert told["hours"].at is None and "Whatever the hours" in told["hours"].text


def test_a_commitment_pays_from_its_break_even_on(workload) -> None:
    """0.526 on demand against 0.331 for all 8,760 h: from 8760 x 0.331 / 0.526 = 5,512 h on."""
    spec = workload(gpu={"model": "T4", "count": 1})
    made = compare([spec], load(), Options(purchases=("on-demand", "1-year"), regions=("us-east-1",)))
    [told] = [change for change in changes(made, made.rankings[0]) if change.kind == "commitment"]
    assert told.at is not None and abs(told.at - 8760 * Decimal("0.331") / Decimal("0.526")) < Decimal("0.01")
    assert "from 5,512 h of use in its 8760 h (63 % of the term)" in told.text


@given(st.integers(1, 5000), st.integers(0, 30_000))
def test_totals_never_fall_with_more_hours_or_traffic(sample: Catalog, workload, hours: int, egress: int) -> None:
    def best(more_hours: int, more_gib: int) -> Decimal:
        cost = {"hours": hours + more_hours, "egressGib": egress + more_gib}
        found = compare([workload(cost=cost)], sample, Options(gpus="V100")).rankings[0].best
        assert found is not None and found.total is not None
        return found.total

    assert best(0, 0) <= best(1, 0) and best(0, 0) <= best(0, 1)
