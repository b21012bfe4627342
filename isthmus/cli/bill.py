"""isthmus cost run, cost stack: what runs and stacks did cost, from measured pods and nodes at list prices."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from isthmus.cli.output import Progress, print_json, print_rows
from isthmus.specs.errors import InvalidSpec, IsthmusError, NotFound

if TYPE_CHECKING:
    from isthmus.billing.gather import ClusterUse
    from isthmus.billing.statement import Statement
    from isthmus.costs.bill import Bill
    from isthmus.costs.parts import Part
    from isthmus.kube import Cluster
    from isthmus.runs.model import Node, Run
    from isthmus.runs.store import Store
    from isthmus.specs.offer import Purchase
    from isthmus.specs.stack import StackSettings
    from isthmus.specs.usage import NodeRecord

SHOWN = 0.0000005
"""Differences below this many USD are in the JSON only: they would be printed as 0."""

Json = Annotated[bool, Parameter(negative="")]


def run(*runs: str, json: Json = False) -> int:
    """Bill runs: what each used of its nodes, what was idle beside it, and why that is not what was estimated.

    Parameters
    ----------
    runs
        Ids of runs, or names of their jobs.
    json
        Print JSON.
    """
    if not runs:
        raise InvalidSpec("name at least one run", remedy="isthmus runs lists them")
    documents = [_run_document(name) for name in runs]
    if json:
        print_json(documents if len(documents) > 1 else documents[0])
        return 0
    for document in documents:
        _show(document)
        _show_estimate(document)
    return 0


def stack(name: str, *, json: Json = False) -> int:
    """Bill a stack: every node from its start to now, who used it, what was idle, and the control plane, NAT and disks.

    Parameters
    ----------
    name
        Name of the stack, for example aws-sim.
    json
        Print JSON.
    """
    from isthmus.billing.statement import document

    made = document(_stack_statement(name))
    if json:
        print_json(made)
    else:
        _show(made)
    return 0


def _run_document(name: str) -> dict[str, Any]:
    from isthmus import catalog
    from isthmus.billing import gather
    from isthmus.billing.statement import MEASURED, Statement, amount, differences, document
    from isthmus.cli.run import open_store
    from isthmus.cli.runs import look

    store, facts, now = open_store(), catalog.load(), datetime.now(UTC)
    snapshot, problem = look(store, store.get(name))
    found = snapshot.run
    place = _priced(found.stack)
    use = gather.cluster_use(store, place, facts, stack=found.stack, cluster_uid=found.cluster_uid, now=now)
    span = gather.span_of(found, use)
    if span is None:
        raise NotFound(
            f"run {found.id} ({found.state.value}) has not used any node yet",
            subject=f"run {found.id}",
            remedy=f"isthmus runs show {found.id}",
        )
    hours = _hours(*span)
    made = gather.run_bill(use, found)
    platform = (_control_plane(place, hours), _disk(place, [(found, hours)]))
    basis = MEASURED
    if place.mode == "simulated":
        how = "simulated: its nodes only stand for these machines and no money was spent; "
        took = (
            f"told to take {found.simulated_seconds:g} s" if found.simulated else "as long as it took on this machine"
        )
        basis = f"{how}times are the stack's simulated clock, {took}"
    notes = [f"shown as it was last seen: {problem}"] if problem else []
    notes += ["still running: billed until now"] if not found.state.final else []
    statement = Statement(f"run {found.id} ({found.spec.name} on {found.stack})", basis, made, platform, tuple(notes))
    estimate = _estimate(use, found, made)
    steps = []
    if estimate is not None:
        steps = differences(estimate, ran_on=made.nodes, platform=platform, run_hours=hours, billed=statement.usd)
    own = next(line for line in made.by("run") if line.name == found.id)
    return document(statement) | {
        "run": found.id,
        "user": found.user,
        "project": found.project,
        "hours": f"{hours:.6f}",
        "used": amount(own.usd),
        "gpuHours": f"{own.gpu_hours:.6f}",
        "estimate": None if estimate is None else _estimated(estimate),
        "differences": [{"reason": s.reason, "usd": None if s.usd is None else f"{s.usd:.12f}"} for s in steps],
    }


def _estimate(use: "ClusterUse", found: "Run", made: "Bill") -> Any:
    """What `isthmus cost compare` says of the run's workload in its own place, with the cards it had."""
    from isthmus.costs import Options, compare
    from isthmus.specs import labels

    records = [node.record for node in made.nodes]
    models = {use.node(record.node).labels.get(labels.GPU_MODEL) for record in records} - {None}
    model = found.spec.gpu.model if found.spec.gpu else next(iter(sorted(str(name) for name in models)), None)
    options = Options(
        regions=(use.settings.region,),
        purchases=tuple(dict.fromkeys(record.purchase for record in records)),
        gpus=model if found.spec.on_cards else None,
    )
    try:
        return compare([found.spec], use.catalog, options).rankings[0].best
    except InvalidSpec:
        return None  # no machine is sold that would hold it: there is nothing to set the bill against


