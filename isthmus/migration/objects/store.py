"""What the copier needs of an object store, and nothing more; `s3.py` and `gcs.py` implement it.

Every method is one attempt: it sends what it has to send once. Whether to try again is the copier's decision, which alone
knows how to make the body of a request anew. Errors are few: `Transient` may be tried again, the others may not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from isthmus.specs.errors import IsthmusError


class StoreError(IsthmusError):
    """The store refused a request, in its own words."""


class Transient(StoreError):
    """The store could not answer now (429, 5xx, a broken connection): the same request may succeed later."""


class Denied(StoreError):
    """The credentials do not allow it."""


class Gone(StoreError):
    """There is no such object (any more)."""


class Changed(StoreError):
    """The object is no longer the version that was asked for."""


class UploadLost(StoreError):
    """The store does not know an upload any more, or not as we do: it must be begun anew."""


@dataclass(frozen=True)
class Metadata:
    """What an object carries beside its bytes. "" means: not set."""

    content_type: str = ""
    content_encoding: str = ""
    content_language: str = ""
    content_disposition: str = ""
    cache_control: str = ""
    user: Mapping[str, str] = field(default_factory=dict)
    """The user's own pairs."""


@dataclass(frozen=True)
class Item:
    """One line of a listing."""

    key: str
    size: int
    version: str
    """Tells this content from any later one: S3 has the ETag and the time, GCS the generation."""
    metadata: Metadata | None = None
    """None where the listing does not tell (S3): then a read does."""


@dataclass(frozen=True)
class Body:
    """An object's bytes, or a range of them, on their way."""

    version: str
    size: int
    """Of the whole object."""
    metadata: Metadata | None
    """None where a read does not tell (GCS): then a listing did."""
    chunks: Iterator[bytes]


class ObjectStore(Protocol):
    """One bucket. Safe to use from several threads."""

    url: str
    """s3://NAME or gs://NAME."""

    def check(self, *, write: bool) -> None:
        """Find out that the bucket is there and may be read (with `write`, written), leaving nothing behind.

        Raises:
            NotFound: there is no such bucket. Denied: what is not allowed, in words.
        """
        ...

    def items(self) -> Iterator[Item]:
        """Every object, by key. Pages are fetched as they are needed; each page is tried again by itself."""
        ...

    def stat(self, key: str) -> Item:
        """One object as it is now. Raises Gone."""
        ...

    def read(self, key: str, *, version: str, start: int, length: int) -> AbstractContextManager[Body]:
        """The bytes from `start`, `length` of them.

        Args:
            version: the version that is wanted; "" takes any.

        Raises:
            Gone, Changed: it is not there, or no longer that version.
        """
        ...

    def write(self, key: str, data: bytes, metadata: Metadata) -> None:
        """Write a whole small object."""
        ...

    def begin(self, key: str, size: int, metadata: Metadata) -> str:
        """Start writing an object part by part; returns what names the upload. It can be gone on with from another process."""
        ...

    def write_part(self, key: str, upload: str, part: Part, chunks: Iterator[bytes]) -> str:
        """Write one part; returns the store's tag for it. Parts come in order.

        Raises:
            UploadLost: it must be begun anew.
        """
        ...

    def finish(self, key: str, upload: str, tags: list[str]) -> None:
        """Make the parts the object. Raises UploadLost."""
        ...

    def abort(self, key: str, upload: str) -> None:
        """Forget an upload and its parts. One that is not there is no error."""
        ...

    def delete(self, key: str) -> None:
        """Delete an object. One that is not there is no error."""
        ...

    def refuses(self, key: str) -> str:
        """Why this store cannot hold such a key, or ""."""
        ...

    def losses(self, metadata: Metadata) -> list[str]:
        """What of the metadata this store cannot keep, in words."""
        ...


@dataclass(frozen=True)
class Part:
    """A range of an object that is written by one request."""

    number: int
    """From 1."""
    start: int
    length: int
    size: int
    """Of the whole object."""

    @property
    def last(self) -> bool:
        """Whether the object ends here."""
        return self.start + self.length == self.size


def parts(size: int, part_size: int) -> list[Part]:
    """The parts of an object of `size` bytes, in order; none for an empty one."""
    starts = range(0, size, part_size)
    return [Part(n, start, min(part_size, size - start), size) for n, start in enumerate(starts, 1)]
