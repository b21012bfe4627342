"""The bill: who used what share of which node for how long, and what was idle. Pure arithmetic, a million rows at once.

At every moment a node's price is divided among its CPU, memory and cards (NodeRecord's weights), and each of these among
the pods that hold some of it; what nobody holds is idle. Where pods hold more than there is (a card claimed twice over),
each gets its part of the whole, so that no moment costs more than the node. Used and idle are integrated apart and make
up the node's price to 1e-9 USD: a test, not a definition.

The work is sorting the starts and ends of all records by node and time, then sums: O(n log n). Times are whole
microseconds; amounts are binary floating point with at least 15 digits. numpy is imported when a bill is made.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from isthmus.specs.errors import InvalidSpec
from isthmus.specs.usage import NodeRecord, UsageRecord

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[Any, np.dtype[np.float64]]
    Integers = np.ndarray[Any, np.dtype[np.int64]]

RESOURCES = ("cpu", "memory", "cards")
"""The parts of a node's price, in the order of every triple here."""

HOUR = 3_600_000_000
"""Microseconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Owner = Literal["run", "user", "project", "pod"]
_GROUPED: tuple[Owner, ...] = ("run", "user", "project")


@dataclass(frozen=True, slots=True)
class NodeBill:
    """What one node cost from its start to its end. Triples are CPU, memory and cards, in USD; None: price unknown."""

    record: NodeRecord
    hours: float
    usd: float | None
    used: tuple[float, float, float] | None
    idle: tuple[float, float, float] | None


@dataclass(frozen=True, slots=True)
class Line:
    """What one run, user, project or pod used."""

    name: str
    usd: float | None
    """None: a node it was on has no known price."""
    parts: tuple[float, float, float]
    """CPU, memory, cards, in USD, as far as prices are known."""
    pod_hours: float
    gpu_hours: float
    """Hours times cards held: a quarter of a card for four hours is one."""


@dataclass(frozen=True, slots=True)
class Bill:
    """Everything that a set of nodes cost, and whom."""

    nodes: tuple[NodeBill, ...]
    simulated: bool
    groups: tuple[tuple[str, str, str], ...]
    """Run, user and project of each group of records."""
    _lines: Mapping[Owner, tuple[Line, ...]]

    def by(self, owner: Owner) -> tuple[Line, ...]:
        """What each run, user, project or pod used, dearest first."""
        return self._lines[owner]

    @property
    def usd(self) -> float | None:
        """All nodes together; None as soon as one has no known price."""
        known = [node.usd for node in self.nodes if node.usd is not None]
        return sum(known) if len(known) == len(self.nodes) else None

    @property
    def idle(self) -> float | None:
        """What nobody used of all nodes; None as soon as one has no known price."""
        known = [sum(node.idle) for node in self.nodes if node.idle is not None]
        return sum(known) if len(known) == len(self.nodes) else None


class _Columns:
    """The records as columns: each value is checked against nothing yet."""

    def __init__(self, nodes: Sequence[NodeRecord], records: Iterable[UsageRecord]) -> None:
        self.life, self.group = array("q"), array("q")
        self.start, self.end = array("q"), array("q")
        self.cpu, self.memory, self.parts, self.whole = array("q"), array("q"), array("q"), array("q")
        self.pods: list[str] = []
        self.groups: dict[tuple[str, str, str], int] = {}
        self.simulated: set[bool] = set()
        lives = _by_name(nodes)
        groups, epoch = self.groups, _EPOCH
        # Bound once: a million records look each of these up.
        columns = (self.life, self.group, self.start, self.end, self.cpu, self.memory, self.parts, self.whole)
        add_life, add_group, add_start, add_end, add_cpu, add_memory, add_parts, add_whole = (c.append for c in columns)
        add_pod, add_simulated, group_of, life_of = self.pods.append, self.simulated.add, groups.get, lives.get
        for run, user, project, pod, node, start, end, cpu, memory, parts, whole, simulated in records:
            since, until = start - epoch, end - epoch
            began = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
            known = life_of(node)
            if known is None:
                raise InvalidSpec(f"pod {pod} was on node {node}, which is not in the bill", subject=f"pod {pod}")
            starts, indices = known
            add_life(indices[0] if len(indices) == 1 else indices[max(bisect_right(starts, began) - 1, 0)])
            owner = (run, user, project)
            group = group_of(owner)
            if group is None:
                group = groups[owner] = len(groups)
            add_group(group)
            add_start(began)
            add_end((until.days * 86_400 + until.seconds) * 1_000_000 + until.microseconds)
            add_cpu(cpu)
            add_memory(memory)
            add_parts(parts)
            add_whole(whole)
            add_pod(pod)
            add_simulated(simulated)

    def __len__(self) -> int:
        return len(self.pods)


def bill(nodes: Sequence[NodeRecord], records: Iterable[UsageRecord], *, pods: bool = False) -> Bill:
    """Bill the use of nodes.

    Args:
        nodes: every node from its start to its end; one that came back is two of them.
        records: any order; read once.
        pods: also keep a line for each pod (`by("pod")`), which a million of them do not need.

    Raises:
        InvalidSpec: a record that ends before it starts, lies outside the life of its node, or overlaps another of the
            same pod; a node that ends before it starts or overlaps itself; amounts below 0; simulated and measured use in
            one bill. Pod and node are named.
    """
    import numpy as np

    columns = _Columns(nodes, records)
    if len(columns.simulated) > 1:
        raise InvalidSpec("simulated and measured use cannot be billed together", remedy="bill them apart")
    life = np.frombuffer(columns.life, dtype=np.int64) if len(columns) else np.zeros(0, dtype=np.int64)
    start, end = _column(columns.start), _column(columns.end)
    born = np.array([_micros(node.start) for node in nodes], dtype=np.int64)
    dead = np.array([_micros(node.end) for node in nodes], dtype=np.int64)
    _check(columns, nodes, life, start, end, born, dead)
    per_hour = np.array([float(node.usd_per_hour or 0) for node in nodes])
    known = np.array([node.usd_per_hour is not None and _weight(node) > 0 for node in nodes], dtype=bool)
    shares = _shares(columns, nodes, life)
    costs, used_time = _integrate(shares, life, start, end, born, dead)
    weights = np.array([_proportions(node) for node in nodes]).reshape(len(nodes), 3)
    hours = (dead - born) / HOUR
    lived = np.where(known, per_hour, 0.0)
    usd_rows = [costs[r] * (lived[life] * weights[life, r] / HOUR) for r in range(3)]
    node_bills = []
    used_by_node = [_totals(life, usd_rows[r], len(nodes)) for r in range(3)]
    for i, node in enumerate(nodes):
        if not known[i]:
            node_bills.append(NodeBill(node, float(hours[i]), None, None, None))
            continue
        idle = [(dead[i] - born[i] - used_time[r][i]) * lived[i] * weights[i, r] / HOUR for r in range(3)]
        node_bills.append(
            NodeBill(
                node,
                float(hours[i]),
                float(hours[i] * lived[i]),
                _triple(used_by_node[r][i] for r in range(3)),
                _triple(idle),
            )
        )
    held = _column(columns.parts) / np.maximum(_column(columns.whole), 1)
    span = (end - start) / HOUR
    rows = _Rows(usd_rows, span, span * held, ~known[life] if len(life) else np.zeros(0, dtype=bool))
    return Bill(
        nodes=tuple(node_bills),
        simulated=columns.simulated == {True},
        groups=tuple(columns.groups),
        _lines=_lines(columns, rows, pods=pods),
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """What each record came to."""

    usd: "list[Floats]"
    hours: "Floats"
    gpu_hours: "Floats"
    unknown: "np.ndarray[Any, np.dtype[np.bool_]]"


def _shares(columns: _Columns, nodes: Sequence[NodeRecord], life: "Integers") -> "list[Floats]":
    """The share of its node's CPU, memory and cards that each record holds."""
    import numpy as np

    has = [np.array([float(max(size, 1)) for size in sizes]) for sizes in zip(*map(_sizes, nodes), strict=True)]
    if not has:
        return [np.zeros(0)] * 3
    cards = _column(columns.parts) / np.maximum(_column(columns.whole), 1)
    return [_column(columns.cpu) / has[0][life], _column(columns.memory) / has[1][life], cards / has[2][life]]


