"""The two ends of a move, looked at: settings, buckets, clusters, accounts. Real and simulated stacks differ here and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.cli import project
from isthmus.specs import labels
from isthmus.specs.errors import InvalidSpec, IsthmusError, NotFound

if TYPE_CHECKING:
    from isthmus.cli.output import Progress
    from isthmus.kube.client import Cluster, Object
    from isthmus.migration.objects.copy import Outcome
    from isthmus.migration.objects.store import ObjectStore
    from isthmus.migration.plan.model import Data, End, Limit, Rate
    from isthmus.runs.model import Run
    from isthmus.specs.stack import StackSettings

EVERYWHERE = (
    ("v1", "PersistentVolumeClaim"),
    ("v1", "ServiceAccount"),
    ("v1", "Service"),
    ("storage.k8s.io/v1", "StorageClass"),
)
"""Kinds that are read in all namespaces; of the runs' namespace everything is."""
SYSTEM = ("kube-", "isthmus-storage", "kubeflow")
"""Beginnings of namespaces that every cluster fills by itself, or the program."""


def check_pair(source: str, destination: str, *, residency: bool = True) -> None:
    """Refuse what cannot be a move, before anything is asked of a cloud.

    Args:
        residency: also refuse data that must stay (a plan tells that in its lines).

    Raises:
        InvalidSpec: an unknown stack, the same one twice, one of this machine. Refused: the data must stay.
    """
    from isthmus.migration import residency as staying

    chosen = [project.settings(stack) for stack in (source, destination)]
    if source == destination:
        raise InvalidSpec(
            f"source and destination are the same stack, {source}",
            subject="isthmus migrate",
            remedy="isthmus migrate plan aws-sim gcp-sim",
        )
    for stack, its in zip((source, destination), chosen, strict=True):
        if its.cloud == "kind":
            raise InvalidSpec(
                f"stack {stack} is on this machine; a move is from one of aws and gcp to another",
                subject=f"stack {stack}",
            )
    if residency:
        staying.check(source, *chosen)


def store(stack: str, threads: int) -> ObjectStore:
    """The bucket of a stack. NotFound when the stack is not up, or what serves a simulated bucket is not installed."""
    from isthmus.cli import engine
    from isthmus.migration.objects import credentials
    from isthmus.migration.objects.gcs import Gcs
    from isthmus.migration.objects.s3 import S3

    its = project.settings(stack)
    url = engine.outputs(stack).get("bucket")
    if not url:
        raise NotFound(f"stack {stack} has no bucket", subject=f"stack {stack}", remedy=f"isthmus up {stack}")
    bucket = str(url).partition("://")[2]
    if its.mode == "simulated":
        return _simulated_store(its, bucket, threads)
    if its.cloud == "aws":
        return S3(bucket, region=its.region, keys=credentials.aws(its.account), connections=threads)
    return Gcs(bucket, token=credentials.gcp(), connections=threads)


def copy(
    source: str, destination: str, threads: int, progress: Progress, **options: bool
) -> tuple[Outcome, tuple[str, str]]:
    """Copy the objects of one stack's bucket to another's; returns the outcome and the buckets' URLs.

    Args:
        options: of Copier.run.

    Raises:
        Refused: another command copies between the two now. Else as of Copier.run.
    """
    from isthmus.localcluster import locks
    from isthmus.migration.objects.copy import Copier
    from isthmus.migration.objects.ledger import between
    from isthmus.toolchain import home

    folder, pair = home.migrations(), "--".join(sorted((source, destination)))
    what = f"the objects of {source} and {destination}"
    with locks.exclusive(folder / f"{pair}.lock", what=what, doing="copy", seconds=0):
        one, other = store(source, threads), store(destination, threads)
        names = (f"{source}--{destination}", f"{destination}--{source}")
        ledger = between(folder, *names, source=one.url, destination=other.url)
        try:
            outcome = Copier(one, other, ledger, threads=threads, tell=progress.update).run(**options)
            ledger.note_rate(outcome.copied_bytes, outcome.seconds)
        finally:
            ledger.close()
    return outcome, (one.url, other.url)


def gather(source: str, destination: str, progress: Progress) -> tuple[End, End, list[Run], Rate | None]:
    """Both ends, the source's runs that have not ended, and the rate of the last copy between the two.

    Raises:
        NotFound: the source is not up.
    """
    from isthmus.cli.run import open_store
    from isthmus.migration.objects.ledger import measured_rate
    from isthmus.migration.plan.model import Rate
    from isthmus.toolchain import home

    one = _end(source, progress, write=False, needed=True)
    other = _end(destination, progress, write=True, needed=False)
    runs = [run for run in open_store().runs(stack=source) if not run.state.final]
    rate = measured_rate(home.migrations() / f"{source}--{destination}.db")
    return one, other, runs, Rate(*rate) if rate else None


