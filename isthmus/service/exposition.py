"""The service's figures in Prometheus' text form, read from the database when asked: so they are right after a restart and
the same from every service on one database."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import func, select

from isthmus.service import views
from isthmus.service.model import RunState
from isthmus.service.schemas import Statistic
from isthmus.service.tables import projects, runs

if TYPE_CHECKING:
    from isthmus.service.context import Service

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

GROUPS = ("project", "user", "algorithm", "gpu_model", "stack")


def text(service: "Service") -> bytes:
    """Every figure, as Prometheus reads it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Runs(service))
    return generate_latest(registry)


class _Runs(Collector):
    def __init__(self, service: "Service") -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        database = self._service.database
        places = self._service.platform.places()
        with database.read() as connection:
            counts = GaugeMetricFamily("isthmus_runs", "Runs by project and state.", labels=("project", "state"))
            found = connection.execute(
                select(projects.c.name, runs.c.state, func.count())
                .join(projects, projects.c.id == runs.c.project_id)
                .group_by(projects.c.name, runs.c.state)
            )
            for name, state, count in found:
                counts.add_metric((name, state), count)
            yield counts
            oldest = connection.execute(
                select(func.min(runs.c.created)).where(runs.c.state == RunState.QUEUED)
            ).scalar()
            waited = 0.0 if oldest is None else (database.now(connection) - oldest).total_seconds()
            yield _one("isthmus_queue_oldest_seconds", "How long the run has waited that waits longest.", waited)
            for by in GROUPS:
                yield from _statistics(by, views.statistics(connection, None, by, places, since=None))


def _statistics(by: str, found: list[Statistic]) -> Iterator[Metric]:
    fields = {
        "saturation": "Cards held by active runs, of all.",
        "availability": "Of the runs that ended in a cluster, the share that came to an end of their own.",
        "failure_rate": "Failed, of those that came to an end of their own.",
        "mean_run_seconds": "From the first rank's start to the last rank's end.",
        "mean_queue_seconds": "From the request to the first rank's start.",
    }
    for field, help_text in fields.items():
        family = GaugeMetricFamily(f"isthmus_{field}_by_{by}", help_text, labels=(by, "source"))
        for item in found:
            value = getattr(item, field)
            if value is not None:
                family.add_metric((item.group, item.source), value)
        yield family
    failures = GaugeMetricFamily(f"isthmus_failures_by_{by}", "Failed runs by cause.", labels=(by, "source", "cause"))
    for item in found:
        for cause, count in item.failures.items():
            failures.add_metric((item.group, item.source, cause), count)
    yield failures


def _one(name: str, help_text: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, help_text)
    family.add_metric((), value)
    return family
