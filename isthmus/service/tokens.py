"""Bearer tokens of an identity provider (OpenID Connect): who they are for, checked against the issuer's own keys.

A token counts when its issuer is the one that was set, its signature is by one of that issuer's published keys, it is
meant for our audience, and it is valid now. Whose user that is says the service's own table of users (issuer and
subject): a token alone makes nobody a user, and none of its claims gives a role.
"""

import json
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jwt
from sqlalchemy import select

from isthmus.service.database import Database
from isthmus.service.model import Forbidden, Principal, Unauthenticated
from isthmus.service.tables import users
from isthmus.specs.errors import NotReady

ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "EdDSA")
"""Signatures with a public key only: never `none`, and no HMAC, whose key would be the public one (RFC 8725, 2.1)."""

LEEWAY_SECONDS = 60
"""How far our clock and the issuer's may differ."""

KEYS_SECONDS = 300.0
"""How long the issuer's keys are kept."""

REFRESH_SECONDS = 10.0
"""An unknown key id makes us ask the issuer again, at most this often: forged tokens must not turn into requests to it."""

FETCH_SECONDS = 5.0
LARGEST = 1 << 20

Fetch = Callable[[str], dict[str, Any]]


def fetch_json(url: str) -> dict[str, Any]:
    """A JSON document of the issuer."""
    with urllib.request.urlopen(url, timeout=FETCH_SECONDS) as answer:
        return dict(json.loads(answer.read(LARGEST)))


@dataclass
class Issuer:
    """One identity provider, by its issuer URL."""

    url: str
    audience: str
    fetch: Fetch = fetch_json
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[str, Any] = {}
        self._read = float("-inf")

    def claims(self, token: str) -> dict[str, Any]:
        """What a good token says.

        Raises:
            Unauthenticated: it is forged, expired, for somebody else or of another issuer.
            NotReady: the issuer's keys cannot be had.
        """
        try:
            header = jwt.get_unverified_header(token)
            key = self._key(str(header.get("kid", "")))
            return dict(
                jwt.decode(
                    token,
                    key=key,
                    algorithms=list(ALGORITHMS),
                    audience=self.audience,
                    issuer=self.url,
                    leeway=LEEWAY_SECONDS,
                    options={"require": ["exp", "iat", "iss", "aud", "sub"]},
                )
            )
        except jwt.InvalidTokenError as error:
            raise Unauthenticated(
                f"the token is not valid: {error}", subject=f"issuer {self.url}", remedy="log in again for a new token"
            ) from error

    def _key(self, identity: str) -> Any:
        with self._lock:
            age = self.clock() - self._read
            if age > KEYS_SECONDS or (identity not in self._keys and age > REFRESH_SECONDS):
                self._keys, self._read = self._fetched(), self.clock()
            key = self._keys.get(identity)
        if key is None:
            raise jwt.InvalidTokenError("it was signed with a key that the issuer does not have")
        return key

    def _fetched(self) -> dict[str, Any]:
        try:
            configuration = self.fetch(self.url.rstrip("/") + "/.well-known/openid-configuration")
            if configuration.get("issuer") != self.url:
                raise ValueError(f"it says it is {configuration.get('issuer')}")
            keys = self.fetch(str(configuration["jwks_uri"])).get("keys", ())
            return {
                str(key.get("kid", "")): jwt.PyJWK(key).key for key in keys if key.get("kty") in ("RSA", "EC", "OKP")
            }
        except (OSError, ValueError, KeyError, TypeError, jwt.PyJWTError) as error:
            raise NotReady(
                f"the keys of the identity provider cannot be read: {error}",
                subject=f"issuer {self.url}",
                remedy="use an API key meanwhile",
            ) from error


@dataclass(frozen=True)
class Tokens:
    """Turns a token into the user it is for."""

    database: Database
    issuer: Issuer

    def principal(self, token: str) -> Principal:
        """The user of a token.

        Raises:
            Unauthenticated, NotReady: as of Issuer.claims.
            Forbidden: the token is good, and nobody here is that person.
        """
        claims = self.issuer.claims(token)
        subject = str(claims["sub"])
        with self.database.read() as connection:
            row = connection.execute(
                select(users).where(users.c.issuer == self.issuer.url, users.c.subject == subject)
            ).first()
        if row is None or row.disabled is not None:
            raise Forbidden(
                f"nobody here is {subject!r} of {self.issuer.url}, or that user is disabled",
                subject=f"subject {subject}",
                remedy="ask an administrator: POST /v1/users with this issuer and subject",
            )
        return Principal(row.id, row.name, row.administrator)
