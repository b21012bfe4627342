"""Stack settings for tests, and the part of the program that makes the infrastructure."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from infra import cloud as clouds
from infra.cloud import Cloud
from isthmus import catalog
from isthmus.specs import stack
from isthmus.specs.cluster import NodePool
from isthmus.specs.stack import StackSettings

ROOT = Path(__file__).resolve().parents[3]
SOLD = ("aws", "gcp")
"""Clouds with an account, regions and prices."""
REAL = (*SOLD, "kind")
PAIRS = (("aws", "aws-sim"), ("gcp", "gcp-sim"))
NAMES = ("aws", "aws-sim", "gcp", "gcp-sim", "kind")


def settings(name: str, **changes: Any) -> StackSettings:
    """The settings in stacks/Pulumi.<name>.yaml, with changes."""
    return stack.load(ROOT, name).model_copy(update=changes)


def infrastructure(
    chosen: StackSettings,
    into: dict[str, Any] | None = None,
    order: Callable[[Sequence[NodePool]], Sequence[NodePool]] = lambda pools: pools,
) -> Callable[[], None]:
    """A program that makes everything of infra/, as __main__.py does; kubeconfigs go into `into`."""
    facts = catalog.load()

    def program() -> None:
        cloud: Cloud = clouds.select(chosen, facts)
        cloud.check()
        platform = cloud.cluster(chosen.cluster)
        for pool in order(chosen.gpu_pools):
            cloud.node_pool(platform, pool)
        bucket = cloud.bucket("data")
        cloud.image_registry("images")
        cloud.workload_identity(platform, "isthmus-runs", "trainer", bucket)
        if into is not None:
            for native in (False, True):
                text = cloud.kubeconfig(platform, native=native)
                text.apply(
                    lambda value, native=native: into.__setitem__("native" if native else "exec", json.loads(value))
                )

    return program
