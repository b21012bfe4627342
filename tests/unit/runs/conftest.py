"""An API server in memory, as far as runs need one: enough for Cluster to talk to, and nothing is sent."""

import copy
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.kube.client import Cluster
from isthmus.kube.paths import KNOWN
from isthmus.runs.store import Store
from isthmus.specs.errors import NotFound, NotReady
from isthmus.specs.workload import WorkloadSpec

Object = dict[str, Any]


class Api:
    """Objects by path. `fail` is asked before each request and may raise; `log` holds what pods printed."""

    server = "https://10.0.0.1:6443"

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.log: dict[tuple[str, bool], list[str]] = {}
        self.fail: Callable[[str, str], None] = lambda method, path: None
        self.asked: list[tuple[str, str]] = []
        self._uids = itertools.count(1)

    def put(self, item: Object) -> Object:
        """Add or replace an object from outside."""
        resource = KNOWN[item["apiVersion"], item["kind"]]
        path = resource.path(item["metadata"].get("namespace"), item["metadata"]["name"])
        stored = copy.deepcopy(item)
        stored["metadata"].setdefault("uid", f"uid-{next(self._uids)}")
        self.objects[path] = stored
        return stored

    def of_kind(self, kind: str) -> list[Object]:
        """All objects of a kind."""
        return [item for item in self.objects.values() if item["kind"] == kind]

    def json(self, method: str, path: str, *, query: Any = None, body: Any = None, **more: Any) -> Object:
        self.asked.append((method, path))
        self.fail(method, path)
        if method == "PATCH":
            return self._apply(path, body, dry=bool((query or {}).get("dryRun")))
        if method == "DELETE":
            return self._delete(path)
        if path in ("/api", "/apis"):
            return _discovery(core=path == "/api")
        if path in self.objects:
            return copy.deepcopy(self.objects[path])
        if any(
            path == resource.path(namespace) for resource in KNOWN.values() for namespace in (None, *self._namespaces())
        ):
            return {"items": self._select(path, (query or {}).get("labelSelector") or "")}
        raise NotFound(f"{path} not found")

    def lines(self, path: str, *, query: Any = None, **more: Any) -> Iterator[str]:
        self.fail("STREAM", path)
        pod = path.split("/")[-2]
        since = (query or {}).get("sinceTime") or ""
        key = (pod, (query or {}).get("previous") == "true")
        if key not in self.log:
            raise NotFound(f"pod {pod} has no log")
        # The server compares whole seconds, as the kubelet does.
        yield from (line for line in self.log[key] if line[:19] >= since[:19])

    def text(self, path: str, **more: Any) -> str:
        self.fail("GET", path)
        return "ok"

    def _namespaces(self) -> set[str]:
        return {
            "isthmus-runs",
            *(found.group(1) for path in self.objects if (found := re.search("/namespaces/([^/]+)/", path))),
        }

    def _apply(self, path: str, body: Object, *, dry: bool) -> Object:
        if dry:
            return copy.deepcopy(body)
        old = self.objects.get(path, {"metadata": {}})
        stored = copy.deepcopy(body)
        stored["metadata"]["uid"] = old["metadata"].get("uid") or f"uid-{next(self._uids)}"
        if "status" in old:
            stored["status"] = old["status"]
        self.objects[path] = stored
        return copy.deepcopy(stored)

    def _delete(self, path: str) -> Object:
        if path not in self.objects:
            raise NotFound(f"{path} not found")
        gone = self.objects.pop(path)
        if gone["kind"] == "PyTorchJob":  # its pods go with it
            name = gone["metadata"]["name"]
            for other in [p for p, item in self.objects.items() if item["kind"] == "Pod" and name in p]:
                del self.objects[other]
        return {}

    def _select(self, path: str, selector: str) -> list[Object]:
        wanted = dict(part.split("=") for part in selector.split(",") if "=" in part)
        unwanted = {part[1:] for part in selector.split(",") if part.startswith("!")}
        collection, _, plural = path.rpartition("/")
        return [
            copy.deepcopy(item)
            for where, item in self.objects.items()
            if where.rpartition("/")[0] == path or (where.startswith(collection) and where.split("/")[-2] == plural)
            if wanted.items() <= (item["metadata"].get("labels") or {}).items()
            if not unwanted & (item["metadata"].get("labels") or {}).keys()
        ]


