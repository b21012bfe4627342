"""Facts as data: machines, prices, cards, quotas, zones and latencies, each with its source and date.

Entry point: `load() -> Catalog`. No fact lives in code; to add one, add a row to a file in data/.
"""

from isthmus.catalog.catalog import Catalog
from isthmus.catalog.feature_labels import feature_labels
from isthmus.catalog.load import load, read_catalog

__all__ = ["Catalog", "feature_labels", "load", "read_catalog"]
