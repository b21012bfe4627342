"""The nodes of a kind cluster: the folder each has mounted, its labels and taints, and what its container is doing."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.localcluster.configs import wrapper
from isthmus.localcluster.kind import config, machine
from isthmus.localcluster.runtime import LocalNode, ProcessStatus
from isthmus.localcluster.state import write_file
from isthmus.specs.labels import DEVICE_PLUGIN_CONFIG
from isthmus.specs.sharing import GpuSharing

if TYPE_CHECKING:
    from isthmus.kube import Cluster

LABELS_MANAGER = "isthmus-local-node"
"""Field manager of the nodes' labels, so that labels which are no longer wanted go."""

PLAIN_RUNTIME = '#!/bin/sh\nexec runc "$@"\n'
REAL_RUNTIME = """#!/bin/sh
# NVIDIA's runtime gives containers the cards; it is not there before real_cards.sh has run.
if command -v nvidia-container-runtime > /dev/null; then exec nvidia-container-runtime "$@"; fi
exec runc "$@"
"""


def write_folder(folder: Path, node: LocalNode, *, real: bool = False) -> None:
    """Write the folder of a node: the OCI runtime and, where it has cards, the driver root.

    Args:
        real: its cards are this machine's own (real_cards.py).
    """
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    if real:
        write_file(folder / config.OCI_RUNTIME, REAL_RUNTIME, mode=0o755)
        return
    root = folder / config.DRIVER
    if node.cards is not None or root.exists():
        from isthmus.localcluster import driver  # needs the catalog; a node without cards does not

        driver.build(root)
        driver.write_cards(root, node.cards)
    text = PLAIN_RUNTIME
    if root.exists() or machine.lacks_resource_capability():
        there = f"{config.NODE_FOLDER}/{config.DRIVER}"
        text = wrapper(Path(there), drop_capability=machine.lacks_resource_capability())
    write_file(folder / config.OCI_RUNTIME, text, mode=0o755)


def labels(node: LocalNode, *, real: bool = False) -> dict[str, str]:
    """A node's labels, those of its cards as NVIDIA's feature discovery gives them. Where cards are shared, the operators
    bring the real one; of real cards nothing is said that was not read from them."""
    if node.cards is None or real or DEVICE_PLUGIN_CONFIG in node.labels:
        return dict(node.labels)
    from isthmus import catalog
    from isthmus.localcluster import driver

    cuda = (driver.CUDA_VERSION // 1000, driver.CUDA_VERSION % 1000 // 10)
    version = driver.DRIVER_VERSION
    found = catalog.feature_labels(catalog.load(), node.cards, GpuSharing(), driver=version, cuda=cuda)
    return {**found, **node.labels}


def describe(cluster: "Cluster", name: str, node: LocalNode, *, real: bool = False) -> None:
    """Labels and taints of a node as asked. kind gave them when it joined; later changes come this way."""
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels(node, real=real)}},
                  manager=LABELS_MANAGER)  # fmt: skip
    held = cluster.get("v1", "Node", name)["spec"].get("taints") or []
    kept = [taint for taint in held if str(taint["key"]).startswith("node.kubernetes.io/")]
    wanted = [*kept, *(dict(taint) for taint in node.taints)]
    if sorted(map(str, held)) != sorted(map(str, wanted)):
        cluster.patch("v1", "Node", name, {"spec": {"taints": wanted}})


def name_of(container: Mapping[str, Any]) -> str:
    """A container's name, which is its node's."""
    return str(container["Name"]).removeprefix("/")


def process(name: str, node: Mapping[str, Any] | None, *, ready: bool) -> ProcessStatus:
    """What a node's container is doing, as `docker inspect` says it; None: there is none."""
    if node is None:
        return ProcessStatus(name, False, False, None, 0, None, None, "its container is gone")
    now = node["State"]
    running = bool(now["Running"])
    since = datetime.fromisoformat(now["StartedAt" if running else "FinishedAt"][:19] + "+00:00").timestamp()
    message = "" if ready else "not ready" if running else "its container does not run"
    return ProcessStatus(
        name, running, running and ready, now["Pid"] or None, int(node["RestartCount"]),
        None if running else int(now["ExitCode"]), since, message,
    )  # fmt: skip
