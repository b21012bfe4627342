"""A small catalog with round figures (near those of case A23), and a builder of workloads."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from isthmus.catalog import Catalog, read_catalog
from isthmus.specs.workload import WorkloadSpec

settings.register_profile("costs", deadline=None)  # a busy machine is not a failure
settings.load_profile("costs")

Build = Callable[..., WorkloadSpec]


@pytest.fixture(scope="session")
def sample() -> Catalog:
    """The facts under sample/."""
    return read_catalog(Path(__file__).parent / "sample", today=date(2026, 11, 30))


@pytest.fixture(scope="session")
def workload() -> Build:
    """Builds a valid workload: one pod with one V100 for one hour, unless told otherwise; the last word wins."""

    def build(**changes: Any) -> WorkloadSpec:
        fields: dict[str, Any] = {
            "apiVersion": "isthmus.dev/v1",
            "kind": "PyTorchJob",
            "name": "train",
            "image": "docker.io/isthmus/torch:1",
            "command": ["python3", "train.py"],
            "roles": {"Master": {"replicas": 1, "gpus": 1}},
            "gpu": {"model": "V100", "count": 1},
        }
        return WorkloadSpec.model_validate(fields | changes)

    return build
