"""What runs.db knows, as bills: of one run with the nodes it was on, of a whole cluster, of everybody in a period.

It only reads; a command that wants the latest looks at the cluster first.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from isthmus.billing import records
from isthmus.billing.budgets import NOTHING, Amount, Used
from isthmus.billing.simulated_time import SimulatedTime
from isthmus.catalog import Catalog
from isthmus.costs.bill import Bill, bill
from isthmus.runs import ledger
from isthmus.runs.model import Node, Run
from isthmus.runs.store import Store
from isthmus.specs import labels
from isthmus.specs.stack import StackSettings
from isthmus.specs.usage import NodeRecord, UsageRecord


@dataclass(frozen=True)
class ClusterUse:
    """Every pod and node of one cluster that runs.db knows."""

    settings: StackSettings
    catalog: Catalog
    runs: tuple[Run, ...]
    records: tuple[UsageRecord, ...]
    nodes: tuple[Node, ...]

    def node(self, name: str) -> Node:
        """A node by its name, the last of that name; one that nobody has seen has no labels, and so no known price."""
        known = [node for node in self.nodes if node.name == name]
        never = datetime(1970, 1, 1, tzinfo=UTC)
        return known[-1] if known else Node(name, name, {}, {}, never, never)

    def life(self, node: Node, start: datetime, end: datetime) -> NodeRecord:
        """A node with its price for a span of time."""
        pool = next((p for p in self.settings.cluster.pools if p.name == node.labels.get(labels.POOL)), None)
        return records.node_record(
            node,
            self.catalog,
            cloud=self.settings.cloud,
            region=self.settings.region,
            start=start,
            end=end,
            spot=bool(pool and pool.spot),
        )


def cluster_use(
    store: Store, settings: StackSettings, catalog: Catalog, *, stack: str, cluster_uid: str, now: datetime
) -> ClusterUse:
    """What is known of a stack's cluster."""
    runs = tuple(run for run in store.runs(stack=stack) if run.cluster_uid == cluster_uid)
    simulated = settings.mode == "simulated"
    found: list[UsageRecord] = []
    for run in runs:
        found += records.usage_records(run, store.replicas(run), now=now, simulated=simulated)
    return ClusterUse(settings, catalog, runs, tuple(found), tuple(ledger.nodes(store, cluster_uid)))


def run_bill(use: ClusterUse, run: Run) -> Bill:
    """The nodes of a run for as long as it was on each, and all that was on them meanwhile."""
    own = [record for record in use.records if record.run == run.id]
    spans: dict[str, tuple[datetime, datetime]] = {}
    for record in own:
        start, end = spans.get(record.node, (record.start, record.end))
        spans[record.node] = (min(start, record.start), max(end, record.end))
    nodes = [use.life(use.node(name), start, end) for name, (start, end) in sorted(spans.items())]
    inside = [
        clipped
        for record in use.records
        if record.node in spans and (clipped := clip(record, *spans[record.node])) is not None
    ]
    return bill(nodes, inside, pods=True)


def cluster_bill(
    use: ClusterUse,
    *,
    now: datetime,
    clock: SimulatedTime | None = None,
    begun: Callable[[Node], datetime] | None = None,
    until: datetime | None = None,
    more: Iterable[NodeRecord] = (),
) -> Bill:
    """Every node of a cluster from its start to its end, or to now, and who used them.

    Args:
        clock, begun, until: of a simulated stack, its clock, when each node began by it, and what it says now.
        more: nodes that are paid and that the cluster does not show.
    """
    at = clock.at if clock else (lambda moment: moment)
    found = [record._replace(start=at(record.start), end=at(record.end)) for record in use.records]
    lives = []
    for node in use.nodes:
        start = begun(node) if begun else node.created
        there = now - node.seen < JUST_SEEN
        end = (until or now) if there else at(node.seen)
        own = [record for record in found if record.node == node.name]
        lives.append(use.life(node, start, max([end, start, *(record.end for record in own)])))
    unseen = {record.node for record in found} - {node.name for node in use.nodes}
    for name in sorted(unseen):
        own = [record for record in found if record.node == name]
        lives.append(use.life(use.node(name), min(r.start for r in own), max(r.end for r in own)))
    return bill([*lives, *more], _within(found, lives))