def _integrate(
    shares: "list[Floats]", life: "Integers", start: "Integers", end: "Integers", born: "Integers", dead: "Integers"
) -> "tuple[list[Floats], list[Floats]]":
    """For each resource: share times microseconds of each record, and of each node the microseconds in use.

    Both take a moment at which more than the whole is held as exactly the whole.
    """
    import numpy as np

    count, lives = len(start), len(born)
    if count == 0:
        return [np.zeros(0)] * 3, [np.zeros(lives)] * 3
    both = np.concatenate((life, life))
    times = np.concatenate((start, end))
    order = np.lexsort((times, both))
    where, when = both[order], times[order]
    last = np.empty(2 * count, dtype=bool)
    last[:-1] = where[1:] != where[:-1]
    last[-1] = True
    until = np.where(last, dead[where], np.append(when[1:], 0))
    spans = (until - when).astype(np.float64)
    del both, times, until, when
    place = np.empty(2 * count, dtype=np.int64)
    place[order] = np.arange(2 * count)
    duration = (end - start).astype(np.float64)
    costs, used = [], []
    for share in shares:
        held = np.cumsum(np.concatenate((share, -share))[order])
        used.append(_totals(where, spans * np.clip(held, 0.0, 1.0), lives))
        effective = duration
        if held.max() > 1.0:
            lost = spans * (1.0 - 1.0 / np.maximum(held, 1.0))
            before = np.cumsum(lost) - lost
            effective = duration - (before[place[count:]] - before[place[:count]])
        costs.append(share * effective)
    return costs, used


