"""Who we are to a cloud: asked of the cloud's own program, as kubeconfigs do, and asked again before it runs out.

Nothing of it is written anywhere.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from isthmus.specs.errors import NotFound, NotReady

SPARE = timedelta(minutes=5)
SECONDS = 60.0
TOKEN_LIFE = timedelta(minutes=30)
"""How long a token of Google Cloud is used: it lives 60 minutes, and its program may have given us one that is not new."""

T = TypeVar("T")


@dataclass(frozen=True)
class AwsKeys:
    """An access key."""

    identity: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


class Renewed(Generic[T]):
    """A value with an end, fetched again shortly before it. Call it; safe between threads."""

    def __init__(self, fetch: Callable[[], tuple[T, datetime]]) -> None:
        """
        Args:
            fetch: gives the value and when it ends.
        """
        self._fetch = fetch
        self._lock = threading.Lock()
        self._value: tuple[T, datetime] | None = None

    def __call__(self) -> T:
        """The value, valid for the next minutes."""
        value = self._value
        if value is not None and datetime.now(UTC) < value[1] - SPARE:
            return value[0]
        with self._lock:
            if self._value is None or datetime.now(UTC) >= self._value[1] - SPARE:
                self._value = self._fetch()
            return self._value[0]


def aws(profile: str) -> Renewed[AwsKeys]:
    """Keys of a profile of ~/.aws/config, however it gets them (AWS CLI reference, configure export-credentials).

    Calling it raises NotFound when the AWS CLI is not there, NotReady when it refuses.
    """

    def fetch() -> tuple[AwsKeys, datetime]:
        command = ["aws", "configure", "export-credentials", "--profile", profile, "--format", "process"]
        said = json.loads(_ask(command, "install the AWS CLI, version 2", f"profile {profile}"))
        end = datetime.fromisoformat(str(said["Expiration"])) if said.get("Expiration") else None
        keys = AwsKeys(said["AccessKeyId"], said["SecretAccessKey"], said.get("SessionToken") or "")
        return keys, end or datetime.max.replace(tzinfo=UTC)

    return Renewed(fetch)


def gcp() -> Renewed[str]:
    """Tokens of the application-default credentials, which Pulumi uses too. Errors as of `aws`."""

    def fetch() -> tuple[str, datetime]:
        command = ["gcloud", "auth", "application-default", "print-access-token"]
        token = _ask(command, "install the gcloud CLI", "application-default credentials").strip()
        return token, datetime.now(UTC) + TOKEN_LIFE + SPARE

    return Renewed(fetch)


def fixed(value: T) -> Renewed[T]:
    """A value without an end."""
    return Renewed(lambda: (value, datetime.max.replace(tzinfo=UTC)))


def _ask(command: list[str], hint: str, subject: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except FileNotFoundError as error:
        raise NotFound(f"{command[0]} is not installed", subject=subject, remedy=hint) from error
    except subprocess.TimeoutExpired as error:
        raise NotReady(f"{command[0]} gave no answer in {SECONDS:.0f} s", subject=subject) from error
    if done.returncode != 0:
        raise NotReady(f"{command[0]}: {done.stderr.strip()}", subject=subject, remedy=" ".join(command))
    return done.stdout
