"""Simulated nodes are what a node with the real programs would be, in every mode and many layouts.

One local node is given each layout in turn: NVIDIA's device plugin tells the kubelet what it has, and NVIDIA's feature
discovery, the same program that runs on clusters, is run once over the same driver root. A simulated node is given the same
layout, and the two node objects, as the API server has them, are compared: the cards that pods can ask for, the capacity
behind them, and every label under nvidia.com/.

Not compared are two labels that describe the machine and not its cards (gpu.machine from the DMI table, gpu.mode from the
PCI bus), and capacity of resources that are gone: a kubelet keeps naming those for five minutes.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from isthmus import catalog
from isthmus.kube import Cluster
from isthmus.localcluster import driver, kwok
from isthmus.localcluster.embedded import EmbeddedCluster
from isthmus.sharing import offers, trial
from isthmus.simulation import nodes
from isthmus.simulation.aws import node_groups
from isthmus.specs import labels
from isthmus.specs.cluster import cards_of
from isthmus.specs.offer import Shape
from isthmus.toolchain import home
from operators import device_plugin
from tests.sharing_layouts import Layout, layouts, name

pytestmark = pytest.mark.local

CASES = layouts()
OF_THE_MACHINE = {"nvidia.com/gpu.machine", "nvidia.com/gpu.mode"}


def pool_of(layout: Layout) -> nodes.Pool:
    """A node pool with this layout, as the simulated EKS has it."""
    model, count, sharing = layout
    plain: Shape = catalog.load().shape("aws", "g4dn.12xlarge")
    machine = plain.model_copy(update={"gpu_model": model, "gpu_count": count})
    own = {labels.GPU_MODEL: model, **sharing.node_labels}
    return nodes.Pool(
        name="gpu",
        machine=machine,
        region="us-east-1",
        zones=("us-east-1a",),
        size=2,
        labels={**node_groups.discovered(machine, own), **own},
        node_name=lambda index, zone: f"{name(layout)}-{index}",
    )


@pytest.fixture(scope="module")
def simulated(kube: Cluster) -> dict[str, dict[str, Any]]:
    """A simulated node for each layout, as the API server has it."""
    wanted = [node for case in CASES for node in nodes.desired([pool_of(case)]).simulated.values()]
    kwok.add(kube, [dict(node) for node in wanted])
    names = {node["metadata"]["name"] for node in wanted}
    return {node["metadata"]["name"]: node for node in kube.list("v1", "Node") if node["metadata"]["name"] in names}


@pytest.fixture(scope="module")
def node(embedded_cluster: EmbeddedCluster, kube: Cluster) -> EmbeddedCluster:
    """The local node, with the operators for all layouts."""
    trial.install(kube, [sharing for _, _, sharing in CASES])
    return embedded_cluster


def discovered(root: Path, configuration: str) -> dict[str, str]:
    """What NVIDIA's feature discovery says of a driver root."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.yaml").write_text(configuration)
        command = [
            home.tool("gpu-feature-discovery"), "--oneshot", "--no-timestamp", "--machine-type-file=",
            f"--output-file={folder}/labels", f"--config-file={folder}/config.yaml",
        ]  # fmt: skip
        environment = {**os.environ, "LD_LIBRARY_PATH": str(root)}
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)
        lines = (Path(folder) / "labels").read_text().split()
    return dict(line.split("=", 1) for line in lines)


def nvidias(found: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in found.items() if key.startswith("nvidia.com/") and key not in OF_THE_MACHINE}


def test_there_are_enough_layouts() -> None:
    assert len(CASES) >= 60 and len({name(case) for case in CASES}) == len(CASES)
    assert {case[2].mode for case in CASES} == {"none", "time-slicing", "mps", "mig"}


def turned() -> list[Any]:
    """Every tenth layout in every run, all of them by make test-all (four seconds each)."""
    return [
        pytest.param(case, id=name(case), marks=() if index % 10 == 0 else pytest.mark.slow)
        for index, case in enumerate(CASES)
    ]


@pytest.mark.parametrize("layout", turned())
def test_a_simulated_node_is_what_the_real_programs_make(
    node: EmbeddedCluster, kube: Cluster, simulated: dict[str, dict[str, Any]], layout: Layout
) -> None:
    model, count, sharing = layout
    trial.put(node, kube, sharing, model, count)
    local = kube.get("v1", "Node", node.local_node())
    other = simulated[f"{name(layout)}-1"]
    assert offers.advertised(local) == offers.advertised(other)
    there = {
        key: value for key, value in offers.advertised(local, "capacity").items() if key in offers.advertised(local)
    }
    assert there == offers.advertised(other, "capacity")
    configuration = device_plugin.configurations([sharing])[sharing.config_name or device_plugin.DEFAULT_CONFIG]
    seen = discovered(node.paths.driver, configuration)
    cuda = (driver.CUDA_VERSION // 1000, driver.CUDA_VERSION % 1000 // 10)
    expected = catalog.feature_labels(
        catalog.load(), cards_of(model, count, sharing), sharing, driver=driver.DRIVER_VERSION, cuda=cuda
    )
    assert nvidias(seen) == expected
    if sharing.mode in ("mps", "mig"):  # where feature discovery is deployed, its labels are on the node
        # The local node has a MIG manager of its own in place of the one that this label asks for.
        of_the_pool = {
            **nvidias(sharing.node_labels),
            **({labels.MIG_STATE: "success"} if sharing.mode == "mig" else {}),
        }
        assert nvidias(other["metadata"]["labels"]) == nvidias(seen) | of_the_pool
        here = nvidias(local["metadata"]["labels"])
        assert {key: value for key, value in of_the_pool.items() if key != labels.MIG_MANAGER}.items() <= here.items()
