"""The bill: shares sum to the node, idle apart, and what cannot have been is refused."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.catalog import load
from isthmus.costs.bill import Bill, bill
from isthmus.costs.split import weights
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.usage import NodeRecord, UsageRecord

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
EXACT = 1e-9


def at(hours: float) -> datetime:
    return NOON + timedelta(hours=hours)


def node(**change: Any) -> NodeRecord:
    """A g4dn.xlarge as in case A24: 0.526 USD/h, 4 vCPUs, 16 GiB, 1 card; divided as in us-east-1; for one hour."""
    values: dict[str, Any] = {
        "node": "n", "instance_type": "g4dn.xlarge", "purchase": "on-demand", "start": NOON, "end": at(1),
        "cpu_millicores": 4000, "memory_mib": 16384, "cards": 1, "usd_per_hour": Decimal("0.526"),
        "cpu_weight": Decimal("0.148"), "memory_weight": Decimal("0.044"), "card_weight": Decimal("0.334"),
    }  # fmt: skip
    return NodeRecord(**values | change)


def use(pod: str = "p", **change: Any) -> UsageRecord:
    """A pod with the whole card and a core for the whole hour."""
    values: dict[str, Any] = {
        "run": "r", "user": "ada", "project": "vision", "pod": pod, "node": "n", "start": NOON, "end": at(1),
        "cpu_millicores": 1000, "memory_mib": 1024, "card_parts": 1, "card_whole": 1,
    }  # fmt: skip
    return UsageRecord(**values | change)


def assert_whole(made: Bill) -> None:
    """Used and idle of every node make up its price; what owners pay is what is used; nothing is below 0."""
    for item in made.nodes:
        if item.usd is not None:
            assert item.used is not None and item.idle is not None
            assert abs(sum(item.used) + sum(item.idle) - item.usd) <= EXACT
            assert min(*item.used, *item.idle) >= -EXACT
            assert max(*item.used, *item.idle) <= item.usd + EXACT
    used = sum(sum(item.used) for item in made.nodes if item.used is not None)
    for owner in ("run", "user", "project"):
        assert abs(sum(sum(line.parts) for line in made.by(owner)) - used) <= EXACT  # type: ignore[arg-type]


def test_a24_the_parts_of_a_shared_node_sum_to_its_price() -> None:
    """opencost/opencost#2657: with a sharing label on the node its parts exceeded its price. Here, with four slices and
    without, they are 0.526; four pods of a slice each pay one card's hour; with one pod three quarters are idle."""
    whole = bill([node()], [use()], pods=True)
    assert_whole(whole)
    assert whole.usd == pytest.approx(0.526, abs=EXACT)
    four = bill([node()], [use(f"p{i}", card_whole=4) for i in range(4)], pods=True)
    assert_whole(four)
    assert sum(line.parts[2] for line in four.by("pod")) == pytest.approx(0.334, abs=EXACT)
    assert sum(line.gpu_hours for line in four.by("pod")) == pytest.approx(1.0, abs=EXACT)
    assert all(line.usd is not None and line.usd < 0.526 for line in four.by("pod"))
    [alone] = bill([node()], [use(card_whole=4)]).nodes
    assert alone.idle is not None and alone.idle[2] == pytest.approx(0.334 * 3 / 4, abs=EXACT)
    [unused] = bill([node()], []).nodes
    assert unused.idle is not None and sum(unused.idle) == pytest.approx(0.526, abs=EXACT)


def test_a23_the_parts_of_a_node_with_attached_cards_are_host_and_cards() -> None:
    """The bill divides N1 with cards as the offer prices it: the cards' own price, the host's for CPU and memory."""
    catalog = load()
    [offer] = [
        offer
        for offer in catalog.offers(cloud="gcp", region="us-central1", gpu="T4", purchase="on-demand")
        if offer.shape.name == "n1-standard-8 + 4 x T4"
    ]
    found = weights(catalog, offer)
    assert found is not None
    assert found.cards == Decimal("1.40")
    assert abs(found.cpu + found.memory - Decimal("0.379998")) < Decimal("1e-20")


