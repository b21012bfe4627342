"""Amazon EKS. With infra/gcp the only importer of a cloud SDK; import it through `infra.cloud.select`."""

from infra.aws.aws import Aws

__all__ = ["Aws"]
