"""Errors as answers: problem details (RFC 9457) with what to do next, one form for every fault of every route.

`type` names the kind of problem and never changes; `detail` says what happened, `object` to what, `next` what to do.
"""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from isthmus.service import model
from isthmus.specs import errors

log = logging.getLogger("isthmus.service.api")

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:isthmus:problem:"

RETRY_SECONDS = 5
"""What Retry-After says where nothing better is known."""

STATUS: dict[type[errors.IsthmusError], tuple[int, str]] = {
    model.Unauthenticated: (401, "unauthenticated"),
    model.Forbidden: (403, "forbidden"),
    errors.NotFound: (404, "not-found"),
    model.Conflict: (409, "conflict"),
    errors.Refused: (409, "refused"),
    errors.InvalidSpec: (422, "invalid"),
    model.QueueFull: (429, "queue-full"),
    model.TooManyRequests: (429, "too-many-requests"),
    errors.QuotaExceeded: (409, "quota-exceeded"),
    errors.NoCapacity: (503, "no-capacity"),
    errors.NotReady: (503, "not-ready"),
}


class Problem(BaseModel):
    """What every error looks like (application/problem+json)."""

    type: str = Field(examples=["urn:isthmus:problem:not-found"])
    title: str
    status: int
    detail: str
    object: str = ""
    next: str = ""
    """What to do about it."""
    request_id: str = ""
    errors: list[dict[str, Any]] = []
    """Of a document that is not valid: each field with what is wrong."""


def install(app: FastAPI) -> None:
    """Answer every error of an application in this form."""

    @app.exception_handler(errors.IsthmusError)
    def known(request: Request, error: errors.IsthmusError) -> JSONResponse:
        status, name = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), (500, "failed"))
        if status >= 500:
            log.warning(error.message, extra={"object": error.subject, "request": request_id(request)})
        headers = {}
        if status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="isthmus"'
        if status in (429, 503):
            seconds = error.seconds if isinstance(error, model.TooManyRequests) else RETRY_SECONDS
            headers["Retry-After"] = str(max(1, round(seconds)))
        return answer(request, status, name, error.message, error.subject, error.remedy, headers=headers)

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        found = [{"field": _path(item["loc"]), "problem": _printable(item["msg"])} for item in error.errors()[:20]]
        text = "; ".join(f"{item['field']}: {item['problem']}" for item in found)
        return answer(request, 422, "invalid", text, "", "see the operation in /openapi.json", found=found)

    @app.exception_handler(HTTPException)
    def http(request: Request, error: HTTPException) -> JSONResponse:
        names = {404: "not-found", 405: "method-not-allowed", 413: "too-large", 400: "invalid"}
        return answer(
            request,
            error.status_code,
            names.get(error.status_code, "failed"),
            str(error.detail),
            request.url.path,
            "see /openapi.json for what there is",
            headers=error.headers,
        )

    @app.exception_handler(PoolTimeout)
    @app.exception_handler(DBAPIError)
    def database(request: Request, error: DBAPIError | PoolTimeout) -> JSONResponse:
        log.error("database", exc_info=error, extra={"request": request_id(request)})
        if not isinstance(error, OperationalError | PoolTimeout):
            return unexpected(request, error)
        full = "full" in str(error.orig if isinstance(error, DBAPIError) else "")
        said = (
            "the service's database is full: nothing was written" if full else "the service's database does not answer"
        )
        remedy = "an administrator must make room" if full else "send it again; the same Idempotency-Key is safe"
        return answer(
            request, 503, "database-full" if full else "not-ready", said, "database", remedy,
            headers={"Retry-After": str(RETRY_SECONDS)},
        )  # fmt: skip

    @app.exception_handler(Exception)
    def unexpected(request: Request, error: Exception) -> JSONResponse:
        log.error("unexpected", exc_info=error, extra={"request": request_id(request)})
        return answer(
            request, 500, "failed", "a fault of the service", request.url.path, "tell an administrator the request_id"
        )


def answer(
    request: Request,
    status: int,
    name: str,
    detail: str,
    subject: str = "",
    remedy: str = "",
    *,
    headers: Mapping[str, str] | None = None,
    found: list[dict[str, Any]] | None = None,
) -> JSONResponse:
    """One problem as an answer."""
    problem = Problem(
        type=TYPE + name,
        title=HTTPStatus(status).phrase,
        status=status,
        detail=_printable(detail),
        object=_printable(subject),
        next=_printable(remedy),
        request_id=request_id(request),
        errors=found or [],
    )
    return JSONResponse(problem.model_dump(), status_code=status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def request_id(request: Request) -> str:
    """The id of a request, as logs and the audit have it."""
    return str(request.scope.get("state", {}).get("request_id", ""))


def _path(loc: Any) -> str:
    return _printable(".".join(str(part) for part in loc))


def _printable(text: str) -> str:
    return str(text).encode("utf-8", "backslashreplace").decode()[:2000]
