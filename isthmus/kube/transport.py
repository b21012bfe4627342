"""One HTTP connection to an API server: the official client's ApiClient, with our credentials and our errors.

Every request has a time limit. A credential that ends is renewed, once per request. Nothing is retried otherwise: the
caller knows whether doing it again is safe.
"""

import base64
import json
import os
import ssl
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from isthmus.kube.kubeconfig import Connection, Credential
from isthmus.specs.errors import InvalidSpec, IsthmusError, NotFound, NotReady, Refused

CONNECT_SECONDS = 5.0
"""Limit for opening a connection: an API server that takes longer is reported as unreachable."""

READ_SECONDS = 30.0
"""Limit between two bytes of an answer; above the API server's webhook limit (default 10 s)."""

UNAUTHORIZED = 401

_IMPORTING = threading.Lock()

PLAIN = ("Connection refused", "No route to host", "Network is unreachable", "timed out", "Name or service not known")
"""The operating system's words that say all a person needs of a failed connection."""


class ApiError(IsthmusError):
    """The API server answered with an error that has no class of its own.

    Attributes:
        status: HTTP status.
        reason: the Status object's reason, for example AlreadyExists, Conflict, Expired.
    """

    def __init__(self, message: str, *, status: int, reason: str, subject: str = "", remedy: str = "") -> None:
        super().__init__(message, subject=subject, remedy=remedy)
        self.status = status
        self.reason = reason


