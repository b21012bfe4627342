"""A service process that kills itself with SIGKILL at a named point: what tests/unit/service/test_kill_points.py starts.

The database is FOLDER/service.db. The cluster is FOLDER/cluster.db, an API server as far as isthmus.runs asks for one, kept
in SQLite so that it outlives this process; runs.db is FOLDER/runs.db. Submitting goes through isthmus.service.stacks and
isthmus.runs.submit themselves. A point is `STEP`, a step that the worker logs; `request:N:before` or `request:N:after`, the
N-th request that would change the cluster; or `db:N`, the N-th commit of the service's database.
"""

import json
import logging
import os
import re
import signal
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import event

from isthmus.kube.client import Cluster
from isthmus.kube.paths import KNOWN
from isthmus.runs import submit as submitting
from isthmus.runs.store import Store
from isthmus.service.database import Database
from isthmus.service.stacks import Stacks
from isthmus.service.worker import Watch, Worker
from isthmus.specs import stack as stack_settings
from isthmus.specs.errors import NotFound, NotReady

STACK = "aws-sim"
ROOT = Path(__file__).parents[1]


class KeptApi:
    """Objects by path in a SQLite file, and how often each was created."""

    server = "https://10.0.0.1:6443"

    def __init__(self, path: Path) -> None:
        self.database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=20)
        # It survives a killed process all the same, and is not what is measured.
        self.database.execute("PRAGMA journal_mode = WAL")
        self.database.execute("PRAGMA synchronous = OFF")
        self.lock = threading.Lock()
        self.away = path.with_name("away")
        """While this file is there, the API server does not answer."""
        self.database.execute("CREATE TABLE IF NOT EXISTS objects (path TEXT PRIMARY KEY, object TEXT)")
        self.database.execute("CREATE TABLE IF NOT EXISTS created (path TEXT)")
        self.changes = 0
        self.point = ""
        for kind, name in (("Namespace", "kube-system"), ("Node", "local"), ("StorageClass", "gp3")):
            api = "storage.k8s.io/v1" if kind == "StorageClass" else "v1"
            self._put(KNOWN[api, kind].path(None, name), {"metadata": {"name": name, "uid": f"uid-{name}"}})

    def json(self, method: str, path: str, *, query: Any = None, body: Any = None, **more: Any) -> dict[str, Any]:
        if self.away.exists():
            raise NotReady(f"the API server at {self.server} cannot be reached")
        with self.lock:
            return self._answer(method, path, query, body)

    def _answer(self, method: str, path: str, query: Any, body: Any) -> dict[str, Any]:
        if method == "GET":
            return self._get(path, (query or {}).get("labelSelector") or "")
        if (query or {}).get("dryRun"):
            return dict(body)
        self.changes += 1
        self._die(f"request:{self.changes}:before")
        if method == "DELETE":
            gone = self.database.execute("DELETE FROM objects WHERE path = ?", (path,)).rowcount
            if not gone:
                raise NotFound(f"{path} not found")
            answer: dict[str, Any] = {}
        else:
            answer = self._apply(path, body)
        self._die(f"request:{self.changes}:after")
        return answer

    def lines(self, path: str, **more: Any) -> Iterator[str]:
        raise NotFound(f"{path} has no log")

    def text(self, path: str, **more: Any) -> str:
        return "ok"

    def _apply(self, path: str, body: Any) -> dict[str, Any]:
        item = {**body, "metadata": {**body["metadata"], "uid": f"uid-{path}"}}
        if self.database.execute("SELECT 1 FROM objects WHERE path = ?", (path,)).fetchone() is None:
            self.database.execute("INSERT INTO created VALUES (?)", (path,))
            self._put(path, item)
        return item

    def _put(self, path: str, item: dict[str, Any]) -> None:
        self.database.execute("INSERT OR REPLACE INTO objects VALUES (?, ?)", (path, json.dumps(item)))

    def _get(self, path: str, selector: str) -> dict[str, Any]:
        row = self.database.execute("SELECT object FROM objects WHERE path = ?", (path,)).fetchone()
        if row is not None:
            return dict(json.loads(row[0]))
        if not re.search(r"/(nodes|pods|pytorchjobs|storageclasses|events|persistentvolumeclaims)$", path):
            raise NotFound(f"{path} not found")
        rows = self.database.execute("SELECT object FROM objects WHERE path GLOB ?", (path + "/*",)).fetchall()
        return {"items": [json.loads(row[0]) for row in rows]}

    def _die(self, point: str) -> None:
        if point == self.point:
            os.kill(os.getpid(), signal.SIGKILL)


class Killer(logging.Handler):
    """Kills at a step of the worker."""

    def __init__(self, point: str) -> None:
        super().__init__()
        self.point = point

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == self.point:
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, point: str) -> None:
    """Work until there is nothing to do, or die at the point; writes FOLDER/ended with the requests and commits it took."""
    database = Database(f"sqlite:///{folder}/service.db")
    api = KeptApi(folder / "cluster.db")
    api.point = point
    logger = logging.getLogger("isthmus.service.worker")
    logger.setLevel(logging.INFO)
    logger.addHandler(Killer(point))
    commits = 0

    @event.listens_for(database.engine, "commit")
    def committed(connection: Any) -> None:
        nonlocal commits
        if connection.get_execution_options().get("writes"):
            commits += 1
            if point == f"db:{commits}":
                os.kill(os.getpid(), signal.SIGKILL)

    platform = stacks(folder, api)
    worker = Worker(database, platform, (STACK,))
    while worker.submit_one():
        pass
    while worker.cancel_one():
        pass
    Watch(database, platform, STACK, "watch").step()
    (folder / "ended").write_text(f"{api.changes} {commits}")


def stacks(folder: Path, api: KeptApi) -> Stacks:
    """The real platform over a kept API server."""
    submitting.ADVERTISE_SECONDS = 0
    return Stacks(
        (STACK,),
        Store(folder / "runs.db"),
        lambda name: stack_settings.load(ROOT, name),
        lambda name: Cluster(KUBECONFIG, transport=api),  # type: ignore[arg-type]
    )


def serve(folder: Path, port: int) -> None:
    """A whole service on FOLDER, until it is killed."""
    from isthmus.service import server
    from isthmus.service.submissions import Limits

    settings = server.Settings(
        port=port, most_active=100_000, requests_per_second=10_000, limits=Limits(100_000, 100_000)
    )
    database = Database(f"sqlite:///{folder}/service.db")
    server.serve(database, stacks(folder, KeptApi(folder / "cluster.db")), settings)


KUBECONFIG: dict[str, Any] = {
    "current-context": "x",
    "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    "clusters": [{"name": "x", "cluster": {"server": "https://10.0.0.1:6443"}}],
    "users": [{"name": "x", "user": {"token": "t"}}],
}