JUST_SEEN = timedelta(minutes=5)
"""A node that was seen so short a time ago is taken to be there still."""


def _within(found: Sequence[UsageRecord], lives: Sequence[NodeRecord]) -> list[UsageRecord]:
    """Pods whose clock ran a little ahead of their node's begin with it: Kubernetes writes whole seconds."""
    begun: dict[str, datetime] = {}
    for life in lives:
        begun[life.node] = min(life.start, begun.get(life.node, life.start))
    return [
        record._replace(start=max(record.start, begun[record.node]), end=max(record.end, begun[record.node]))
        for record in found
    ]


def used_since(
    store: Store,
    catalog: Catalog,
    settings_of: Callable[[str], StackSettings | None],
    *,
    simulated: bool,
    now: datetime,
    expected: Callable[[Run], Amount],
) -> Callable[[datetime], list[Used]]:
    """What each run has used since a moment, of simulated stacks or of all others.

    Args:
        settings_of: settings of a stack, None where it has none any more: what ran there has no known price.
        expected: what a run that is not over yet was forecast to use.
    """

    def used(since: datetime) -> list[Used]:
        found: list[Used] = []
        clusters: dict[tuple[str, str], list[Run]] = {}
        for run in store.runs():
            settings = settings_of(run.stack)
            counts = settings is not None and catalog.has_prices(settings.cloud)
            if settings is not None and counts and (settings.mode == "simulated") == simulated:
                clusters.setdefault((run.stack, run.cluster_uid), []).append(run)
        for (stack, uid), runs in clusters.items():
            settings = settings_of(stack)
            if settings is None:
                continue
            use = cluster_use(store, settings, catalog, stack=stack, cluster_uid=uid, now=now)
            found += _of_cluster(use, runs, since, now, expected)
        return found

    return used


def _of_cluster(
    use: ClusterUse, runs: Sequence[Run], since: datetime, now: datetime, expected: Callable[[Run], Amount]
) -> list[Used]:
    inside = [clipped for record in use.records if (clipped := clip(record, since, now)) is not None]
    lives = [
        use.life(
            use.node(name), min(r.start for r in inside if r.node == name), max(r.end for r in inside if r.node == name)
        )
        for name in sorted({record.node for record in inside})
    ]
    lines = {line.name: line for line in bill(lives, inside).by("run")}
    found = []
    for run in runs:
        line = lines.get(run.id)
        amount = NOTHING
        if line is not None:
            usd = None if line.usd is None else Decimal(repr(line.usd))
            amount = Amount(usd, Decimal(repr(line.gpu_hours)))
        if not run.state.final:
            amount = amount.at_least(expected(run))
        found.append(Used(run.id, run.user, run.project, amount))
    return found


def clip(record: UsageRecord, start: datetime, end: datetime) -> UsageRecord | None:
    """The part of a record within a span; None where there is none."""
    first, last = max(record.start, start), min(record.end, end)
    if last < first or (last == first and record.start != record.end):
        return None
    return record._replace(start=first, end=last)


def span_of(run: Run, use: ClusterUse) -> tuple[datetime, datetime] | None:
    """From the first pod's start to the last one's end; None where none has started."""
    own = [record for record in use.records if record.run == run.id]
    return (min(r.start for r in own), max(r.end for r in own)) if own else None


def simulated_clock(use: ClusterUse, begins: datetime) -> SimulatedTime:
    """The clock of a simulated stack: its runs one after the other from `begins` on."""
    return SimulatedTime.of(begins, ((record.start, record.end) for record in use.records))
