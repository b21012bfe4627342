"""The copier against buckets in memory: what it promises about content, resuming, changes and faults."""

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.migration.objects import copy as copying
from isthmus.migration.objects import tries
from isthmus.migration.objects.copy import Copier, Outcome, composite, part_size
from isthmus.migration.objects.ledger import GROUP, Ledger, State, between
from isthmus.migration.objects.store import Denied, Metadata, StoreError, Transient, parts
from isthmus.specs.errors import IsthmusError, NotFound, Refused
from tests.unit.migration.memory_store import MemoryStore, sometimes

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _small_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 100 bytes, so that large objects are small; no pauses."""
    monkeypatch.setattr(copying, "SMALL", 250)
    monkeypatch.setattr(copying, "PART", 100)
    monkeypatch.setattr(copying, "STEP", 1)
    monkeypatch.setattr(tries, "PAUSE", 0.0)


@pytest.fixture
def source() -> MemoryStore:
    """Three small objects and a large one of four parts."""
    store = MemoryStore("memory://from")
    store.put("a", b"alpha", Metadata(content_type="text/plain", user={"owner": "me"}))
    store.put("b/c d", b"")
    store.put("large", bytes(range(200)) + b"x" * 150)
    return store


@pytest.fixture
def destination() -> MemoryStore:
    return MemoryStore("memory://to")


def back(source: MemoryStore, destination: MemoryStore, path: Path, **options: bool) -> Outcome:
    """A copy from `destination` to `source`, with what the way there has learned."""
    ledger = between(path, "back", "copy", source=destination.url, destination=source.url)
    try:
        return Copier(destination, source, ledger, threads=3, tell=lambda text: None).run(**options)
    finally:
        ledger.close()


def run(
    source: MemoryStore, destination: MemoryStore, path: Path, *, threads: int = 3, repair: bool = False,
    delete: bool = False, verify_all: bool = False,
) -> Outcome:  # fmt: skip
    """One copy with a ledger that is opened anew, as another process would."""
    ledger = between(path, "copy", "back", source=source.url, destination=destination.url)
    try:
        copier = Copier(source, destination, ledger, threads=threads, tell=lambda text: None)
        return copier.run(delete=delete, repair=repair, verify_all=verify_all)
    finally:
        ledger.close()


def contents(store: MemoryStore) -> dict[str, bytes]:
    return {key: stored.data for key, stored in store.objects.items()}


def test_every_object_arrives_and_is_read_back(source: MemoryStore, destination: MemoryStore, tmp_path: Path) -> None:
    outcome = run(source, destination, tmp_path)
    assert outcome.ok
    assert contents(destination) == contents(source)
    assert destination.objects["a"].metadata == source.objects["a"].metadata
    assert (outcome.copied, outcome.verified, outcome.read_back) == (3, 3, 3)
    assert destination.count("read") == 2 + 4  # two small objects, four parts


def test_a_second_run_copies_nothing(source: MemoryStore, destination: MemoryStore, tmp_path: Path) -> None:
    first = run(source, destination, tmp_path)
    source.calls.clear()
    second = run(source, destination, tmp_path)
    assert (second.copied, second.copied_bytes, second.read_back) == (0, 0, 0)
    assert (second.verified, second.digest) == (first.verified, first.digest)
    assert source.count("read") == 0


def test_case_a26_a_flipped_byte_of_equal_size_is_named(
    source: MemoryStore, destination: MemoryStore, tmp_path: Path
) -> None:
    """rclone/rclone#4855: nothing is called verified on size alone, and the second run copies 0 bytes."""

    def damage(operation: str, key: str) -> None:
        if operation == "read" and key == "large" and not damaged:
            damaged.append(key)
            destination.flip("large", at=150)

    damaged: list[str] = []
    destination.on = damage
    first = run(source, destination, tmp_path)
    assert [key for key, _ in first.corrupt] == ["large"]
    assert "bytes 100 to 199" in first.corrupt[0][1]
    assert not first.ok
    assert first.verified == 2
    second = run(source, destination, tmp_path)
    assert (second.copied_bytes, [key for key, _ in second.corrupt]) == (0, ["large"])
    third = run(source, destination, tmp_path, repair=True)
    assert third.ok
    assert contents(destination) == contents(source)


def test_damage_after_verification_is_found_when_all_is_read_back(
    source: MemoryStore, destination: MemoryStore, tmp_path: Path
) -> None:
    run(source, destination, tmp_path)
    destination.flip("a")
    assert run(source, destination, tmp_path).ok, "without a new version nothing tells that it must be read again"
    assert [key for key, _ in run(source, destination, tmp_path, verify_all=True).corrupt] == ["a"]


