"""What workloads cost: the comparison of offers and its report.

`report_for` is what the Pulumi program calls; `summary` makes a few lines of its result, for a stack output. Importing this package is light; rich and jinja2 come with the renderers
that need them.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from isthmus.catalog import Catalog, load
from isthmus.costs.compare import PURCHASES, Comparison, compare
from isthmus.costs.document import document, summary
from isthmus.specs.offer import Purchase
from isthmus.specs.workload import WorkloadSpec

__all__ = ["Comparison", "compare", "document", "report_for", "summary"]


def report_for(
    workloads: Sequence[WorkloadSpec],
    *,
    regions: Sequence[str] | None = None,
    purchases: Sequence[Purchase] = PURCHASES,
    gpu: str | None = None,
    hours: Decimal | None = None,
    catalog: Catalog | None = None,
) -> dict[str, Any]:
    """The comparison as JSON-able data (see document.py): the same on every machine and every stack.

    Args:
        catalog: other facts than those that come with isthmus.

    Raises:
        InvalidSpec: as `compare`.
    """
    return document(compare(workloads, catalog or load(), regions=regions, purchases=purchases, gpu=gpu, hours=hours))
