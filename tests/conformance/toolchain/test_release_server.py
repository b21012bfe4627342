"""Releases from a publisher, against a real HTTP server on the loopback that behaves well, badly, or not at all."""

import hashlib
import io
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from isthmus.toolchain import fetch, install, state
from isthmus.toolchain.rows import GoBuild, Release, Tool

PROGRAM = b"#!/bin/sh\necho hammer\n" + os.urandom(300_000)

Reply = Callable[[BaseHTTPRequestHandler], None]


class Publisher:
    """A server whose answers are set by path; an unknown path is 404."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}
        self.asked: list[str] = []
        publisher = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                publisher.asked.append(self.path)
                reply = publisher.replies.get(self.path)
                if reply is None:
                    self.send_error(404)
                else:
                    reply(self)

            def log_message(self, *args: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def serve(self, path: str, content: bytes, *, length: int | None = None) -> None:
        """Answer with content; a larger `length` promises more than is sent."""

        def reply(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(content) if length is None else length))
            handler.end_headers()
            handler.wfile.write(content)

        self.replies[path] = reply


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Publisher]:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Publisher()
    yield server
    server.server.shutdown()
    server.server.server_close()


def sha(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def tool(publisher: Publisher, *, archive: bool = False) -> Tool:
    build = GoBuild("example.org/hammer", "v1.2.3", (("hammer", "example.org/hammer"),))
    base = Tool("hammer", "1.2.3", "images", build, 1, 1, "a tool")
    if archive:
        url = f"{publisher.url}/hammer-v{{version}}-{{arch}}.tar.gz"
        return replace(
            base, release=Release(url, f"{publisher.url}/SUMS", (("hammer", "hammer-v{version}/bin/hammer"),))
        )
    return replace(
        base,
        release=Release(f"{publisher.url}/{{version}}/{{program}}", f"{publisher.url}/{{version}}/{{program}}.sha256"),
    )


def archive_of(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


class Heard:
    """A listener that remembers its notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def begin(self, tool: Tool) -> None: ...
    def say(self, tool: Tool, text: str) -> None: ...
    def end(self, tool: Tool, outcome: install.Outcome) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


class ReleaseOrBuild(install.Ways):
    """The real release, nothing on PATH, and a build that writes the word built."""

    def from_path(self, tool: Tool, work: Path) -> bool:
        return False

    def from_source(self, tool: Tool, work: Path, say: Callable[[str], None]) -> None:
        assert not (work / "bin").exists(), "nothing of a refused release may be left"
        (work / "bin").mkdir()
        (work / "bin" / "hammer").write_text("built")
        (work / "bin" / "hammer").chmod(0o755)


def run(row: Tool) -> tuple[install.Outcome, Heard, install.Ways]:
    heard, ways = Heard(), ReleaseOrBuild()
    return install.install_one(row, ways, heard), heard, ways


def content_of(row: Tool) -> bytes:
    return (state.folder(row) / "bin" / "hammer").read_bytes()


def test_a_single_program_with_its_digest(publisher: Publisher) -> None:
    publisher.serve("/1.2.3/hammer", PROGRAM)
    publisher.serve("/1.2.3/hammer.sha256", sha(PROGRAM))
    row = tool(publisher)
    outcome, _, _ = run(row)
    assert outcome.how == "release"
    assert content_of(row) == PROGRAM
    assert os.access(state.folder(row) / "bin" / "hammer", os.X_OK)


def test_a_program_in_an_archive_with_a_list_of_checksums(publisher: Publisher) -> None:
    archive = archive_of("hammer-v1.2.3/bin/hammer", PROGRAM)
    name = f"hammer-v1.2.3-{fetch.architecture()}.tar.gz"
    publisher.serve(f"/{name}", archive)
    publisher.serve("/SUMS", b"0" * 64 + b"  other.tar.gz\n" + sha(archive) + b"  " + name.encode() + b"\n")
    row = tool(publisher, archive=True)
    assert run(row)[0].how == "release"
    assert content_of(row) == PROGRAM