def _estimated(estimate: Any) -> dict[str, Any]:
    return {
        "machines": f"{estimate.nodes} x {estimate.shape.name}",
        "purchase": estimate.purchase,
        "region": estimate.region,
        "hours": f"{estimate.hours:f}",
        "total": f"{estimate.total:f}",
        "parts": [{"name": part.name, "usd": f"{part.usd:f}", "how": part.how} for part in estimate.parts],
    }


def _stack_statement(name: str) -> "Statement":
    from isthmus import catalog
    from isthmus.billing import gather
    from isthmus.billing.statement import MEASURED, Statement
    from isthmus.cli.run import cluster_of, open_store
    from isthmus.cli.runs import look
    from isthmus.runs import ledger
    from isthmus.runs.observe import node_of
    from isthmus.runs.submit import cluster_uid

    place, store, facts = _priced(name), open_store(), catalog.load()
    progress = Progress(f"bill {name}")
    progress.update("looking at its nodes and runs")
    cluster = cluster_of(name)
    uid, now = cluster_uid(cluster), datetime.now(UTC)
    seen = [node_of(node, seen=now) for node in cluster.list("v1", "Node")]
    ledger.record_nodes(store, uid, seen)
    notes = _adopt_samples(cluster, store, name, place.samples)
    for found in store.runs(stack=name):
        if found.cluster_uid == uid and not found.state.final:
            _, problem = look(store, found)
            notes += [f"run {found.id} is as it was last seen: {problem}"] if problem else []
    use = gather.cluster_use(store, place, facts, stack=name, cluster_uid=uid, now=now)
    if place.mode == "simulated":
        return _simulated_statement(name, use, now, tuple(notes))
    made = gather.cluster_bill(use, now=now)
    begun = min((node.created for node in use.nodes), default=now)
    hours = _hours(begun, now)
    platform = (
        _control_plane(place, hours),
        _nat(place, hours),
        _disk(place, [(run, _hours(run.created, now)) for run in use.runs]),
    )
    return Statement(f"stack {name}", MEASURED, made, platform, tuple(notes))


def _priced(stack: str) -> "StackSettings":
    """The settings of a stack that has prices.

    Raises:
        InvalidSpec: it runs on this machine.
    """
    from isthmus import catalog
    from isthmus.cli import project

    settings = project.settings(stack)
    if not catalog.load().has_prices(settings.cloud):
        raise InvalidSpec(
            f"stack {stack} is on {settings.cloud}, which has no prices: it runs on this machine",
            subject=f"stack {stack}",
            remedy="isthmus cost compare says what its workloads would cost in a cloud",
        )
    return settings


def _adopt_samples(cluster: "Cluster", store: "Store", stack: str, samples: Iterable[str]) -> list[str]:
    """Write down the jobs that `up` itself deployed, as `isthmus demo` does: they used the nodes as well."""
    from isthmus.runs.submit import adopt
    from workloads import render

    for sample in samples:
        try:
            adopt(cluster, store, render.load(sample), stack=stack)
        except NotFound:
            continue  # it is not in the cluster any more
        except IsthmusError as error:
            return [f"sample {sample} is not in the bill: {error.message}"]
    return []


