"""operators/deploy.py with the real engine and the real Kubernetes provider, on a real API server."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.kube import Cluster, wait
from isthmus.localcluster.embedded import EmbeddedCluster
from isthmus.toolchain import home
from isthmus.toolchain.table import tool_named
from operators import deploy

pytestmark = pytest.mark.local

GROUP = "test.isthmus.dev"
Program = Callable[[], None]


class Engine:
    """One Pulumi stack with a program given as a function, and a state of its own."""

    def __init__(self, folder: Path, kubeconfig: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        from pulumi import automation

        tool = tool_named("pulumi-kubernetes")
        plugin = folder / "pulumi" / "plugins" / tool.plugin
        plugin.mkdir(parents=True)
        (plugin / tool.programs[0]).symlink_to(home.tools() / tool.folder / "bin" / tool.programs[0])
        (folder / "state").mkdir()
        settings = {
            "PULUMI_HOME": str(folder / "pulumi"),
            "PULUMI_BACKEND_URL": (folder / "state").as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "test",
        }
        for name, value in (home.environment(settings) | settings).items():
            monkeypatch.setenv(name, value)
        self.kubeconfig = json.dumps(kubeconfig)
        self.automation = automation
        self.folder = folder
        self._stack: automation.Stack | None = None

    def up(self, objects: Callable[[], list[tuple[str, list[dict[str, Any]]]]]) -> dict[str, int]:
        """Deploy groups of objects, each after the one before; counts of what was done."""
        kubeconfig = self.kubeconfig

        def program() -> None:
            import pulumi_kubernetes as kubernetes

            provider = kubernetes.Provider("cluster", kubeconfig=kubeconfig)
            before: list[Any] = []
            for name, items in objects():
                before = [deploy.objects(name, items, provider, depends_on=before)]

        self._stack = self.automation.create_or_select_stack(
            "test", "deploy", program, opts=self.automation.LocalWorkspaceOptions(work_dir=str(self.folder))
        )
        result = self._stack.up()
        return dict(result.summary.resource_changes or {})

    def destroy(self) -> None:
        if self._stack is not None:
            self._stack.destroy()


@pytest.fixture
def engine(embedded_cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    engine = Engine(tmp_path, embedded_cluster.kubeconfig(), monkeypatch)
    yield engine
    engine.destroy()


def definition(plural: str, kind: str) -> dict[str, Any]:
    """A type whose objects may hold anything."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def custom(name: str) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Flavor", "metadata": {"name": name}, "spec": {"size": 1}}


def program() -> list[tuple[str, list[dict[str, Any]]]]:
    """Custom resources in the same component as their type, and more in one that depends on it."""
    return [("types", [custom("first"), definition("flavors", "Flavor")]), ("queues", [custom("second")])]


def hold_up(kube: Cluster, seconds: float | None) -> None:
    """Keep the type from being served: another one has its kind, which the API server does not allow twice in a group.

    Args:
        seconds: until the other one goes away; None for never.
    """
    kube.apply(definition("squatters", "Flavor"))
    wait.established(kube, f"squatters.{GROUP}", seconds=30)
    if seconds is not None:
        threading.Timer(seconds, lambda: kube.delete(*CRD, f"squatters.{GROUP}")).start()


CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


@pytest.mark.parametrize("delay", [0, 20, pytest.param(90, marks=pytest.mark.slow)])
def test_a03_custom_resources_wait_for_their_type(engine: Engine, kube: Cluster, delay: int) -> None:
    """pulumi/pulumi-kubernetes#3188: one `up` brings a type that takes its time and objects of it, without a sleep."""
    if delay:
        hold_up(kube, delay)
    start = time.monotonic()
    done = engine.up(program)
    assert time.monotonic() - start >= delay
    assert done["create"] == 7  # stack, provider, two components, type, two objects
    assert kube.get(f"{GROUP}/v1", "Flavor", "second")["spec"] == {"size": 1}
    assert engine.up(program) == {"same": 7}


def test_a03_a_type_that_is_never_served_fails_by_name(
    engine: Engine, kube: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends by its time limit, says which type it was, and has created none of its objects."""
    monkeypatch.setattr(deploy, "ESTABLISHED_SECONDS", 10)
    hold_up(kube, None)
    with pytest.raises(engine.automation.CommandError, match=rf"flavors\.{GROUP}"):
        engine.up(program)
    kube.delete(*CRD, f"squatters.{GROUP}")
    wait.established(kube, f"flavors.{GROUP}", seconds=30)
    assert kube.list(f"{GROUP}/v1", "Flavor") == []
