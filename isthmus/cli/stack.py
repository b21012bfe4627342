"""isthmus preview, up, refresh, down, kubeconfig: the life of a stack."""

import os
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from isthmus.cli.engine import CLUSTER_TYPES, Engine, Watch, kubeconfig_of
from isthmus.cli.output import confirm, is_terminal, print_json, print_rows
from isthmus.specs.errors import InvalidSpec, IsthmusError, NotReady, Refused

if TYPE_CHECKING:
    from isthmus.kube import Cluster

LOAD_BALANCER_SECONDS = 300
"""How long a cloud may take to delete a load balancer before `down` gives up and names its Service."""

Yes = Annotated[bool, Parameter(name=["--yes", "-y"], negative="")]


def preview(
    stack: str,
    *,
    max_monthly: str | None = None,
    allow_unknown: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Show what `up` would change, and what the stack then costs a month at list prices.

    Parameters
    ----------
    stack
        Name of the stack, for example aws-sim.
    max_monthly
        Exit with 3 if the stack would cost more USD a month than this, or if that cannot be shown.
    allow_unknown
        Leave what has no known price out of that check.
    json
        Print the plan and its price as JSON, for a comment on a pull request.
    """
    from isthmus import catalog
    from isthmus.costs import plan

    limit = _limit(max_monthly)
    engine = Engine(stack)
    watch = engine.preview(f"preview {stack}")
    settings, facts = engine.settings, catalog.load()
    if not facts.has_prices(settings.cloud):
        _without_price(watch, stack, limit, json=json)
        return
    cost = plan.plan_cost(watch.resources, facts, cloud=settings.cloud, region=settings.region)
    priced = plan.document(cost, stack=stack)
    if json:
        print_json({"stack": stack, "changes": dict(watch.changes), "steps": _steps(watch), "cost": priced})
    else:
        _print_plan(watch)
        watch.progress.done(watch.planned())
        _print_price(priced)
    if limit is not None:
        plan.check_monthly(cost, limit, allow_unknown=allow_unknown, subject=f"stack {stack}")


def up(stack: str, *, yes: Yes = False, replace_cluster: bool = False) -> None:
    """Create or update a stack. Shows the plan and asks, unless given --yes or not at a terminal.

    Parameters
    ----------
    stack
        Name of the stack, for example aws-sim.
    yes
        Do not ask.
    replace_cluster
        Allow a plan that replaces the cluster, losing what runs in it.
    """
    engine = Engine(stack)
    exists = any(resource["type"] in CLUSTER_TYPES for resource in engine.resources())
    # A plan costs a run of the program: it is made where somebody can read it, or where a cluster could be lost.
    if exists or (is_terminal() and not yes):
        plan = engine.preview(f"plan {stack}")
        _print_plan(plan)
        _guard_cluster(plan, stack, allowed=replace_cluster)
        if not plan.changes:
            plan.progress.done("no changes")
            return
        if not confirm(f"{plan.planned()}; go on?", yes=yes):
            raise Refused(
                "not confirmed; nothing changed", subject=f"stack {stack}", remedy=f"isthmus up {stack} --yes"
            )
    watch = engine.up()
    watch.progress.done(f"{watch.made()}; next: isthmus status {stack}")


def refresh(stack: str) -> None:
    """Read back what is really there and take it into the state.

    Parameters
    ----------
    stack
        Name of the stack.
    """
    watch = Engine(stack).refresh()
    watch.progress.done(watch.made())


def down(stack: str, *, yes: Yes = False, cluster_gone: bool = False) -> None:
    """Delete everything of a stack.

    Parameters
    ----------
    stack
        Name of the stack.
    yes
        Do not ask.
    cluster_gone
        The cluster was deleted outside isthmus: drop its objects from the state and delete what is left of the cloud.
    """
    engine = Engine(stack)
    interrupted = engine.interrupted_creations() or _half_made(engine)
    resources = [item for item in engine.resources() if item["type"] != "pulumi:pulumi:Stack"]
    if not resources and not interrupted:
        print(f"stack {stack} has nothing to delete")
        return
    if not confirm(f"delete {len(resources)} resources of {stack}; go on?", yes=yes):
        raise Refused("not confirmed; nothing changed", subject=f"stack {stack}", remedy=f"isthmus down {stack} --yes")
    if interrupted and cluster_gone:
        raise Refused(
            f"{len(interrupted)} creations were cut short; what they made must be finished before it can be deleted",
            subject=f"stack {stack}",
            remedy=f"isthmus up {stack}, then isthmus down {stack}",
        )
    if interrupted:
        _finish(engine, interrupted)
        resources = engine.resources()
    objects = [item for item in resources if item["type"].startswith("kubernetes:")]
    if cluster_gone:
        # pulumi-kubernetes then drops what it cannot reach; opt-in, so that a short outage loses no state (case A01).
        os.environ["PULUMI_K8S_DELETE_UNREACHABLE"] = "true"
    elif objects:
        _prepare(stack, resources, len(objects))
    watch = engine.destroy()
    watch.progress.done(watch.made())


def kubeconfig(stack: str, *, native: bool = False) -> None:
    """Print a kubeconfig for a stack's cluster; it holds no secret.

    Parameters
    ----------
    stack
        Name of the stack.
    native
        Use the cloud's own command (aws, gke-gcloud-auth-plugin) in place of isthmus kube-token.
    """
    import yaml

    from isthmus.cli.engine import outputs

    values = outputs(stack)["kubeconfigNative"] if native else kubeconfig_of(stack)
    print(yaml.safe_dump(values, sort_keys=False), end="")


def _finish(engine: Engine, interrupted: list[str]) -> None:
    """Go on with creations that a kill cut short, so that the state knows what they made and it can be deleted.

    A whole `up`, since the engine makes no part of a program whose other parts are not there yet. It may fail further on:
    what counts is that nothing is half-made any more.
    """
    print(f"{len(interrupted)} creations were cut short: finishing them first, so that what they made is deleted too")
    try:
        engine.up()
    except Refused:
        raise
    except IsthmusError as error:
        left = engine.interrupted_creations()
        if left:
            raise IsthmusError(
                f"a creation that was cut short could not be finished: {error.message}",
                subject=left[0].rsplit("::", 1)[-1],
                remedy=error.remedy,
            ) from error


def _half_made(engine: Engine) -> list[str]:
    """What a failed creation left in a simulated account and the engine does not know (a cluster that was not ready in
    time): URNs of this stack."""
    from isthmus.simulation import account as accounts
    from isthmus.toolchain import home

    settings = engine.settings
    if settings.mode != "simulated" or not home.account_file(settings.account).exists():
        return []
    rows = accounts.open_account(settings.account).rows()
    return [
        row.urn for row in rows if row.state == accounts.CREATING and row.urn.startswith(f"urn:pulumi:{engine.name}::")
    ]


def _prepare(stack: str, resources: list[dict[str, Any]], objects: int) -> None:
    """Refuse to go on while the API server is away, and let go of what the cluster alone can. By the provider's own
    kubeconfig, since a stack whose `up` failed may have no outputs."""
    import json

    from isthmus.kube.client import Cluster

    providers = [item for item in resources if item["type"] == "pulumi:providers:kubernetes"]
    kubeconfig = providers[0].get("inputs", {}).get("kubeconfig") if providers else None
    if isinstance(kubeconfig, str):
        cluster = Cluster(json.loads(kubeconfig))
        if cluster.ready():
            _release_load_balancers(cluster)
            return
    raise NotReady(
        f"the cluster does not answer, so its {objects} objects cannot be deleted; the state was left as it is",
        subject=f"stack {stack}",
        remedy=f"isthmus refresh {stack}, or isthmus down {stack} --cluster-gone when it was deleted outside isthmus",
    )


def _release_load_balancers(cluster: "Cluster") -> None:
    """Delete Services of type LoadBalancer, whoever made them: what the cloud made for them holds on to the network, and
    only a living cluster takes it down (case A04)."""
    from isthmus.kube import wait

    services = [item for item in cluster.list("v1", "Service") if item["spec"].get("type") == "LoadBalancer"]
    for item in services:
        name, namespace = item["metadata"]["name"], item["metadata"]["namespace"]
        print(f"deleting Service {namespace}/{name} first: its load balancer would hold on to the network")
        cluster.delete("v1", "Service", name, namespace)
    for item in services:
        name, namespace = item["metadata"]["name"], item["metadata"]["namespace"]
        wait.gone(cluster, "v1", "Service", name, namespace, seconds=LOAD_BALANCER_SECONDS)


def _guard_cluster(plan: Watch, stack: str, *, allowed: bool) -> None:
    lost = [name for operation, kind, name in plan.steps if kind in CLUSTER_TYPES and "replace" in operation]
    if lost and not allowed:
        raise Refused(
            f"this plan replaces cluster {', '.join(sorted(set(lost)))}: every run, queue and volume in it would be lost",
            subject=f"stack {stack}",
            remedy=f"isthmus runs lists what would be lost; isthmus up {stack} --replace-cluster goes on",
        )


def _print_plan(watch: Watch) -> None:
    for step in _steps(watch):
        print(f"  {step['operation']:<20} {step['type']} {step['name']}")


def _without_price(watch: Watch, stack: str, limit: Decimal | None, *, json: bool) -> None:
    """A plan of a cluster on this machine: it costs nothing by the month."""
    if limit is not None:
        raise InvalidSpec(
            f"stack {stack} runs on this machine and has no price",
            subject="--max-monthly",
            remedy=f"isthmus preview {stack}",
        )
    if json:
        print_json({"stack": stack, "changes": dict(watch.changes), "steps": _steps(watch), "cost": None})
        return
    _print_plan(watch)
    watch.progress.done(watch.planned())


def _print_price(priced: dict[str, Any]) -> None:
    rows = [
        {
            "": item["operation"],
            "resource": item["name"],
            "before": item["before"] or "unknown",
            "after": item["after"] or "unknown",
            "change": item["change"] or "unknown",
            "how": item["how"],
        }
        for item in priced["resources"]
        if item["operation"] != "same"
    ]
    if rows:
        print_rows(rows, ["", "resource", "before", "after", "change", "how"])
    lacking = "" if priced["complete"] else f", without {len(priced['unknown'])} whose price is not known"
    print(
        f"USD a month: {priced['before']} before, {priced['after']} after, change {priced['change']}{lacking}; {priced['basis']}"
    )
    for name in priced["unknown"]:
        print(f"  unknown: {name}")
    if priced["byUse"]:
        print(f"  by use, not counted: {', '.join(priced['byUse'])}")


def _limit(text: str | None) -> Decimal | None:
    from decimal import InvalidOperation

    if text is None:
        return None
    try:
        limit = Decimal(text)
    except InvalidOperation as error:
        raise InvalidSpec(
            f"--max-monthly must be a number, not {text!r}", subject="--max-monthly", remedy="--max-monthly 500"
        ) from error
    if not (limit.is_finite() and limit >= 0):
        raise InvalidSpec(f"--max-monthly must be 0 or more, not {text}", subject="--max-monthly")
    return limit


def _steps(watch: Watch) -> list[dict[str, str]]:
    return [{"operation": operation, "type": kind, "name": name} for operation, kind, name in watch.steps]
