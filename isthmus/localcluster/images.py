"""Images on local nodes: the two tiny ones every cluster needs, and one unpacked store that all clusters share.

Unpacking an image of a gigabyte takes tens of seconds, so it is done once: `ensure_store` imports every archive of
<home>/images into a store of its own, by a private containerd, and `clone` gives a cluster that store as hard links.
A cluster's containers write to layers of their own, and containerd replaces files rather than changing them, so the
linked files stay as they are; its two databases, which it does change, are copied.
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.localcluster.locks import exclusive
from isthmus.localcluster.state import read_json, write_json
from isthmus.specs.errors import NotFound, NotReady
from isthmus.toolchain import home

PAUSE_IMAGE = "registry.k8s.io/pause:3.10.2"
"""The sandbox image that Kubernetes 1.36 names (cmd/kubeadm/app/constants, v1.36.4); ours has its one program."""

HELPER_IMAGE = "isthmus.dev/volume-helper:1"
"""Makes and removes folders of provisioned volumes."""

if TYPE_CHECKING:
    from isthmus.localcluster.runtime import LocalCluster

NAMESPACE = "k8s.io"
"""containerd's namespace for Kubernetes."""

CONTAINERS = Path(__file__).parent / "containers"
LOCK_SECONDS = 900.0
"""How long to wait for another process that is unpacking images."""

IMPORT_SECONDS = 600.0
STORE_START_SECONDS = 60.0
SOCKET = "/run/containerd/containerd.sock"
"""containerd's address, inside the mount namespace of the containerd in question."""

Stamp = list[int]
USER = 65535
"""Numeric user of the pause image, as upstream's."""


def store() -> Path:
    """The shared store: containerd's root folder and index.json (which archives are in it)."""
    return home.images() / "unpacked"


def ensure_small_images() -> None:
    """Build the pause and volume helper images where they are missing."""
    _ensure_image("pause", PAUSE_IMAGE, {"pause": "pause.c"}, ["/pause"], user=USER)
    programs = {"bin/volume-setup": "volume.c", "bin/volume-teardown": "volume.c"}
    _ensure_image("volume-helper", HELPER_IMAGE, programs, ["/bin/volume-setup"], user=0)


def archives() -> dict[str, Stamp]:
    """The archives of <home>/images by name; a stamp differs when the file was replaced."""
    return {path.name: _stamp(path) for path in sorted(home.images().glob("*.tar"))}


def ensure_store() -> dict[str, Stamp]:
    """Bring the store to today's archives; returns those that are in it.

    An archive that was replaced is imported again. One that is gone stays in the store.

    Raises:
        NotReady: an archive could not be imported; the others were.
    """
    ensure_small_images()
    with _store_lock("unpack images"):
        index: dict[str, Stamp] = read_json(store() / "index.json") or {}
        missing = [home.images() / name for name, stamp in archives().items() if index.get(name) != stamp]
        if missing:
            failed = _import_all(missing, index)
            write_json(store() / "index.json", index)
            if failed:
                raise NotReady(
                    "could not unpack " + "; ".join(failed), subject="images", remedy="isthmus install images"
                )
    return index


def clone(target: Path) -> None:
    """Give a cluster the store's content. `target` must not exist yet; after a crash in the middle it does not."""
    with _store_lock("copy images"):
        half = target.with_name(target.name + ".half")
        if half.exists():
            shutil.rmtree(half)
        _link_tree(store() / "root", half)
        os.rename(half, target)


def bring(cluster: "LocalCluster", archive: Path, tell: Callable[[str], None]) -> None:
    """Bring an archive into a running cluster, once: what it has already is not imported again.

    Args:
        tell: told when it takes a while.

    Raises:
        NotReady: the cluster does not run, or the import failed.
    """
    note = home.clusters() / cluster.name / "brought.json"
    with exclusive(note.with_suffix(".lock"), what=archive.name, doing="import an image", seconds=LOCK_SECONDS):
        held: dict[str, Stamp] = read_json(note) or {}
        if held.get(archive.name) == _stamp(archive):
            return
        tell(f"bringing {archive.name} ({archive.stat().st_size >> 20} MiB) into the cluster, once")
        cluster.load_image(archive)
        write_json(note, {**held, archive.name: _stamp(archive)})


def import_archive(archive: Path, ctr: list[str], *, log: Path) -> None:
    """Import one archive with a `ctr` command line that reaches the containerd in question."""
    if not archive.is_file():
        raise NotFound(f"there is no image archive {archive}", subject=str(archive), remedy="isthmus install images")
    command = [*ctr, "--namespace", NAMESPACE, "images", "import", "--all-platforms", str(archive)]
    with log.open("ab") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False, timeout=IMPORT_SECONDS)
    if done.returncode:
        words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise NotReady(
            f"{archive.name}: {' '.join(words) or done.returncode}", subject=str(archive), remedy=f"see {log}"
        )


def ctr_inside(pid: int) -> list[str]:
    """The `ctr` command that reaches the containerd in a process's mount namespace."""
    return ["nsenter", f"--mount=/proc/{pid}/ns/mnt", "--", str(home.tool("ctr")), "--address", SOCKET]