def _discovery(*, core: bool) -> Object:
    groups: dict[str, list[Object]] = {}
    for resource in KNOWN.values():
        if ("/" not in resource.api_version) == core:
            scope = "Namespaced" if resource.namespaced else "Cluster"
            kind = {
                "resource": resource.plural,
                "responseKind": {"kind": resource.kind},
                "scope": scope,
                "verbs": ["list"],
            }
            groups.setdefault(resource.api_version, []).append(kind)
    return {
        "items": [
            {
                "metadata": {"name": version.rpartition("/")[0]},
                "versions": [{"version": version.split("/")[-1], "resources": kinds}],
            }
            for version, kinds in groups.items()
        ]
    }


class Harness:
    """A cluster in memory with one node of four cards, and what tests do to it."""

    def __init__(self, folder: Path) -> None:
        self.api = Api()
        self.cluster = Cluster({}, transport=self.api)  # type: ignore[arg-type]
        self.store = Store(folder / "runs.db")
        self.api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "cluster-1"}})
        self.api.put({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "gp3"}})
        self.node("local", 4)

    def node(self, name: str, gpus: int, *, simulated: bool = False, model: str = "T4") -> None:
        """Add a node."""
        taints = [{"key": "isthmus.dev/simulated", "value": "true", "effect": "NoSchedule"}] if simulated else []
        metadata = {"name": name, "labels": {"isthmus.dev/gpu-model": model}}
        amounts = {"cpu": "2", "nvidia.com/gpu": str(gpus)}
        self.api.put(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": metadata,
                "spec": {"taints": taints},
                "status": {"allocatable": amounts},
            }
        )

    def job(self, *conditions: tuple[str, str], name: str | None = None, message: str = "") -> None:
        """Set the conditions of the only job, or of the named one."""
        for item in self.api.of_kind("PyTorchJob"):
            if name in (None, item["metadata"]["name"]):
                item["status"] = {
                    "conditions": [{"type": kind, "status": status, "message": message} for kind, status in conditions]
                }

    def pod(self, role: str, index: int, phase: str = "Running", **more: Any) -> Object:
        """Add or replace a pod of the only job of a kind (PyTorchJob), with its training container's status."""
        [job] = self.api.of_kind(more.get("kind", "PyTorchJob"))
        name = f"{job['metadata']['name']}-{role}-{index}"
        marks = {
            **job["metadata"]["labels"],
            "training.kubeflow.org/job-name": job["metadata"]["name"],
            "training.kubeflow.org/replica-type": role,
            "training.kubeflow.org/replica-index": str(index),
        }
        rank = index if role == "master" else index + 1
        container = {
            "name": "pytorch",
            "restartCount": more.get("restarts", 0),
            "state": more.get("state", {"running": {}}),
        }
        if "last" in more:
            container["lastState"] = {"terminated": more["last"]}
        return self.api.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": "isthmus-runs",
                    "labels": marks,
                    "uid": more.get("uid", f"uid-{name}"),
                },
                "spec": {
                    "nodeName": "local",
                    "containers": [{"name": "pytorch", "env": [{"name": "RANK", "value": str(rank)}]}],
                },
                "status": {"phase": phase, "containerStatuses": [container]},
            }
        )

    def away(self) -> None:
        """From now on nothing answers."""

        def fails(method: str, path: str) -> None:
            raise NotReady("the API server at https://10.0.0.1:6443 cannot be reached: connection refused")

        self.api.fail = fails

    def back(self) -> None:
        """From now on everything answers again."""
        self.api.fail = lambda method, path: None


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """In a home of its own: what is being moved in the user's is no matter of the tests."""
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "home"))
    return Harness(tmp_path)


@pytest.fixture
def make_spec() -> Callable[..., WorkloadSpec]:
    """Builds a valid workload; arguments replace fields."""

    def build(**change: Any) -> WorkloadSpec:
        values: dict[str, Any] = {
            "apiVersion": "isthmus.dev/v1",
            "kind": "PyTorchJob",
            "name": "train",
            "image": "docker.io/isthmus/torch:1",
            "command": ["python3", "train.py"],
            "roles": {"Master": {"replicas": 1, "gpus": 1}, "Worker": {"replicas": 3, "gpus": 1}},
            "volumes": [{"name": "ckpt", "size": "1Gi", "mountPath": "/ckpt", "role": "Master"}],
            "metrics": {"accuracy": 0.95},
        }
        return WorkloadSpec.model_validate(values | change)

    return build