def _simulated_statement(name: str, use: "ClusterUse", now: datetime, notes: tuple[str, ...]) -> "Statement":
    """The bill by the simulated account's clock: each node from when its pool was made, runs one after the other."""
    from isthmus.billing import gather
    from isthmus.billing.statement import Statement
    from isthmus.simulation import account as accounts
    from isthmus.simulation import clock as simulated
    from isthmus.specs import labels

    account = accounts.open_account(use.settings.account, create=False)
    begun = simulated.made_at(account)
    first = begun.get("", simulated.moment(account))

    clock = gather.simulated_clock(use, max([first, *begun.values()]))

    def node_begun(node: "Node") -> datetime:
        if labels.GROWN in node.labels:  # started by the autoscaler while runs waited
            return clock.at(node.created)
        return begun.get(node.labels.get(labels.POOL, ""), first)

    until = simulated.moment(account) + clock.executing
    stand_ins = _stand_ins(use, node_begun, until)
    made = gather.cluster_bill(use, now=now, clock=clock, begun=node_begun, until=until, more=stand_ins)
    hours = _hours(first, until)
    kept = [(run, _hours(clock.at(run.created), until)) for run in use.runs]
    platform = (_control_plane(use.settings, hours), _nat(use.settings, hours), _disk(use.settings, kept))
    basis = (
        f"simulated: no money was spent. Times are the clock of account {account.name}, which moves with its operations "
        f"(isthmus sim clock moves it on) and, while runs execute, as fast as this machine's: {clock.executing.total_seconds():.0f} s"
    )
    if stand_ins:
        notes += (f"{len(stand_ins)} node of the system pool is stood for by the local node: billed, and idle",)
    return Statement(f"stack {name}", basis, made, platform, notes)


def _stand_ins(use: "ClusterUse", begun: Any, until: datetime) -> list["NodeRecord"]:
    """Nodes of the system pool that the local node stands for beside its own pool: paid, and shown by no Kubernetes node."""
    from isthmus.billing.records import machine_record
    from isthmus.runs.model import Node
    from isthmus.specs import labels

    pool = use.settings.system_pool
    shown = sum(node.labels.get(labels.POOL) == pool.name for node in use.nodes)
    shape = use.catalog.shape(use.settings.cloud, pool.instance_type or "") if pool.instance_type else None
    if shape is None:
        return []
    purchase: Purchase = "spot" if pool.spot else "on-demand"
    offer = use.catalog.offer(shape, use.settings.region, purchase)
    start = begun(Node("", "", {labels.POOL: pool.name}, {}, until, until))
    return [
        machine_record(f"{pool.name} ({number})", shape, offer, use.catalog, purchase=purchase, start=start, end=until)
        for number in range(shown + 1, pool.size + 1)
    ]


def _control_plane(place: "StackSettings", hours: Decimal) -> "Part":
    from isthmus import catalog
    from isthmus.costs.options import DEFAULTS
    from isthmus.costs.parts import control_plane

    return control_plane(catalog.load(), place.cloud, place.region, hours, DEFAULTS)


def _nat(place: "StackSettings", hours: Decimal) -> "Part":
    """The NAT gateways that the stack makes: by the hour on AWS, by the machine behind it on GCP."""
    from isthmus import catalog
    from isthmus.costs.parts import hourly

    facts = catalog.load()
    per_node = facts.part(place.cloud, "nat-node", place.region)
    price = per_node or facts.part(place.cloud, "nat-gateway", place.region)
    count = (
        sum(pool.size for pool in place.cluster.pools) if per_node else len(place.zones) if place.nat_per_zone else 1
    )
    if price is None:
        return hourly("NAT", count, None, hours, f"parts.csv has no NAT of {place.cloud}", None)
    return hourly("NAT", count, price.value, hours, price.source, price.as_of)


