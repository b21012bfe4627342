"""Locks: who waits, who is told what, what is left behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.localcluster import locks
from isthmus.specs.errors import Refused


def test_second_holder_is_told_who_has_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    message = rf"local cluster demo \(process {os.getpid()}: create, for \d+ s\)"
    with (
        locks.exclusive(path, what="local cluster demo", doing="create", seconds=0),
        pytest.raises(Refused, match=message),
        locks.exclusive(path, what="local cluster demo", doing="stop", seconds=0),
    ):
        pass
    with locks.exclusive(path, what="local cluster demo", doing="stop", seconds=0):
        pass


def test_the_file_goes_with_the_object_it_stands_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locks.exclusive(path, what="x", doing="delete", seconds=0) as remove:
        remove()
        assert not path.exists()
        with locks.exclusive(path, what="x", doing="create", seconds=0):  # a new object of that name, a new lock
            assert path.exists()


def test_a_waiter_on_a_removed_file_locks_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    old = os.open(path, os.O_RDWR | os.O_CREAT)
    path.unlink()
    path.touch()
    assert not locks._same_file(old, path)
    os.close(old)


def test_lasting_lock_is_seen_and_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not locks.held(path)
    code = f"from pathlib import Path; from isthmus.localcluster import locks; print(locks.hold_forever(Path({str(path)!r})), flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "True\n"
    assert locks.held(path) and not locks.hold_forever(path)
    process.kill()
    process.wait()
    assert not locks.held(path)
