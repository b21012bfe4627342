"""The driver root: what stands for an NVIDIA driver on a local node.

A folder with `libnvidia-ml.so.1` and `nvidia-smi`, built from the C files here, and `cards`, the text file both read.
It exists because a laptop has no NVIDIA card, and everything above NVML (the device plugin, the kubelet, pods that ask
for cards) is to run unchanged. It will not compute, and it invents no measurement.

In a container the whole folder is mounted read-only at CONTAINER_PATH - the folder, not the file, so that a new `cards`
file is seen - and the two programs where the NVIDIA container runtime puts the real ones (CONTAINER_FILES).
"""

import hashlib
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from isthmus import catalog
from isthmus.catalog.facts import Gpu
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import InvalidSpec, NotFound, NotReady
from isthmus.toolchain import home

LIBRARY = "libnvidia-ml.so.1"
SMI = "nvidia-smi"
CARDS = "cards"

CONTAINER_PATH = "/run/isthmus/driver"
"""Where a container finds the folder; cards.h names it too."""

CONTAINER_FILES = {LIBRARY: f"/usr/lib/x86_64-linux-gnu/{LIBRARY}", SMI: f"/usr/bin/{SMI}"}
"""File of the folder to the path a container finds it at, as nvidia-container-runtime mounts them on Debian."""

DRIVER_VERSION = "570.172.08"
CUDA_VERSION = 12080
"""CUDA 12.8, which an R570 driver supports (NVIDIA CUDA release notes, table of driver versions)."""

XID_FALLEN_OFF_BUS = 79
"""Xid 79: the GPU has fallen off the bus (NVIDIA XID errors)."""

_HERE = Path(__file__).parent
_SOURCES = ("cards.h", "cards.c", "nvml.h", "nvml.c", "unsupported.c", "smi.c")
_FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror")
_COMMANDS = (
    (
        *_FLAGS,
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        f"-Wl,-soname,{LIBRARY}",
        "-o",
        LIBRARY,
        "nvml.c",
        "unsupported.c",
        "cards.c",
    ),
    (*_FLAGS, "-static", "-o", SMI, "smi.c", "nvml.c", "cards.c"),
)

_ARCHITECTURES = {
    "Kepler": 2,
    "Maxwell": 3,
    "Pascal": 4,
    "Volta": 5,
    "Turing": 6,
    "Ampere": 7,
    "Ada Lovelace": 8,
    "Hopper": 9,
    "Blackwell": 10,
}
"""NVML_DEVICE_ARCH_ numbers (nvml.h, R570)."""

_BRAND_TESLA = 2
_BRAND_NVIDIA = 14
"""nvmlBrandType_t (nvml.h, R570): cards named "Tesla ..." and those named "NVIDIA ..."."""

_NVIDIA_VENDOR = 0x10DE


def build(target: Path) -> None:
    """Put the library and nvidia-smi into `target`. Compiles once per content of the sources; later it copies.

    Args:
        target: the driver root; created if missing. Its `cards` file is left alone.

    Raises:
        NotFound: there is no C compiler.
        NotReady: the compiler failed; its output is in the message.
    """
    built = _compiled()
    target.mkdir(parents=True, exist_ok=True)
    for name in (LIBRARY, SMI):
        _copy(built / name, target / name)


def write_cards(target: Path, cards: GpuCards | None) -> None:
    """Write which cards the driver root shows, all healthy.

    The UUIDs follow from a seed kept in `target` and from model and position, so a cluster keeps them for life and two
    clusters never share one.

    Args:
        target: the driver root; created if missing.
        cards: model and count; None for a node without cards.

    Raises:
        InvalidSpec: the catalog has no such model.
    """
    target.mkdir(parents=True, exist_ok=True)
    seed = _seed(target)
    gpu = catalog.load().gpu(cards.model) if cards else None
    lines = [
        "# The cards of this node, written by isthmus; see isthmus/localcluster/driver/cards.h.",
        f"driver-version: {DRIVER_VERSION}",
        f"cuda-version: {CUDA_VERSION}",
    ]
    for index in range(cards.count if cards and gpu else 0):
        assert gpu is not None
        lines += ["", *_card(gpu, index, seed)]
    _write(target / CARDS, "\n".join(lines) + "\n")


