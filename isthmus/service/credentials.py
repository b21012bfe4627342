"""API keys: made, checked and revoked. Only a digest of a key is kept; its owner sees it once.

A key is `isk_<id>_<secret>`: the id finds its row, the secret has 256 random bits, so that a plain SHA-256 is enough.
"""

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, insert, select, update

from isthmus.service.database import Database
from isthmus.service.model import Principal, Unauthenticated
from isthmus.service.tables import api_keys, users
from isthmus.specs.errors import NotFound

PREFIX = "isk"
ID_BYTES = 6
SECRET_BYTES = 32

CACHE_SECONDS = 5.0
"""How long a key that was found good is not looked up again; revoking one takes so long at most on other services."""

CACHED = 10_000


@dataclass(frozen=True)
class Key:
    """An API key as it may be shown."""

    id: str
    label: str
    created: datetime
    expires: datetime | None
    revoked: datetime | None


class Keys:
    """Checks API keys, each good one at most every CACHE_SECONDS against the database."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._good: dict[str, tuple[float, Principal]] = {}

    def principal(self, token: str) -> Principal:
        """Whose key it is.

        Raises:
            Unauthenticated: it is no key of ours, was revoked, has expired, or its user is disabled.
        """
        digest = _digest(token)
        with self._lock:
            found = self._good.get(digest)
        if found is not None and found[0] > self._clock():
            return found[1]
        principal = self._look_up(token)
        with self._lock:
            if len(self._good) >= CACHED:
                self._good.clear()
            self._good[digest] = (self._clock() + CACHE_SECONDS, principal)
        return principal

    def forget(self) -> None:
        """Look every key up again: one was revoked, or a user disabled, here."""
        with self._lock:
            self._good.clear()

    def _look_up(self, token: str) -> Principal:
        _, identity, secret = _parts(token)
        with self._database.read() as connection:
            row = connection.execute(
                select(api_keys, users.c.name, users.c.administrator, users.c.disabled)
                .join(users, users.c.id == api_keys.c.user_id)
                .where(api_keys.c.id == identity)
            ).first()
            now = self._database.now(connection)
        if row is None or not hmac.compare_digest(row.digest, _digest(secret)):
            raise _bad("the API key is not known")
        if row.revoked is not None:
            raise _bad("the API key was revoked")
        if row.expires is not None and row.expires <= now:
            raise _bad("the API key has expired")
        if row.disabled is not None:
            raise _bad("the user of this API key is disabled")
        return Principal(row.user_id, row.name, row.administrator, row.id)


def create(
    connection: Connection, user_id: int, label: str, *, now: datetime, expires: datetime | None = None
) -> tuple[str, Key]:
    """Make a key for a user; returns the key itself, to be shown once, and what is kept of it."""
    identity, secret = secrets.token_hex(ID_BYTES), secrets.token_urlsafe(SECRET_BYTES)
    connection.execute(
        insert(api_keys).values(
            id=identity, user_id=user_id, label=label, digest=_digest(secret), created=now, expires=expires
        )
    )
    return f"{PREFIX}_{identity}_{secret}", Key(identity, label, now, expires, None)


def of_user(connection: Connection, user_id: int) -> list[Key]:
    """The keys of a user, oldest first."""
    rows = connection.execute(select(api_keys).where(api_keys.c.user_id == user_id).order_by(api_keys.c.created))
    return [Key(row.id, row.label, row.created, row.expires, row.revoked) for row in rows]


def revoke(connection: Connection, user_id: int, identity: str, *, now: datetime) -> None:
    """Revoke a user's own key; one that was revoked stays so.

    Raises:
        NotFound: the user has no such key.
    """
    mine = (api_keys.c.id == identity) & (api_keys.c.user_id == user_id)
    if connection.execute(select(api_keys.c.id).where(mine)).first() is None:
        raise NotFound(f"you have no API key {identity!r}", subject=f"key {identity}", remedy="GET /v1/me/keys")
    connection.execute(update(api_keys).where(mine, api_keys.c.revoked.is_(None)).values(revoked=now))


def is_key(token: str) -> bool:
    """Whether it is meant to be an API key (and not a token of an identity provider)."""
    return token.startswith(PREFIX + "_")


def _parts(token: str) -> tuple[str, str, str]:
    parts = token.split("_", 2)
    if len(parts) != 3:
        raise _bad("the API key is not complete")
    return parts[0], parts[1], parts[2]


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _bad(message: str) -> Unauthenticated:
    return Unauthenticated(
        message, remedy="send Authorization: Bearer KEY; a maintainer or administrator gives you one"
    )
