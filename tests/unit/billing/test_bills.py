"""Bills of runs and clusters: the nodes a run was on, idle beside it, simulated time, and the estimate next to it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.billing import gather
from isthmus.billing.simulated_time import SimulatedTime
from isthmus.billing.statement import Statement, differences, document
from isthmus.catalog import load
from isthmus.costs import Options, compare
from isthmus.costs.options import DEFAULTS
from isthmus.costs.parts import Part, control_plane
from isthmus.runs.model import Run, State
from isthmus.runs.store import Store
from isthmus.specs.stack import StackSettings

from .conftest import NODE, NOON, at

Ran = Callable[..., Run]
LATER = at(3600)
PRICE = 3.912  # g4dn.12xlarge in us-east-1, on demand


def use_of(store: Store, settings: StackSettings, now: datetime = LATER) -> gather.ClusterUse:
    return gather.cluster_use(store, settings, load(), stack="aws-sim", cluster_uid="cluster-1", now=now)


def test_a_run_is_billed_its_share_of_the_node_while_it_was_on_it(
    store: Store, settings: StackSettings, ran: Ran
) -> None:
    run = ran(seconds=36)
    made = gather.run_bill(use_of(store, settings), run)
    [node] = made.nodes
    assert node.usd == pytest.approx(PRICE * 0.01, abs=1e-9)
    assert node.used is not None and node.idle is not None
    assert sum(node.used) + sum(node.idle) == pytest.approx(node.usd, abs=1e-9)
    assert node.idle[2] == pytest.approx(0, abs=1e-12), "all four cards were in use"
    [line] = made.by("run")
    assert line.gpu_hours == pytest.approx(4 * 0.01)
    assert made.simulated, "the node of a simulated stack stands for a machine"
    assert [line.name for line in made.by("user")] == ["ada"]


def test_another_run_on_the_node_meanwhile_pays_its_own_share(store: Store, settings: StackSettings, ran: Ran) -> None:
    first = ran(seconds=36, share=(1, 4))
    other = ran(seconds=18, share=(1, 4), user="bob", begins=9)
    made = gather.run_bill(use_of(store, settings), first)
    by_run = {line.name: line.gpu_hours for line in made.by("run")}
    assert by_run == {first.id: pytest.approx(0.01), other.id: pytest.approx(0.005)}
    [node] = made.nodes
    assert node.used is not None and node.idle is not None
    assert sum(node.used) + sum(node.idle) == pytest.approx(PRICE * 0.01, abs=1e-9)


def test_a_run_that_is_not_over_is_billed_until_now(store: Store, settings: StackSettings, ran: Ran) -> None:
    run = ran(state=State.RUNNING)
    [node] = gather.run_bill(use_of(store, settings, now=at(72)), run).nodes
    assert node.hours == pytest.approx(0.02)


def test_a_machine_the_catalog_does_not_have_is_unknown(store: Store, settings: StackSettings, ran: Ran) -> None:
    odd = replace(NODE, labels={**NODE.labels, "node.kubernetes.io/instance-type": "x99.huge"})
    run = ran(node=odd)
    made = gather.run_bill(use_of(store, settings), run)
    said = document(Statement("run", "measured", made, ()))
    assert said["total"] is None and said["unknown"] == ["node gpu-0 (x99.huge, on-demand)"]


def test_a_node_nobody_wrote_down_is_unknown(store: Store, settings: StackSettings, ran: Ran) -> None:
    run = ran()
    use = replace(use_of(store, settings), nodes=())
    assert gather.run_bill(use, run).usd is None


@pytest.mark.parametrize(("marked", "purchase"), [("SPOT", "spot"), ("ON_DEMAND", "on-demand")])
def test_spot_nodes_are_known_by_their_label(
    store: Store, settings: StackSettings, ran: Ran, marked: str, purchase: Any
) -> None:
    run = ran(node=replace(NODE, labels=NODE.labels | {"eks.amazonaws.com/capacityType": marked}))
    [node] = gather.run_bill(use_of(store, settings), run).nodes
    offer = load().offer(load().shape("aws", "g4dn.12xlarge"), "us-east-1", purchase)
    assert offer is not None and offer.usd_per_hour is not None
    assert (node.record.purchase, node.record.usd_per_hour) == (purchase, offer.usd_per_hour)


def test_a_node_of_n1_with_cards_is_priced_with_the_cards_it_advertises(store: Store, ran: Ran) -> None:
    labels = {
        "node.kubernetes.io/instance-type": "n1-standard-8",
        "isthmus.dev/gpu-model": "T4",
        "nvidia.com/device-plugin.config": "time-slicing-4",
    }
    gcp = StackSettings.model_validate(
        {
            "cloud": "gcp", "account": "gcp-sim", "region": "us-central1", "zones": ["us-central1-a"],
            "systemPool": {"name": "system", "instanceType": "e2-standard-4"},
        }
    )  # fmt: skip
    ran(node=replace(NODE, labels=labels, advertised={"nvidia.com/gpu": 16}), share=(1, 4))
    use = gather.cluster_use(store, gcp, load(), stack="aws-sim", cluster_uid="cluster-1", now=at(60))
    record = use.life(use.node("gpu-0"), NOON, at(36))
    assert (record.instance_type, record.cards, record.usd_per_hour) == (
        "n1-standard-8 + 4 x T4", 4, Decimal("1.779998"),
    )  # fmt: skip


def test_a_cluster_is_billed_from_each_nodes_start(store: Store, settings: StackSettings, ran: Ran) -> None:
    ran(seconds=36)
    made = gather.cluster_bill(use_of(store, settings), now=at(120))
    [node] = made.nodes
    assert node.hours == pytest.approx(720 / 3600), "from 600 s before the run until now: it was just seen"
    gone = gather.cluster_bill(use_of(store, settings), now=at(100_000))
    assert gone.nodes[0].hours == pytest.approx(700 / 3600), "until it was last seen"


def test_simulated_time_goes_on_only_while_runs_execute(store: Store, settings: StackSettings, ran: Ran) -> None:
    """The account's clock says an hour has passed; two runs of 36 s, a week apart on this machine, add their 72 s."""
    ran(seconds=36)
    ran(seconds=36, begins=7 * 24 * 3600)
    use = use_of(store, settings, now=at(8 * 24 * 3600))
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    clock = gather.simulated_clock(use, begun)
    assert clock.executing == timedelta(seconds=72)
    until = begun + timedelta(hours=1) + clock.executing
    made = gather.cluster_bill(use, now=at(100), clock=clock, begun=lambda node: begun, until=until)
    [node] = made.nodes
    assert node.hours == pytest.approx(1.02)
    assert node.used is not None and node.idle is not None
    assert sum(node.used) + sum(node.idle) == pytest.approx(PRICE * 1.02, abs=1e-9)
    assert sum(line.gpu_hours for line in made.by("run")) == pytest.approx(0.08)


