"""A real embedded cluster for tests: one for each file (`embedded_cluster`), so that no file finds what another left,
in an ISTHMUS_HOME of the session's own that borrows the programs, images and caches of the user's. `fresh_home` is for
tests that break clusters and need their own.

Tests here carry the marker `local`; where embedded cannot run they are skipped with the reason.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.kube import Cluster, wait
from isthmus.localcluster.embedded import EmbeddedCluster, EmbeddedRuntime
from isthmus.localcluster.runtime import LocalClusterConfig
from isthmus.toolchain import home
from tests.clusters import PROBE_IMAGE, Probes, borrow_home, found
from tests.clusters import probe_archive as build_probe_archive
from tests.stacks import Stacks


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of whole stacks first: they take longest, and must not be what one of two processes has left at the end."""
    items.sort(key=lambda item: "stack" not in item.path.name)


@pytest.fixture(scope="session")
def can_run() -> None:
    """Skips where the embedded runtime cannot run, in its own words."""
    problem = EmbeddedRuntime().available()
    if problem is not None:
        pytest.skip(f"no embedded cluster here: {problem}")


@pytest.fixture(scope="session")
def session_home(can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """ISTHMUS_HOME for the whole session."""
    folder = borrow_home(tmp_path_factory.mktemp("session") / "home")
    before = os.environ.get(home.HOME_VARIABLE)
    os.environ[home.HOME_VARIABLE] = str(folder)
    yield folder
    if before is None:
        del os.environ[home.HOME_VARIABLE]
    else:
        os.environ[home.HOME_VARIABLE] = before


@pytest.fixture(scope="module")
def embedded_cluster(session_home: Path, pytestconfig: pytest.Config) -> Iterator[EmbeddedCluster]:
    """One running embedded cluster for all tests of a file. What the file installs in it goes with the cluster."""
    cluster = EmbeddedRuntime().create("shared", LocalClusterConfig())
    yield cluster
    if not pytestconfig.getoption("--keep-cluster"):
        cluster.delete()


@pytest.fixture(scope="module")
def kube(embedded_cluster: EmbeddedCluster) -> Cluster:
    """The file's cluster as a client."""
    return Cluster(embedded_cluster.kubeconfig())


@pytest.fixture
def namespace(kube: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for one test, removed (without waiting) after it."""
    name = "t-" + re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:50].strip("-")
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    wait.until(lambda: found(kube, "ServiceAccount", "default", name), seconds=30, what=f"the account of {name}")
    yield name
    kube.delete("v1", "Namespace", name)


@pytest.fixture(scope="session")
def probe_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image archive with the probe program, named tests.clusters.PROBE_IMAGE."""
    return build_probe_archive(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def probe_image(embedded_cluster: EmbeddedCluster, probe_archive: Path) -> str:
    """The probe image, loaded into the file's cluster."""
    embedded_cluster.load_image(probe_archive)
    return PROBE_IMAGE


@pytest.fixture
def probes(embedded_cluster: EmbeddedCluster, probe_image: str, namespace: str) -> Probes:
    """Runs probe pods in this test's namespace of the file's cluster."""
    return Probes(embedded_cluster, namespace)


@pytest.fixture
def fresh_home(can_run: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An ISTHMUS_HOME for one test; every cluster left in it is deleted after the test."""
    folder = borrow_home(tmp_path / "home", images=False)
    monkeypatch.setenv(home.HOME_VARIABLE, str(folder))
    yield folder
    monkeypatch.setenv(home.HOME_VARIABLE, str(folder))
    for cluster in EmbeddedRuntime().list():
        cluster.delete()


@pytest.fixture
def alone(can_run: None, tmp_path: Path) -> Iterator[Stacks]:
    """A home with no stack yet."""
    made = Stacks(tmp_path / "home")
    try:
        yield made
    finally:
        made.end()