def _disk(place: "StackSettings", kept: "Iterable[tuple[Run, Decimal]]") -> "Part":
    """The volumes of runs, each for the hours it was kept: they outlive their run."""
    from isthmus import catalog
    from isthmus.costs.parts import HOURS_PER_MONTH, Part, money, plain
    from isthmus.specs.quantity import mebibytes

    price = catalog.load().part(place.cloud, "disk", place.region)
    gib_hours = sum(
        (Decimal(mebibytes(v.size)) / 1024 * hours for run, hours in kept for v in run.spec.volumes), Decimal(0)
    )
    source = price.source if price else f"parts.csv has no disk of {place.cloud}"
    if price is None or price.value is None:
        usd = Decimal(0) if gib_hours == 0 else None
        return Part("storage", usd, f"{plain(gib_hours)} GiB-hours x unknown USD/GiB-month", source, None)
    how = f"{plain(gib_hours)} GiB-hours / {HOURS_PER_MONTH} h x {plain(price.value)} USD/GiB-month"
    return Part("storage", money(gib_hours * price.value / HOURS_PER_MONTH), how, source, price.as_of)


def _hours(start: datetime, end: datetime) -> Decimal:
    """Hours between two moments, to a millionth (a hundredth of a second)."""
    return (Decimal(repr(max((end - start).total_seconds(), 0.0))) / 3600).quantize(Decimal("0.000001"))


def _show(document: dict[str, Any]) -> None:
    from isthmus.billing.statement import short

    print(f"{document['title']}: {short(document['total'])} USD, {document['basis']}")
    print(f"  {document['from']} to {document['to']}")
    rows = [
        {
            "node": node["node"],
            "machine": node["machine"],
            "purchase": node["purchase"],
            "hours": f"{float(node['hours']):.4f}",
            "USD/h": node["usdPerHour"] or "unknown",
            "total": short(node["total"]),
            "used": short(None if node["used"] is None else sum(map(float, node["used"].values()))),
            "idle": short(None if node["idle"] is None else sum(map(float, node["idle"].values()))),
        }
        for node in document["nodes"]
    ]
    print_rows(rows, ["node", "machine", "purchase", "hours", "USD/h", "total", "used", "idle"], empty="  no nodes")
    print_rows(
        [{"part": part["name"], "USD": short(part["usd"]), "how": part["how"]} for part in document["platform"]],
        ["part", "USD", "how"],
    )
    lines = [
        {
            "whose": f"{owner} {line['name']}",
            "USD": short(line["usd"]),
            **{name: short(usd) for name, usd in line["parts"].items()},
            "GPU-hours": f"{float(line['gpuHours']):.4f}",
        }
        for owner in ("project", "user", "run")
        for line in document[f"by{owner.capitalize()}"]
    ]
    print_rows(lines, ["whose", "USD", "cpu", "memory", "cards", "GPU-hours"], empty="nobody used it")
    if document["unknown"]:
        print(f"unknown, so the total is: {', '.join(document['unknown'])}")
    print(f"not metered: {', '.join(document['notMetered'])}")
    for note in document["notes"]:
        print(note)


def _show_estimate(document: dict[str, Any]) -> None:
    from isthmus.billing.statement import short

    estimate = document["estimate"]
    if estimate is None:
        print("no estimate to set it against: no machine with a known price holds this workload there")
        return
    print(
        f"estimated: {short(estimate['total'])} USD for {estimate['hours']} h on {estimate['machines']} "
        f"({estimate['purchase']}, {estimate['region']}); billed: {short(document['total'])} USD. The difference is:"
    )
    rows: Sequence[dict[str, Any]] = [
        {"USD": "unknown" if step["usd"] is None else f"{float(step['usd']):+.6f}", "because": step["reason"]}
        for step in document["differences"]
        if step["usd"] is None or abs(float(step["usd"])) >= SHOWN
    ]
    print_rows(rows, ["USD", "because"], empty="nothing")
