"""The kind runtime: local clusters in Docker, several nodes each. cluster.py implements the two protocols of
isthmus.localcluster.runtime."""

from isthmus.localcluster.kind.cluster import KindCluster, KindRuntime

__all__ = ["KindCluster", "KindRuntime"]