def _lines(columns: _Columns, rows: _Rows, *, pods: bool) -> dict[Owner, tuple[Line, ...]]:
    import numpy as np

    group = _column(columns.group)
    by_group = _sums(rows, group, len(columns.groups))
    found: dict[Owner, tuple[Line, ...]] = {}
    for position, owner in enumerate(_GROUPED):
        names: dict[str, int] = {}
        code = np.array([names.setdefault(key[position], len(names)) for key in columns.groups], dtype=np.int64)
        found[owner] = _named(names, [_totals(code, row, len(names)) for row in by_group])
    names = {}
    if pods:
        code = np.array([names.setdefault(pod, len(names)) for pod in columns.pods], dtype=np.int64)
        found["pod"] = _named(names, _sums(rows, code, len(names)))
    return found


def _sums(rows: _Rows, code: "Integers", count: int) -> "list[Floats]":
    values = [*rows.usd, rows.hours, rows.gpu_hours, rows.unknown.astype(float)]
    return [_totals(code, value, count) for value in values]


def _totals(code: "Integers", values: "Floats", count: int) -> "Floats":
    """The sum of the values of each code from 0 to count - 1."""
    import numpy as np

    return np.asarray(np.bincount(code, weights=values, minlength=count), dtype=np.float64)


def _named(names: Mapping[str, int], sums: "list[Floats]") -> tuple[Line, ...]:
    lines = []
    for name, i in names.items():
        cpu, memory, cards, hours, gpu_hours, unknown = (float(value[i]) for value in sums)
        usd = None if unknown else cpu + memory + cards
        lines.append(Line(name, usd, (cpu, memory, cards), hours, gpu_hours))
    return tuple(sorted(lines, key=lambda line: (line.usd is None, -(line.usd or 0.0), line.name)))