def uuids(target: Path) -> list[str]:
    """UUIDs of the cards, in order. Empty where no cards were written."""
    return [value for key, value in _read(target) if key == "card"]


def set_health(target: Path, card: str, xid: int | None) -> None:
    """Mark a card lost to an Xid error, or healthy again. Programs that wait for NVML events see it within a second.

    The NVIDIA device plugin takes a lost card back only when it is restarted (its internal/rm/health.go, v0.18.0).

    Args:
        card: UUID, or index in the file's order.
        xid: the error, for example XID_FALLEN_OFF_BUS; None for healthy.

    Raises:
        NotFound: there is no such card; those there are are named.
        InvalidSpec: the Xid is not a positive number.
    """
    if xid is not None and xid <= 0:
        raise InvalidSpec(f"an Xid is a positive number, not {xid}", subject=f"card {card}")
    known = uuids(target)
    wanted = known[int(card)] if card.isdigit() and int(card) < len(known) else card
    if wanted not in known:
        raise NotFound(f"there is no card {card}; known: {', '.join(known) or 'none'}", subject=f"card {card}")
    lines: list[str] = []
    current = ""
    for line in (target / CARDS).read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(": ")
        current = value if key == "card" else current
        if key == "state" and current == wanted:
            line = f"state: xid {xid}" if xid else "state: ok"
        lines.append(line)
    _write(target / CARDS, "\n".join(lines) + "\n")


def _card(gpu: Gpu, index: int, seed: uuid.UUID) -> list[str]:
    brand = _BRAND_TESLA if gpu.nvml_name.startswith("Tesla ") else _BRAND_NVIDIA
    return [
        f"card: GPU-{uuid.uuid5(seed, f'{gpu.model}/{index}')}",
        f"name: {gpu.nvml_name}",
        f"memory-mib: {gpu.memory_mib}",
        f"compute-capability: {gpu.compute_capability}",
        f"architecture: {_ARCHITECTURES[gpu.architecture]}",
        f"brand: {brand}",
        f"pci-device-id: {gpu.pci_device_id << 16 | _NVIDIA_VENDOR:#x}",
        f"pci-bus: {index + 1}",
        f"minor: {index}",
        f"mig-capable: {'yes' if gpu.mig else 'no'}",
        "state: ok",
    ]


def _read(target: Path) -> Iterator[tuple[str, str]]:
    path = target / CARDS
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        key, separator, value = line.partition(": ")
        if separator and not key.startswith("#"):
            yield key, value


def _seed(target: Path) -> uuid.UUID:
    path = target / "seed"
    if not path.is_file():
        _write(path, json.dumps(secrets.token_hex(16)))
    return uuid.UUID(hex=json.loads(path.read_text(encoding="utf-8")))


def _compiled() -> Path:
    """The folder of the built programs, named by what they are made of."""
    digest = hashlib.sha256(json.dumps([_COMMANDS, os.uname().machine]).encode())
    for name in _SOURCES:
        digest.update((_HERE / name).read_bytes())
    folder = home.tools() / f"driver-{digest.hexdigest()[:12]}"
    if not (folder / SMI).is_file():
        _compile_into(folder)
    return folder


def _compile_into(folder: Path) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NotFound(
            "the driver library cannot be built: there is no C compiler",
            subject="gcc",
            remedy="isthmus install operators",
        )
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as work:
        for name in _SOURCES:
            shutil.copy2(_HERE / name, work)
        for command in _COMMANDS:
            done = subprocess.run([compiler, *command], cwd=work, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise NotReady(
                    f"the driver library does not compile: {done.stderr.strip()[-2000:]}",
                    subject="isthmus/localcluster/driver",
                    remedy="apt-get install gcc libc6-dev",
                )
        folder.mkdir(exist_ok=True)
        for name in (LIBRARY, SMI):  # SMI last: its presence says that the folder is complete
            os.replace(Path(work) / name, folder / name)


def _copy(source: Path, target: Path) -> None:
    if target.is_file() and target.read_bytes() == source.read_bytes():
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(source, temporary)
    temporary.chmod(0o755)
    os.replace(temporary, target)


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(0o644)
    os.replace(temporary, path)
