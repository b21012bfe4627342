"""isthmus metrics: the numbers that the ranks of a run printed."""

from typing import Annotated, Literal

from cyclopts import Parameter

from isthmus.cli.output import print_json, print_rows


def metrics(
    run: str,
    *,
    name: str | None = None,
    format: Literal["table", "csv", "json", "chart"] = "table",
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Print the metrics of a run, each from the log of the rank that is named, and what the run took.

    Parameters
    ----------
    run
        Id of the run, or name of its job.
    name
        Only this metric, for example accuracy.
    format
        table, csv, json, or chart: of every metric that has more than one value.
    json
        The same as --format json.
    """
    from isthmus.cli.run import open_store
    from isthmus.cli.runs import look
    from isthmus.runs import chart, summary
    from isthmus.runs import metrics as metric_lines

    store = open_store()
    snapshot, problem = look(store, store.get(run))
    found = store.metrics(snapshot.run, name)
    if json or format == "json":
        print_json(metric_lines.rows(found))
        return
    if format == "csv":
        print(metric_lines.to_csv(found), end="")
        return
    empty = "none: a simulated run computes nothing" if snapshot.run.simulated else "no metric was printed"
    if format == "chart":
        print("\n".join(chart.charts(found)) or empty)
    else:
        rows = metric_lines.rows(found)
        print_rows(rows, ["metric", "value", "epoch", "step", "role", "rank", "restart", "at"], empty=empty)
    print("\n".join(summary.taken(snapshot)))
    if problem:
        print(f"as they were last seen: {problem}")
