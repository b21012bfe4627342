"""`isthmus sharing`: what each way to share a card gives, and whether a file that asks for one is right. Changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from isthmus.specs.errors import InvalidSpec, NotFound, Refused
from isthmus.specs.sharing import MODES, GpuSharing

if TYPE_CHECKING:
    from isthmus.catalog import Catalog

app = App(name="sharing", help="Ways to share a card: what they give, and whether a file that asks for one is right.")

Json = Annotated[bool, Parameter(name="--json", negative="")]
Yes = Annotated[bool, Parameter(name=["--yes", "-y"], negative="")]


@app.command
def explain(model: str, *, json: Json = False) -> None:
    """Print what every sharing mode makes of a card, and what is known of each, with its source.

    Parameters
    ----------
    model
        A card model, for example a100-80gb.
    json
        Print as JSON.
    """
    from isthmus import catalog
    from isthmus.catalog import sharing
    from isthmus.cli.output import print_json, print_rows

    facts = catalog.load()
    gpu = facts.gpu(model)
    shares = [
        {"mode": item.mode, "shares": item.shares, "memory each": item.memory, "SMs each": item.sms, "note": item.note}
        for item in sharing.shares(facts, gpu.model)
    ]
    known = [
        {
            "mode": item.mode,
            "property": item.property,
            "value": item.value,
            "source": item.source,
            "as of": str(item.as_of) if item.as_of else "undated",
        }
        for mode in MODES
        for item in facts.sharing_properties(mode)
    ]
    if json:
        print_json({"model": gpu.model, "shares": shares, "properties": known})
        return
    print(f"{gpu.nvml_name}: {gpu.memory_mib} MiB, compute capability {gpu.compute_capability}, {gpu.architecture}")
    print_rows(shares, ["mode", "shares", "memory each", "SMs each", "note"])
    print("What is known of each mode; where sources disagree there is a row for each.")
    print_rows(known, ["mode", "property", "value", "source", "as of"])


@app.command(name="try")
def try_out(mode: str, *, gpu: str = "A100", cards: int = 2, json: Json = False) -> None:
    """Run a way to share cards on a local cluster of this machine: the node object that the real device plugin (or the
    DRA driver) makes of it, a pod that gets its share, and a pod that is refused. The cluster is deleted afterwards.

    Parameters
    ----------
    mode
        none, time-slicing, mps, mig or dra; or a YAML file with a sharing setting.
    gpu
        The card model.
    cards
        Cards of the node.
    json
        Print as JSON.
    """
    from dataclasses import asdict

    from isthmus import catalog
    from isthmus.catalog import sharing as rules
    from isthmus.cli.output import print_json, progress
    from isthmus.kube import Cluster
    from isthmus.localcluster.embedded import EmbeddedRuntime
    from isthmus.localcluster.runtime import LocalClusterConfig
    from isthmus.sharing import trial

    facts = catalog.load()
    sharing = _example(mode, gpu, facts) if mode in MODES else _setting(Path(mode), _read(Path(mode)))
    rules.check(facts, sharing, gpu, "kind", subject=f"sharing mode {sharing.mode}")
    with progress(f"sharing try {mode}") as line:
        line.update("a local cluster")
        cluster = EmbeddedRuntime().create("sharing-try", LocalClusterConfig())
        try:
            kube = Cluster(cluster.kubeconfig())
            trial.install(kube, [sharing])
            line.update("the node, and two pods")
            found = trial.run(cluster, kube, sharing, facts.gpu(gpu).model, cards)
        finally:
            cluster.delete()
    if json:
        print_json(asdict(found))
        return
    print("the node:")
    print_json(found.node)
    print("a pod that got its share:")
    print("\n".join(f"  {text}" for text in found.given))
    print(f"a pod that is refused:\n  {found.refused}")
    print("The cards are a file: nothing computes on them, and no limit of memory or time is enforced.")


@app.command
def compare(
    workload: str = "small-inference",
    *,
    gpu: str,
    jobs: int | None = None,
    card_memory: str | None = None,
    json: Json = False,
) -> None:
    """Put the ways to share a card side by side for a number of small equal jobs.

    How many fit and what a job-hour costs is arithmetic over the catalog. How fast they run is not known here: figures that
    others published are printed with their source.

    Parameters
    ----------
    workload
        Name of a sample, or path of a workload file.
    gpu
        The card model.
    jobs
        Jobs at the same time. Default: the workload's pods that ask for cards, at least 1.
    card_memory
        Card memory that a job needs, for example 4Gi.
    json
        Print as JSON.
    """
    from dataclasses import asdict

    from isthmus import catalog
    from isthmus.cli.output import print_json, print_rows
    from isthmus.sharing import compare as comparing
    from isthmus.specs.quantity import mebibytes
    from workloads.load import load

    facts, spec = catalog.load(), load(workload)
    pods = jobs if jobs is not None else max(1, sum(role.replicas for role in spec.roles.values() if role.on_cards))
    ways = comparing.compare(facts, gpu, pods, memory_mib=int(mebibytes(card_memory)) if card_memory else 0)
    published = [asdict(item) for mode in MODES for item in facts.sharing_measurements(mode)]
    prices = comparing.card_prices(facts, facts.gpu(gpu))
    if json:
        print_json({"jobs": pods, "ways": [asdict(way) for way in ways], "card prices": prices, "published": published})
        return
    print(f"{pods} jobs of {spec.name} on {facts.gpu(gpu).nvml_name}, at the same time")
    rows = [
        {
            "mode": way.mode,
            "setting": way.setting or way.note or "-",
            "jobs a card": way.jobs_per_card or "-",
            "memory each": f"{way.memory_mib_each} MiB" if way.jobs_per_card else "-",
            "held to it": way.memory_enforced,
            **way.isolation,
            "cards": way.cards or "-",
            **{f"{cloud} USD/job-h": _price(value) for cloud, value in way.usd_per_job_hour.items()},
        }
        for way in ways
    ]
    print_rows(rows, list(rows[0]))
    for cloud, price in prices.items():
        known = f"{price.machine} in {price.region}, {_price(price.usd_per_hour)} USD/h a card" if price else "not sold"
        print(f"{cloud}: {known} (on demand, the cheapest; a machine's price by its number of cards)")
    print("Published by others, not measured here:")
    print_rows(published, ["mode", "what", "jobs_on_card", "value", "unit", "gpu", "source"])


@app.command
def change(stack: str, pool: str, *, evict: bool = False, yes: Yes = False, json: Json = False) -> None:
    """Change how the nodes of a pool share their cards to what the stack's file says, one node at a time: cordon, drain,
    cut, configure, wait, uncordon. Prints the plan and asks. What was cut short is taken up by asking again. Afterwards
    `isthmus up` finds the nodes as it wants them.

    Parameters
    ----------
    stack
        Name of the stack.
    pool
        Name of the node pool.
    evict
        End the pods that hold cards; those that nothing makes anew are lost.
    yes
        Do not ask.
    json
        Print the plan as JSON and change nothing.
    """
    from dataclasses import asdict

    from isthmus import catalog
    from isthmus.catalog import sharing as rules
    from isthmus.cli.output import confirm, print_json, progress
    from isthmus.cli.project import settings
    from isthmus.cli.run import cluster_of
    from isthmus.sharing import change as changing
    from isthmus.simulation import nodes

    chosen, facts = settings(stack), catalog.load()
    known = {item.name: item for item in chosen.gpu_pools}
    if pool not in known:
        raise NotFound(
            f"stack {stack} has no GPU pool {pool}; it has: {', '.join(known) or 'none'}", subject=f"pool {pool}"
        )
    if chosen.cloud == "gcp":
        raise Refused(
            "on GKE sharing is a field of the node pool, and the cloud makes the pool anew when it changes",
            subject=f"pool {pool}",
            remedy=f"isthmus up {stack}",
        )
    wanted = known[pool].sharing
    machine = facts.machine_for(chosen.cloud, chosen.region, known[pool].gpu, known[pool].instance_type)
    rules.check(facts, wanted, machine.gpu_model or "", chosen.cloud, subject=f"pool {pool}")
    kube = cluster_of(stack)
    steps = changing.plan(changing.read(kube, pool), wanted, machine.gpu_count, evict=evict)
    if json:
        print_json([asdict(step) for step in steps])
        return
    print("\n".join(f"{step.node}: {step.text}" for step in steps) or f"the nodes of pool {pool} share their cards so")
    if not steps or not confirm("Change them?", yes=yes):
        return
    with progress(f"sharing change {stack} {pool}") as line:
        changing.prepare(kube, chosen.cluster.pools)
        changing.run(
            kube, steps, wanted, machine.gpu_count, say=line.update,
            played=lambda client, node: nodes.play(client, node, machine.gpu_count),
        )  # fmt: skip
        line.done(f"done; next: isthmus up {stack}")


def _price(value: Any) -> str:
    return "unknown" if value is None else f"{value:.4f}"


def _example(mode: str, gpu: str, facts: Catalog) -> GpuSharing:
    """A usual setting of a mode, for a card."""
    profiles = facts.mig_profiles(gpu)
    halves = next((item.profile for item in profiles if item.max_instances == 2), "")
    examples: dict[str, dict[str, Any]] = {
        "none": {},
        "time-slicing": {"replicas": 4},
        "mps": {"clients": 4},
        "mig": {"layout": {halves: 2} if halves else {"1g.5gb": 7}},
        "dra": {"claims": [{"name": "half", "strategy": "TimeSlicing", "interval": "Long"}]},
    }
    return GpuSharing.model_validate({"mode": mode, **examples[mode]})


@app.command
def validate(
    file: Path,
    *,
    gpu: str | None = None,
    cards: int = 1,
    cloud: str = "aws",
    gates: Annotated[tuple[str, ...], Parameter(negative="", consume_multiple=True)] = (),
    json: Json = False,
) -> None:
    """Check a file: an NVIDIA device plugin configuration, a stack's settings, a `sharing` setting on its own, or a
    ResourceClaim (or its template) against the feature gates of NVIDIA's DRA driver.

    Prints what a node would advertise. Exit code 2, with every problem named, where the file is wrong.

    Parameters
    ----------
    file
        The YAML file.
    gpu
        Check against this card model too (a stack names its own).
    cards
        Cards of a node, for what it would advertise.
    cloud
        Check against this cloud's rules: aws, gcp or kind.
    gates
        Feature gates of the DRA driver that are on.
    json
        Print as JSON.
    """
    from isthmus import catalog
    from isthmus.cli.output import print_rows

    document = _read(file)
    facts = catalog.load()
    if isinstance(document, dict) and "config" in document:
        rows = _stack_rows(file, document["config"], facts)
    elif isinstance(document, dict) and str(document.get("kind", "")).startswith("ResourceClaim"):
        from operators import dra

        dra.check_gates(document, [gate for text in gates for gate in text.split(",")])
        rows = [{"what": f"{document['kind']} {document['metadata']['name']}", **_shown({}, cards)}]
    elif isinstance(document, dict) and "mode" in document:
        rows = [_sharing_row(file, document, gpu, cards, cloud, facts)]
    else:
        from operators import plugin_config

        plugin_config.validate(document, origin=str(file))
        rows = [{"what": "device plugin configuration", **_shown(plugin_config.advertised(document, cards), cards)}]
    print_rows(rows, ["what", "cards", "advertises"], as_json=json, empty="no pool has cards")


def _read(file: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidSpec(f"{file} cannot be read: {error}", subject=str(file), remedy=f"edit {file}") from error


def _setting(file: Path, document: Any) -> GpuSharing:
    from pydantic import ValidationError

    try:
        return GpuSharing.model_validate(document)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc']))}: {item['msg']}".lstrip(": ") for item in error.errors()
        )
        raise InvalidSpec(f"{file}: {problems}", subject=str(file), remedy=f"edit {file}") from error


def _sharing_row(
    file: Path, document: dict[str, Any], gpu: str | None, cards: int, cloud: str, facts: Catalog
) -> dict[str, Any]:
    from pydantic import ValidationError

    from isthmus.catalog import sharing as rules
    from isthmus.specs.sharing import GpuSharing

    try:
        sharing = GpuSharing.model_validate(document)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc']))}: {item['msg']}".lstrip(": ") for item in error.errors()
        )
        raise InvalidSpec(f"{file}: {problems}", subject=str(file), remedy=f"edit {file}") from error
    if gpu is not None:
        rules.check(facts, sharing, gpu, cloud, subject=str(file))
    return {"what": f"sharing mode {sharing.mode}", **_shown(sharing.advertised(cards), cards)}


def _stack_rows(file: Path, config: Any, facts: Catalog) -> list[dict[str, Any]]:
    from isthmus.catalog import sharing as rules
    from isthmus.specs import stack

    values = {key.removeprefix("isthmus:"): value for key, value in config.items() if key.startswith("isthmus:")}
    settings = stack.parse(values, origin=str(file))
    rows = []
    for pool in settings.gpu_pools:
        shape = facts.machine_for(settings.cloud, settings.region, pool.gpu, pool.instance_type)
        rules.check(facts, pool.sharing, shape.gpu_model or "", settings.cloud, subject=f"pool {pool.name}")
        rows.append({"what": f"pool {pool.name}", **_shown(pool.sharing.advertised(shape.gpu_count), shape.gpu_count)})
    return rows


def _shown(advertised: dict[str, int], cards: int) -> dict[str, Any]:
    words = ", ".join(f"{name}: {count}" for name, count in advertised.items())
    return {"cards": cards, "advertises": words or "nothing (pods claim devices)"}
