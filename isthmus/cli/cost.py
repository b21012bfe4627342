"""`isthmus cost`: what a workload costs, where. Needs no stack, no cloud account and no program but this one."""

from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from isthmus.specs.errors import InvalidSpec
from isthmus.specs.offer import Purchase

app = App(name="cost", help="Compare prices across clouds.")


@app.command
def compare(
    *workloads: str,
    regions: Annotated[tuple[str, ...], Parameter(negative="", consume_multiple=True, show_default=False)] = (),
    purchase: Literal["on-demand", "spot"] | None = None,
    gpu: str | None = None,
    hours: str | None = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    json: Annotated[bool, Parameter(negative="")] = False,
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False,
) -> int:
    """Compare what workloads cost in every cloud, region and purchase option, cheapest first.

    Parameters
    ----------
    workloads
        Names of samples, or paths of workload files.
    regions
        Regions of any cloud, separated by spaces or commas. Default: every one in the catalog.
    purchase
        on-demand or spot. Default: both.
    gpu
        A card model instead of the workload's own, for example A10G.
    hours
        Hours instead of the workload's own.
    output
        Also write the report to this file: .html, .json or .csv.
    json
        Print JSON instead of tables.
    everything
        Print every offer and refusal, however many.
    """
    from isthmus.cli.output import print_json
    from isthmus.costs import report_for
    from isthmus.costs.report import show, write
    from workloads.load import load

    purchases: tuple[Purchase, ...] = (purchase,) if purchase else ("on-demand", "spot")
    names = [name for text in regions for name in text.split(",") if name]
    report = report_for(
        [load(workload) for workload in workloads],
        regions=names or None,
        purchases=purchases,
        gpu=gpu,
        hours=_number(hours),
    )
    if output is not None:
        write(report, output)
    if json:
        print_json(report)
    else:
        show(report, everything=everything)
    if output is not None and not json:
        print(f"written: {output}")
    return 0 if all(workload["offers"] for workload in report["workloads"]) else 3


def _number(hours: str | None) -> Decimal | None:
    if hours is None:
        return None
    try:
        return Decimal(hours)
    except InvalidOperation as error:
        raise InvalidSpec(f"hours must be a number, not {hours!r}", subject="--hours", remedy="--hours 1.5") from error
