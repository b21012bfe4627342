"""One stack per runtime for all tests, and its logs when a test fails."""

import json
import secrets
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.kube import Cluster
from isthmus.localcluster import runtime
from isthmus.specs import stack as stack_settings
from isthmus.specs.errors import IsthmusError
from isthmus.toolchain import home
from tests.stacks import Stacks

STACKS = {"embedded": "aws-sim", "kind": "kind"}
PLATFORMS = list(STACKS)


class Platform:
    """A stack that is up."""

    def __init__(self, name: str, stacks: Stacks, cluster_name: str) -> None:
        self.name, self.stack, self.stacks = name, STACKS[name], stacks
        self.cluster_name = cluster_name

    @property
    def local(self) -> runtime.LocalCluster:
        """Its local cluster."""
        [found] = self.stacks.clusters()
        return found

    @property
    def kube(self) -> Cluster:
        """Its cluster, as the administrator."""
        return Cluster(self.local.kubeconfig())

    def up(self) -> None:
        """Bring it up as a user does."""
        if self.name == "kind":
            self.stacks.settings(self.stack, clusterName=self.cluster_name)
        self.stacks.pulumi("up", "-s", self.stack, "--yes", "--skip-preview")

    def asked(self, setting: str) -> Any:
        """A setting of its stack, as the file in the program has it."""
        path = self.stacks.program / stack_settings.CONFIG_DIR / f"Pulumi.{self.stack}.yaml"
        return yaml.safe_load(path.read_text())["config"][f"{stack_settings.PROJECT}:{setting}"]

    def keep_logs(self, test: str) -> Path:
        """Put what its cluster has to say into one folder."""
        folder = home.logs() / "e2e" / f"{test}-{datetime.now(UTC):%Y%m%dT%H%M%S}"
        folder.mkdir(mode=0o700, parents=True)
        for cluster in self.stacks.clusters():
            with self.stacks.as_home():
                for process in cluster.status().processes:
                    shutil.copy(cluster.logs(process.name), folder)
            kube = Cluster(cluster.kubeconfig())
            for kind in ("Node", "Pod", "Event"):
                (folder / f"{kind.lower()}s.json").write_text(json.dumps(kube.list("v1", kind), indent=1))
        status = self.stacks.isthmus("status", self.stack, code=None)
        (folder / "status.txt").write_text(status.stdout + status.stderr)
        return folder


@pytest.fixture(scope="session", params=PLATFORMS)
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """The stack of one runtime, up. Tests leave it as they found it."""
    name = request.param
    problem = runtime.choose_problem(name)
    if problem is not None:
        pytest.skip(problem)
    keep, reuse = (request.config.getoption(option) for option in ("--keep-cluster", "--reuse-cluster"))
    folder = home.home() / "e2e" / name if keep or reuse else tmp_path_factory.mktemp(f"e2e-{name}")
    note = folder / "cluster-name"
    cluster_name = note.read_text() if note.exists() else f"e2e-{secrets.token_hex(3)}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    note.write_text(cluster_name)
    made = Platform(name, Stacks(folder / "home"), cluster_name)
    try:
        made.up()
        yield made
    finally:
        if keep or reuse:
            print(f"\nkept: ISTHMUS_HOME={made.stacks.home} (stack {made.stack})")
        else:
            made.stacks.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[Any]:
    report = yield
    made = getattr(item, "funcargs", {}).get("platform")
    if report.failed and made is not None:
        try:
            report.sections.append(("cluster logs", str(made.keep_logs(item.name))))
        except (IsthmusError, OSError) as error:
            report.sections.append(("cluster logs", f"not kept: {error}"))
    return report