def test_an_object_written_again_at_the_destination_is_read_again(
    source: MemoryStore, destination: MemoryStore, tmp_path: Path
) -> None:
    run(source, destination, tmp_path)
    destination.put("a", b"ALPHA")
    assert [key for key, _ in run(source, destination, tmp_path).corrupt] == ["a"]


def test_a_longer_copy_is_corrupt(source: MemoryStore, destination: MemoryStore, tmp_path: Path) -> None:
    run(source, destination, tmp_path)
    destination.put("a", b"alpha and more")
    (key, reason), *_ = run(source, destination, tmp_path).corrupt
    assert (key, reason) == ("a", "it has 14 bytes at the destination, 5 at the source")


def test_an_object_deleted_at_the_destination_is_copied_again(
    source: MemoryStore, destination: MemoryStore, tmp_path: Path
) -> None:
    run(source, destination, tmp_path)
    del destination.objects["a"]
    assert run(source, destination, tmp_path).copied == 1
    assert contents(destination) == contents(source)


def test_a_destination_that_is_not_empty_is_refused(
    source: MemoryStore, destination: MemoryStore, tmp_path: Path
) -> None:
    destination.put("theirs", b"1")
    with pytest.raises(Refused, match="not empty: 1 objects .*theirs"):
        run(source, destination, tmp_path)
    assert contents(destination) == {"theirs": b"1"}


def test_later_strangers_at_the_destination_are_left_alone(
    source: MemoryStore, destination: MemoryStore, tmp_path: Path
) -> None:
    run(source, destination, tmp_path)
    destination.put("theirs", b"1")
    outcome = run(source, destination, tmp_path, delete=True)
    assert outcome.foreign == 1
    assert "theirs" in destination.objects


def test_a_change_at_the_source_is_copied(source: MemoryStore, destination: MemoryStore, tmp_path: Path) -> None:
    run(source, destination, tmp_path)
    source.put("a", b"beta")
    outcome = run(source, destination, tmp_path)
    assert outcome.copied == 1
    assert destination.objects["a"].data == b"beta"


@pytest.mark.parametrize("key", ["a", "large"])
def test_changed_while_copied_is_found(key: str, source: MemoryStore, destination: MemoryStore, tmp_path: Path) -> None:
    """The old version is read, then somebody writes a new one: only the new one counts as copied."""
    changed: list[str] = []

    def change(operation: str, at: str) -> None:
        if operation in {"write", "part"} and at == key and not changed:
            changed.append(at)
            source.put(key, b"new" * 100)

    destination.on = change
    outcome = run(source, destination, tmp_path)
    assert outcome.ok
    assert contents(destination) == contents(source)
    assert destination.uploads == {}, "the upload of the old version is forgotten"


def test_what_never_stops_changing_is_named(source: MemoryStore, destination: MemoryStore, tmp_path: Path) -> None:
    source.on = lambda operation, key: source.put("a", b"again") if (operation, key) == ("read", "a") else None
    outcome = run(source, destination, tmp_path)
    assert outcome.problems == (("a", "it changed 3 times while it was copied"),)
    assert not outcome.ok
    assert outcome.verified == 2


@pytest.mark.parametrize("key", ["a", "large"])
def test_deleted_while_copied_is_no_failure(
    key: str, source: MemoryStore, destination: MemoryStore, tmp_path: Path
) -> None:
    source.on = lambda operation, at: (source.objects.pop(key, None), None)[1] if operation == "read" else None
    outcome = run(source, destination, tmp_path, threads=1)
    assert outcome.ok
    assert key in outcome.gone
    assert key not in destination.objects
    assert run(source, destination, tmp_path).gone == ()


def test_deletes_are_propagated_only_when_told(source: MemoryStore, destination: MemoryStore, tmp_path: Path) -> None:
    run(source, destination, tmp_path)
    del source.objects["a"]
    kept = run(source, destination, tmp_path)
    assert (kept.removed, kept.deleted, "a" in destination.objects) == (("a",), 0, True)
    told = run(source, destination, tmp_path, delete=True)
    assert (told.removed, told.deleted, "a" in destination.objects) == (("a",), 1, False)


def test_a_copy_goes_on_in_the_middle_of_an_object(
    source: MemoryStore, destination: MemoryStore, tmp_path: Path
) -> None:
    """The third part cannot be written: the next run writes the third and fourth, not the first two again."""
    destination.on = sometimes({("part", "large"): 0})
    seen: list[str] = []

    def die(operation: str, key: str) -> None:
        if operation == "part":
            seen.append(key)
            if len(seen) == 3:
                raise KeyboardInterrupt

    destination.on = die
    with pytest.raises(KeyboardInterrupt):
        run(source, destination, tmp_path, threads=1)
    destination.on = lambda operation, key: None
    destination.calls.clear()
    outcome = run(source, destination, tmp_path)
    assert outcome.ok
    assert destination.count("part") == 2
    assert destination.count("begin") == 0
    assert contents(destination) == contents(source)


