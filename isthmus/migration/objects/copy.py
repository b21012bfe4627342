"""Copies one bucket into another: streaming, several objects at a time, verified by content, gone on with after any end.

Nothing is called verified that was not read back from the destination and had the digest that was computed on the way. What
stays small: an object up to SMALL bytes is held whole, of a larger one there is a chunk of a part in each thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain

from isthmus.migration.objects.ledger import Ledger, Row, State
from isthmus.migration.objects.store import (
    Changed,
    Denied,
    Gone,
    Metadata,
    ObjectStore,
    Part,
    StoreError,
    UploadLost,
    parts,
)
from isthmus.migration.objects.tries import tried
from isthmus.specs.errors import IsthmusError, Refused

THREADS = 16
SMALL = 4 << 20
PART = 64 << 20
"""Bytes of a part: a multiple of 256 KiB, as resumable uploads of GCS want, and over the 5 MiB that S3 wants."""
MOST_PARTS = 9_000
"""S3 takes 10,000 parts (user guide, multipart upload limits); a larger object gets larger parts."""
STEP = 256 << 10
ROUNDS = 4
"""Times the source is listed: what changed since the last time is copied again. The last one only looks."""
CHANGES = 3
"""How often an object may change under the copy within one round."""
FAILURES = 20
"""Failures with no success between them after which a copy stops: the store is away, not an object bad."""

TELL_EVERY = 0.2
"""Seconds between two words about the progress."""


@dataclass(frozen=True)
class Outcome:
    """How a copy went. Counts are of the whole ledger, `copied` and `read_back` of this run."""

    copied: int
    copied_bytes: int
    read_back: int
    read_back_bytes: int
    seconds: float
    verified: int
    verified_bytes: int
    corrupt: tuple[tuple[str, str], ...]
    """Objects whose copy differs, and how."""
    problems: tuple[tuple[str, str], ...]
    """Objects that are not copied, and why."""
    gone: tuple[str, ...]
    """Objects deleted at the source before they were copied."""
    removed: tuple[str, ...]
    """Objects deleted at the source after they were copied; kept at the destination unless told otherwise."""
    deleted: int
    foreign: int
    """Objects at the destination that are not from here; left alone."""
    losses: tuple[tuple[str, str], ...]
    digest: str
    """Over all that is verified (see Ledger.digest)."""

    @property
    def ok(self) -> bool:
        """Whether every object of the source is at the destination, and equal."""
        return not self.corrupt and not self.problems


Tell = Callable[[str], None]


class Copier:
    """One copy from a bucket to another. `run` may be called again, also from another process, and does what is left."""

    def __init__(
        self, source: ObjectStore, destination: ObjectStore, ledger: Ledger, *, threads: int = THREADS, tell: Tell
    ) -> None:
        """
        Args:
            tell: told how far it is, from several threads.
        """
        self._source, self._destination, self._ledger = source, destination, ledger
        self._threads, self._tell = threads, tell
        self._counts = _Counts()

    def run(self, *, delete: bool = False, repair: bool = False, verify_all: bool = False) -> Outcome:
        """Copy what is missing or changed, then read back what is not verified.

        Args:
            delete: delete at the destination what we copied and the source no longer has.
            repair: copy anew what was found corrupt, or written at both ends; otherwise it stays named and as it is.
            verify_all: read back every object, also those verified before.

        Raises:
            Refused: the destination holds objects that are not ours, in a first run. NotFound, Denied: a bucket is not there
            or may not be used; nothing has changed. StoreError: a store is away; what was done is kept.
        """
        started = time.monotonic()
        self._counts = _Counts()
        self._source.check(write=False)
        self._destination.check(write=True)
        foreign = self._look_at_destination()
        if repair:
            for state in (State.CORRUPT, State.CONFLICT):
                self._ledger.reset(state, State.PENDING)
        if verify_all:
            self._ledger.reset(State.VERIFIED, State.COPIED)
        for number in range(ROUNDS):
            self._look_at_source(again=number > 0)
            if number == ROUNDS - 1 or not any(True for _ in self._ledger.rows(State.PENDING)):
                break
            self._each(self._by_size(State.PENDING), self._copy)
        self._each(self._by_size(State.COPIED), self._verify)
        removed = self._ledger.removed()
        for key in removed if delete else ():
            tried(lambda key=key: self._destination.delete(key))  # type: ignore[misc]
            self._ledger.forget(key)
        self._ledger.flush()
        return self._outcome(
            removed, foreign, deleted=len(removed) if delete else 0, seconds=time.monotonic() - started
        )

    def _look_at_destination(self) -> int:
        self._tell("listing the destination")
        foreign, first = self._ledger.take_destination(self._destination.items())
        if foreign and not self._ledger.scans:
            raise Refused(
                f"the destination is not empty: {foreign} objects that this copy did not make ({', '.join(first)})",
                subject=self._destination.url,
                remedy="empty it, or choose another bucket: what is there would be overwritten",
            )
        return foreign

    def _look_at_source(self, *, again: bool) -> None:
        self._tell("listing the source again" if again else "listing the source")
        self._forget_uploads(self._ledger.take_source(self._source.items()))
        if not again:
            self._ledger.drop_absent()

    def _forget_uploads(self, uploads: list[tuple[str, str]]) -> None:
        for key, upload in uploads:
            with suppress(StoreError):  # an upload that cannot be forgotten costs a little, and expires
                self._destination.abort(key, upload)

    def _by_size(self, state: State) -> Iterator[Row]:
        """The large ones first, so that no thread ends long after the others."""
        return chain(self._ledger.rows(state, larger=SMALL), self._ledger.rows(state, up_to=SMALL))

    def _each(self, rows: Iterator[Row], act: Callable[[Row], None]) -> None:
        """Do something with every row in several threads. Stops at the first error that is not about one object."""
        lock, failed = threading.Lock(), list[BaseException]()

        def work() -> None:
            while not failed:
                try:
                    with lock:
                        row = next(rows, None)
                    if row is None:
                        return
                    act(row)
                except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
                    failed.append(error)

        threads = [threading.Thread(target=work, name=f"copy-{n}", daemon=True) for n in range(self._threads)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt as error:
            failed.append(error)
            raise
        finally:
            self._ledger.flush()
        if failed:
            raise failed[0]

    def _copy(self, row: Row) -> None:
        reason = self._destination.refuses(row.key)
        if reason:
            self._ledger.settle(row.key, State.REFUSED, reason=reason)
            return
        for _ in range(CHANGES):
            try:
                self._copy_version(row)
            except Changed:
                row = self._renewed(row)
            except Gone:
                self._ledger.settle(row.key, State.GONE, reason="deleted at the source before it was copied")
                return
            except Denied:
                raise
            except StoreError as error:
                self._failed(row, error)
                return
            else:
                self._counts.copied(row.size)
                self._say("copied")
                return
            if row.state is not State.PENDING:
                return
        self._ledger.settle(row.key, State.PENDING, reason=f"it changed {CHANGES} times while it was copied")

    def _renewed(self, row: Row) -> Row:
        try:
            item = tried(lambda: self._source.stat(row.key))
        except Gone:
            self._ledger.settle(row.key, State.GONE, reason="deleted at the source before it was copied")
            return replace(row, state=State.GONE)
        self._forget_uploads(self._ledger.renew(item))
        return replace(row, size=item.size, version=item.version, metadata=item.metadata, upload="")

    def _copy_version(self, row: Row) -> None:
        if row.size <= SMALL:
            self._copy_whole(row)
            return
        try:
            self._copy_parts(row)
        except UploadLost:  # expired, or the destination was restarted: once more from the start
            self._copy_parts(replace(row, upload=""))

    def _copy_whole(self, row: Row) -> None:
        def read() -> tuple[bytes, Metadata]:
            with self._source.read(row.key, version=row.version, start=0, length=row.size) as body:
                return b"".join(body.chunks), body.metadata or row.metadata or Metadata()

        data, metadata = tried(read)
        tried(lambda: self._destination.write(row.key, data, metadata))
        losses = "; ".join(self._destination.losses(metadata))
        self._ledger.settle(row.key, State.COPIED, digest=sha256(data).hexdigest(), losses=losses)

    def _copy_parts(self, row: Row) -> None:
        metadata = row.metadata or tried(lambda: self._source.stat(row.key)).metadata or Metadata()
        upload, written = row.upload, self._ledger.parts(row.key) if row.upload else []
        if not upload:
            upload = tried(lambda: self._destination.begin(row.key, row.size, metadata))
            self._ledger.begun(row.key, upload)
        todo = parts(row.size, part_size(row.size))
        for part in todo[len(written) :]:

            def send(part: Part = part) -> tuple[str, str]:
                total = sha256()
                with self._source.read(row.key, version=row.version, start=part.start, length=part.length) as body:
                    tag = self._destination.write_part(row.key, upload, part, _hashed(body.chunks, total.update))
                return total.hexdigest(), tag

            written.append(tried(send))
            self._ledger.add_part(row.key, part.number, *written[-1])
            self._say("copied")
        tried(lambda: self._destination.finish(row.key, upload, [tag for _, tag in written]))
        losses = "; ".join(self._destination.losses(metadata))
        digest = composite([digest for digest, _ in written])
        self._ledger.settle(row.key, State.COPIED, digest=digest, losses=losses, upload="")

    def _verify(self, row: Row) -> None:
        try:
            version, reason = self._compare(row)
        except Gone:
            version, reason = "", "it is not at the destination"
        except Denied:
            raise
        except StoreError as error:
            self._failed(row, error)
            return
        self._counts.read(row.size)
        self._say("read back")
        state = State.CORRUPT if reason else State.VERIFIED
        self._ledger.settle(row.key, state, reason=reason, destination=version)

    def _compare(self, row: Row) -> tuple[str, str]:
        """The version that the destination has, and how it differs ("": not at all)."""
        wanted = [digest for digest, _ in self._ledger.parts(row.key)] if row.size > SMALL else [row.digest]
        pieces = parts(row.size, part_size(row.size)) if row.size > SMALL else [_whole(row.size)]
        version = ""
        for part, digest in zip(pieces, wanted, strict=True):

            def read(part: Part = part, version: str = version) -> tuple[str, int, str]:
                total = sha256()
                with self._destination.read(row.key, version=version, start=part.start, length=part.length) as body:
                    if body.size != row.size:
                        return body.version, body.size, ""
                    for chunk in body.chunks:
                        total.update(chunk)
                    return body.version, body.size, total.hexdigest()

            version, size, found = tried(read)
            if size != row.size:
                return version, f"it has {size} bytes at the destination, {row.size} at the source"
            if found != digest:
                where = f"bytes {part.start} to {part.start + part.length - 1}: " if len(pieces) > 1 else ""
                return version, f"{where}SHA-256 {found[:16]} at the destination, {digest[:16]} at the source"
        return version, ""

    def _failed(self, row: Row, error: IsthmusError) -> None:
        self._ledger.settle(row.key, State.FAILED, reason=error.message)
        if self._counts.failed() >= FAILURES:
            raise error

    def _say(self, what: str) -> None:
        line = self._counts.line(what)
        if line:
            self._tell(line)

    def _outcome(self, removed: list[str], foreign: int, *, deleted: int, seconds: float) -> Outcome:
        ledger, totals = self._ledger, self._ledger.totals()
        verified, verified_bytes = totals.get(State.VERIFIED, (0, 0))
        bad = (State.PENDING, State.REFUSED, State.FAILED, State.CONFLICT)
        return Outcome(
            copied=self._counts.objects,
            copied_bytes=self._counts.bytes,
            read_back=self._counts.read_objects,
            read_back_bytes=self._counts.read_bytes,
            seconds=seconds,
            verified=verified,
            verified_bytes=verified_bytes,
            corrupt=tuple((row.key, row.reason) for row in ledger.rows(State.CORRUPT)),
            problems=tuple((row.key, row.reason or "it keeps changing") for row in ledger.rows(*bad)),
            gone=tuple(row.key for row in ledger.rows(State.GONE)),
            removed=tuple(removed),
            deleted=deleted,
            foreign=foreign,
            losses=tuple(ledger.losses()),
            digest=ledger.digest(),
        )


@dataclass
class _Counts:
    """What was done so far, counted from several threads."""

    objects: int = 0
    bytes: int = 0
    read_objects: int = 0
    read_bytes: int = 0
    _failures: int = 0
    _said: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def copied(self, size: int) -> None:
        with self._lock:
            self.objects, self.bytes, self._failures = self.objects + 1, self.bytes + size, 0

    def read(self, size: int) -> None:
        with self._lock:
            self.read_objects, self.read_bytes, self._failures = self.read_objects + 1, self.read_bytes + size, 0

    def failed(self) -> int:
        """Count a failure; returns how many came one after the other."""
        with self._lock:
            self._failures += 1
            return self._failures

    def line(self, what: str) -> str:
        """How far it is, or "" where that was said just now."""
        now = time.monotonic()
        with self._lock:
            if now - self._said < TELL_EVERY:
                return ""
            self._said = now
            done, size = (self.objects, self.bytes) if what == "copied" else (self.read_objects, self.read_bytes)
        return f"{what} {done} objects, {size / 1e6:.0f} MB"


def part_size(size: int) -> int:
    """Bytes of each part of an object of `size` bytes: depends on nothing else, so that digests can be compared later."""
    return max(PART, -(-size // MOST_PARTS // STEP) * STEP)


def composite(digests: list[str]) -> str:
    """The digest of an object from those of its parts: the SHA-256 of them in order, or the only one there is."""
    return digests[0] if len(digests) == 1 else sha256(b"".join(map(bytes.fromhex, digests))).hexdigest()


def _whole(size: int) -> Part:
    return Part(1, 0, size, size)


def _hashed(chunks: Iterator[bytes], update: Callable[[bytes], None]) -> Iterator[bytes]:
    for chunk in chunks:
        update(chunk)
        yield chunk
