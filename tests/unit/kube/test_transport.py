"""Requests: credentials are renewed in time and once, and a server that cannot be reached is named."""

import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import urllib3

from isthmus.kube import transport
from isthmus.kube.kubeconfig import Connection, Credential
from isthmus.kube.transport import Transport
from isthmus.specs.errors import NotReady


class Response:
    """An answer as urllib3 gives it."""

    def __init__(self, status: int, body: bytes = b"{}") -> None:
        self.status, self._body = status, body
        self.response = self

    def read(self) -> bytes:
        return self._body

    def release_conn(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is open."""


class Client:
    """Stands for the official ApiClient."""

    def __init__(self, answers: list[Any]) -> None:
        self._answers = answers
        self.sent: list[dict[str, Any]] = []

    def call_api(self, method: str, url: str, **more: Any) -> Response:
        self.sent.append({"method": method, "url": url, **more})
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client([])
    monkeypatch.setattr(transport, "_api_client", lambda connection, credential: made)
    return made


def connected(monkeypatch: pytest.MonkeyPatch, credentials: list[Credential], user: dict[str, Any]) -> Transport:
    monkeypatch.setattr(Connection, "credential", lambda self: credentials.pop(0))
    return Transport(Connection("https://10.0.0.1:6443", None, False, None, None, user, Path()))


def tokens(client: Client) -> list[str]:
    return [request["header_params"].get("Authorization") for request in client.sent]


def test_a_credential_about_to_end_is_renewed_before_it_is_used(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=5)
    to_use = [Credential(token="one", expires=soon), Credential(token="two", expires=soon + timedelta(minutes=15))]
    link = connected(monkeypatch, to_use, {"exec": {}})
    client._answers += [Response(200), Response(200), Response(200)]
    for _ in range(3):
        link.json("GET", "/version")
    assert tokens(client) == ["Bearer one", "Bearer two", "Bearer two"]


def test_a_refused_credential_of_a_program_is_renewed_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    link = connected(monkeypatch, [Credential(token=name) for name in ("one", "two", "three")], {"exec": {}})
    client._answers += [Response(401), Response(200)]
    assert link.json("GET", "/version") == {}
    assert tokens(client) == ["Bearer one", "Bearer two"]
    client._answers += [Response(401, b'{"message": "who are you"}'), Response(401, b'{"message": "who are you"}')]
    with pytest.raises(NotReady, match="does not accept our credential: who are you"):
        link.json("GET", "/version")


def test_a_refused_token_of_a_file_is_not_tried_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    link = connected(monkeypatch, [Credential(token="one")], {"token": "one"})
    client._answers += [Response(401)]
    with pytest.raises(NotReady):
        link.json("GET", "/version")
    assert len(client.sent) == 1


def test_every_request_has_a_time_limit(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    link = connected(monkeypatch, [Credential()], {})
    client._answers += [Response(200), Response(200, b"ok")]
    link.json("GET", "/version", query={"a": "b c", "left": None})
    link.text("/readyz", seconds=3)
    assert [request["_request_timeout"] for request in client.sent] == [
        (transport.CONNECT_SECONDS, transport.READ_SECONDS), (transport.CONNECT_SECONDS, 3),
    ]  # fmt: skip
    assert client.sent[0]["url"] == "https://10.0.0.1:6443/version?a=b+c"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            urllib3.exceptions.MaxRetryError(None, "/", Exception("[Errno 111] Connection refused")),  # type: ignore[arg-type]
            "cannot be reached: connection refused",
        ),
        (urllib3.exceptions.ReadTimeoutError(None, "/", "Read timed out."), "cannot be reached: timed out"),  # type: ignore[arg-type]
        (
            urllib3.exceptions.ProtocolError("Connection broken", ConnectionResetError(104, "reset by peer")),
            "cannot be reached",
        ),
    ],
)
def test_a_server_that_cannot_be_reached_is_named(
    client: Client, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    link = connected(monkeypatch, [Credential()], {})
    client._answers.append(error)
    with pytest.raises(NotReady, match=words) as caught:
        link.json("GET", "/version", subject="the subject")
    assert "https://10.0.0.1:6443" in caught.value.message
    assert caught.value.subject == "the subject"


def test_keys_for_openssl_are_readable_by_us_alone_and_gone_afterwards() -> None:
    with transport._key_file("the key") as path:
        assert Path(path).read_text() == "the key"
        if not path.startswith("/proc/"):
            assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert not Path(path).exists() or Path(path).read_text() != "the key"


PARTS = """
import sys
from isthmus.kube import transport
transport._libraries()
for part in ("api_client", "configuration", "exceptions"):
    assert f"kubernetes.client.{part}" in sys.modules, part
"""


def test_the_official_client_is_imported_with_all_we_use_of_it_under_one_lock() -> None:
    """It imports its parts as they are named: node pools made at the same time met in a deadlock of module locks, and one
    failed with "cannot import name 'ApiClient'"."""
    done = subprocess.run([sys.executable, "-c", PARTS], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
