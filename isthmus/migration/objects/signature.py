"""AWS Signature Version 4 for S3, with the body left out of it.

After "Authenticating requests: using the Authorization header" (S3 API reference, version 2006-03-01), whose example is the
test. It is written here because botocore, and with it boto3, s3fs and moto, cannot be installed beside the Kubernetes client
37 (they want python-dateutil below and from 3), and because it takes a twentieth of the time.
"""

from __future__ import annotations

import hmac
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import sha256
from urllib.parse import urlsplit

from isthmus.migration.objects.credentials import AwsKeys

UNSIGNED = "UNSIGNED-PAYLOAD"
_LEFT_OUT = frozenset({"content-length", "user-agent"})
"""Headers that who sends the request may change."""


class Signer:
    """Signs requests to S3 in one region, by the server's clock where ours is off."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._offset = timedelta()
        self._kept: tuple[str, str, bytes] | None = None
        """Secret, day and the key that is made from them."""

    def set_clock(self, date: str) -> float:
        """Sign by the server's clock (its Date header) from now on; returns the seconds that it is ahead of ours."""
        self._offset = parsedate_to_datetime(date) - datetime.now(UTC)
        return self._offset.total_seconds()

    def sign(
        self,
        keys: AwsKeys,
        method: str,
        url: str,
        headers: dict[str, str],
        *,
        payload: str = UNSIGNED,
        now: datetime | None = None,
    ) -> dict[str, str]:
        """The headers of that request with its signature.

        Args:
            url: with its path and query encoded, the query sorted.
            headers: in lower case.
            payload: SHA-256 of the body in hex, or UNSIGNED.
            now: default: the server's time as far as we know it.
        """
        moment = f"{(now or datetime.now(UTC) + self._offset):%Y%m%dT%H%M%SZ}"
        parts = urlsplit(url)
        signed = {**headers, "host": parts.netloc, "x-amz-date": moment, "x-amz-content-sha256": payload}
        if keys.token:
            signed["x-amz-security-token"] = keys.token
        listed = sorted((name, value) for name, value in signed.items() if name not in _LEFT_OUT)
        names = ";".join(name for name, _ in listed)
        lines = "".join(f"{name}:{' '.join(value.split())}\n" for name, value in listed)
        request = "\n".join((method, parts.path or "/", parts.query, lines, names, payload))
        scope = f"{moment[:8]}/{self._region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{sha256(request.encode()).hexdigest()}"
        signature = hmac.new(self._key(keys.secret, moment[:8]), text.encode(), "sha256").hexdigest()
        signed["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={keys.identity}/{scope},SignedHeaders={names},Signature={signature}"
        )
        return signed

    def _key(self, secret: str, day: str) -> bytes:
        kept = self._kept
        if kept is None or kept[:2] != (secret, day):
            key = f"AWS4{secret}".encode()
            for text in (day, self._region, "s3", "aws4_request"):
                key = hmac.new(key, text.encode(), "sha256").digest()
            self._kept = kept = (secret, day, key)
        return kept[2]