def _end(stack: str, progress: Progress, *, write: bool, needed: bool) -> End:
    from isthmus.cli import engine
    from isthmus.cli.run import cluster_of
    from isthmus.migration.plan.model import End

    its = project.settings(stack)
    limits, left = _limits(its)
    try:
        engine.outputs(stack)
    except NotFound:
        if needed:
            raise
        return End(stack, its, limits=limits, machines_left=left)
    progress.update(f"reading {stack}")
    objects = _objects(cluster_of(stack))
    progress.update(f"listing the bucket of {stack}")
    data, problem = _data(stack, write=write)
    return End(stack, its, objects, True, data, problem, limits, left)


def _objects(cluster: Cluster) -> list[Object]:
    found: dict[tuple[str, str, str], Object] = {}
    for api_version, kind in EVERYWHERE:
        for item in cluster.list(api_version, kind):
            found[kind, item["metadata"].get("namespace", ""), item["metadata"]["name"]] = item
    for resource in cluster.kinds():
        if not resource.namespaced or resource.kind in {"Event", "Endpoints", "EndpointSlice", "Lease"}:
            continue
        try:
            items = cluster.list(resource.api_version, resource.kind, labels.RUNS_NAMESPACE)
        except (NotFound, InvalidSpec):
            continue  # gone since discovery
        for item in items:
            found[item["kind"], labels.RUNS_NAMESPACE, item["metadata"]["name"]] = item
    return [item for (_, namespace, _), item in found.items() if not namespace.startswith(SYSTEM)]


def _data(stack: str, *, write: bool) -> tuple[Data | None, str]:
    from isthmus.migration.plan.model import Data

    try:
        bucket = store(stack, 1)
        bucket.check(write=write)
        sizes = [item.size for item in bucket.items()]
    except IsthmusError as error:
        return None, f"{error.message} ({error.remedy})" if error.remedy else error.message
    return Data(len(sizes), sum(sizes)), ""


def _limits(its: StackSettings) -> tuple[dict[str, Limit] | None, dict[tuple[str, str], int]]:
    """Quotas and stock of a simulated account. A real one is not asked: each cloud has an API of its own for that."""
    from isthmus import catalog
    from isthmus.migration.plan.model import Limit
    from isthmus.simulation import capacity, coverage, quota
    from isthmus.simulation.account import open_account

    if its.mode != "simulated":
        return None, {}
    cloud = next(cloud for cloud in coverage.clouds() if cloud.name == its.cloud)
    try:
        account = open_account(its.account, create=False)
    except NotFound:  # as it will be on its first day
        return {code: Limit(item.start, 0) for code, item in cloud.quotas.items()}, {}
    facts, limits = catalog.load(), {}
    scopes = {item.code: item.scope for item in facts.quotas(its.cloud)}
    for code, item in cloud.quotas.items():
        place = "global" if scopes.get(code) == "global" else its.region
        limits[code] = Limit(quota.limit(account, item, place), quota.used(account, code, place))
    left = {}
    for pool in its.cluster.pools:
        machine = facts.machine_for(its.cloud, its.region, pool.gpu, pool.instance_type)
        for zone in its.zones:
            count = capacity.available(account, zone, machine.instance_type)
            if count is not None:
                left[zone, machine.instance_type] = count
    return limits, left


def _simulated_store(its: StackSettings, bucket: str, threads: int) -> ObjectStore:
    from isthmus.migration.objects import credentials
    from isthmus.migration.objects.credentials import AwsKeys
    from isthmus.migration.objects.gcs import Gcs
    from isthmus.migration.objects.s3 import S3
    from isthmus.simulation import object_servers
    from isthmus.simulation.account import open_account

    account = open_account(its.account, create=False)
    if its.cloud == "aws":
        end = object_servers.serve(account, "aws", its.region, [bucket])
        keys = credentials.fixed(AwsKeys(end.access_key, end.secret_key))
        return S3(bucket, region=end.region, keys=keys, endpoint=end.url, connections=threads)
    end = object_servers.serve(account, "gcp", its.region, [bucket])
    return Gcs(bucket, token=None, endpoint=end.url, connections=threads)
