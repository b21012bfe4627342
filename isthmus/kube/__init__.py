"""The Kubernetes API, behind one module. Nothing else in this project talks to an API server.

The official client takes about a second to import, so it is imported on first use, inside functions.
"""

from isthmus.kube.client import Cluster

__all__ = ["Cluster"]
