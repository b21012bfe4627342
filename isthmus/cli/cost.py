"""`isthmus cost`: what a workload costs and where, what runs and stacks did cost, and who may spend how much."""

from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from isthmus.specs.offer import Purchase

app = App(name="cost", help="Compare prices, bill runs and stacks, set budgets.")

app.command("isthmus.cli.bill:run", name="run", help="Bill runs, next to their estimates.")
app.command("isthmus.cli.bill:stack", name="stack", help="Bill a stack: nodes, who used them, what was idle.")
app.command("isthmus.cli.budget:app", name="budget", help="Limit what a user or project may use.")

Words = Annotated[tuple[str, ...], Parameter(negative="", consume_multiple=True, show_default=False)]
Flag = Annotated[bool, Parameter(negative="")]

PURCHASES: dict[str, tuple[Purchase, ...]] = {
    "on-demand": ("on-demand",),
    "spot": ("spot",),
    "committed": ("1-year", "3-year"),
    "all": ("on-demand", "spot", "1-year", "3-year"),
}


@app.command
def compare(
    *workloads: str,
    gpus: str | None = None,
    hours: str | None = None,
    regions: Words = (),
    purchase: Literal["on-demand", "spot", "committed", "all"] = "all",
    share: str | None = None,
    throughput: Path | None = None,
    managed: Flag = False,
    network: Flag = False,
    control_plane: Literal["standard", "extended", "free-tier"] = "standard",
    checkpoint_every: str = "0.5",
    within_quota: Flag = False,
    max_age: int = 365,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    json: Flag = False,
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False,
) -> int:
    """Compare what workloads cost in every cloud, region and purchase option, cheapest first.

    Parameters
    ----------
    workloads
        Names of samples, or paths of workload files. None, where --gpus says MODEL:N.
    gpus
        MODEL: that card instead of the workload's own. MODEL:N: N cards, a pod each, for example A100:8.
    hours
        Hours instead of the workload's own.
    regions
        Regions of any cloud, separated by spaces or commas. Default: every one in the catalog.
    purchase
        on-demand, spot, committed (one and three years) or all.
    share
        Share each card: time-slicing:N, mps:N or mig:PROFILE; a pod that asks for a card gets a share.
    throughput
        A CSV file of steps per second by card model (gpu_model, steps_per_second, source, as_of): hours then differ by card.
    managed
        Also SageMaker and Vertex AI on the same machines.
    network
        Also a NAT gateway with the traffic out, and a load balancer.
    control_plane
        standard, extended (support of old Kubernetes versions) or free-tier (GKE's, zonal clusters only).
    checkpoint_every
        Hours between checkpoints, for the work that is lost when a spot machine is taken back.
    within_quota
        Refuse what a new account's quota does not allow.
    max_age
        Warn of prices older than so many days.
    output
        Also write the report to this file: .html, .json or .csv.
    json
        Print JSON instead of tables.
    everything
        Print every offer and refusal, however many.
    """
    from isthmus.catalog import load as catalog
    from isthmus.cli.output import print_json
    from isthmus.costs import Options, report_for
    from isthmus.costs.options import parse_hours, parse_share, read_throughput
    from isthmus.costs.report import show, write
    from workloads.load import load

    names = tuple(name for text in regions for name in text.split(",") if name)
    today = date.today()
    options = Options(
        regions=names or None,
        purchases=PURCHASES[purchase],
        gpus=gpus,
        hours=parse_hours(hours, "--hours"),
        share=parse_share(share) if share else None,
        throughput=read_throughput(throughput, catalog(), today=today) if throughput else None,
        managed=managed,
        network=network,
        control_plane=control_plane,
        checkpoint_hours=parse_hours(checkpoint_every, "--checkpoint-every") or Options().checkpoint_hours,
        within_quota=within_quota,
    )
    report = report_for([load(workload) for workload in workloads], options, today=today, max_age_days=max_age)
    if output is not None:
        write(report, output)
    if json:
        print_json(report)
    else:
        show(report, everything=everything)
    if output is not None and not json:
        print(f"written: {output}")
    return 0 if all(workload["offers"] for workload in report["workloads"]) else 3