spans = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(sorted), max_size=8)


@given(spans, st.integers(0, 1000), st.integers(0, 1000))
def test_simulated_time_never_goes_back_and_keeps_what_runs_took(found: list[list[int]], one: int, other: int) -> None:
    clock = SimulatedTime.of(NOON, [(at(start), at(end)) for start, end in found])
    early, late = sorted((one, other))
    assert clock.at(at(early)) <= clock.at(at(late))
    for start, end in found:
        assert clock.at(at(end)) - clock.at(at(start)) == timedelta(seconds=end - start)
    seconds = {second for start, end in found for second in range(start, end)}
    assert clock.executing == timedelta(seconds=len(seconds))


def test_the_difference_to_the_estimate_is_told_in_steps_that_sum_to_it(
    store: Store, settings: StackSettings, ran: Ran
) -> None:
    run = ran(seconds=36)
    use = use_of(store, settings)
    made = gather.run_bill(use, run)
    hours = Decimal(36) / 3600
    plane = control_plane(load(), "aws", "us-east-1", hours, DEFAULTS)
    disk = Part("storage", Decimal("0.000001"), "1 GiB", "s", None)
    statement = Statement("run", "simulated", made, (plane, disk))
    estimate = (
        compare([run.spec], load(), Options(regions=("us-east-1",), purchases=("on-demand",), gpus="T4"))
        .rankings[0]
        .best
    )
    assert estimate is not None and estimate.total == Decimal("2.2041")
    steps = differences(estimate, ran_on=made.nodes, platform=statement.platform, run_hours=hours, billed=statement.usd)
    reasons = [step.reason for step in steps]
    assert reasons[0] == "machines: planned 4 x g4dn.xlarge (on-demand), ran on 1 x g4dn.12xlarge (on-demand)"
    assert reasons[1] == "hours: planned 1, took 0.010000"
    assert steps[0].usd == Decimal("3.912") - Decimal("2.104")
    assert statement.usd is not None
    total = sum((step.usd for step in steps if step.usd is not None), Decimal(0))
    assert float(estimate.total + total) == pytest.approx(statement.usd, abs=1e-9)


def test_a_run_on_the_machines_that_were_planned_differs_by_its_hours_alone(
    store: Store, settings: StackSettings, ran: Ran
) -> None:
    run = ran(seconds=36, node=replace(NODE, labels=NODE.labels | {"node.kubernetes.io/instance-type": "g4dn.xlarge"}))
    made = gather.run_bill(use_of(store, settings), run)
    one = run.spec.model_copy(update={"roles": {"Master": run.spec.roles["Master"]}})
    options = Options(regions=("us-east-1",), purchases=("on-demand",), gpus="T4")
    estimate = compare([one], load(), options).rankings[0].best
    assert estimate is not None and (estimate.nodes, estimate.shape.name) == (1, "g4dn.xlarge")
    steps = differences(estimate, ran_on=made.nodes, platform=(), run_hours=Decimal("0.01"), billed=made.usd)
    assert steps[0].reason == "hours: planned 1, took 0.010000"
    assert made.usd is not None and estimate.total is not None
    total = sum((step.usd for step in steps if step.usd is not None), Decimal(0))
    assert float(estimate.total + total) == pytest.approx(made.usd, abs=1e-9)


def test_a_statement_names_what_it_cannot_know(store: Store, settings: StackSettings, ran: Ran) -> None:
    run = ran()
    unknown = Part("NAT", None, "1 x unknown", "s", None)
    made = document(Statement("run", "simulated", gather.run_bill(use_of(store, settings), run), (unknown,)))
    assert made["total"] is None and made["unknown"] == ["NAT"]
    assert "traffic out and through NAT" in made["notMetered"]
    assert made["nodesTotal"] is not None
    [node] = made["nodes"]
    parts = [Decimal(value) for side in ("used", "idle") for value in node[side].values()]
    assert abs(sum(parts) - Decimal(node["total"])) < Decimal("1e-9")