def test_a_wrong_checksum_is_never_installed(publisher: Publisher) -> None:
    publisher.serve("/1.2.3/hammer", PROGRAM + b"backdoor")
    publisher.serve("/1.2.3/hammer.sha256", sha(PROGRAM))
    row = tool(publisher)
    outcome, heard, ways = run(row)
    assert outcome.how == "build"
    assert content_of(row) == b"built"
    assert "does not have its publisher's checksum" in heard.notes[0]
    assert ways.releases, "one bad file does not condemn the network"


def test_a_truncated_download_is_not_installed(publisher: Publisher) -> None:
    publisher.serve("/1.2.3/hammer", PROGRAM[:1000], length=len(PROGRAM))
    publisher.serve("/1.2.3/hammer.sha256", sha(PROGRAM))
    outcome, heard, _ = run(tool(publisher))
    assert outcome.how == "build"
    assert "broke off" in heard.notes[0]


def test_a_missing_file_and_a_missing_checksum(publisher: Publisher) -> None:
    publisher.serve("/1.2.3/hammer.sha256", sha(PROGRAM))
    outcome, heard, _ = run(tool(publisher))
    assert outcome.how == "build"
    assert "404" in heard.notes[0]
    del publisher.replies["/1.2.3/hammer.sha256"]
    publisher.serve("/1.2.3/hammer", PROGRAM)
    row = replace(tool(publisher), version="1.2.4")
    publisher.serve("/1.2.4/hammer", PROGRAM)
    assert run(row)[0].how == "build"
    assert publisher.asked[-1] == "/1.2.4/hammer.sha256", "without a checksum the program is not even asked for"


def test_an_archive_without_the_program_or_no_archive_at_all(publisher: Publisher) -> None:
    name = f"hammer-v1.2.3-{fetch.architecture()}.tar.gz"
    for content, words in (
        (archive_of("elsewhere/hammer", PROGRAM), "has no hammer"),
        (b"not a tar", "cannot be unpacked"),
    ):
        publisher.serve(f"/{name}", content)
        publisher.serve("/SUMS", sha(content) + b"  " + name.encode())
        row = tool(publisher, archive=True)
        outcome, heard, _ = run(row)
        assert outcome.how == "build"
        assert words in heard.notes[0]
        (state.folder(row) / state.COMPLETE).unlink()


def test_an_archive_cannot_write_elsewhere(publisher: Publisher, tmp_path: Path) -> None:
    archive = archive_of("../../../../escaped", PROGRAM)
    name = f"hammer-v1.2.3-{fetch.architecture()}.tar.gz"
    publisher.serve(f"/{name}", archive)
    publisher.serve("/SUMS", sha(archive) + b"  " + name.encode())
    assert run(tool(publisher, archive=True))[0].how == "build"
    assert not list(tmp_path.rglob("escaped"))


def test_an_unreachable_host_is_tried_once(publisher: Publisher) -> None:
    publisher.server.server_close()
    publisher.server.shutdown()
    row = tool(publisher)
    outcome, heard, ways = run(row)
    assert outcome.how == "build"
    assert not ways.releases
    assert "building from the Go module proxy" in heard.notes[0]
    second = Heard()
    (state.folder(row) / state.COMPLETE).unlink()
    assert install.install_one(row, ways, second).how == "build"
    assert second.notes == []


def test_a_stalled_server_is_given_up(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "STALL_TIMEOUT_SECONDS", 0.3)
    over = threading.Event()

    def stall(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(PROGRAM)))
        handler.end_headers()
        handler.wfile.write(PROGRAM[:100])
        over.wait(20)

    publisher.replies["/1.2.3/hammer"] = stall
    publisher.serve("/1.2.3/hammer.sha256", sha(PROGRAM))
    outcome, heard, _ = run(tool(publisher))
    over.set()
    assert outcome.how == "build"
    assert "broke off" in heard.notes[0]
    assert outcome.seconds < 10


def test_nothing_of_a_refused_download_is_left(publisher: Publisher, tmp_path: Path) -> None:
    publisher.serve("/1.2.3/hammer", PROGRAM + b"x")
    publisher.serve("/1.2.3/hammer.sha256", sha(PROGRAM))
    run(tool(publisher))
    downloads = tmp_path / "home" / "cache" / "downloads"
    assert list(downloads.iterdir()) == []
