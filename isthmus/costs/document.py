"""The report as plain data: the one thing that table, JSON, CSV and HTML are made from, so that they cannot disagree.

JSON-able and deterministic: the same workloads and catalog give the same bytes on every machine and every stack. No
clock time, no path. Amounts are strings with four decimals ("1.5130"); None is a price that nobody knows.
"""

from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from isthmus.costs.compare import Comparison, Estimate, Ranking, Refusal
from isthmus.costs.options import Options
from isthmus.costs.parts import CENT_HUNDREDTH, NAMES, Part, paid_hours, plain
from isthmus.costs.risk import Interruptions
from isthmus.costs.sensitivity import changes, premiums

BASIS = "list prices, not measured"


MAX_AGE_DAYS = 365
"""Prices older than this are warned of, unless another age is asked for."""


def document(comparison: Comparison, *, today: date | None = None, max_age_days: int = MAX_AGE_DAYS) -> dict[str, Any]:
    """The whole report.

    Args:
        today: warns of prices that are older than `max_age_days` on that day; None for no such warning, so that the report
            of a stack is the same every day.
    """
    sources = _Sources(comparison)
    return {
        "apiVersion": "isthmus.dev/v1",
        "kind": "CostComparison",
        "currency": "USD",
        "basis": BASIS,
        "answer": _headline(comparison),
        "clouds": {cloud: comparison.catalog.cloud_title(cloud) for cloud in comparison.catalog.clouds()},
        "partNames": _names(comparison),
        "workloads": [_ranking(comparison, ranking, sources) for ranking in comparison.rankings],
        "managed": _premiums(comparison),
        "warnings": _old(sources, today, max_age_days) if today else [],
        "assumptions": list(comparison.assumptions),
        "sources": sources.rows,
    }


def shown(amount: Decimal | None) -> str | None:
    """An amount with four decimals; None stays None."""
    return None if amount is None else str(amount.quantize(CENT_HUNDREDTH))


def _names(comparison: Comparison) -> list[str]:
    """The parts that any offer has to pay or cannot price, in their order: the columns of a table."""
    there = {
        part.name
        for ranking in comparison.rankings
        for estimate in ranking.estimates
        for part in estimate.parts
        if part.usd is None or part.usd > 0 or part.name in ("machine", "control plane")
    }
    return [name for name in NAMES if name in there]


def _premiums(comparison: Comparison) -> list[dict[str, Any]]:
    if not comparison.options.managed:
        return []
    return [
        {
            "cloud": row.cloud,
            "region": row.region,
            "service": row.service,
            "instanceType": row.instance_type,
            "managedUsdPerHour": plain(row.managed),
            "ownUsdPerHour": plain(row.own),
            "premiumPercent": f"{row.premium:.2f}",
            "savingPercent": f"{row.saving:.1f}",
            "controlPlaneUsdPerHour": None if row.fee is None else plain(row.fee),
            "breakEvenMachines": None if row.machines is None else f"{row.machines:.2f}",
            "sentence": row.sentence,
            "source": row.source,
            "asOf": row.as_of,
        }
        for row in premiums(comparison.catalog)
    ]


def _old(sources: "_Sources", today: date, max_age_days: int) -> list[str]:
    limit = (today - timedelta(days=max_age_days)).isoformat()
    return [
        f"Older than {max_age_days} days: {', '.join(row['for'])}, of {row['asOf']} (source {row['id']}); {_upkeep(row['for'])}."
        for row in sources.rows
        if row["asOf"] is not None and row["asOf"] < limit
    ]


def _upkeep(parts: list[str]) -> str:
    """How such prices are made current."""
    read = any(part.endswith((" machine", " gpu")) for part in parts)
    return "isthmus catalog update reads today's" if read else "services.csv is kept by hand"


def _ranking(comparison: Comparison, ranking: Ranking, sources: "_Sources") -> dict[str, Any]:
    demand = ranking.demand
    return {
        "workload": ranking.workload,
        "answer": answer(comparison, ranking),
        "notes": _notes(comparison, ranking),
        "hours": plain(demand.hours),
        "pods": demand.count,
        "gpus": demand.gpus,
        "share": str(comparison.options.share) if comparison.options.share else None,
        "gpuModel": demand.gpu_model,
        "gpusPerNode": demand.cards_per_node,
        "storageGib": plain(demand.storage_gib),
        "objectGib": plain(demand.object_gib),
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
        "changes": [
            {"kind": change.kind, "at": None if change.at is None else f"{change.at:.4f}", "text": change.text}
            for change in changes(comparison, ranking)
        ],
    }


def _offer(estimate: Estimate, rank: int, sources: "_Sources") -> dict[str, Any]:
    return {
        "rank": rank if estimate.total is not None else None,
        "cloud": estimate.cloud,
        "region": estimate.region,
        "purchase": estimate.purchase,
        "service": estimate.service,
        "machines": estimate.nodes,
        "machine": estimate.shape.name,
        "instanceType": estimate.shape.instance_type,
        "gpuModel": estimate.shape.gpu_model,
        "gpus": estimate.cards,
        "hours": _rounded(estimate.hours),
        "paidHours": _rounded(paid_hours(estimate.purchase, estimate.hours)),
        "parts": [_part(part, sources) for part in estimate.parts],
        "total": shown(estimate.total),
        "unknown": list(estimate.unknown),
        "idlePercent": None if estimate.idle is None else f"{estimate.idle * 100:.1f}",
        "idleUsd": shown(estimate.idle_usd),
        "oldestPrice": estimate.oldest.isoformat() if estimate.oldest else None,
        "undated": list(estimate.undated),
        "interruption": estimate.interruptions.band if estimate.interruptions else None,
        "lostWork": _lost(estimate.interruptions) if estimate.interruptions else None,
        "quota": list(estimate.quota),
    }


