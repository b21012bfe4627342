"""A simulated cloud whose local node is in Docker (setting `runtime: kind`): the same stack, another runtime underneath."""

import json
import secrets
from pathlib import Path

import pytest

from isthmus.kube import Cluster, wait
from isthmus.localcluster import runtime
from isthmus.localcluster.kind import KindCluster
from tests.clusters import succeeded
from tests.stacks import Stacks

pytestmark = [pytest.mark.local, pytest.mark.e2e]


@pytest.mark.parametrize("stack", ["aws-sim", pytest.param("gcp-sim", marks=pytest.mark.slow)])
def test_a_simulated_stack_runs_on_kind_and_leaves_nothing(stack: str, tmp_path: Path) -> None:
    problem = runtime.choose_problem("kind")
    if problem is not None:
        pytest.skip(problem)
    stacks = Stacks(tmp_path / "home")
    stacks.settings(stack, runtime="kind", clusterName=f"e{secrets.token_hex(3)}", samples=["sendrecv"])
    try:
        stacks.pulumi("up", "-s", stack, "--yes", "--skip-preview")
        [local] = stacks.clusters()
        assert isinstance(local, KindCluster)
        with stacks.as_home():
            kube = Cluster(local.kubeconfig())
        nodes = kube.list("v1", "Node")
        assert len(nodes) > 1, "the other nodes of the pools are simulated"
        wait.until(lambda: succeeded(kube, "sendrecv"), seconds=300, what="sendrecv to succeed")
        assert json.loads(stacks.isthmus("preview", stack, "--json").stdout)["changes"] == {}
        stacks.isthmus("down", stack, "--yes")
        stacks.expect_nothing_left()
    finally:
        stacks.end()
