"""A local kind cluster as a Cloud."""

from infra.kind.kind import Kind

__all__ = ["Kind"]
