"""What workloads cost: the comparison of offers and its report.

`report_for` is what the Pulumi program calls; `summary` makes a few lines of its result, for a stack output. Importing this package is light; rich and jinja2 come with the renderers
that need them.
"""

from collections.abc import Sequence
from datetime import date
from typing import Any

from isthmus.catalog import Catalog, load
from isthmus.costs.compare import Comparison, compare
from isthmus.costs.document import MAX_AGE_DAYS, document, summary
from isthmus.costs.options import DEFAULTS, Options
from isthmus.specs.workload import WorkloadSpec

__all__ = ["Comparison", "Options", "compare", "document", "report_for", "summary"]


def report_for(
    workloads: Sequence[WorkloadSpec],
    options: Options = DEFAULTS,
    *,
    catalog: Catalog | None = None,
    today: date | None = None,
    max_age_days: int = MAX_AGE_DAYS,
) -> dict[str, Any]:
    """The comparison as JSON-able data (see document.py): the same on every machine and every stack.

    Args:
        catalog: other facts than those that come with isthmus.
        today, max_age_days: as `document`.

    Raises:
        InvalidSpec: as `compare`.
    """
    return document(compare(workloads, catalog or load(), options), today=today, max_age_days=max_age_days)
