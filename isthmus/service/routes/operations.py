"""Health, readiness and figures for Prometheus."""

from fastapi import APIRouter, Response

from isthmus.service import exposition, schemas
from isthmus.service.context import Asking, Served

router = APIRouter(tags=["operations"])


@router.get("/healthz", operation_id="health")
def health() -> schemas.Health:
    """The process answers."""
    return schemas.Health(status="ok")


@router.get("/readyz", operation_id="ready")
def ready(service: Served) -> schemas.Health:
    """The database answers and has the tables that this version needs."""
    service.database.check_schema()
    return schemas.Health(status="ok")


@router.get(
    "/metrics",
    operation_id="prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def prometheus(asking: Asking) -> Response:
    """The service's figures, for Prometheus."""
    return Response(exposition.text(asking.service), media_type=exposition.MEDIA_TYPE)