def test_every_offer_of_the_catalog_divides_into_its_whole_price() -> None:
    catalog = load()
    for offer in catalog.offers():
        found = weights(catalog, offer)
        if found is None:
            listed = catalog.offer(offer.shape, offer.region, "on-demand") or offer
            assert listed.usd_per_hour is None, f"{offer.shape.name} in {offer.region} is not divided"
            continue
        assert min(found.cpu, found.memory) > 0 and found.cards >= 0
        assert (found.cards > 0) == (offer.shape.gpu_count > 0), offer.shape.name


def test_host_rates_are_what_they_say_they_are() -> None:
    """AWS: c6i and m6i as two equations; GCP: n2-standard-2 in Autopilot's proportion. Taken anew from the prices."""
    catalog = load()

    def price(cloud: str, region: str, name: str) -> Decimal:
        offer = catalog.offer(catalog.shape(cloud, name), region, "on-demand")
        assert offer is not None and offer.usd_per_hour is not None
        return offer.usd_per_hour

    for region in catalog.regions("aws"):
        rate = catalog.host_rate("aws", region)
        assert rate is not None
        for name, gib in (("c6i.xlarge", 8), ("m6i.xlarge", 16)):
            made = 4 * rate.usd_per_vcpu_hour + gib * rate.usd_per_gib_hour
            assert made == pytest.approx(price("aws", region, name), abs=Decimal("1e-8"))
    for region in catalog.regions("gcp"):
        rate = catalog.host_rate("gcp", region)
        assert rate is not None
        made = 2 * rate.usd_per_vcpu_hour + 8 * rate.usd_per_gib_hour
        assert made == pytest.approx(price("gcp", region, "n2-standard-2"), abs=Decimal("1e-8"))
        assert rate.usd_per_vcpu_hour / rate.usd_per_gib_hour == pytest.approx(
            Decimal("0.0445") / Decimal("0.004922"), rel=Decimal("1e-5")
        )


def test_idle_before_between_and_after() -> None:
    made = bill([node(end=at(4))], [use("a", start=at(1), end=at(2)), use("b", start=at(3), end=at(3.5))])
    assert_whole(made)
    [item] = made.nodes
    assert item.used is not None and item.used[2] == pytest.approx(0.334 * 1.5, abs=EXACT)


def test_mig_time_slices_claims_and_whole_cards_in_one_bill() -> None:
    nodes = [
        node(node="mig", cards=1),
        node(node="sliced", cards=4, usd_per_hour=Decimal("3.912")),
        node(node="dra", purchase="spot", usd_per_hour=Decimal("0.3196")),
    ]
    made = bill(
        nodes,
        [
            use("m1", node="mig", card_parts=2, card_whole=7),
            use("m2", node="mig", card_parts=3, card_whole=7),
            use("s1", node="sliced", card_parts=1, card_whole=4),
            use("s2", node="sliced", card_parts=2, card_whole=1),
            use("d1", node="dra", card_parts=1, card_whole=2, project="nlp"),
            use("d2", node="dra", card_parts=1, card_whole=2, project="nlp", end=at(0.5)),
        ],
        pods=True,
    )
    assert_whole(made)
    hours = {line.name: line.gpu_hours for line in made.by("pod")}
    expected = {"m1": 2 / 7, "m2": 3 / 7, "s1": 0.25, "s2": 2.0, "d1": 0.5, "d2": 0.25}
    assert hours == {name: pytest.approx(value, abs=EXACT) for name, value in expected.items()}
    mig, sliced, dra = made.nodes
    assert mig.idle is not None and sliced.idle is not None and dra.idle is not None
    card = 0.334 / 0.526
    assert mig.idle[2] == pytest.approx(0.334 * 2 / 7, abs=EXACT)
    assert sliced.idle[2] == pytest.approx(3.912 * card * 1.75 / 4, abs=EXACT)
    assert dra.idle[2] == pytest.approx(0.3196 * card * 0.25, abs=EXACT), "at spot's price"
    assert [line.name for line in made.by("project")] == ["vision", "nlp"]


def test_a_card_claimed_twice_over_is_shared_and_costs_what_it_costs() -> None:
    """Two pods hold the whole card for the same half hour: each pays half of it; alone, the first pays all."""
    made = bill([node()], [use("a"), use("b", end=at(0.5))], pods=True)
    assert_whole(made)
    cards = {line.name: line.parts[2] for line in made.by("pod")}
    assert cards["a"] == pytest.approx(0.334 * 0.75, abs=EXACT)
    assert cards["b"] == pytest.approx(0.334 * 0.25, abs=EXACT)


