"""A publisher's release: downloaded, held against the publisher's checksum, unpacked.

Everything is bounded in time and size. A file whose checksum differs is thrown away and never looked into. Where a network
does not let us out at all, the first host that cannot be reached says so, and the others are not tried: the caller builds.
"""

import hashlib
import http.client
import platform
import shutil
import socket
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO

from isthmus.toolchain.rows import Release, Tool

CONNECT_TIMEOUT_SECONDS = 5.0
STALL_TIMEOUT_SECONDS = 20.0
FILE_DEADLINE_SECONDS = 600.0
MAX_CHECKSUM_BYTES = 1 << 20
MAX_FILE_BYTES = 1 << 30
_CHUNK = 1 << 18

ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


class Unavailable(Exception):
    """The release cannot be had: no network, no such file, broken off, or not what its publisher made.

    Args:
        reason: a clause for the user, lower case.
        offline: nothing of that kind can be reached from here; do not try others.
    """

    def __init__(self, reason: str, *, offline: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offline = offline


def fetch(tool: Tool, release: Release, target: Path, downloads: Path, say: Callable[[str], None]) -> None:
    """Put the programs of a release into a folder.

    Args:
        tool: the row, for its version and programs.
        release: where its publisher offers it.
        target: folder for the programs; they are there, executable, when this returns.
        downloads: folder for files in progress.
        say: called with what is going on.

    Raises:
        Unavailable: with the reason.
        OSError: this machine's own trouble (disk full).
    """
    arch = architecture()
    word = dict(release.arch).get(arch, arch)
    target.mkdir(parents=True, exist_ok=True)
    if release.members:
        url, checksum = (address.format(version=tool.version, arch=word) for address in (release.url, release.checksum))
        archive = _verified(url, checksum, downloads, say)
        try:
            members = {path.format(version=tool.version, arch=word): program for program, path in release.members}
            _unpack(archive, members, target)
        finally:
            archive.unlink(missing_ok=True)
        return
    for program in tool.programs:
        url, checksum = (
            address.format(version=tool.version, arch=word, program=program)
            for address in (release.url, release.checksum)
        )
        place = target / program
        shutil.move(_verified(url, checksum, downloads, say), place)
        place.chmod(0o755)


def architecture() -> str:
    """This machine's architecture in the words of Go.

    Raises:
        Unavailable: one that no release is made for.
    """
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise Unavailable(f"no release is made for {machine}")
    return ARCHITECTURES[machine]


def digest_from(text: str, filename: str) -> str:
    """The SHA-256 for a file out of a checksum file: the line that ends in its name, or the only digest there.

    Raises:
        Unavailable: it is not there.
    """
    lines = [line.split() for line in text.splitlines() if line.strip()]
    for parts in lines:
        if len(parts) >= 2 and parts[-1].lstrip("*").rpartition("/")[2] == filename and _is_digest(parts[0]):
            return parts[0].lower()
    if len(lines) == 1 and len(lines[0]) == 1 and _is_digest(lines[0][0]):
        return lines[0][0].lower()
    raise Unavailable(f"the publisher's checksums do not name {filename}")


def _is_digest(word: str) -> bool:
    return len(word) == 64 and all(letter in "0123456789abcdefABCDEF" for letter in word)


def _verified(url: str, checksum_url: str, downloads: Path, say: Callable[[str], None]) -> Path:
    filename = urllib.parse.urlsplit(url).path.rpartition("/")[2]
    wanted = digest_from(_text(checksum_url), filename)
    downloads.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = downloads / f"{wanted[:16]}-{filename}.part"
    try:
        actual = _download(url, part, say)
        if actual != wanted:
            raise Unavailable(
                f"{filename} does not have its publisher's checksum (got {actual[:12]}…, not {wanted[:12]}…)"
            )
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return part


def _text(url: str) -> str:
    with _open(url) as response:
        return response.read(MAX_CHECKSUM_BYTES).decode("utf-8", "replace")


def _download(url: str, part: Path, say: Callable[[str], None]) -> str:
    """Download to a file and return its SHA-256."""
    deadline = time.monotonic() + FILE_DEADLINE_SECONDS
    digest, received = hashlib.sha256(), 0
    with _open(url) as response, part.open("wb") as file:
        expected = int(response.headers.get("Content-Length") or 0)
        while chunk := _read(response, url):
            received += len(chunk)
            if received > MAX_FILE_BYTES:
                raise Unavailable(f"{url} is larger than any release of ours")
            if time.monotonic() > deadline:
                raise Unavailable(f"{url} did not arrive within {FILE_DEADLINE_SECONDS:.0f} s")
            digest.update(chunk)
            file.write(chunk)
            say(f"downloading {received >> 20} MB" + (f" of {expected >> 20}" if expected else ""))
    if expected and received != expected:
        raise Unavailable(f"the download of {url} broke off after {received} of {expected} bytes")
    return digest.hexdigest()


def _read(response: http.client.HTTPResponse, url: str) -> bytes:
    try:
        return response.read(_CHUNK)
    except (TimeoutError, http.client.HTTPException, ConnectionError) as error:
        raise Unavailable(f"the download of {url} broke off: {type(error).__name__}") from error


def _open(url: str) -> http.client.HTTPResponse:
    request = urllib.request.Request(url, headers={"User-Agent": "isthmus"})
    host = urllib.parse.urlsplit(url).hostname
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=CONNECT_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        # A proxy that forbids a host answers 403 or 407; a publisher's missing file is 404.
        raise Unavailable(f"{host} answered {error.code} for {url}", offline=error.code in (403, 407)) from error
    except (urllib.error.URLError, TimeoutError, OSError, http.client.HTTPException) as error:
        why = getattr(error, "reason", error)
        raise Unavailable(f"{host} cannot be reached ({why})", offline=True) from error
    _set_timeout(response, STALL_TIMEOUT_SECONDS)
    return response


def _set_timeout(response: http.client.HTTPResponse, seconds: float) -> None:
    raw = getattr(getattr(response, "fp", None), "raw", None)
    connection = getattr(raw, "_sock", None)
    if isinstance(connection, socket.socket):
        connection.settimeout(seconds)


def _unpack(archive: Path, members: dict[str, str], target: Path) -> None:
    missing = dict(members)
    try:
        with tarfile.open(archive) as tar:
            for entry in tar:
                program = missing.pop(entry.name.removeprefix("./"), None)
                content = tar.extractfile(entry) if program and entry.isfile() else None
                if program and content is not None:
                    _write(content, target / program)
    except (tarfile.TarError, EOFError) as error:
        raise Unavailable(f"{archive.name} cannot be unpacked: {error}") from error
    if missing:
        raise Unavailable(f"the release has no {', '.join(sorted(missing))}")


def _write(content: IO[bytes], place: Path) -> None:
    with place.open("wb") as file:
        shutil.copyfileobj(content, file)
    place.chmod(0o755)
