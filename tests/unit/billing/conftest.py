"""A runs.db with one finished run of four pods on one node of four cards, as ddp-digits leaves it on aws-sim."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from isthmus.runs import ledger
from isthmus.runs.model import Node, Replica, Run, State
from isthmus.runs.store import Store
from isthmus.specs.stack import StackSettings
from isthmus.specs.workload import WorkloadSpec

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

SETTINGS: dict[str, Any] = {
    "cloud": "aws", "mode": "simulated", "account": "aws-sim", "region": "us-east-1", "zones": ["us-east-1a"],
    "systemPool": {"name": "system", "instanceType": "m5.xlarge", "min": 2, "size": 2, "max": 2},
    "gpuPools": [{"name": "gpu-t4", "gpu": {"model": "T4", "count": 4}}],
}  # fmt: skip

LABELS = {
    "node.kubernetes.io/instance-type": "g4dn.12xlarge",
    "topology.kubernetes.io/region": "us-east-1",
    "isthmus.dev/pool": "gpu-t4",
    "isthmus.dev/gpu-model": "T4",
}


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@pytest.fixture
def settings() -> StackSettings:
    return StackSettings.model_validate(SETTINGS)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.db")


NODE = Node("uid-1", "gpu-0", LABELS, {"nvidia.com/gpu": 4}, at(-600), at(100))


@pytest.fixture
def spec() -> WorkloadSpec:
    return WorkloadSpec.model_validate(
        {
            "apiVersion": "isthmus.dev/v1",
            "kind": "PyTorchJob",
            "name": "ddp-digits",
            "image": "docker.io/isthmus/torch:1",
            "command": ["python3", "x.py"],
            "roles": {"Master": {"replicas": 1, "gpus": 1}, "Worker": {"replicas": 3, "gpus": 1}},
            "volumes": [{"name": "checkpoints", "size": "1Gi", "mountPath": "/c", "role": "Master"}],
            "cost": {"hours": 1, "storageGib": 1},
        }
    )


@pytest.fixture
def ran(store: Store, spec: WorkloadSpec) -> Callable[..., Run]:
    """Writes down a run of four pods of a card each that ended; arguments say otherwise."""

    def build(
        *, seconds: float = 36, user: str = "ada", project: str = "vision", state: State = State.SUCCEEDED,
        share: tuple[int, int] = (1, 1), stack: str = "aws-sim", begins: float = 0, node: Node = NODE,
    ) -> Run:  # fmt: skip
        run = store.begin(
            spec, stack=stack, namespace="isthmus-runs", simulated_seconds=None, owner="1@1", user=user,
            project=project, created=at(begins - 5),
        )  # fmt: skip
        run = store.set_cluster(run, "cluster-1")
        ledger.record_nodes(store, "cluster-1", [node])
        pods = [
            Replica(
                uid=f"{run.id}-{rank}", name=f"{run.job}-{rank}", role="Master" if rank == 0 else "Worker", rank=rank,
                phase="Succeeded", node=node.name, started=at(begins), finished=at(begins + seconds) if state.final else None,
                card_parts=share[0], card_whole=share[1],
            )
            for rank in range(4)
        ]  # fmt: skip
        return store.record(run, state, replicas=pods)

    return build


__all__ = ["NODE", "NOON", "SETTINGS", "at", "replace"]