def test_an_upload_that_the_destination_forgot_is_begun_anew(
    source: MemoryStore, destination: MemoryStore, tmp_path: Path
) -> None:
    forgotten: list[str] = []

    def forget(operation: str, key: str) -> None:
        if operation == "part" and not forgotten:
            forgotten.append(key)
            destination.uploads.clear()

    destination.on = forget
    assert run(source, destination, tmp_path).ok
    assert destination.count("begin") == 2
    assert contents(destination) == contents(source)


def test_passing_trouble_is_tried_again(source: MemoryStore, destination: MemoryStore, tmp_path: Path) -> None:
    source.on = sometimes({("read", "a"): 2, ("stat", "large"): 1})
    destination.on = sometimes({("write", "a"): 2, ("part", "large"): 1, ("begin", "large"): 1})
    assert run(source, destination, tmp_path).ok


def test_an_object_that_cannot_be_read_is_named_and_the_others_arrive(
    source: MemoryStore, destination: MemoryStore, tmp_path: Path
) -> None:
    def broken(operation: str, key: str) -> None:
        if (operation, key) == ("read", "a"):
            raise StoreError("InternalError", subject="a")

    source.on = broken
    outcome = run(source, destination, tmp_path)
    assert outcome.problems == (("a", "InternalError"),)
    assert outcome.verified == 2
    source.on = lambda operation, key: None
    assert run(source, destination, tmp_path).ok


def test_a_store_that_is_away_ends_the_copy(source: MemoryStore, destination: MemoryStore, tmp_path: Path) -> None:
    for number in range(100):
        source.put(f"more-{number}", b"1")

    def away(operation: str, key: str) -> None:
        if operation == "write":
            raise Transient("no answer")

    destination.on = away
    with pytest.raises(Transient, match="no answer"):
        run(source, destination, tmp_path)
    assert destination.count("write") < 6 * 30


@pytest.mark.parametrize("which", ["source", "destination"])
def test_a_bucket_that_may_not_be_used_is_named_before_anything_starts(
    which: str, source: MemoryStore, destination: MemoryStore, tmp_path: Path
) -> None:
    if which == "source":
        source.missing = True
        with pytest.raises(NotFound):
            run(source, destination, tmp_path)
    else:
        destination.read_only = True
        with pytest.raises(Denied):
            run(source, destination, tmp_path)
    assert source.calls == destination.calls == []


def test_a_key_that_the_destination_cannot_hold_is_named(
    source: MemoryStore, destination: MemoryStore, tmp_path: Path
) -> None:
    source.put("two\nlines", b"1")
    outcome = run(source, destination, tmp_path)
    assert outcome.problems == (("two\nlines", "names hold no line breaks"),)
    assert "two\nlines" not in destination.objects


def test_lost_metadata_is_listed(source: MemoryStore, destination: MemoryStore, tmp_path: Path) -> None:
    source.put("a", b"alpha", Metadata(user={"lost one": "x"}))
    assert run(source, destination, tmp_path).losses == (("a", "metadata 'lost one'"),)


def test_a_ledger_of_other_buckets_is_refused(source: MemoryStore, destination: MemoryStore, tmp_path: Path) -> None:
    run(source, destination, tmp_path)
    with pytest.raises(Refused, match="not from memory://elsewhere"):
        run(MemoryStore("memory://elsewhere"), destination, tmp_path)


def test_back_again_copies_only_what_changed(source: MemoryStore, destination: MemoryStore, tmp_path: Path) -> None:
    run(source, destination, tmp_path)
    destination.put("a", b"changed there")
    destination.put("new", b"made there")
    del destination.objects["b/c d"]
    outcome = back(source, destination, tmp_path, delete=True)
    assert outcome.ok
    assert (outcome.copied, outcome.deleted, outcome.verified) == (2, 1, 3)
    assert contents(source) == contents(destination)
    there = run(source, destination, tmp_path)
    assert (there.copied, there.read_back, there.verified) == (0, 0, 3), "and there once more"


def test_an_object_changed_at_both_ends_is_named_and_left(
    source: MemoryStore, destination: MemoryStore, tmp_path: Path
) -> None:
    run(source, destination, tmp_path)
    source.put("a", b"changed here")
    destination.put("a", b"changed there")
    outcome = back(source, destination, tmp_path)
    assert [key for key, _ in outcome.problems] == ["a"]
    assert "both ends" in outcome.problems[0][1]
    assert source.objects["a"].data == b"changed here"
    assert back(source, destination, tmp_path, repair=True).ok
    assert source.objects["a"].data == b"changed there"


