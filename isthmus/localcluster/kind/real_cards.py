"""This machine's own NVIDIA cards for nodes in Docker, found by looking: where they are what the nodes ask for, nodes get
them and the real library; everywhere else nodes get a driver root (isthmus.localcluster.driver).

Docker must hand cards on: NVIDIA's container toolkit as its default runtime, and cards asked for as volume mounts, which is
how a kind node can ask (README of NVIDIA/nvkind, read 2026-11-30). No machine with cards was at hand: what decides is
tested, what is done in the node (real_cards.sh) is not.
"""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from isthmus import catalog
from isthmus.localcluster.kind import docker
from isthmus.localcluster.runtime import LocalNode
from isthmus.specs.errors import NotReady

DRIVER_VERSION = Path("/proc/driver/nvidia/version")
"""There where the kernel has NVIDIA's driver."""

RUNTIME = "nvidia"
"""What the toolkit calls itself among Docker's runtimes."""

SETUP = (
    "sudo nvidia-ctk runtime configure --runtime=docker --set-as-default && "
    "sudo nvidia-ctk config --set accept-nvidia-visible-devices-as-volume-mounts=true --in-place && "
    "sudo systemctl restart docker"
)
PREPARE_SECONDS = 600.0
"""Installing the toolkit's packages in a node; assumed."""

Progress = Callable[[str], None]


def choose(nodes: Sequence[LocalNode], progress: Progress) -> list[list[int]]:
    """Which of this machine's cards each node gets, as indexes; empty lists where none are used. Says why not where the
    machine has cards."""
    none: list[list[int]] = [[] for _ in nodes]
    names = installed()
    if not names or not any(node.cards for node in nodes):
        return none
    assigned, problem = assign(nodes, names)
    if not problem and docker.docker("info", "--format", "{{.DefaultRuntime}}").strip() != RUNTIME:
        problem = f"Docker does not hand them on ({SETUP})"
    if problem:
        progress(f"this machine's NVIDIA cards are not used: {problem}")
        return none
    progress(f"nodes use this machine's NVIDIA cards: {', '.join(sorted(set(names)))}")
    return assigned


def installed() -> list[str]:
    """Product name of each card of this machine, by index, as NVML has it; empty where there is no driver."""
    if not DRIVER_VERSION.exists():
        return []
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.strip().splitlines() if done.returncode == 0 else []


def assign(nodes: Sequence[LocalNode], names: Sequence[str]) -> tuple[list[list[int]], str]:
    """Give cards of the right model to nodes, each card to one. Pure.

    Args:
        names: product name of each card of the machine.

    Returns:
        the indexes of each node's cards, and "" or why the machine's cards are not what the nodes ask for.
    """
    facts = catalog.load()
    free = list(range(len(names)))
    given: list[list[int]] = []
    for node in nodes:
        wanted = node.cards.count if node.cards else 0
        product = facts.gpu(node.cards.model).nvml_name if node.cards else ""
        mine = [index for index in free if names[index] == product][:wanted]
        if len(mine) < wanted:
            return [], f"nodes ask for {product}, and of {', '.join(names)} too few are left"
        free = [index for index in free if index not in mine]
        given.append(mine)
    return given, ""


def prepare(node: str, devices: Sequence[int]) -> None:
    """Make a started node show its own cards and no others. Idempotent; needed after each start.

    Raises:
        NotReady: the toolkit could not be installed in the node, or a device file could not be removed.
    """
    script = (Path(__file__).parent / "real_cards.sh").read_text(encoding="utf-8")
    arguments = [str(len(installed())), *map(str, devices)]
    try:
        docker.docker("exec", node, "bash", "-c", script, "real_cards.sh", *arguments, seconds=PREPARE_SECONDS)
    except NotReady as error:
        raise NotReady(
            f"node {node} could not be given its cards: {error.message}",
            subject=f"node {node}",
            remedy="nvidia-smi; docker run --rm --gpus all debian nvidia-smi",
        ) from error
