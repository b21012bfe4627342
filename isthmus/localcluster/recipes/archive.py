"""Layers and archives in the OCI image layout (OCI image specification v1.1), written so that equal content is equal bytes.

A layer is a gzipped tar of a folder: sorted, numeric owners, no file younger than EPOCH. Older times stay, because Python
takes a compiled module for outdated when its source's time changes. Nothing is held in memory but one block.
"""

import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

EPOCH = 1_764_460_800
"""2025-11-30 00:00 UTC: the latest time any file in a layer has."""

BLOCK = 1 << 20
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"


@dataclass(frozen=True)
class Layer:
    """A layer in an archive. `key` says what it was made from, so that an unchanged one is taken from the old archive."""

    key: str
    digest: str
    """sha256 of the compressed layer, hexadecimal."""
    size: int
    diff: str
    """sha256 of the layer unpacked, hexadecimal."""


class _Hashing(io.RawIOBase):
    """Counts and hashes what is written through it."""

    def __init__(self, target: IO[bytes]) -> None:
        self._target = target
        self.sha = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._target.write(data)
        self.sha.update(data)
        self.size += len(data)
        return len(data)


def write_layer(folder: Path, target: Path, key: str, *, keep_owners: bool = False) -> Layer:
    """Write a folder's content as a layer file. Device files and sockets are left out.

    Args:
        keep_owners: owners as the folder has them; else all is root's, whoever builds it.
    """
    with target.open("wb") as file:
        packed = _Hashing(file)
        with gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=packed, mtime=0) as zipped:
            plain = _Hashing(zipped)  # type: ignore[arg-type]
            with tarfile.open(fileobj=plain, mode="w|", format=tarfile.PAX_FORMAT, bufsize=BLOCK) as archive:
                for path in _sorted_paths(folder):
                    _add(archive, path, path.relative_to(folder).as_posix(), keep_owners)
        return Layer(key=key, digest=packed.sha.hexdigest(), size=packed.size, diff=plain.sha.hexdigest())


def write_archive(
    target: Path, image: str, config: Mapping[str, Any], layers: list[tuple[Layer, Path]], architecture: str
) -> None:
    """Write an image of these layers as an archive, whole or not at all.

    Args:
        target: the archive.
        image: full name with tag.
        config: the configuration's `config` part.
        layers: each with the file that holds it, lowest first.
    """
    description = _blob(
        {
            "architecture": architecture,
            "os": "linux",
            "created": "2025-11-30T00:00:00Z",
            "config": dict(config),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.diff}" for layer, _ in layers]},
        }
    )
    manifest = _blob(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, description),
            "layers": [{"mediaType": _LAYER, "digest": f"sha256:{x.digest}", "size": x.size} for x, _ in layers],
        }
    )
    names = {"io.containerd.image.name": image, "org.opencontainers.image.ref.name": image}
    entry = {**_descriptor(_MANIFEST, manifest), "annotations": names}
    index = _blob({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [entry]})
    docker = _blob(
        [
            {
                "Config": _path(_sha(description)),
                "RepoTags": [image],
                "Layers": [_path(layer.digest) for layer, _ in layers],
            }
        ]
    )
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as archive:
            _add_bytes(archive, "oci-layout", _blob({"imageLayoutVersion": "1.0.0"}))
            _add_bytes(archive, "index.json", index)
            _add_bytes(archive, "manifest.json", docker)  # what docker load before version 25 reads
            for blob in (description, manifest):
                _add_bytes(archive, _path(_sha(blob)), blob)
            for layer, file in layers:
                with file.open("rb") as content:
                    archive.addfile(_info(_path(layer.digest), layer.size), content)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def extract_layer(archive: Path, layer: Layer, target: Path) -> bool:
    """Take a layer file out of an archive. False if it is not there or not what it should be."""
    try:
        with tarfile.open(archive) as source:
            content = source.extractfile(_path(layer.digest))
            if content is None:
                return False
            sha = hashlib.sha256()
            with target.open("wb") as file:
                while block := content.read(BLOCK):
                    sha.update(block)
                    file.write(block)
    except (KeyError, tarfile.TarError, FileNotFoundError):
        return False
    return sha.hexdigest() == layer.digest


def as_json(layers: list[Layer]) -> list[dict[str, Any]]:
    """Layers as plain data."""
    return [asdict(layer) for layer in layers]


def _sorted_paths(folder: Path) -> Iterator[Path]:
    for entry in sorted(os.scandir(folder), key=lambda item: item.name):
        path = Path(entry.path)
        yield path
        if entry.is_dir(follow_symlinks=False):
            yield from _sorted_paths(path)


def _add(archive: tarfile.TarFile, path: Path, name: str, keep_owner: bool) -> None:
    found = path.lstat()
    info = tarfile.TarInfo(name)
    info.mode = stat.S_IMODE(found.st_mode)
    if keep_owner:
        info.uid, info.gid = found.st_uid, found.st_gid
    info.mtime = min(int(found.st_mtime), EPOCH)
    if stat.S_ISLNK(found.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
        archive.addfile(info)
    elif stat.S_ISDIR(found.st_mode):
        info.type, info.mtime = tarfile.DIRTYPE, EPOCH  # a folder's own time is the time of its making
        archive.addfile(info)
    elif stat.S_ISREG(found.st_mode):
        info.size = found.st_size
        with path.open("rb") as file:
            archive.addfile(info, file)


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    archive.addfile(_info(name, len(content)), io.BytesIO(content))


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o644, EPOCH
    return info


def _blob(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _path(digest: str) -> str:
    return f"blobs/sha256/{digest}"


def _descriptor(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{_sha(content)}", "size": len(content)}
