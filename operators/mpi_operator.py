"""Kubeflow's MPI operator v0.8.0 from upstream's own manifests (the standalone overlay), for MPIJob v2beta1.

The training operator has an older MPIJob of the same name and is started without it (operators/training_operator.py): one
name, one type. Changes: it may ask the API server more often (by default five times a second, and each job takes some ten
requests), it says what it needs of a node, and it runs without privileges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from operators import manifests as helpers
from operators.manifests import Object

if TYPE_CHECKING:
    import pulumi

TOOL = "mpi-operator"
NAME = "mpi-operator"
NAMESPACE = "mpi-operator"
IMAGE = "mpioperator/mpi-operator:0.8.0"
"""As the manifests of v0.8.0 name it."""

QUERIES, BURST = 50, 100
"""Requests a second, and at once, as the training operator has them."""


def deploy(
    provider: pulumi.ProviderResource, *, depends_on: Sequence[pulumi.Resource] = ()
) -> pulumi.ComponentResource:
    """Deploy the operator.

    Raises:
        NotFound: upstream's manifests are not installed; the remedy says how.
    """
    from operators import deploy as deployment

    return deployment.objects(NAME, manifests(), provider, depends_on=depends_on)


def manifests(*, upstream: Sequence[Mapping[str, Any]] | None = None) -> list[Object]:
    """The operator's objects. Pure when `upstream` is given.

    Args:
        upstream: the documents of upstream's standalone overlay; default those that came with the tool.
    """
    if upstream is None:
        from isthmus.toolchain import home

        upstream = helpers.read(home.share(TOOL) / "mpi-operator.yaml")
    items = helpers.marked(upstream)
    for item in items:
        if item["kind"] == "Deployment":
            (container,) = item["spec"]["template"]["spec"]["containers"]
            container["args"] = [*container["args"], f"--kube-api-qps={QUERIES}", f"--kube-api-burst={BURST}"]
            container["resources"] = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
            container["securityContext"] = {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "runAsNonRoot": True,
                "runAsUser": 65532,
            }
    return items


def images() -> list[str]:
    """Images the operator needs."""
    return [IMAGE]
