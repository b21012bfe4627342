"""What tests of real local clusters share: a home that borrows programs and images, and small pods that do one
thing."""

from pathlib import Path
from typing import Any

from isthmus.kube import Cluster, wait
from isthmus.kube.objects import holds
from isthmus.localcluster import images
from isthmus.localcluster.runtime import LocalCluster
from isthmus.specs.errors import NotFound
from isthmus.specs.labels import GPU_RESOURCE, RUNS_NAMESPACE
from isthmus.toolchain import home

PROBE_IMAGE = "isthmus.dev/test/probe:1"
PROBE_SOURCE = Path(__file__).parent / "local" / "probe" / "probe.c"
POD_SECONDS = 60


def borrow_home(folder: Path, *, images: bool = True) -> Path:
    """A new ISTHMUS_HOME in `folder` with the programs, caches and (where asked for) images of the present one. Without
    them its clusters have the two small images that every cluster needs."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("tools", "cache", *(("images",) if images else ())):
        target = (home.home() / name).resolve()
        target.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target)
    return folder


def probe_archive(folder: Path) -> Path:
    """An image archive with the probe program, named PROBE_IMAGE; built once per folder."""
    archive = folder / "probe.tar"
    if not archive.exists():
        program = images.compile_static(PROBE_SOURCE)
        images.write_archive(archive, PROBE_IMAGE, {"probe": program}, {"Entrypoint": ["/probe"]})
    return archive


class Probes:
    """Runs the probe program (local/probe/probe.c) in pods of one namespace."""

    def __init__(self, cluster: LocalCluster, namespace: str = "default") -> None:
        self.kube = Cluster(cluster.kubeconfig())
        self.namespace = namespace

    def run(self, name: str, *words: str, seconds: float = POD_SECONDS, **options: Any) -> str:
        """Run one pod to its end, which must be a good one; its log."""
        self.start(name, *words, **options)
        wait.until(
            lambda: self.phase(name) in {"Succeeded", "Failed"}, seconds=seconds, what=f"pod {name} to end",
            why=lambda: str(self.kube.get("v1", "Pod", name, self.namespace).get("status")),
        )  # fmt: skip
        text = self.log(name)
        assert self.phase(name) == "Succeeded", text
        return text

    def start(self, name: str, *words: str, **options: Any) -> None:
        """Create one pod."""
        self.kube.apply(pod(self.namespace, name, words, **options))

    def stay(self, name: str, *words: str, **options: Any) -> None:
        """Start a pod that does its work and then sleeps; returns when it runs and has written its log."""
        self.start(name, "stay", *words, **options)
        wait.until(lambda: self.phase(name) == "Running", seconds=POD_SECONDS, what=f"pod {name} to run")
        wait.until(lambda: self.log(name), seconds=POD_SECONDS, what=f"a log of pod {name}")

    def phase(self, name: str) -> str:
        """A pod's phase."""
        return str(self.kube.get("v1", "Pod", name, self.namespace).get("status", {}).get("phase", ""))

    def log(self, name: str) -> str:
        """A pod's log."""
        return "\n".join(self.kube.logs(name, self.namespace))


def pod(
    namespace: str, name: str, words: tuple[str, ...], *, mounts: list[dict[str, Any]] | None = None,
    environment: dict[str, str] | None = None, cards: int = 0, metadata: dict[str, Any] | None = None, **spec: Any,
) -> dict[str, Any]:  # fmt: skip
    """The manifest of a pod that runs the probe once; further words go into its spec."""
    container: dict[str, Any] = {"name": "probe", "image": PROBE_IMAGE, "args": list(words), "imagePullPolicy": "Never"}
    if mounts:
        container["volumeMounts"] = mounts
    if cards:
        container["resources"] = {"limits": {GPU_RESOURCE: str(cards)}}
    if environment:
        container["env"] = [{"name": key, "value": value} for key, value in environment.items()]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **(metadata or {})},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def succeeded(client: Cluster, job: str) -> bool:
    """Whether a PyTorchJob of the runs' namespace has succeeded; it must not have failed."""
    now = client.get("kubeflow.org/v1", "PyTorchJob", job, RUNS_NAMESPACE)
    assert not holds(now, "Failed"), now["status"]
    return holds(now, "Succeeded")


def found(client: Cluster, kind: str, name: str, namespace: str | None = None) -> bool:
    """Whether a core object is there."""
    try:
        client.get("v1", kind, name, namespace)
    except NotFound:
        return False
    return True
