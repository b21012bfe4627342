"""isthmus logs: what the ranks of a run printed."""

import time
from typing import Annotated

from cyclopts import Parameter

from isthmus.specs.errors import Refused

PAUSE_SECONDS = 0.7


def logs(
    run: str,
    *,
    role: str | None = None,
    rank: int | None = None,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Print the logs of a run by role and rank, from the pods' own logs.

    Parameters
    ----------
    run
        Id of the run, or name of its job.
    role
        Only this role: Master or Worker.
    rank
        Only this rank.
    follow
        Go on until the run ends.
    json
        Print one JSON object per line.
    """
    from isthmus.cli.run import cluster_of, open_store
    from isthmus.runs.logs import stream

    its_run = open_store().get(run)
    if its_run.simulated:
        raise Refused(
            f"run {its_run.id} is simulated: its pods were only scheduled and printed nothing",
            subject=f"run {its_run.id}",
            remedy=f"isthmus runs show {its_run.id}",
        )
    lines = stream(
        cluster_of(its_run.stack), its_run, role=role, rank=rank, follow=follow, pause=lambda: time.sleep(PAUSE_SECONDS)
    )
    for line in lines:
        if json:
            _print_line(
                {"role": line.role, "rank": line.rank, "at": line.at, "restart": line.restart, "text": line.text}
            )
        else:
            print(f"{line.role.lower()} {line.rank} | {line.text}", flush=True)
    return 0


def _print_line(fields: dict[str, object]) -> None:
    import json

    print(json.dumps(fields, default=str), flush=True)
