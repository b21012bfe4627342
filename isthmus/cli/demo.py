"""isthmus demo: the whole of it in one command, on a machine with no cloud account and no GPU.

It calls the same commands a user would type, in their order, says which, and keeps the time of each stage. It leaves both
stacks up, so that there is something to look at; `isthmus down` takes them away.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isthmus.cli.output import print_rows
from isthmus.specs.errors import IsthmusError

STACKS = ("aws-sim", "gcp-sim")


def demo() -> int:
    """Both simulated clouds up, the samples trained on each, parity, and one cost comparison. Asks nothing."""
    from isthmus.cli.project import settings

    stages = Stages()
    samples = settings(STACKS[0]).samples
    with stages.stage("compare list prices (needs nothing built)", f"isthmus cost compare {samples[0]}"):
        page = _prices(samples)
    with stages.stage("install", "isthmus install"):
        from isthmus.cli.install import install

        install()
    for stack in STACKS:
        with stages.stage(f"bring up {stack}", f"isthmus up {stack}"):
            from isthmus.cli.stack import up

            up(stack, yes=True)
    results = []
    for stack in STACKS:
        with stages.stage(f"train on {stack}", f"isthmus run {samples[0]} -s {stack} --follow"):
            results += [_train(stack, sample) for sample in samples]
    with stages.stage("parity", f"isthmus parity {' '.join(STACKS)}"):
        from isthmus.cli.parity import parity

        equal = parity(*STACKS) == 0
    return _ending(stages, results, page, equal=equal)


class Stages:
    """Runs stages one after the other and keeps the seconds of each."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock

    @contextmanager
    def stage(self, title: str, command: str) -> Iterator[None]:
        """Announce a stage with the command that does the same, and keep its time even if it fails."""
        print(f"\n== {title}   ($ {command})", flush=True)
        started = self._clock()
        try:
            yield
        finally:
            self.seconds[title] = self._clock() - started


def _prices(samples: tuple[str, ...]) -> Path:
    from isthmus.cli.cost import compare
    from isthmus.toolchain import home

    page = home.reports() / "demo.html"
    compare(samples[0], output=page)
    return page


def _train(stack: str, sample: str) -> dict[str, Any]:
    """Follow a sample that `up` deployed to its end; what is told comes from its pods' own logs."""
    from isthmus.cli.run import cluster_of, follow_to_end, open_store
    from isthmus.runs import submit
    from workloads import render

    cluster, store = cluster_of(stack), open_store()
    run = submit.adopt(cluster, store, render.load(sample), stack=stack)
    if run.state.final:
        print(
            f"{sample} was trained on {stack} before; this is what came of it (isthmus run {sample} -s {stack} trains anew)"
        )
    code = follow_to_end(cluster, store, run)
    ended, latest = store.get(run.id), store.latest(run)
    return {
        "stack": stack,
        "workload": sample,
        "state": ended.state.value,
        "passed": code == 0,
        "processes": len(store.replicas(run)),
        "accuracy": latest["accuracy"].value if "accuracy" in latest else None,
        "seconds": None if ended.seconds is None else f"{ended.seconds:.0f} ({ended.source})",
    }


def _ending(stages: Stages, results: list[dict[str, Any]], page: Path, *, equal: bool) -> int:
    print("\n== what happened")
    print_rows(results, ["stack", "workload", "state", "processes", "accuracy", "seconds"])
    print_rows(
        [{"stage": title, "seconds": f"{seconds:.0f}"} for title, seconds in stages.seconds.items()],
        ["stage", "seconds"],
    )
    passed = equal and all(result["passed"] for result in results)
    if not passed:
        failed = [f"{item['workload']} on {item['stack']}" for item in results if not item["passed"]]
        raise IsthmusError(
            "; ".join([*(["the stacks differ"] if not equal else []), *(f"{name} did not pass" for name in failed)]),
            subject="demo",
            remedy=f"isthmus status {STACKS[0]}",
        )
    print(f"both clouds carry the same objects; prices: {page}")
    print(f"next: isthmus run ddp-digits -s {STACKS[0]} --follow    and to take it away: isthmus down {STACKS[0]}")
    return 0
