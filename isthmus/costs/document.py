"""The report as plain data: the one thing that table, JSON, CSV and HTML are made from, so that they cannot disagree.

JSON-able and deterministic: the same workloads and catalog give the same bytes on every machine and every stack. No
clock time, no path. Amounts are strings with four decimals ("1.5130"); None is a price that nobody knows.
"""

from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from isthmus.costs.compare import Comparison, Estimate, Ranking, Refusal
from isthmus.costs.parts import CENT_HUNDREDTH, Part, plain

CLOUD_NAMES = {"aws": "AWS", "gcp": "GCP"}
BASIS = "list prices, not measured"


def document(comparison: Comparison) -> dict[str, Any]:
    """The whole report."""
    sources = _Sources(comparison)
    return {
        "apiVersion": "isthmus.dev/v1",
        "kind": "CostComparison",
        "currency": "USD",
        "basis": BASIS,
        "answer": _headline(comparison.rankings),
        "workloads": [_ranking(ranking, sources) for ranking in comparison.rankings],
        "assumptions": list(comparison.assumptions),
        "sources": sources.rows,
    }


def shown(amount: Decimal | None) -> str | None:
    """An amount with four decimals; None stays None."""
    return None if amount is None else str(amount.quantize(CENT_HUNDREDTH))


def _ranking(ranking: Ranking, sources: "_Sources") -> dict[str, Any]:
    demand = ranking.demand
    return {
        "workload": ranking.workload,
        "answer": answer(ranking),
        "notes": _notes(ranking),
        "hours": plain(demand.hours),
        "pods": demand.count,
        "gpus": demand.gpus,
        "gpuModel": demand.gpu_model,
        "gpusPerNode": demand.cards_per_node,
        "storageGib": plain(demand.storage_gib),
        "egressGib": plain(demand.egress_gib),
        "roles": [
            {
                "role": pod.role,
                "pods": pod.count,
                "gpus": pod.gpus,
                "cpuMillicores": pod.cpu_m,
                "memoryMib": pod.memory_mib,
            }
            for pod in demand.pods
        ],
        "offers": [_offer(estimate, rank, sources) for rank, estimate in enumerate(ranking.estimates, start=1)],
        "refused": [_refusal(refusal) for refusal in ranking.refused],
    }


def _offer(estimate: Estimate, rank: int, sources: "_Sources") -> dict[str, Any]:
    return {
        "rank": rank if estimate.total is not None else None,
        "cloud": estimate.cloud,
        "region": estimate.region,
        "purchase": estimate.purchase,
        "machines": estimate.nodes,
        "machine": estimate.shape.name,
        "instanceType": estimate.shape.instance_type,
        "gpuModel": estimate.shape.gpu_model,
        "gpus": estimate.cards,
        "parts": [_part(part, sources) for part in estimate.parts],
        "total": shown(estimate.total),
        "unknown": list(estimate.unknown),
        "oldestPrice": estimate.oldest.isoformat() if estimate.oldest else None,
        "undated": list(estimate.undated),
        "interruption": estimate.interruption,
    }


def _part(part: Part, sources: "_Sources") -> dict[str, Any]:
    return {
        "name": part.name,
        "usd": shown(part.usd),
        "how": part.how,
        "source": sources.id_of(part),
        "asOf": part.as_of.isoformat() if part.as_of else None,
    }


def _refusal(refusal: Refusal) -> dict[str, Any]:
    return {
        "cloud": refusal.cloud,
        "region": refusal.region,
        "purchase": refusal.purchase,
        "gpuModel": refusal.gpu_model,
        "reason": refusal.reason,
    }


class _Sources:
    """Every source once, numbered from 1 in the order of its date and name, with the parts it gave a price for."""

    def __init__(self, comparison: Comparison) -> None:
        found: dict[tuple[str, str], set[str]] = {}
        for ranking in comparison.rankings:
            for estimate in ranking.estimates:
                for part in estimate.parts:
                    found.setdefault(_key(part), set()).add(f"{_cloud(estimate)} {part.name}")
        self._ids = {key: number for number, key in enumerate(sorted(found), start=1)}
        self.rows = [
            {"id": number, "asOf": as_of or None, "for": sorted(found[as_of, source]), "source": source}
            for (as_of, source), number in self._ids.items()
        ]

    def id_of(self, part: Part) -> int:
        """The number of the source of a part's price."""
        return self._ids[_key(part)]


def _key(part: Part) -> tuple[str, str]:
    return (part.as_of.isoformat() if part.as_of else "", part.source)