def _check(
    columns: _Columns,
    nodes: Sequence[NodeRecord],
    life: "Integers",
    start: "Integers",
    end: "Integers",
    born: "Integers",
    dead: "Integers",
) -> None:
    """Refuse what cannot have been, naming the first record that is wrong."""
    import numpy as np

    def first(wrong: Any) -> int | None:
        return int(np.argmax(wrong)) if len(wrong) and wrong.any() else None

    for amounts in (columns.cpu, columns.memory, columns.parts):
        if (row := first(_column(amounts) < 0)) is not None:
            raise InvalidSpec(f"pod {columns.pods[row]} holds less than nothing", subject=f"pod {columns.pods[row]}")
    if (row := first(_column(columns.whole) < 1)) is not None:
        pod = columns.pods[row]
        raise InvalidSpec(f"pod {pod} holds parts of a card that has no parts", subject=f"pod {pod}")
    if (row := first(end < start)) is not None:
        pod = columns.pods[row]
        raise InvalidSpec(f"use of pod {pod} ends before it starts", subject=f"pod {pod}")
    if len(life) and (row := first((start < born[life]) | (end > dead[life]))) is not None:
        pod, node = columns.pods[row], nodes[int(life[row])]
        raise InvalidSpec(
            f"pod {pod} used node {node.node} when the node was not there ({node.start:%Y-%m-%d %H:%M:%S} to "
            f"{node.end:%Y-%m-%d %H:%M:%S})",
            subject=f"pod {pod}",
        )
    if len(columns) > 1:
        _check_overlap(columns, start, end)


def _check_overlap(columns: _Columns, start: "Integers", end: "Integers") -> None:
    import numpy as np

    codes = np.fromiter(map(hash, columns.pods), dtype=np.int64, count=len(columns))
    order = np.lexsort((end, start, codes))
    same = codes[order][1:] == codes[order][:-1]
    clash = same & (start[order][1:] < end[order][:-1])
    for position in np.flatnonzero(clash):
        one, other = columns.pods[order[position]], columns.pods[order[position + 1]]
        if one == other:  # and not merely of the same hash
            raise InvalidSpec(f"two records of pod {one} overlap in time", subject=f"pod {one}")


def _by_name(nodes: Sequence[NodeRecord]) -> dict[str, tuple[list[int], list[int]]]:
    """For each node name the starts of its lives in order, and their places in `nodes`."""
    lives: dict[str, list[tuple[int, int]]] = {}
    for index, node in enumerate(nodes):
        if node.end < node.start:
            raise InvalidSpec(f"node {node.node} ends before it starts", subject=f"node {node.node}")
        if node.usd_per_hour is not None and not (node.usd_per_hour.is_finite() and node.usd_per_hour > 0):
            raise InvalidSpec(
                f"node {node.node} has a price of {node.usd_per_hour} USD/h; unknown is not 0",
                subject=f"node {node.node}",
            )
        lives.setdefault(node.node, []).append((_micros(node.start), index))
    found = {}
    for name, entries in lives.items():
        entries.sort()
        for (_, before), (begins, _) in pairwise(entries):
            if begins < _micros(nodes[before].end):
                raise InvalidSpec(f"node {name} is there twice at the same time", subject=f"node {name}")
        found[name] = ([begins for begins, _ in entries], [index for _, index in entries])
    return found


def _column(values: "array[int]") -> "Integers":
    import numpy as np

    return np.frombuffer(values, dtype=np.int64) if len(values) else np.zeros(0, dtype=np.int64)


def _micros(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _sizes(node: NodeRecord) -> tuple[int, int, int]:
    return node.cpu_millicores, node.memory_mib, node.cards


def _weight(node: NodeRecord) -> float:
    return float(node.cpu_weight + node.memory_weight + node.card_weight)


def _proportions(node: NodeRecord) -> tuple[float, float, float]:
    total = _weight(node) or 1.0
    return float(node.cpu_weight) / total, float(node.memory_weight) / total, float(node.card_weight) / total


def _triple(values: Iterable[float]) -> tuple[float, float, float]:
    cpu, memory, cards = (float(value) for value in values)
    return cpu, memory, cards
