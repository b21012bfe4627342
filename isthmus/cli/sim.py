"""isthmus sim: look into a simulated account and steer it (quotas, zone capacity, faults, a fresh start)."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from isthmus.cli.output import confirm, print_rows
from isthmus.simulation import access, capacity, clock, faults, object_servers, quota
from isthmus.simulation.account import Account, open_account
from isthmus.simulation.faults import Fault
from isthmus.simulation.quota import EVERYWHERE, Quota
from isthmus.specs.errors import InvalidSpec, NotFound, Refused
from isthmus.toolchain import home

app = App(name="sim", help="Look into a simulated account and steer it.")
fault = App(name="fault", help="Order faults: errors, latency, interfaces that stay attached.")
app.command(fault)

Json = Annotated[bool, Parameter(name="--json", negative="")]
Yes = Annotated[bool, Parameter(name=["--yes", "-y"], negative="")]


@app.command
def show(account: str, *, json: Json = False) -> None:
    """List the resources of an account with their state.

    Parameters
    ----------
    account
        The simulated account: the AWS profile or the GCP project of its stacks.
    json
        Print everything as JSON.
    """
    opened = open_account(account, create=False)
    rows = [
        {
            "type": row.type.rpartition(":")[2],
            "id": row.id,
            "region": row.region or "global",
            "state": _state(row.state, row.owner),
            "created": row.created_at,
            "token": row.type,
            "urn": row.urn,
            "outputs": row.outputs,
        }
        for row in opened.rows()
    ]
    print_rows(rows, ["type", "id", "region", "state", "created"], as_json=json, empty=f"{account} holds no resources")


@app.command(name="quota")
def show_or_set_quota(
    account: str, code: str | None = None, value: float | None = None, *, region: str = EVERYWHERE, json: Json = False
) -> None:
    """Show the quotas of an account, or set one.

    Parameters
    ----------
    account
        The simulated account.
    code
        The quota's code, for example L-DB2E81BA or NVIDIA_T4_GPUS; all quotas if not given.
    value
        The new limit. What is over it already stays.
    region
        Set it for one region (or zone) only.
    json
        Print as JSON.
    """
    known = _quotas()
    if code is not None and code not in known:
        import difflib

        near = (
            ", ".join(difflib.get_close_matches(code, known, n=3, cutoff=0.4)) or "isthmus sim quota ACCOUNT lists them"
        )
        raise InvalidSpec(
            f"there is no quota {code!r}; near: {near}",
            subject=f"account {account}",
            remedy=f"isthmus sim quota {account}",
        )
    if code is None or value is None:
        opened = open_account(account, create=False)
        rows = _quota_rows(opened, [known[code]] if code else _quotas_in_use(opened, known))
        print_rows(rows, ["code", "name", "place", "limit", "used", "unit"], as_json=json)
        return
    if value < 0:
        raise InvalidSpec(f"a limit is not negative: {value:g}", subject=f"quota {code}", remedy="give 0 or more")
    quota.set_limit(_steered(account), code, value, region)
    where = "everywhere" if region == EVERYWHERE else f"in {region}"
    print(f"{known[code].name} ({code}) is now {value:g} {known[code].unit} {where} for {account}")


@app.command(name="capacity")
def show_or_set_capacity(
    account: str, zone: str | None = None, machine: str | None = None, count: str | None = None, *, json: Json = False
) -> None:
    """Show or set how many machines of a type a zone has. 0 is a stock-out.

    Parameters
    ----------
    account
        The simulated account.
    zone
        For example us-east-1a.
    machine
        The instance type; on Google Cloud with its cards, for example n1-standard-16+nvidia-tesla-t4.
    count
        Machines in all, or "none" to lift the limit.
    json
        Print as JSON.
    """
    if zone is None or machine is None or count is None:
        opened = open_account(account, create=False)
        print_rows(
            _capacity_rows(opened, zone),
            ["zone", "machine", "total", "left"],
            as_json=json,
            empty="no zone has a limit",
        )
        return
    if count != "none" and not count.isdigit():
        raise InvalidSpec(
            f"{count!r} is no number of machines", subject=f"zone {zone}", remedy="give 0 or more, or none"
        )
    capacity.set_available(_steered(account), zone, machine, None if count == "none" else int(count))
    told = "as many as asked for" if count == "none" else count
    print(f"{zone} has {told} {machine} for {account}")


@fault.command(name="add")
def add_fault(
    account: str,
    *,
    kind: Literal["error", "latency", "detach"] = "error",
    operation: Literal["create", "read", "update", "delete", "invoke"] = "create",
    type: str = "*",
    nth: int = 1,
    times: int = 1,
    seconds: float = 0.0,
    code: str = faults.DEFAULT_CODE,
    message: str = faults.DEFAULT_MESSAGE,
) -> None:
    """Order a fault.

    Parameters
    ----------
    account
        The simulated account.
    kind
        error: refuse the call. latency: make it wait. detach: network interfaces of deleted nodes stay attached.
    operation
        Which calls it acts on.
    type
        Resource types it acts on, as a glob over tokens: "aws:eks/*", "*:NodeGroup".
    nth
        Act on the n-th such call from now.
    times
        Act on so many calls in a row; 0 for ever.
    seconds
        Of real time, for latency and detach.
    code
        Error code, as the cloud writes it.
    message
        Error text.
    """
    if nth < 1 or times < 0 or seconds < 0:
        raise InvalidSpec(
            "--nth starts at 1, --times and --seconds at 0", subject="fault", remedy="isthmus sim fault add --help"
        )
    if kind != "error" and seconds == 0:
        raise InvalidSpec(f"a {kind} fault needs --seconds", subject="fault", remedy="add --seconds 90")
    ordered = Fault(kind, operation, type, nth, times, seconds, code, message)
    print(f"fault {faults.add(_steered(account), ordered)} ordered for {account}")


@fault.command(name="list")
def list_faults(account: str, *, json: Json = False) -> None:
    """List the ordered faults, spent ones too."""
    rows = [
        {**asdict(item), "spent": "yes" if item.spent else "no"}
        for item in faults.ordered(open_account(account, create=False))
    ]
    columns = ["id", "kind", "operation", "type", "nth", "times", "seconds", "code", "seen", "spent"]
    print_rows(rows, columns, as_json=json, empty=f"{account} has no faults")


@fault.command(name="remove")
def remove_fault(account: str, number: int | None = None) -> None:
    """Take back one fault, or all of them."""
    count = faults.remove(open_account(account, create=False), number)
    if number is not None and not count:
        raise NotFound(
            f"there is no fault {number}", subject=f"account {account}", remedy=f"isthmus sim fault list {account}"
        )
    print(f"{count} taken back")


@fault.command(name="scale")
def set_scale(account: str, scale: float | None = None) -> None:
    """Show or set real seconds per simulated second: 0 waits not at all, 1 as long as the real cloud."""
    opened = open_account(account, create=False) if scale is None else _steered(account)
    if scale is not None:
        if not 0 <= scale <= 10:
            raise InvalidSpec(f"the scale is 0 to 10, not {scale:g}", subject=f"account {account}", remedy="try 0.01")
        opened.set_setting(clock.SCALE_SETTING, f"{scale:g}")
    print(f"{account}: {clock.scale(opened):g} real seconds per simulated second")


@app.command(name="clock")
def show_clock(account: str, *, advance: str | None = None, json: Json = False) -> None:
    """Show an account's clock, or let time pass in which its stacks stand idle: their bills count it.

    Parameters
    ----------
    account
        The simulated account.
    advance
        How much time passes: 90m, 24h, 720h.
    json
        Print JSON.
    """
    opened = open_account(account, create=False)
    if advance is not None:
        found = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)(m|h)", advance)
        if not found:
            raise InvalidSpec(
                f"{advance!r} is no span of time",
                subject="--advance",
                remedy=f"isthmus sim clock {account} --advance 24h",
            )
        clock.advance(opened, float(found[1]) * (60 if found[2] == "m" else 3600))
    rows = [{"account": account, "now": clock.now(opened)}]
    print_rows(rows, ["account", "now"], as_json=json)


@app.command
def autoscale(account: str, *, seconds: float | None = None, json: Json = False) -> None:
    """Let the pools of an account's clusters grow when pods wait, up to their max, quotas and stock: Karpenter decides, by
    the shares that nodes offer. Runs until Ctrl-C; the nodes that it made stay, and go when they were empty for ten minutes
    while it runs.

    Parameters
    ----------
    account
        The simulated account.
    seconds
        End after so long.
    json
        Print the nodes that it has made as JSON at the end.
    """
    import contextlib
    import time

    from isthmus.cli.output import Progress
    from isthmus.simulation import autoscaler

    opened = open_account(account, create=False)
    running = [autoscaler.Autoscaler(opened, item) for item in autoscaler.scaled(opened)]
    if not running:
        raise NotFound(f"account {account} has no cluster", subject=f"account {account}", remedy="isthmus up STACK")
    progress = Progress(f"autoscale {account}")
    made: list[autoscaler.Made] = []
    with contextlib.ExitStack() as stack, contextlib.suppress(KeyboardInterrupt):
        for item in running:
            stack.enter_context(item.running())
        end = None if seconds is None else time.monotonic() + seconds
        while end is None or time.monotonic() < end:
            now = [node for item in running for node in item.look()]
            for node in now:
                if node not in made:
                    progress.note(f"pool {node.pool}: node {node.node} ({node.machine} in {node.zone}) was started")
            for node in made:
                if node not in now:
                    progress.note(f"pool {node.pool}: node {node.node} was empty and is gone")
            made = now
            progress.update(f"{len(made)} nodes made")
            time.sleep(1)
    progress.done(f"{len(made)} nodes made")
    if json:
        print_rows([asdict(node) for node in made], ["pool", "node", "machine", "zone"], as_json=True)


@app.command
def reset(account: str, *, yes: Yes = False) -> None:
    """Empty an account: resources, limits, faults and the local clusters behind its control planes.

    Parameters
    ----------
    account
        The simulated account.
    yes
        Also where a cluster exists, which is then deleted with all that runs in it.
    """
    opened = open_account(account, create=False)
    found = access.clusters(opened)
    if found and not yes:
        names = ", ".join(row.id for row, _ in found)
        raise Refused(
            f"the account holds {len(found)} cluster(s): {names}",
            subject=f"account {account}",
            remedy=f"isthmus down the stack, or: isthmus sim reset {account} --yes",
        )
    if not confirm(f"empty {account}: {len(opened.rows())} resources?", yes=yes):
        raise Refused(
            "not confirmed; nothing changed", subject=f"account {account}", remedy=f"isthmus sim reset {account} --yes"
        )
    for _, name in found:
        _delete_local(name)
    object_servers.remove(opened)
    opened.clear()
    print(f"{account} is empty")


def _delete_local(name: str) -> None:
    from isthmus.simulation import local

    try:
        local.backend().runtime().get(name).delete()
    except NotFound:
        pass  # the account knew of it, this machine does not: nothing is left to delete


def _state(state: str, owner: str) -> str:
    from isthmus.simulation.account import READY, is_alive

    return state if state == READY or is_alive(owner) else f"{state} (cut short)"


def _quotas() -> dict[str, Quota]:
    from isthmus.simulation import coverage

    return {code: item for cloud in coverage.clouds() for code, item in cloud.quotas.items()}


def _quotas_in_use(account: Account, known: dict[str, Quota]) -> list[Quota]:
    """The quotas of the account's own cloud; of all where it holds nothing yet."""
    tokens = {row.type.partition(":")[0] for row in account.rows()}
    of_aws = [item for code, item in known.items() if code.startswith("L-")]
    of_gcp = [item for code, item in known.items() if not code.startswith("L-")]
    return of_aws if tokens == {"aws"} else of_gcp if tokens == {"gcp"} else list(known.values())