def test_a_node_that_went_and_came_back_costs_nothing_in_between() -> None:
    lives = [node(end=at(1)), node(start=at(5), end=at(7), purchase="spot", usd_per_hour=Decimal("0.2"))]
    made = bill(lives, [use(end=at(0.5)), use(start=at(6), end=at(7))])
    assert_whole(made)
    assert made.usd == pytest.approx(0.526 + 2 * 0.2, abs=EXACT)
    [line] = made.by("run")
    assert line.gpu_hours == pytest.approx(1.5, abs=EXACT), "a pod with the same name came back with it"


def test_a_node_without_a_price_is_unknown_and_so_is_who_used_it() -> None:
    made = bill([node(), node(node="m", usd_per_hour=None)], [use("a"), use("b", node="m", user="bob", run="s")])
    assert made.usd is None and made.idle is None
    assert [(line.name, line.usd is None) for line in made.by("user")] == [("ada", False), ("bob", True)]
    assert made.nodes[1].usd is None and made.nodes[1].used is None
    assert made.by("user")[1].gpu_hours == pytest.approx(1.0)


def test_a_node_whose_price_cannot_be_divided_is_unknown_too() -> None:
    undivided = node(cpu_weight=Decimal(0), memory_weight=Decimal(0), card_weight=Decimal(0))
    assert bill([undivided], []).usd is None


def test_simulated_use_says_so_and_is_never_mixed() -> None:
    assert bill([node()], [use(simulated=True)]).simulated
    assert not bill([node()], [use()]).simulated
    with pytest.raises(InvalidSpec, match="simulated and measured use cannot be billed together"):
        bill([node()], [use("a", simulated=True, end=at(0.5)), use("b", start=at(0.5))])


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ([use(start=at(0.5), end=at(0.25))], "use of pod p ends before it starts"),
        ([use(end=at(0.6)), use(start=at(0.5))], "two records of pod p overlap in time"),
        ([use(node="elsewhere")], "pod p was on node elsewhere, which is not in the bill"),
        ([use(end=at(2))], "pod p used node n when the node was not there"),
        ([use(start=at(-1))], "pod p used node n when the node was not there"),
        ([use(cpu_millicores=-1)], "pod p holds less than nothing"),
        ([use(card_parts=-1)], "pod p holds less than nothing"),
        ([use(card_whole=0)], "pod p holds parts of a card that has no parts"),
    ],
)
def test_use_that_cannot_have_been_is_refused(records: list[UsageRecord], says: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        bill([node()], records)
    assert says in caught.value.message
    assert caught.value.subject == "pod p"


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([node(end=at(-1))], "node n ends before it starts"),
        ([node(), node(start=at(0.5), end=at(2))], "node n is there twice at the same time"),
        ([node(usd_per_hour=Decimal(0))], "has a price of 0 USD/h; unknown is not 0"),
        ([node(usd_per_hour=Decimal("NaN"))], "has a price of NaN"),
        ([node(usd_per_hour=Decimal(-1))], "has a price of -1"),
    ],
)
def test_nodes_that_cannot_have_been_are_refused(nodes: list[NodeRecord], says: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        bill(nodes, [])
    assert says in caught.value.message
    assert caught.value.subject == "node n"


# What holds for any nodes and any use

moments = st.integers(0, 24 * 3600 * 10)  # tenths of a second of a day
prices = st.none() | st.decimals("0.0001", "120", places=6)
shares = st.sampled_from([(0, 1), (1, 1), (1, 4), (1, 10), (2, 7), (3, 7), (1, 2), (1, 48), (4, 1)])


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[NodeRecord], list[UsageRecord]]:
    nodes, records = [], []
    for index in range(draw(st.integers(1, 4))):
        edges = sorted(draw(st.lists(moments, min_size=2, max_size=6, unique=True)))
        for begin, end in zip(edges[::2], edges[1::2], strict=False):
            nodes.append(
                node(
                    node=f"n{index}", start=at(begin / 36000), end=at(end / 36000), usd_per_hour=draw(prices),
                    purchase=draw(st.sampled_from(["on-demand", "spot"])), cards=draw(st.integers(0, 8)),
                )
            )  # fmt: skip
    for index in range(draw(st.integers(0, 12))):
        on = draw(st.sampled_from(nodes))
        length = (on.end - on.start) / timedelta(seconds=0.1)
        one, other = sorted((draw(st.integers(0, int(length))), draw(st.integers(0, int(length)))))
        parts, whole = draw(shares)
        records.append(
            use(
                f"p{index}", node=on.node, start=on.start + timedelta(seconds=one / 10),
                end=on.start + timedelta(seconds=other / 10), cpu_millicores=draw(st.integers(0, 6000)),
                memory_mib=draw(st.integers(0, 20000)), card_parts=parts, card_whole=whole,
                run=draw(st.sampled_from("rst")), user=draw(st.sampled_from(["ada", "bob"])),
            )
        )  # fmt: skip
    return nodes, records


