"""File locks that vanish with the process that holds them, however it dies.

`exclusive` is for a cluster's name: the lock file itself is removed by whoever removes the cluster, so after taking it
we look whether the file we locked is still the one that others will find. `hold_forever` and `held` are for the
supervisor: it holds one lock as long as it lives, and others ask without taking it.
"""

import fcntl
import json
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from isthmus.specs.errors import Refused

POLL = 0.1
"""Seconds between two tries for a lock that someone else holds."""

# struct flock of a 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid (fcntl(2)).
_FLOCK = "hhqqi4x"


@contextmanager
def exclusive(path: Path, *, what: str, doing: str, seconds: float) -> Iterator[Callable[[], None]]:
    """Hold the lock file at `path`; yields a function that removes the file while it is held.

    Args:
        what: the object the lock stands for, as the user knows it ("local cluster demo").
        doing: what we will do while we hold it ("create"), told to others who wait.
        seconds: how long to wait for another holder.

    Raises:
        Refused: another process held it all that time; the message says who and since when.
    """
    descriptor = _take(path, what, seconds)
    try:
        note = json.dumps({"pid": os.getpid(), "doing": doing, "since": time.time()})
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, note.encode(), 0)
        yield lambda: path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _take(path: Path, what: str, seconds: float) -> int:
    end = time.monotonic() + seconds
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same_file(descriptor, path):
                return descriptor
        except BlockingIOError:
            if time.monotonic() >= end:
                note = _note(descriptor)
                os.close(descriptor)
                raise Refused(
                    f"another command holds {what}{note}; waited {seconds:.0f} s for it",
                    subject=what,
                    remedy="wait for it to end, then try again",
                ) from None
            time.sleep(POLL)
        os.close(descriptor)


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)


def _note(descriptor: int) -> str:
    try:
        note = json.loads(os.pread(descriptor, 4096, 0))
        return f" (process {note['pid']}: {note['doing']}, for {time.time() - note['since']:.0f} s)"
    except (ValueError, KeyError, TypeError):
        return ""


def hold_forever(path: Path) -> bool:
    """Take the lock at `path` for the rest of this process's life; False when another process has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        os.close(descriptor)
        return False
    return True  # the descriptor stays open on purpose; children do not inherit it


def held(path: Path) -> bool:
    """Whether some process holds the lock that `hold_forever` takes. Takes nothing itself."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
    finally:
        os.close(descriptor)
