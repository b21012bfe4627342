"""The algorithm registry: self-service for a project's maintainers; everybody else in the project uses it."""

from typing import Annotated

from fastapi import APIRouter, Path

from isthmus.service import registry, schemas
from isthmus.service.context import Asking
from isthmus.service.mappings import NAME
from isthmus.service.registry import Version
from isthmus.service.routes.projects import ProjectName

router = APIRouter(prefix="/v1/projects/{project}/algorithms", tags=["algorithms"])

AlgorithmName = Annotated[str, Path(pattern=NAME)]
Number = Annotated[int, Path(ge=1, le=10**6)]


@router.get("", operation_id="listAlgorithms")
def list_algorithms(asking: Asking, project: ProjectName) -> list[schemas.Version]:
    """The project's algorithms, each in its current version."""
    with asking.read() as connection:
        where, _ = asking.project(connection, project)
        return [_shown(item) for item in registry.list_algorithms(connection, where.id)]


@router.post("", operation_id="createAlgorithmMapping", status_code=201)
def create_algorithm(asking: Asking, project: ProjectName, body: schemas.NewAlgorithm) -> schemas.Version:
    """Map a name to a job: version 1 of a new algorithm."""
    with asking.change("create algorithm", f"algorithm {body.name}", project=project) as change:
        made = registry.create(
            change.connection, change.project.id, asking.principal.user_id, body.name, body.mapping, note=body.note,
            now=change.now,
        )  # fmt: skip
    return _shown(made)


@router.get("/{algorithm}", operation_id="getAlgorithm")
def get_algorithm(asking: Asking, project: ProjectName, algorithm: AlgorithmName) -> schemas.Version:
    """An algorithm in its current version."""
    with asking.read() as connection:
        where, _ = asking.project(connection, project)
        return _shown(registry.version(connection, where.id, algorithm))


@router.get("/{algorithm}/versions", operation_id="listVersions")
def list_versions(asking: Asking, project: ProjectName, algorithm: AlgorithmName) -> list[schemas.Version]:
    """Every version, newest first."""
    with asking.read() as connection:
        where, _ = asking.project(connection, project)
        return [_shown(item) for item in registry.list_versions(connection, where.id, algorithm)]


@router.get("/{algorithm}/versions/{version}", operation_id="getVersion")
def get_version(asking: Asking, project: ProjectName, algorithm: AlgorithmName, version: Number) -> schemas.Version:
    """One version."""
    with asking.read() as connection:
        where, _ = asking.project(connection, project)
        return _shown(registry.version(connection, where.id, algorithm, version))


@router.post("/{algorithm}/versions", operation_id="updateAlgorithmVersion", status_code=201)
def add_version(
    asking: Asking, project: ProjectName, algorithm: AlgorithmName, body: schemas.NewVersion
) -> schemas.Version:
    """Add a version and make it the current one. Runs of earlier versions, and those versions, stay as they are."""
    with asking.change("update algorithm", f"algorithm {algorithm}", project=project) as change:
        made = registry.add_version(
            change.connection, change.project.id, asking.principal.user_id, algorithm, body.mapping, note=body.note,
            now=change.now,
        )  # fmt: skip
    return _shown(made)


@router.post("/{algorithm}:rollBack", operation_id="rollBackAlgorithm")
def roll_back(
    asking: Asking, project: ProjectName, algorithm: AlgorithmName, body: schemas.RollBack
) -> schemas.Version:
    """Make an earlier version the current one."""
    what = f"algorithm {algorithm}"
    with asking.change("roll back algorithm", what, project=project, version=body.version) as change:
        return _shown(registry.roll_back(change.connection, change.project.id, algorithm, body.version))


@router.post("/{algorithm}:deprecate", operation_id="deprecateAlgorithm")
def deprecate(asking: Asking, project: ProjectName, algorithm: AlgorithmName) -> schemas.Version:
    """New runs are refused; what ran can be retried and replayed."""
    with asking.change("deprecate algorithm", f"algorithm {algorithm}", project=project) as change:
        registry.set_deprecated(change.connection, change.project.id, algorithm, change.now)
        return _shown(registry.version(change.connection, change.project.id, algorithm))


@router.post("/{algorithm}:restore", operation_id="restoreAlgorithm")
def restore(asking: Asking, project: ProjectName, algorithm: AlgorithmName) -> schemas.Version:
    """Undo deprecate."""
    with asking.change("restore algorithm", f"algorithm {algorithm}", project=project) as change:
        registry.set_deprecated(change.connection, change.project.id, algorithm, None)
        return _shown(registry.version(change.connection, change.project.id, algorithm))


def _shown(item: Version) -> schemas.Version:
    return schemas.Version(**{key: value for key, value in vars(item).items() if key != "algorithm_id"})
