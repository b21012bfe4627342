"""The HTTP application: routes, errors, limits. It starts nothing; server.py runs it with a worker."""

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from isthmus.service import problems
from isthmus.service.access import NEEDS
from isthmus.service.context import Service
from isthmus.service.limits import Frame
from isthmus.service.routes import account, algorithms, operations, projects, runs

VERSION = "1"
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create(service: Service, *, lifespan: Lifespan | None = None) -> FastAPI:
    """The application over a service.

    Raises:
        ValueError: a route whose operation is not in access.NEEDS, or has no route there.
    """
    responses = {
        status: {"model": problems.Problem, "content": {problems.MEDIA_TYPE: {}}, "description": text}
        for status, text in ERRORS.items()
    }
    app = FastAPI(
        title="isthmus training service",
        version=VERSION,
        description="Many users, one platform, on whichever cloud. Errors are problem details (RFC 9457).",
        docs_url=None,  # the pages would load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        responses=responses,  # type: ignore[arg-type]
        strict_content_type=False,
    )
    app.state.service = service
    problems.install(app)
    check_operations(PARTS)
    for router in PARTS:
        app.include_router(router)
    app.add_middleware(Frame)
    return app


ERRORS = {
    400: "not a document",
    401: "no good key or token",
    403: "not allowed",
    404: "there is none such, for this caller",
    405: "no such method",
    409: "refused by a check, or in contradiction to what is there",
    413: "too large",
    422: "not valid",
    429: "later: too many requests, or too many runs wait",
    503: "a part of the service or a cluster does not answer",
}


PARTS = (operations.router, account.router, projects.router, algorithms.router, runs.router)


def check_operations(routers: Iterable[APIRouter]) -> None:
    """Hold routes and access.NEEDS together."""
    served = {route.operation_id for router in routers for route in router.routes if isinstance(route, APIRoute)}
    if served != NEEDS.keys():
        raise ValueError(f"operations and access.NEEDS differ in {sorted(map(str, served ^ NEEDS.keys()))}")