def _lost(found: Interruptions) -> dict[str, Any]:
    """The expected loss of a spot offer; `null` upper ends are those of a band without one."""
    return {
        "interruptionsLeast": f"{found.least:.4f}",
        "interruptionsMost": None if found.most is None else f"{found.most:.4f}",
        "hoursLeast": f"{found.lost_hours_least:.4f}",
        "hoursMost": None if found.lost_hours_most is None else f"{found.lost_hours_most:.4f}",
        "usdLeast": shown(found.lost_usd_least),
        "usdMost": shown(found.lost_usd_most),
    }


def _rounded(hours: Decimal) -> str:
    return plain(hours.quantize(CENT_HUNDREDTH)) if hours != hours.to_integral_value() else plain(hours)


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
        shown_names = _names(comparison)
        for ranking in comparison.rankings:
            for estimate in ranking.estimates:
                for part in estimate.parts:
                    title = comparison.catalog.cloud_title(estimate.cloud)
                    if part.name in shown_names:
                        found.setdefault(_key(part), set()).add(f"{title} {part.name}")
        self._ids = {key: number for number, key in enumerate(sorted(found), start=1)}
        self.rows: list[dict[str, Any]] = [
            {"id": number, "asOf": as_of or None, "for": sorted(found[as_of, source]), "source": source}
            for (as_of, source), number in self._ids.items()
        ]

    def id_of(self, part: Part) -> int | None:
        """The number of the source of a part's price; None for a part that no offer has to pay."""
        return self._ids.get(_key(part))


def _key(part: Part) -> tuple[str, str]:
    return (part.as_of.isoformat() if part.as_of else "", part.source)


def place(comparison: Comparison, estimate: Estimate) -> str:
    """Where and how, for a sentence: "AWS us-west-2 on spot"."""
    by = f" by {estimate.service}" if estimate.service else ""
    return f"{comparison.catalog.cloud_title(estimate.cloud)} {estimate.region} {_how(estimate)}{by}"


def answer(comparison: Comparison, ranking: Ranking) -> str:
    """The one sentence that a reader came for."""
    best = ranking.best
    if best is None and ranking.estimates:
        return f"No offer for {ranking.workload} has a known price in the places asked for."
    if best is None:
        return f"None of the places asked for can run {ranking.workload}."
    return (
        f"{place(comparison, best)} is the cheapest for {ranking.workload}: {shown(best.total)} USD for "
        f"{_rounded(best.hours)} h on {machines(best)}."
    )


def machines(estimate: Estimate) -> str:
    """How many of which machine, with the cards it has: "2 x g4dn.12xlarge (4 x T4 each)"."""
    shape = estimate.shape
    said = f"{estimate.nodes} x {shape.name}"
    if not shape.gpu_count or shape.cards_apart:
        return said
    each = " each" if estimate.nodes > 1 else ""
    return f"{said} ({shape.gpu_count} x {shape.gpu_model}{each})"


def _notes(comparison: Comparison, ranking: Ranking) -> list[str]:
    """What else decides: the other clouds' best, on demand where spot won, what may be lost, and what is not known."""
    best, notes = ranking.best, []
    title = comparison.catalog.cloud_title
    if best is not None:
        rivals = [_first(ranking, cloud=cloud) for cloud in sorted({e.cloud for e in ranking.estimates} - {best.cloud})]
        notes += [f"The cheapest on {title(rival.cloud)} is {_against(rival, best)}." for rival in rivals if rival]
        on_demand = _first(ranking, purchase="on-demand")
        if best.purchase == "spot" and on_demand is not None and on_demand not in rivals:
            notes.append(f"Without spot the cheapest is {title(on_demand.cloud)} {_against(on_demand, best)}.")
        if best.interruptions:
            notes.append(
                f"AWS takes such a spot machine back in {best.interruptions.band} of cases (Spot Advisor's band); "
                f"expected work lost: {_loss(best.interruptions, comparison.options)}."
            )
        if best.idle_usd is not None and best.idle is not None:
            notes.append(f"{best.idle * 100:.0f} % of the machines' price is idle ({shown(best.idle_usd)} USD).")
        notes += [f"A new account may not have it: {text}." for text in best.quota]
    lacking = sum(estimate.total is None for estimate in ranking.estimates)
    if lacking:
        have = "offer has a part" if lacking == 1 else "offers have a part"
        notes.append(f"{lacking} {have} without a known price: shown last and not ranked.")
    return notes


def _loss(found: Interruptions, options: Options) -> str:
    least, most = shown(found.lost_usd_least), shown(found.lost_usd_most)
    amount = f"at least {least} USD, no upper end is given" if found.most is None else f"{least} to {most} USD"
    return f"{amount} with a checkpoint every {plain(options.checkpoint_hours)} h"


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


def _how(estimate: Estimate) -> str:
    return {"on-demand": "on demand", "spot": "on spot"}.get(
        estimate.purchase, f"with a {estimate.purchase} commitment"
    )


def _headline(comparison: Comparison) -> str:
    rankings = comparison.rankings
    if len(rankings) == 1:
        return answer(comparison, rankings[0])
    parts = [
        f"{ranking.workload} on {place(comparison, ranking.best)} ({shown(ranking.best.total)} USD)"
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
