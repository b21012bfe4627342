"""A run in words and as data, for people and for --json. Every time says whether it is measured or simulated."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from isthmus.runs.figures import Figures, figures
from isthmus.runs.model import Metric, Run, Snapshot, State, Verdict, show_seconds, verdicts
from isthmus.runs.observe import counts


def row(run: Run) -> dict[str, Any]:
    """One line of `isthmus runs`."""
    return {
        "run": run.id,
        "workload": run.spec.name,
        "stack": run.stack,
        "state": run.state.value,
        "created": run.created.isoformat(timespec="seconds"),
        "time": show_seconds(run.seconds) if run.seconds is not None else "",
        "seconds": run.seconds,
        "source": run.source,
        "reason": run.reason,
    }


def as_dict(snapshot: Snapshot) -> dict[str, Any]:
    """Everything about a run, for --json."""
    run = snapshot.run
    return {
        **row(run),
        "job": run.job,
        "user": run.user,
        "project": run.project,
        "namespace": run.namespace,
        "submit_to_start_seconds": figures_of(snapshot).queue_seconds,
        "figures": asdict(figures_of(snapshot)),
        "succeeded": succeeded(snapshot),
        "waiting": list(snapshot.waiting),
        "pods": [
            {
                "pod": item.name,
                "role": item.role,
                "rank": item.rank,
                "phase": item.phase,
                "node": item.node,
                "exit_code": item.exit_code,
                "restarts": item.restarts,
                "reason": item.reason,
                "started": _iso(item.started),
                "finished": _iso(item.finished),
            }
            for item in snapshot.replicas
        ],
        "required": [
            {
                "metric": verdict.name,
                "required": verdict.required,
                "reached": verdict.reached.value if verdict.reached else None,
                "met": verdict.met,
            }
            for verdict in ([] if run.simulated else verdicts(run.spec, snapshot.latest))
        ],
        "spec": run.spec.model_dump(mode="json", by_alias=True),
    }


def succeeded(snapshot: Snapshot) -> bool:
    """Whether the run did what was asked: it succeeded, and reached every metric its workload requires.

    A simulated run computes nothing, so nothing but its end is asked of it.
    """
    if snapshot.run.state is not State.SUCCEEDED:
        return False
    return snapshot.run.simulated or all(verdict.met for verdict in verdicts(snapshot.run.spec, snapshot.latest))


def live(snapshot: Snapshot) -> str:
    """What is happening now, in one line."""
    parts = [snapshot.run.state.value]
    if snapshot.run.simulated:
        parts.append(f"simulated to take {show_seconds(snapshot.run.simulated_seconds)}")
    for role, phases in counts(snapshot.replicas).items():
        total = sum(phases.values())
        parts.append(f"{role} " + " ".join(f"{count}/{total} {phase}" for phase, count in sorted(phases.items())))
    if snapshot.waiting:
        parts.append(snapshot.waiting[0])
    shown = sorted(snapshot.latest.values(), key=lambda metric: str(metric.at))[-2:]
    parts += [show_metric(metric) for metric in shown]
    return ", ".join(parts)


def ending(snapshot: Snapshot) -> list[str]:
    """The last words about a run that has ended, or about how it stands."""
    run = snapshot.run
    lines = [f"run {run.id} ({run.spec.name} on {run.stack}): {run.state}" + (f": {run.reason}" if run.reason else "")]
    if run.state is State.SUBMITTING:
        lines.append("  its command was interrupted before the cluster had it; the same `isthmus run` goes on with it")
    lines += taken(snapshot)
    if run.simulated:
        lines.append("  metrics   none: it was scheduled on simulated nodes and computed nothing")
        return lines
    lines += [_verdict(verdict) for verdict in verdicts(run.spec, snapshot.latest)]
    left = [item for item in snapshot.replicas if run.state is State.SUCCEEDED and item.phase in {"Pending", "Running"}]
    if left:
        names = ", ".join(f"{item.role} rank {item.rank}" for item in left[:4])
        lines.append(
            f"  pods      {len(left)} had not ended when the job had ({names}); isthmus cancel {run.id} ends them"
        )
    return lines


def taken(snapshot: Snapshot) -> list[str]:
    """What a run took, a line each: time, waiting, restarts, exit codes, cards."""
    run, found = snapshot.run, figures_of(snapshot)
    lines = []
    if found.seconds is not None:
        lines.append(f"  time      {show_seconds(found.seconds)} {run.source}, first rank's start to last rank's end")
    if found.queue_seconds is not None:
        lines.append(
            f"  waiting   {show_seconds(found.queue_seconds)} measured, from submission to the first rank's start"
        )
    if found.restarts:
        lines.append(f"  restarts  {found.restarts}")
    if set(found.exit_codes) - {f"{item.role} 0" for item in snapshot.replicas}:
        lines.append(f"  exits     {', '.join(f'{who}: {count}' for who, count in found.exit_codes.items())}")
    if found.gpu_seconds:
        parts = ", ".join(f"{seconds:.0f} held as {share}" for share, seconds in found.gpu_seconds.items())
        lines.append(f"  GPUs      {found.all_gpu_seconds:.0f} card-seconds {run.source} ({parts} per pod)")
    return lines


def figures_of(snapshot: Snapshot) -> Figures:
    """The figures of a run as it is now."""
    return figures(snapshot.run, snapshot.replicas, now=datetime.now(UTC))


def show_metric(metric: Metric) -> str:
    """A metric in a few words: loss 0.3121 (epoch 4)."""
    value = "not a number" if metric.value is None else f"{metric.value:.5g}"
    places = [
        f"{name} {number}" for name, number in (("epoch", metric.epoch), ("step", metric.step)) if number is not None
    ]
    return f"{metric.name} {value}" + (f" ({', '.join(places)})" if places else "")


def _verdict(verdict: Verdict) -> str:
    if verdict.reached is None:
        return f"  {verdict.name:<9} was never printed (required: at least {verdict.required:g})"
    word = "reached" if verdict.met else "NOT reached"
    printed = f"printed by {verdict.reached.role} rank {verdict.reached.rank}"
    return f"  {show_metric(verdict.reached)}, required {verdict.required:g}: {word}; {printed}"


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
