"""isthmus cancel: stop a run."""

from typing import Annotated

from cyclopts import Parameter

from isthmus.cli.output import Progress, confirm
from isthmus.specs.errors import Refused


def cancel(
    run: str,
    *,
    delete_volumes: Annotated[bool, Parameter(negative="")] = False,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="")] = False,
) -> int:
    """Stop a run. What it has printed so far is kept as metrics; its volumes stay.

    Parameters
    ----------
    run
        Id of the run, or name of its job.
    delete_volumes
        Also delete its volumes with the checkpoints in them, of a run that has ended too.
    yes
        Do not ask before volumes are deleted.
    """
    from isthmus.cli.run import cluster_of, open_store
    from isthmus.runs import cancel as cancelling

    store = open_store()
    its_run = store.get(run)
    cluster = cluster_of(its_run.stack)
    claims = cancelling.claims(cluster, its_run)
    if delete_volumes and claims and not confirm(f"delete {', '.join(claims)} with what is in them?", yes=yes):
        raise Refused(
            "not confirmed; nothing changed", subject=f"run {its_run.id}", remedy=f"isthmus cancel {run} --yes"
        )
    progress = Progress(f"cancel {its_run.id}")
    progress.update("waiting for its pods to end")
    after = cancelling.cancel(cluster, store, its_run, delete_volumes=delete_volumes)
    progress.done(f"{after.state}; nothing of it runs")
    if claims and not delete_volumes:
        print(f"kept: volume {', '.join(claims)}; isthmus cancel {its_run.id} --delete-volumes removes it")
    return 0