def write_archive(path: Path, reference: str, files: dict[str, bytes], config: dict[str, Any]) -> None:
    """Write an OCI image of one layer as an archive. The same content gives the same bytes.

    Args:
        reference: full name with tag.
        files: path in the image to content; all executable, owned by root.
        config: the image configuration's `config` (Entrypoint, User, ...).
    """
    layer = _layer(files)
    packed = gzip.compress(layer, mtime=0)
    blobs: dict[str, bytes] = {}

    def add(content: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    description = {
        "architecture": _architecture(),
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": add(_json(description), "config.v1+json"),
        "layers": [add(packed, "layer.v1.tar+gzip")],
    }
    entry = add(_json(manifest), "manifest.v1+json")
    entry["annotations"] = {
        "io.containerd.image.name": reference,
        "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
    }
    content = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "manifests": [entry]}),
    }
    content |= {f"blobs/sha256/{digest}": blob for digest, blob in blobs.items()}
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, blob in sorted(content.items()):
            archive.addfile(_member(name, len(blob), 0o644), io.BytesIO(blob))
    os.replace(temporary, path)


def _ensure_image(name: str, reference: str, programs: dict[str, str], entrypoint: list[str], *, user: int) -> None:
    archive = home.images() / f"{name}.tar"
    if archive.exists():
        return
    files = {path: compile_static(CONTAINERS / source) for path, source in programs.items()}
    write_archive(archive, reference, files, {"Entrypoint": entrypoint, "User": f"{user}:{user}"})


def compile_static(source: Path) -> bytes:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NotFound("no C compiler is installed", subject=source.name, remedy="isthmus install cluster")
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "program"
        command = [compiler, "-Os", "-static", "-s", "-Wall", "-Wextra", "-Werror", "-o", str(built), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode:
            raise NotReady(f"{source.name} does not compile: {done.stderr.strip()}", subject=source.name)
        return built.read_bytes()


def _layer(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        folders = sorted({str(parent) for name in files for parent in Path(name).parents} - {"."})
        for folder in folders:
            member = _member(folder, 0, 0o755)
            member.type = tarfile.DIRTYPE
            archive.addfile(member)
        for name, content in sorted(files.items()):
            archive.addfile(_member(name, len(content), 0o755), io.BytesIO(content))
    return buffer.getvalue()


def _member(name: str, size: int, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, mode
    return member


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def _stamp(archive: Path) -> Stamp:
    found = archive.stat()
    return [found.st_size, found.st_mtime_ns]


@contextmanager
def _store_lock(doing: str) -> Iterator[None]:
    store().mkdir(mode=0o700, exist_ok=True)
    with exclusive(store() / ".lock", what="the image store", doing=doing, seconds=LOCK_SECONDS):
        yield


def _import_all(missing: list[Path], index: dict[str, Stamp]) -> list[str]:
    """Import archives into the store; notes each in `index` and returns what failed, in words."""
    failed = []
    with _private_containerd() as ctr:
        for archive in missing:
            stamp = _stamp(archive)
            try:
                import_archive(archive, ctr, log=store() / "import.log")
                index[archive.name] = stamp
            except NotReady as error:
                failed.append(error.message)
    return failed


@contextmanager
def _private_containerd() -> Iterator[list[str]]:
    """A containerd over the store, for as long as the context; yields the `ctr` command that reaches it.

    It lives in a mount namespace of its own with a /run of its own, so its mounts and sockets end with it, and it dies
    with us: the store's files are safe against that (containerd's databases are transactional), and a half-imported
    image is imported again.
    """
    config = store() / "containerd.toml"
    config.write_text(_store_config(), encoding="utf-8")
    inside = 'mount -t tmpfs tmpfs /run && exec "$@"'
    daemon = [str(home.tool("containerd")), "--config", str(config)]
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", inside, "sh", *daemon]
    with (store() / "containerd.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        _await_socket(process)
        yield ctr_inside(process.pid)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _store_config() -> str:
    disabled = [
        "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
        "io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri", "io.containerd.podsandbox.controller.v1.podsandbox",
    ]  # fmt: skip
    return f"""\
version = 3
root = "{store().resolve()}/root"
state = "/run/containerd"
disabled_plugins = {json.dumps(disabled)}
[grpc]
  address = "{SOCKET}"
"""


def _await_socket(process: subprocess.Popen[bytes]) -> None:
    """Wait until containerd listens, looking through its own eyes: the host's /run is another one."""
    socket = Path(f"/proc/{process.pid}/root{SOCKET}")
    mine = Path("/proc/self/ns/mnt").readlink()
    end = time.monotonic() + STORE_START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            if Path(f"/proc/{process.pid}/ns/mnt").readlink() != mine and socket.exists():
                return
        except OSError:
            pass
        time.sleep(0.02)
    raise NotReady(
        "containerd did not start over the image store", subject="images", remedy=f"see {store()}/containerd.log"
    )


SHARED_PARTS = ("io.containerd.content.v1.content/blobs", "io.containerd.snapshotter.v1.overlayfs/snapshots")
"""What containerd never changes in place: blobs named by their digest, and unpacked layers."""


def _link_tree(source: Path, target: Path) -> None:
    """A copy whose blobs and layers are hard links, and everything else its own. On another file system: a full
    copy."""
    same = source.stat().st_dev == target.parent.stat().st_dev
    options = ["--archive", "--link"] if same else ["--archive", "--reflink=auto"]
    done = subprocess.run(["cp", *options, str(source), str(target)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotReady(f"cannot copy the image store: {done.stderr.strip()}", subject="images")
    for path in _own_files(target):
        if path.stat().st_nlink > 1:
            copied = path.with_name(path.name + ".copy")
            shutil.copy2(path, copied)
            os.replace(copied, path)


def _own_files(root: Path) -> Iterator[Path]:
    shared = {root / part for part in SHARED_PARTS}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if Path(folder, name) not in shared]
        yield from (Path(folder, name) for name in files)
