"""What a caller may not exceed: the size of a request, and how often one asks. ASGI, so that it counts before parsing.

A rate is a bucket for each caller: `rate` requests a second in the long run, `burst` at once. Buckets are of one process.
"""

import json
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from isthmus.service.model import TooManyRequests

LARGEST_BODY = 1 << 20
"""Bytes of a request at most: a mapping or a run has some thousands."""

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,40}")


@dataclass
class Frame:
    """Gives each request an id (the caller's X-Request-Id where it is a plain one) and refuses bodies that are too large."""

    app: ASGIApp
    largest: int = LARGEST_BODY

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {key.lower(): value for key, value in scope["headers"]}
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        identity = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = identity
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.largest:
            await _refuse(send, identity, self.largest)
            return
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self.largest:
                raise HTTPException(413, f"the request has more than {self.largest} bytes")
            return message

        async def answered(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", identity.encode())]
            await send(message)

        await self.app(scope, counted, answered)


async def _refuse(send: Send, identity: str, largest: int) -> None:
    problem = {
        "type": "urn:isthmus:problem:too-large",
        "title": "Content Too Large",
        "status": 413,
        "detail": f"the request has more than {largest} bytes",
        "object": "",
        "next": "send less; data belongs into the bucket, not into the request",
        "request_id": identity,
        "errors": [],
    }
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"connection", b"close"),
        (b"x-request-id", identity.encode()),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(problem).encode()})


@dataclass
class Rates:
    """One bucket for each caller."""

    rate: float = 100.0
    burst: float = 200.0
    clock: Callable[[], float] = time.monotonic
    most: int = 10_000
    """Callers remembered: the one that asked least lately is forgotten first, and then has a full bucket again."""
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, caller: str) -> None:
        """Count one request. TooManyRequests where the caller's bucket is empty."""
        now = self.clock()
        with self._lock:
            level, at = self._buckets.pop(caller, (self.burst, now))
            level = min(self.burst, level + (now - at) * self.rate)
            self._buckets[caller] = (max(level - 1, 0.0) if level >= 1 else level, now)
            if len(self._buckets) > self.most:
                self._buckets.popitem(last=False)
        if level < 1:
            raise TooManyRequests(
                f"more than {self.rate:g} requests a second",
                seconds=(1 - level) / self.rate,
                remedy="wait as long as Retry-After says",
            )
