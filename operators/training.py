"""The operators of training jobs that a stack lists (setting `operators`), deployed and rendered by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from isthmus.specs.errors import Refused
from isthmus.specs.workload import WorkloadSpec
from operators import mpi_operator, trainer, training_operator
from operators.manifests import Object

if TYPE_CHECKING:
    import pulumi

OPERATORS = {"training-operator": training_operator, "mpi-operator": mpi_operator, "trainer": trainer}


def check(specs: Iterable[WorkloadSpec], names: Sequence[str], *, stack: str) -> None:
    """Refuse workloads that none of these operators runs.

    Raises:
        Refused: naming the workload, its kind, and the operator that the stack lacks.
    """
    for spec in specs:
        operator = spec.form.operator
        if operator and operator not in names:
            raise Refused(
                f"{spec.name} is a {spec.kind}, and the stack does not have {operator}",
                subject=f"workload {spec.name}",
                remedy=f"list {operator} under isthmus:operators in stacks/Pulumi.{stack}.yaml",
            )


def deploy(
    provider: pulumi.ProviderResource, names: Sequence[str], *, depends_on: Sequence[pulumi.Resource] = ()
) -> list[pulumi.Resource]:
    """Deploy these operators.

    Raises:
        NotFound: one's manifests are not installed; the remedy says how.
    """
    return [OPERATORS[name].deploy(provider, depends_on=depends_on) for name in names]


def manifests(names: Sequence[str]) -> list[Object]:
    """The objects of these operators.

    Raises:
        NotFound: as `deploy`.
    """
    return [item for name in names for item in OPERATORS[name].manifests()]
