"""The driver root: what stands for an NVIDIA driver on a local node.

A folder with `libnvidia-ml.so.1`, `nvidia-smi` and `nvidia-cuda-mps-control`, built from the C files here, and `cards`,
the text file that the first two read. Beside it, `modes` holds the cards' compute modes and `proc` what a container is to
find under /proc/driver: the minor numbers of MIG capabilities.
It exists because a laptop has no NVIDIA card, and everything above NVML (the device plugin, the kubelet, pods that ask
for cards) is to run unchanged. It will not compute, and it invents no measurement.

In a container the whole folder is mounted read-only at CONTAINER_PATH - the folder, not the file, so that a new `cards`
file is seen - and the programs where the NVIDIA container runtime puts the real ones (CONTAINER_FILES).
"""

import hashlib
import json
import os
import secrets
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from isthmus import catalog
from isthmus.catalog import mig
from isthmus.catalog.facts import MigProfile
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import InvalidSpec, NotFound, NotReady
from isthmus.toolchain import home

LIBRARY = "libnvidia-ml.so.1"
SMI = "nvidia-smi"
MPS = "nvidia-cuda-mps-control"
CARDS = "cards"
MODES = "modes"
PROC = "proc"

CONTAINER_PATH = "/run/isthmus/driver"
"""Where a container finds the folder; cards.h names it too."""

CONTAINER_FILES = {
    LIBRARY: f"/usr/lib/x86_64-linux-gnu/{LIBRARY}",
    SMI: f"/usr/bin/{SMI}",
    MPS: f"/usr/bin/{MPS}",
}
"""File of the folder to the path a container finds it at, as nvidia-container-runtime mounts them on Debian."""

DRIVER_VERSION = "570.172.08"
CUDA_VERSION = 12080
"""CUDA 12.8, which an R570 driver supports (NVIDIA CUDA release notes, table of driver versions)."""

XID_FALLEN_OFF_BUS = 79
"""Xid 79: the GPU has fallen off the bus (NVIDIA XID errors)."""

_HERE = Path(__file__).parent
_SOURCES = ("cards.h", "cards.c", "state.h", "nvml.h", "nvml.c", "mig.c", "unsupported.c", "smi.c", "mps.c")
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
        "mig.c",
        "unsupported.c",
        "cards.c",
    ),
    (*_FLAGS, "-static", "-o", MPS, "mps.c"),
    (*_FLAGS, "-static", "-o", SMI, "smi.c", "nvml.c", "mig.c", "cards.c"),
)
_PROGRAMS = (LIBRARY, MPS, SMI)
"""What the commands make. SMI is last: its presence says that a folder is complete."""

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
_GPU_INSTANCES, _COMPUTE_INSTANCES = 15, 8


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
    (target / MODES).mkdir(exist_ok=True)
    for name in _PROGRAMS:
        _copy(built / name, target / name)


def write_cards(target: Path, cards: GpuCards | Sequence[GpuCards] | None) -> None:
    """Write which cards the driver root shows, all healthy and in the default compute mode.

    The UUIDs follow from a seed kept in `target` and from model and position, so a cluster keeps them for life and two
    clusters never share one. A MIG device's UUID follows from its card's, its profile and its place.

    Args:
        target: the driver root; created if missing.
        cards: model and count, cut into MIG instances where they are GpuCards; several for a node with several models;
            None for a node without cards.

    Raises:
        InvalidSpec: the catalog has no such model, or the card cannot be cut so.
    """
    target.mkdir(parents=True, exist_ok=True)
    seed = _seed(target)
    groups = [] if cards is None else [cards] if isinstance(cards, GpuCards) else cards
    lines = [
        "# The cards of this node, written by isthmus; see isthmus/localcluster/driver/cards.h.",
        f"driver-version: {DRIVER_VERSION}",
        f"cuda-version: {CUDA_VERSION}",
    ]
    position = 0
    for group in groups:
        for index in range(group.count):
            lines += ["", *_card(group, index, position, seed)]
            position += 1
    (target / MODES).mkdir(exist_ok=True)
    for old in (target / MODES).iterdir():  # the folder itself stays: containers have it mounted
        old.unlink()
    _write_capabilities(target, position)
    _write(target / CARDS, "\n".join(lines) + "\n")


def uuids(target: Path) -> list[str]:
    """UUIDs of the cards, in order. Empty where no cards were written."""
    return [value for key, value in _read(target) if key == "card"]


def models(target: Path) -> list[str]:
    """Catalog models of the cards, in order."""
    return [catalog.load().gpu(value).model for key, value in _read(target) if key == "name"]


def instances(target: Path) -> list[str]:
    """UUIDs of the MIG devices, in order. Empty where no card is cut."""
    return [value.split(" ")[0] for key, value in _read(target) if key == "instance"]