def _quota_rows(account: Account, wanted: list[Quota]) -> list[dict[str, Any]]:
    places: dict[str, set[str]] = {}
    for row in account.database.execute("SELECT code, place FROM usage UNION SELECT code, place FROM quotas"):
        places.setdefault(row["code"], set()).add(row["place"])
    return [
        {
            "code": item.code,
            "name": item.name,
            "place": place or "global",
            "limit": f"{quota.limit(account, item, place):g}",
            "used": f"{quota.used(account, item.code, place):g}",
            "unit": item.unit,
        }
        for item in wanted
        for place in sorted(places.get(item.code, {EVERYWHERE}))
    ]


def _capacity_rows(account: Account, zone: str | None) -> list[dict[str, Any]]:
    found = account.database.execute(
        "SELECT * FROM capacity WHERE ?1 IS NULL OR zone = ?1 ORDER BY zone, machine", (zone,)
    )
    return [
        {
            "zone": row["zone"],
            "machine": row["machine"],
            "total": row["available"],
            "left": capacity.available(account, row["zone"], row["machine"]),
        }
        for row in found.fetchall()
    ]


def _steered(account: str) -> Account:
    """An account to change, made if a simulated stack names it. Any other name may be that of a real profile or project,
    whose kubeconfigs would then look for clusters here.

    Raises:
        InvalidSpec: no simulated stack uses it.
    """
    from isthmus.cli import project
    from isthmus.specs import stack as stacks

    root = project.root()
    settings = [stacks.load(root, name) for name in stacks.names(root)]
    known = sorted({item.account for item in settings if item.mode == "simulated"})
    if account not in known and not home.account_file(account).exists():
        raise InvalidSpec(
            f"no simulated stack uses account {account!r}; known: {', '.join(known)}",
            subject=f"account {account}",
            remedy=f"isthmus sim quota {known[0] if known else 'ACCOUNT'}",
        )
    return open_account(account)