def test_a_change_at_the_end_that_becomes_the_destination_is_found(
    source: MemoryStore, destination: MemoryStore, tmp_path: Path
) -> None:
    run(source, destination, tmp_path)
    source.put("a", b"ALPHA")
    outcome = back(source, destination, tmp_path)
    assert [key for key, _ in outcome.corrupt] == ["a"]


KEYS = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), min_size=1, max_size=8)
CHANGES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=600))), max_size=12)


@settings(max_examples=30, deadline=None)
@given(before=CHANGES, between=CHANGES, cut=st.integers(0, 12))
def test_whatever_happens_before_the_last_run_the_destination_is_as_the_source(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[tuple[str, bytes | None]],
    between: list[tuple[str, bytes | None]],
    cut: int,
) -> None:
    """Writes and deletes, a copy that is cut short after so many requests, more writes and deletes, and a last run."""
    source, destination = MemoryStore("memory://from"), MemoryStore("memory://to")
    folder = tmp_path_factory.mktemp("ledger")

    def change(changes: list[tuple[str, bytes | None]]) -> None:
        for key, data in changes:
            if data is None:
                source.objects.pop(key, None)
            else:
                source.put(key, data)

    change(before)
    left: Iterator[int] = iter(range(cut))

    def die(operation: str, key: str) -> None:
        if operation in {"write", "part", "finish"} and next(left, None) is None:
            raise KeyboardInterrupt

    destination.on = die
    try:
        run(source, destination, folder, threads=2)
    except KeyboardInterrupt:
        pass
    destination.on = lambda operation, key: None
    change(between)
    outcome = run(source, destination, folder, delete=True)
    assert outcome.ok
    assert contents(destination) == contents(source)
    assert outcome.verified == len(source.objects)


@given(st.integers(0, 5 << 40))
def test_parts_cover_an_object_and_stay_within_the_stores_limits(size: int) -> None:
    step = 64 * MIB if size < 9000 * 64 * MIB else -(-size // 9000 // (256 << 10)) * (256 << 10)
    assert size == 0 or -(-size // step) <= 10_000
    assert step % (256 << 10) == 0


@given(size=st.integers(1, 2000), step=st.integers(1, 300))
def test_parts_follow_on_each_other(size: int, step: int) -> None:
    found = parts(size, step)
    assert [part.number for part in found] == list(range(1, len(found) + 1))
    assert found[0].start == 0
    assert all(one.start + one.length == two.start for one, two in itertools.pairwise(found))
    assert found[-1].last
    assert not any(part.last for part in found[:-1])


def test_the_digest_of_one_part_is_that_of_its_bytes() -> None:
    assert composite(["ab" * 32]) == "ab" * 32
    assert composite(["ab" * 32, "cd" * 32]) != composite(["cd" * 32, "ab" * 32])
    assert part_size(0) == copying.PART


def test_a_kill_loses_no_more_than_a_group(tmp_path: Path) -> None:
    """What is not committed when a process dies: rows of small objects, GROUP at most."""
    source, destination = MemoryStore("memory://from"), MemoryStore("memory://to")
    for number in range(300):
        source.put(f"{number:03}", b"1")
    ledger = Ledger(tmp_path / "copy.db", source=source.url, destination=destination.url)
    ledger.take_source(source.items())
    for number in range(200):
        ledger.settle(f"{number:03}", State.COPIED, digest="x")
    with sqlite3.connect(tmp_path / "copy.db") as other:  # sees what is committed, as after a kill
        (kept,) = other.execute("SELECT count(*) FROM objects WHERE state = 'copied'").fetchone()
    ledger.close()
    assert 200 - GROUP <= kept < 200


@pytest.mark.parametrize("pages", [8, 12, 24, 48])
def test_a_full_disk_ends_the_copy_and_is_gone_on_from(pages: int, destination: MemoryStore, tmp_path: Path) -> None:
    """SQLite itself says that the disk is full when its file may not grow: while the listing is taken in, or later."""
    source = MemoryStore("memory://from")
    for number in range(400):
        source.put(f"{number:03}/{'long' * 20}", bytes(number))
    ledger = between(tmp_path, "copy", "back", source=source.url, destination=destination.url)
    ledger._database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(IsthmusError, match="the disk is full: .* what was copied is kept") as caught:
        Copier(source, destination, ledger, threads=3, tell=lambda text: None).run()
    assert caught.value.remedy is not None and "give the same command again" in caught.value.remedy
    with suppress(IsthmusError):
        ledger.close()
    assert run(source, destination, tmp_path).ok
    assert contents(destination) == contents(source)
