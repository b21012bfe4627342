"""A bucket in memory, with faults to order: what the copier is tested against without a socket."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from isthmus.migration.objects.store import Body, Changed, Denied, Gone, Item, Metadata, Part, Transient, UploadLost
from isthmus.specs.errors import NotFound


@dataclass
class Stored:
    """One object."""

    data: bytes
    metadata: Metadata
    version: str


@dataclass
class MemoryStore:
    """A bucket. `on` is called with (operation, key) before every operation and may raise or change the bucket."""

    url: str = "memory://bucket"
    objects: dict[str, Stored] = field(default_factory=dict)
    uploads: dict[str, tuple[str, Metadata, list[bytes]]] = field(default_factory=dict)
    on: Callable[[str, str], None] = lambda operation, key: None
    calls: list[tuple[str, str]] = field(default_factory=list)
    read_only: bool = False
    missing: bool = False
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def put(self, key: str, data: bytes, metadata: Metadata | None = None) -> None:
        """Write an object as somebody else does."""
        self.objects[key] = Stored(data, metadata or Metadata(), f"v{next(self._numbers)}")

    def flip(self, key: str, at: int = 0) -> None:
        """Damage a stored object without a trace: same size, same version."""
        data = bytearray(self.objects[key].data)
        data[at] ^= 1
        self.objects[key].data = bytes(data)

    def count(self, operation: str) -> int:
        """How often an operation was asked for."""
        return sum(1 for name, _ in self.calls if name == operation)

    def check(self, *, write: bool) -> None:
        if self.missing:
            raise NotFound("there is no such bucket", subject=self.url)
        if write and self.read_only:
            raise Denied("not allowed to write", subject=self.url)

    def items(self) -> Iterator[Item]:
        self._called("list", "")
        for key in sorted(self.objects):
            yield Item(key, len(self.objects[key].data), self.objects[key].version)

    def stat(self, key: str) -> Item:
        self._called("stat", key)
        stored = self._stored(key)
        return Item(key, len(stored.data), stored.version, stored.metadata)

    @contextlib.contextmanager
    def read(self, key: str, *, version: str, start: int, length: int) -> Iterator[Body]:
        self._called("read", key)
        stored = self._stored(key)
        if version and stored.version != version:
            raise Changed("written again", subject=self.url)
        yield Body(stored.version, len(stored.data), stored.metadata, iter([stored.data[start : start + length]]))

    def write(self, key: str, data: bytes, metadata: Metadata) -> None:
        self._called("write", key)
        self.put(key, data, metadata)

    def begin(self, key: str, size: int, metadata: Metadata) -> str:
        self._called("begin", key)
        upload = f"upload-{next(self._numbers)}"
        self.uploads[upload] = (key, metadata, [])
        return upload

    def write_part(self, key: str, upload: str, part: Part, chunks: Iterator[bytes]) -> str:
        data = b"".join(chunks)
        self._called("part", key)
        if upload not in self.uploads:
            raise UploadLost("no such upload", subject=self.url)
        written = self.uploads[upload][2]
        assert len(written) >= part.number - 1, "parts come in order"
        if len(written) >= part.number:  # as Cloud Storage, whose uploads only go on at their end
            raise UploadLost("it has more of the upload than was told", subject=self.url)
        written.append(data)
        return f"tag-{part.number}"

    def finish(self, key: str, upload: str, tags: list[str]) -> None:
        self._called("finish", key)
        _, metadata, written = self.uploads.pop(upload)
        assert tags == [f"tag-{number}" for number in range(1, len(written) + 1)]
        self.put(key, b"".join(written), metadata)

    def abort(self, key: str, upload: str) -> None:
        self._called("abort", key)
        self.uploads.pop(upload, None)

    def delete(self, key: str) -> None:
        self._called("delete", key)
        self.objects.pop(key, None)

    def refuses(self, key: str) -> str:
        return "names hold no line breaks" if "\n" in key else ""

    def losses(self, metadata: Metadata) -> list[str]:
        return [f"metadata {name!r}" for name in metadata.user if name.startswith("lost")]

    def _stored(self, key: str) -> Stored:
        if key not in self.objects:
            raise Gone("no such object", subject=self.url)
        return self.objects[key]

    def _called(self, operation: str, key: str) -> None:
        self.calls.append((operation, key))
        self.on(operation, key)


def sometimes(fail: dict[tuple[str, str], int], error: type[Transient] = Transient) -> Callable[[str, str], None]:
    """Faults: the first so many times an operation is asked for on a key, it fails."""
    left = dict(fail)

    def on(operation: str, key: str) -> None:
        if left.get((operation, key), 0):
            left[operation, key] -= 1
            raise error("come again")

    return on