def total_by(made: Bill) -> dict[tuple[str, str], Any]:
    owners = ("run", "user", "project")
    return {
        (owner, line.name): (line.parts, line.gpu_hours, line.usd is None)
        for owner in owners
        for line in made.by(owner)
    }  # type: ignore[arg-type]


def assert_same(one: Bill, other: Bill) -> None:
    left, right = total_by(one), total_by(other)
    assert left.keys() == right.keys()
    for key, (parts, gpu_hours, unknown) in left.items():
        assert parts == pytest.approx(right[key][0], abs=EXACT)
        assert gpu_hours == pytest.approx(right[key][1], abs=EXACT)
        assert unknown == right[key][2]


@given(worlds())
def test_shares_sum_to_the_node(world: tuple[list[NodeRecord], list[UsageRecord]]) -> None:
    assert_whole(bill(*world))


@given(worlds(), st.randoms())
def test_the_order_of_records_changes_nothing(world: tuple[list[NodeRecord], list[UsageRecord]], random: Any) -> None:
    nodes, records = world
    shuffled = list(records)
    random.shuffle(shuffled)
    assert_same(bill(nodes, records), bill(nodes, shuffled))


@given(worlds(), st.floats(0, 1))
def test_splitting_a_period_changes_nothing(world: tuple[list[NodeRecord], list[UsageRecord]], where: float) -> None:
    """Each record cut in two at any moment, and each node as well, cost what they cost whole."""
    nodes, records = world

    def cut(items: Iterable[Any], least: timedelta) -> list[Any]:
        halves = []
        for item in items:
            middle = item.start + timedelta(seconds=round((item.end - item.start).total_seconds() * where, 1))
            halves += (
                [item._replace(end=middle), item._replace(start=middle)] if middle - item.start >= least else [item]
            )
        return halves

    whole = bill(nodes, records)
    assert_same(whole, bill(nodes, cut(records, timedelta(0))))
    sliced = bill(cut(nodes, timedelta(days=99)), cut(records, timedelta(0)))
    assert_same(whole, sliced)


@given(worlds(), st.data())
def test_two_periods_sum_to_the_whole(world: tuple[list[NodeRecord], list[UsageRecord]], data: st.DataObject) -> None:
    """The bill until a moment and the bill from then on are the bill: nothing is lost or counted twice at a month's end."""
    nodes, records = world
    moment = at(data.draw(moments) / 36000)

    def part(items: list[Any], *, early: bool) -> list[Any]:
        if early:
            return [i._replace(end=min(i.end, moment)) for i in items if i.start < moment]
        return [i._replace(start=max(i.start, moment)) for i in items if i.end > moment]

    whole = bill(nodes, records)
    halves = [bill(part(nodes, early=early), part(records, early=early)) for early in (True, False)]
    known = [item for item in whole.nodes if item.usd is not None]
    for measure in (lambda item: item.usd, lambda item: sum(item.used), lambda item: sum(item.idle)):
        split = sum(measure(item) for half in halves for item in half.nodes if item.usd is not None)
        assert split == pytest.approx(sum(measure(item) for item in known), abs=EXACT)


@given(worlds(), st.data())
def test_a_cheaper_node_never_makes_a_run_dearer(world: Any, data: st.DataObject) -> None:
    nodes, records = world
    index = data.draw(st.integers(0, len(nodes) - 1))
    if nodes[index].usd_per_hour is None:
        return
    cheaper = list(nodes)
    cheaper[index] = nodes[index]._replace(usd_per_hour=nodes[index].usd_per_hour / 2)
    before = {line.name: sum(line.parts) for line in bill(nodes, records).by("run")}
    for line in bill(cheaper, records).by("run"):
        assert sum(line.parts) <= before[line.name] + EXACT