def add_instance(target: Path, card: str, profile: str, start: int) -> str:
    """Cut one MIG instance out of a card, beside those it has; the card goes into MIG mode. Its UUID; idempotent.

    Args:
        card: the card's UUID.
        start: its first memory slice, one at which the profile may start.

    Raises:
        NotFound: there is no such card.
    """
    model = _model_of(target, card)
    made = f"MIG-{uuid.uuid5(uuid.UUID(card.removeprefix('GPU-')), f'{profile}/{start}')}"
    (placed,) = [item for item in mig.places(catalog.load(), model, profile) if item.start == start]
    line = f"instance: {made} {profile} {placed.gpu_instance} {start}"
    _change(target, card, lambda lines: [*_in_mode(lines), *([] if line in lines else [line])])
    return made


def remove_instance(target: Path, instance: str) -> None:
    """Take a MIG instance away again; a card without any leaves MIG mode. Idempotent."""

    def without(lines: list[str]) -> list[str]:
        left = [line for line in lines if not line.startswith(f"instance: {instance} ")]
        has_more = any(line.startswith("instance: ") for line in left)
        return left if has_more else [line for line in left if line != MIG_MODE]

    for card in uuids(target):
        _change(target, card, without)


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


def _card(cards: GpuCards, index: int, position: int, seed: uuid.UUID) -> list[str]:
    """The lines of one card: the `index`-th of its model, the `position`-th of the node."""
    facts = catalog.load()
    gpu = facts.gpu(cards.model)
    brand = _BRAND_TESLA if gpu.nvml_name.startswith("Tesla ") else _BRAND_NVIDIA
    identity = uuid.uuid5(seed, f"{gpu.model}/{index}")
    lines = [
        f"card: GPU-{identity}",
        f"name: {gpu.nvml_name}",
        f"memory-mib: {gpu.memory_mib}",
        f"compute-capability: {gpu.compute_capability}",
        f"architecture: {_ARCHITECTURES[gpu.architecture]}",
        f"brand: {brand}",
        f"pci-device-id: {gpu.pci_device_id << 16 | _NVIDIA_VENDOR:#x}",
        f"pci-bus: {position + 1}",
        f"minor: {position}",
        f"mig-capable: {'yes' if gpu.mig else 'no'}",
        "state: ok",
        *(_profile(profile) for profile in facts.mig_profiles(gpu.model)),
    ]
    if not cards.layout:
        return lines
    lines.append(MIG_MODE)
    for placed in mig.place(facts, gpu.model, cards.layout):
        name = placed.profile.profile
        made = uuid.uuid5(identity, f"{name}/{placed.start}")
        lines.append(f"instance: MIG-{made} {name} {placed.gpu_instance} {placed.start}")
    return lines


def _profile(profile: MigProfile) -> str:
    """A profile's line; the order of its numbers is that of cards.h."""
    numbers = (
        profile.nvml_index,
        profile.profile_id,
        profile.compute_slices,
        profile.memory_slices,
        profile.max_instances,
        profile.sms,
        profile.memory_mib,
        profile.copy_engines,
        profile.decoders,
        profile.jpeg,
        profile.ofa,
    )
    starts = ",".join(map(str, profile.placements))
    return f"profile: {profile.profile} {' '.join(map(str, numbers))} {starts}"


def _write_capabilities(target: Path, cards: int) -> None:
    """The file in which programs look up the device nodes of MIG instances. As the NVIDIA driver numbers them: 15 GPU
    instances a card, each with itself and 8 compute instances (NVIDIA MIG User Guide, device nodes and capabilities)."""
    lines, minor = ["config 1", "monitor 2"], 3
    for card in range(cards):
        for instance in range(_GPU_INSTANCES):
            for name in ("access", *(f"ci{number}/access" for number in range(_COMPUTE_INSTANCES))):
                lines.append(f"gpu{card}/gi{instance}/{name} {minor}")
                minor += 1
    folder = target / PROC / "nvidia-caps"
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "mig-minors", "\n".join(lines) + "\n")


MIG_MODE = "mig: enabled"


def _in_mode(lines: list[str]) -> list[str]:
    return lines if MIG_MODE in lines else [*lines, MIG_MODE]


def _model_of(target: Path, card: str) -> str:
    for known, model in zip(uuids(target), models(target), strict=True):
        if known == card:
            return model
    raise NotFound(f"there is no card {card}", subject=f"card {card}")


def _change(target: Path, card: str, change: Callable[[list[str]], list[str]]) -> None:
    """Rewrite the lines of one card."""
    parts = (target / CARDS).read_text(encoding="utf-8").rstrip("\n").split("\n\n")
    for number, part in enumerate(parts):
        lines = part.split("\n")
        if lines[0] == f"card: {card}":
            parts[number] = "\n".join(change(lines))
    _write(target / CARDS, "\n\n".join(parts) + "\n")


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
        for name in _PROGRAMS:
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