def place(estimate: Estimate) -> str:
    """Where and how, for a sentence: "AWS us-west-2 on spot"."""
    return f"{_cloud(estimate)} {estimate.region} {_how(estimate)}"


def answer(ranking: Ranking) -> str:
    """The one sentence that a reader came for."""
    best = ranking.best
    if best is None and ranking.estimates:
        return f"No offer for {ranking.workload} has a known price in the places asked for."
    if best is None:
        return f"None of the places asked for can run {ranking.workload}."
    return (
        f"{place(best)} is the cheapest for {ranking.workload}: {shown(best.total)} USD for "
        f"{plain(ranking.demand.hours)} h on {machines(best)}."
    )


def machines(estimate: Estimate) -> str:
    """How many of which machine, with the cards it has: "2 x g4dn.12xlarge (4 x T4 each)"."""
    shape = estimate.shape
    said = f"{estimate.nodes} x {shape.name}"
    if not shape.gpu_count or shape.cards_apart:
        return said
    each = " each" if estimate.nodes > 1 else ""
    return f"{said} ({shape.gpu_count} x {shape.gpu_model}{each})"


def _notes(ranking: Ranking) -> list[str]:
    """What else decides: the other clouds' best, on demand where spot won, and what is not known."""
    best, notes = ranking.best, []
    if best is not None:
        rivals = [_first(ranking, cloud=cloud) for cloud in sorted({e.cloud for e in ranking.estimates} - {best.cloud})]
        notes += [f"The cheapest on {_cloud(rival)} is {_against(rival, best)}." for rival in rivals if rival]
        on_demand = _first(ranking, purchase="on-demand")
        if best.purchase == "spot" and on_demand is not None and on_demand not in rivals:
            notes.append(f"Without spot the cheapest is {_cloud(on_demand)} {_against(on_demand, best)}.")
        if best.interruption:
            notes.append(f"AWS takes such a spot machine back in {best.interruption} of cases (Spot Advisor's band).")
    lacking = sum(estimate.total is None for estimate in ranking.estimates)
    if lacking:
        have = "offer has a part" if lacking == 1 else "offers have a part"
        notes.append(f"{lacking} {have} without a known price: shown last and not ranked.")
    return notes


def _first(ranking: Ranking, *, cloud: str | None = None, purchase: str | None = None) -> Estimate | None:
    return next(
        (
            estimate
            for estimate in ranking.estimates
            if estimate.total is not None and cloud in (None, estimate.cloud) and purchase in (None, estimate.purchase)
        ),
        None,
    )


def _against(other: Estimate, best: Estimate) -> str:
    said = f"{other.region} {_how(other)} at {shown(other.total)} USD"
    if other.total is None or not best.total:
        return said
    if other.total == best.total:
        return f"{said}, the same"
    percent = ((other.total / best.total - 1) * 100).quantize(Decimal(1), rounding=ROUND_HALF_UP)
    return f"{said}, {percent} % more"


def _cloud(estimate: Estimate) -> str:
    return CLOUD_NAMES.get(estimate.cloud, estimate.cloud)


def _how(estimate: Estimate) -> str:
    return "on spot" if estimate.purchase == "spot" else "on demand"


def _headline(rankings: tuple[Ranking, ...]) -> str:
    if len(rankings) == 1:
        return answer(rankings[0])
    parts = [
        f"{ranking.workload} on {place(ranking.best)} ({shown(ranking.best.total)} USD)"
        if ranking.best
        else f"{ranking.workload} nowhere with a known price"
        for ranking in rankings
    ]
    return f"Cheapest: {', '.join(parts)}."


def summary(report: dict[str, Any]) -> dict[str, Any]:
    """The report in few lines, for a stack's output: for each workload the cheapest offer of each place and purchase option.

    The same on every stack, as the report is.
    """
    return {
        "answer": report["answer"],
        "basis": f"{report['currency']}, {report['basis']}",
        "workloads": {workload["workload"]: _brief(workload) for workload in report["workloads"]},
    }


def _brief(workload: dict[str, Any]) -> list[str]:
    seen: set[tuple[str, str, str]] = set()
    lines = []
    for offer in workload["offers"]:
        key = (offer["cloud"], offer["region"], offer["purchase"])
        if key not in seen:
            seen.add(key)
            amount = offer["total"] or f"unknown (no price of: {', '.join(offer['unknown'])})"
            lines.append(f"{amount}: {' '.join(key)}, {offer['machines']} x {offer['machine']}")
    return lines
