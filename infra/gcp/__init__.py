"""Google GKE. With infra/aws the only importer of a cloud SDK; import it through `infra.cloud.select`."""

from infra.gcp.gcp import Gcp

__all__ = ["Gcp"]