class Transport:
    """Sends requests to one API server. Safe to share between threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._client: Any = None
        self._credential = Credential()

    @property
    def server(self) -> str:
        """Address of the API server."""
        return self._connection.server

    def json(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        subject: str = "",
        seconds: float = READ_SECONDS,
    ) -> dict[str, Any]:
        """Send a request and decode its JSON answer.

        Raises:
            NotFound, NotReady, Refused, InvalidSpec, ApiError: see `error_for`.
        """
        response = self._send(method, path, query, body, content_type, accept, subject, seconds)
        try:
            with _network(self.server, subject):
                data = response.read()
        finally:
            response.response.release_conn()
        return dict(json.loads(data)) if data else {}

    def lines(
        self, path: str, *, query: Mapping[str, Any] | None = None, subject: str = "", seconds: float = READ_SECONDS
    ) -> Iterator[str]:
        """Stream an answer line by line (logs, watches). `seconds` is the longest silence between two lines.

        Closing the iterator closes the connection.
        """
        response = self._send("GET", path, query, None, "application/json", "*/*", subject, seconds)
        try:
            yield from _lines(response.response, self.server, subject)
        finally:
            response.response.close()
            response.response.release_conn()

    def text(self, path: str, *, seconds: float = READ_SECONDS) -> str:
        """The answer as text (health checks)."""
        response = self._send("GET", path, None, None, "application/json", "*/*", "", seconds)
        try:
            with _network(self.server, ""):
                return bytes(response.read()).decode("utf-8", "replace")
        finally:
            response.response.release_conn()

    def close(self) -> None:
        """Close all connections. The transport opens new ones when it is used again."""
        with self._lock:
            if self._client is not None:
                self._client.rest_client.close()
            self._client = None

    def _send(
        self, method: str, path: str, query: Mapping[str, Any] | None, body: Any, content_type: str, accept: str,
        subject: str, seconds: float,
    ) -> Any:  # fmt: skip
        url = self._connection.server + path
        if query:
            url += "?" + urlencode({key: value for key, value in query.items() if value is not None})
        for renewed in (False, True):
            client, headers = self._ready_client(renew=renewed)
            headers |= {"Accept": accept, "Content-Type": content_type}
            with _network(self.server, subject):
                response = client.call_api(
                    method, url, header_params=headers, body=body, _request_timeout=(CONNECT_SECONDS, seconds)
                )
            if response.status == UNAUTHORIZED and not renewed and "exec" in self._connection.user:
                response.response.close()
                continue
            break
        if not 200 <= response.status < 300:
            with _network(self.server, subject):
                data = response.read()
            response.response.release_conn()
            raise error_for(response.status, data, server=self.server, subject=subject)
        return response

    def _ready_client(self, *, renew: bool) -> tuple[Any, dict[str, str]]:
        with self._lock:
            if self._client is None or renew or self._credential.ends_soon(datetime.now(UTC)):
                self._credential = self._connection.credential()
                self._client = _api_client(self._connection, self._credential)
            return self._client, _headers(self._credential)


def error_for(status: int, body: bytes, *, server: str, subject: str) -> IsthmusError:
    """The error for an answer of the API server: its own message, in our classes.

    404 NotFound; 401 and 429 and 5xx NotReady; 403 Refused; 400 and 422 InvalidSpec; others ApiError.
    """
    message, reason = _status(body, status)
    if status == 404 and not reason:
        message = f"the cluster at {server} does not serve this kind of object"  # a Status is sent for a missing object
    if status == 404:
        return NotFound(message, subject=subject)
    if status == UNAUTHORIZED:
        return NotReady(f"the API server at {server} does not accept our credential: {message}", subject=subject)
    if status == 429 or status >= 500:
        return NotReady(f"the API server at {server} could not answer: {message}", subject=subject)
    if status == 403:
        return Refused(message, subject=subject)
    if status in {400, 422}:
        return InvalidSpec(message, subject=subject)
    return ApiError(message, status=status, reason=reason, subject=subject)


def _status(body: bytes, status: int) -> tuple[str, str]:
    try:
        document = json.loads(body)
        return str(document.get("message") or f"HTTP {status}"), str(document.get("reason") or "")
    except (ValueError, AttributeError):
        text = body.decode("utf-8", "replace").strip()
        return text[:500] or f"HTTP {status}", ""


@contextmanager
def _network(server: str, subject: str) -> Iterator[None]:
    official, urllib3 = _libraries()
    try:
        yield
    except urllib3.exceptions.HTTPError as error:
        raise NotReady(f"the API server at {server} cannot be reached: {_cause(error)}", subject=subject) from error
    except official.ApiException as error:  # the official client turns TLS faults into this one
        raise NotReady(f"the API server at {server} cannot be reached: {error.reason}", subject=subject) from error


def _cause(error: Exception) -> str:
    """The innermost reason in few words: urllib3 wraps it two or three times."""
    inner: Any = error
    while isinstance(getattr(inner, "reason", None), Exception):
        inner = inner.reason
    text = str(inner)
    if "certificate verify failed" in text:
        return "its certificate is not the one that the kubeconfig trusts (was the cluster made anew?)"
    for words in PLAIN:
        if words in text:
            return words[0].lower() + words[1:]
    return text.rsplit(": ", 1)[-1] or type(inner).__name__


def _lines(response: Any, server: str, subject: str) -> Iterator[str]:
    rest = b""
    with _network(server, subject):
        for chunk in response.stream(65536, decode_content=True):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


def _libraries() -> tuple[Any, Any]:
    """The official client and urllib3, imported when they are first needed: they cost half a second. The client imports
    each of its parts when that is first named, so all we use are named here and by one thread at a time: of two that do it
    at once, one fails (a deadlock of module locks)."""
    with _IMPORTING:
        import urllib3
        from kubernetes import client

        _ = client.ApiClient, client.ApiException, client.Configuration
    return client, urllib3


def _headers(credential: Credential) -> dict[str, str]:
    if credential.token:
        return {"Authorization": f"Bearer {credential.token}"}
    if credential.username is not None:
        pair = f"{credential.username}:{credential.password or ''}"
        return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
    return {}


def _api_client(connection: Connection, credential: Credential) -> Any:
    official, urllib3 = _libraries()
    configuration = official.Configuration(host=connection.server)
    configuration.verify_ssl = not connection.insecure
    configuration.tls_server_name = connection.tls_name
    # One new try where a kept connection was closed under us; never one that could do a change twice.
    configuration.retries = urllib3.Retry(total=1, connect=1, read=0, redirect=0, status=0, other=0)
    configuration.connection_pool_maxsize = 32
    if connection.proxy:
        configuration.proxy = connection.proxy
    client = official.ApiClient(configuration)
    client.user_agent = "isthmus"
    if connection.server.startswith("https://"):
        client.rest_client.pool_manager.connection_pool_kw["ssl_context"] = _tls(connection, credential)
    return client


def _tls(connection: Connection, credential: Credential) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=connection.ca) if connection.ca else ssl.create_default_context()
    if connection.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if credential.certificate and credential.key:
        with _key_file(credential.certificate + "\n" + credential.key) as path:
            context.load_cert_chain(path)
    return context


@contextmanager
def _key_file(pem: str) -> Iterator[str]:
    """A path to hand to OpenSSL, which reads keys from files only. In memory where the system can (Linux)."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("credential", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem.encode())
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # mkstemp: mode 0600
        file.write(pem)
        file.flush()
        yield file.name
