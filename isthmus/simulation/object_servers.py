"""The objects in a simulated account's buckets: a real server over a folder of its own, started when somebody asks for it.

AWS accounts get versitygw (S3's API), GCP projects fake-gcs-server (Cloud Storage's JSON API); both keep an object as a file
with its metadata in extended attributes. They are other people's programs, so what speaks to them speaks the protocols and not
our idea of them. A server belongs to its account: its data lie beside the account's file, it outlives the command that started
it, and it ends with the account's last bucket. It listens on this machine's loopback only. What the two cannot do is in
README.md of isthmus/migration.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from isthmus.localcluster import locks, processes
from isthmus.simulation.account import Account
from isthmus.simulation.resource import CloudError
from isthmus.specs.errors import NotFound, NotReady
from isthmus.toolchain import home, scratch

READY_SECONDS = 20.0
STOP_SECONDS = 10.0
LOCK_SECONDS = 60.0
HOST = "127.0.0.1"

Kind = Literal["aws", "gcp"]
PROGRAMS: dict[Kind, str] = {"aws": "versitygw", "gcp": "fake-gcs-server"}
_HIDDEN = frozenset({".sgwtmp", ".bucketMetadata", ".bucketMetadata.json"})
"""What the servers keep in a bucket's folder beside its objects (versitygw: parts of uploads)."""


@dataclass(frozen=True)
class Endpoint:
    """Where an account's objects are, and who may use them."""

    url: str
    access_key: str
    secret_key: str
    """Of versitygw; fake-gcs-server asks for no credentials."""
    region: str
    """Of versitygw, whose signatures name it."""


def folder(account: Account) -> Path:
    """Everything about the objects of one account."""
    return account.path.with_suffix(".objects")


def serve(account: Account, kind: Kind, region: str, buckets: list[str]) -> Endpoint:
    """The endpoint of an account's server, started where it does not run, with these buckets in it. Idempotent.

    Raises:
        NotFound: the program is not installed. NotReady: it does not start; the log is named.
    """
    place = folder(account)
    (place / "data").mkdir(mode=0o700, parents=True, exist_ok=True)
    with locks.exclusive(
        place / "lock", what=f"the objects of account {account.name}", doing="start their server", seconds=LOCK_SECONDS
    ):
        state = _state(place)
        if not _running(state):
            state = _start(place, kind, region, state)
    endpoint = Endpoint(f"http://{HOST}:{state['port']}", state["access_key"], state["secret_key"], state["region"])
    for bucket in buckets:
        (place / "data" / bucket).mkdir(mode=0o700, exist_ok=True)
    return endpoint


def stop(account: Account) -> None:
    """End the account's server; its data stay. One that does not run is no error."""
    state = _state(folder(account))
    if not _running(state):
        return
    for end in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(state["pid"], end)
        if _until(lambda: not _running(state), STOP_SECONDS):
            return
    raise NotReady(f"the object server of account {account.name} does not end", subject=f"process {state['pid']}")


def remove(account: Account) -> None:
    """End the account's server and delete every object."""
    stop(account)
    shutil.rmtree(folder(account), ignore_errors=True)


def delete_bucket(account: Account, bucket: str, *, force: bool, not_empty: CloudError) -> None:
    """Take a bucket and its objects away; with the account's last bucket its server ends.

    Raises:
        CloudError: `not_empty`, when it holds objects and `force` is false.
    """
    place = folder(account) / "data" / bucket
    if holds_objects(account, bucket) and not force:
        raise not_empty
    shutil.rmtree(place, ignore_errors=True)
    if folder(account).is_dir() and not any((folder(account) / "data").iterdir()):
        remove(account)


def holds_objects(account: Account, bucket: str) -> bool:
    """Whether a bucket has at least one object."""
    place = folder(account) / "data" / bucket
    if not place.is_dir():
        return False
    return any(entry.name not in _HIDDEN for entry in os.scandir(place))


def _start(place: Path, kind: Kind, region: str, state: dict[str, Any]) -> dict[str, Any]:
    program = PROGRAMS[kind]
    try:
        path = home.tool(program)
    except NotFound as error:
        raise NotFound(
            f"{program}, which keeps the objects of this account, is not installed",
            subject=program,
            remedy="isthmus install objects",
        ) from error
    port = _free_port(state.get("port"))
    region = state.get("region") or region
    access, secret = state.get("access_key") or _word("AKIA"), state.get("secret_key") or secrets.token_urlsafe(30)
    data = str(place / "data")
    command = {
        "aws": [
            str(path), "--port", f"{HOST}:{port}", "--region", region, "--quiet", "--keep-alive", "posix", data,
        ],
        "gcp": [
            str(path), "-scheme", "http", "-host", HOST, "-port", str(port), "-backend", "filesystem",
            "-filesystem-root", data, "-public-host", f"{HOST}:{port}", "-log-level", "error",
        ],
    }[kind]  # fmt: skip
    environment = {**scratch.outlasting(os.environ), "ROOT_ACCESS_KEY": access, "ROOT_SECRET_KEY": secret}
    log = place / "server.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
        )
    state = {
        "pid": process.pid,
        "started": processes.start_time(process.pid),
        "port": port,
        "access_key": access,
        "secret_key": secret,
        "region": region,
    }
    _write(place, state)
    if not _until(lambda: process.poll() is not None or _listens(port), READY_SECONDS) or process.poll() is not None:
        raise NotReady(f"{program} does not start", subject=f"objects in {data}", remedy=f"less {log}")
    return state


def _running(state: dict[str, Any]) -> bool:
    return bool(state.get("started")) and processes.alive(state["pid"], state["started"])


def _state(place: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((place / "server.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _write(place: Path, state: dict[str, Any]) -> None:
    temporary = place / ".server.json"
    descriptor = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(state, file)
    temporary.replace(place / "server.json")


def _free_port(before: int | None) -> int:
    """The port it had before, where that is free: others may have kept its address."""
    for wanted in (before, 0):
        if wanted is None:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, wanted))
            return int(probe.getsockname()[1])
    raise NotReady("no port is free on this machine", subject=HOST)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1.0):
        return True
    return False


def _until(holds: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() >= end:
            return False
        time.sleep(0.05)
    return True


def _word(prefix: str) -> str:
    return prefix + secrets.token_hex(8).upper()
