"""HTTP with connections that are kept, one request at a time: what both stores send their requests through.

urllib3 as it is, and not boto3 or google-cloud-storage: a copy of small objects is nothing but requests, and those take a
millisecond and more of this process's time for each. (Nor can boto3 be installed here: see signature.py.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isthmus.migration.objects.store import StoreError, Transient

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

CHUNK = 1 << 20
"""Bytes read at a time."""
CONNECT_SECONDS, READ_SECONDS = 10.0, 60.0
BUSY = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Http:
    """Requests to one server."""

    def __init__(self, subject: str, connections: int) -> None:
        """
        Args:
            subject: what to name in errors: the bucket's URL.
            connections: how many threads will send requests.
        """
        import urllib3

        self._errors = urllib3.exceptions.HTTPError
        self._subject = subject
        self._pool = urllib3.PoolManager(
            maxsize=connections,
            block=False,
            retries=False,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
        )

    def send(self, method: str, url: str, headers: Mapping[str, str], body: Any = None) -> Answer:
        """Send a request and read the whole answer. `body` is bytes, or an iterator beside a Content-Length header.

        Raises:
            Transient: no answer, or one that says to come again.
        """
        with self._guard():
            answer = self._pool.request(method, url, body=body, headers=dict(headers), redirect=False)
        self._busy(answer)
        return Answer(answer.status, answer.headers, answer.data)

    @contextlib.contextmanager
    def open(self, url: str, headers: Mapping[str, str]) -> Iterator[BaseHTTPResponse]:
        """Send a GET and hand over the answer before its body is read."""
        with self._guard():
            answer = self._pool.request("GET", url, headers=dict(headers), preload_content=False, redirect=False)
        try:
            self._busy(answer)
            yield answer
            answer.drain_conn()
        except BaseException:
            answer.close()
            raise
        finally:
            answer.release_conn()

    def chunks(self, answer: BaseHTTPResponse, length: int) -> Iterator[bytes]:
        """The body as it comes, `length` bytes of it and no fewer.

        Raises:
            Transient: it ended early.
        """
        left = length
        while left:
            with self._guard():
                chunk = answer.read(min(CHUNK, left), decode_content=False)
            if not chunk:
                raise Transient(f"the answer ended {left} bytes early", subject=self._subject)
            left -= len(chunk)
            yield chunk

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise  # raised by the body's own source, not by this connection
        except (self._errors, OSError) as error:
            raise Transient(f"no answer: {_reason(error)}", subject=self._subject) from error

    def _busy(self, answer: BaseHTTPResponse) -> None:
        if answer.status in BUSY:
            text = answer.read(400, decode_content=False) if not answer.closed else b""
            said = f": {text.decode(errors='replace').strip()}" if text else ""
            raise Transient(f"the server answered {answer.status}{said}", subject=self._subject)


def total_size(headers: Mapping[str, str]) -> int:
    """Bytes of the whole object, from the headers of an answer to a read of it or of a range."""
    whole = headers.get("content-range", "").rpartition("/")[2]
    return int(whole or headers.get("content-length", "0"))


def _reason(error: BaseException) -> str:
    """The innermost reason in few words."""
    inner: Any = getattr(error, "reason", None) or error.__cause__ or error
    return " ".join(str(inner).split()) or type(error).__name__
