"""The two stores and the copier against the servers that stand for S3 and Cloud Storage: other people's programs.

`isthmus install objects` builds them. What these servers cannot do (keys over 255 bytes between slashes, `a` beside `a/`, versions)
is tried as far as each can: fake-gcs-server in memory holds every key.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.migration.objects import credentials
from isthmus.migration.objects.copy import SMALL, Copier, Outcome
from isthmus.migration.objects.credentials import AwsKeys
from isthmus.migration.objects.gcs import Gcs
from isthmus.migration.objects.ledger import Ledger
from isthmus.migration.objects.s3 import S3
from isthmus.migration.objects.store import Changed, Denied, Gone, Metadata, ObjectStore, Part, Transient, parts
from isthmus.simulation import object_servers
from isthmus.simulation.account import Account
from isthmus.specs.errors import NotFound
from isthmus.toolchain import home

pytestmark = [pytest.mark.e2e, pytest.mark.local]

MIB = 1 << 20
RICH = Metadata(
    content_type="text/plain; charset=utf-8",
    content_encoding="gzip",
    content_language="de",
    content_disposition='attachment; filename="x"',
    cache_control="no-store",
    user={"owner": "me", "note": "größe"},
)


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Account]]:
    """An account of each cloud with a running server."""
    folder = tmp_path_factory.mktemp("accounts")
    made = {kind: Account(f"{kind}-test", folder / f"{kind}-test.db") for kind in ("aws", "gcp")}
    yield made
    for account in made.values():
        object_servers.remove(account)


def store_of(accounts: dict[str, Account], kind: str, bucket: str) -> ObjectStore:
    if kind == "aws":
        end = object_servers.serve(accounts["aws"], "aws", "us-east-1", [bucket])
        keys = credentials.fixed(AwsKeys(end.access_key, end.secret_key))
        return S3(bucket, region="us-east-1", keys=keys, endpoint=end.url)
    end = object_servers.serve(accounts["gcp"], "gcp", "us-central1", [bucket])
    return Gcs(bucket, token=None, endpoint=end.url)


@pytest.fixture(params=["aws", "gcp"])
def store(request: pytest.FixtureRequest, accounts: dict[str, Account]) -> ObjectStore:
    """An empty bucket of each kind."""
    name = "b" + str(abs(hash(request.node.name)))[:12]
    return store_of(accounts, request.param, name)


def content(store: ObjectStore, key: str, *, start: int = 0, length: int | None = None) -> bytes:
    size = store.stat(key).size
    wanted = size - start if length is None else length
    with store.read(key, version="", start=start, length=wanted) as body:
        assert body.size == size
        return b"".join(body.chunks)


def write_large(store: ObjectStore, key: str, data: bytes, step: int) -> None:
    upload = store.begin(key, len(data), RICH)
    tags = [
        store.write_part(key, upload, part, iter([data[part.start : part.start + part.length]]))
        for part in parts(len(data), step)
    ]
    store.finish(key, upload, tags)


def test_a_small_object_comes_back_with_everything(store: ObjectStore) -> None:
    store.write("a", b"alpha", RICH)
    assert content(store, "a") == b"alpha"
    item = store.stat("a")
    assert (item.size, item.metadata) == (5, RICH)
    (listed,) = store.items()
    assert (listed.key, listed.size, listed.version) == ("a", 5, item.version)


def test_an_empty_object(store: ObjectStore) -> None:
    store.write("nothing", b"", Metadata())
    assert store.stat("nothing").size == 0
    assert content(store, "nothing") == b""


def test_a_large_object_in_parts_and_by_ranges(store: ObjectStore) -> None:
    data = os.urandom(12 * MIB + 17)
    write_large(store, "dir/large", data, 5 * MIB)
    assert content(store, "dir/large") == data
    assert content(store, "dir/large", start=5 * MIB - 3, length=10) == data[5 * MIB - 3 : 5 * MIB + 7]
    assert store.stat("dir/large").metadata == RICH


def test_reading_an_older_version_is_refused(store: ObjectStore) -> None:
    store.write("a", b"1", Metadata())
    before = store.stat("a").version
    store.write("a", b"22", Metadata())
    with pytest.raises(Changed), store.read("a", version=before, start=0, length=1):
        pass


def test_what_is_not_there(store: ObjectStore) -> None:
    with pytest.raises(Gone):
        store.stat("none")
    with pytest.raises(Gone), store.read("none", version="", start=0, length=1):
        pass
    store.delete("none")


def test_deleting(store: ObjectStore) -> None:
    store.write("a", b"1", Metadata())
    store.delete("a")
    assert list(store.items()) == []


def test_the_check_leaves_nothing(store: ObjectStore) -> None:
    store.check(write=True)
    assert list(store.items()) == []


KEYS = [
    "a b",
    "größe/日本語",
    "a+b&c=d?e#f",
    "per%20cent",
    "dot.",
    "q'uote\"",
    "~tilde",
    "deep/" * 40 + "end",
    "x" * 200,
]


def test_keys_of_every_kind(store: ObjectStore) -> None:
    for key in KEYS:
        store.write(key, key.encode(), Metadata())
    assert sorted(item.key for item in store.items()) == sorted(KEYS)
    for key in KEYS:
        assert content(store, key) == key.encode()


@pytest.mark.parametrize("store", ["gcp"], indirect=True)
def test_a_key_that_xml_cannot_hold(store: ObjectStore) -> None:
    """Not on versitygw, which lists such a key with U+FFFD in it even when it is asked to encode."""
    for key in ("bell\x07", "a b", "a+b"):
        store.write(key, b"1", Metadata())
    assert sorted(item.key for item in store.items()) == ["a b", "a+b", "bell\x07"]


def test_listings_have_pages(store: ObjectStore) -> None:
    for number in range(1103):
        store.write(f"{number:05}", b"", Metadata())
    assert [item.key for item in store.items()] == [f"{number:05}" for number in range(1103)]


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Gcs]:
    """fake-gcs-server in memory: every key is possible there."""
    import socket
    import time
    import urllib.request

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(home.tool("fake-gcs-server")), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-backend", "memory", "-public-host", f"127.0.0.1:{port}", "-log-level", "error"]
    server = subprocess.Popen(command)
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/storage/v1/b?project=p", b'{"name": "memory"}', {"content-type": "application/json"}
    )
    try:
        for _ in range(100):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(request)
                break
            time.sleep(0.05)
        yield Gcs("memory", token=None, endpoint=f"http://127.0.0.1:{port}")
    finally:
        server.kill()
        server.wait()


HARD = ["a", "a/", "a/b", "ü" * 512, "x" * 1024, "a//b", "tab\there", "/leading", "trailing "]


def test_every_key_in_memory(in_memory: Gcs) -> None:
    """1,024 bytes, `a` beside `a/` and `a/b`."""
    for key in HARD:
        in_memory.write(key, key.encode(), RICH)
    assert sorted(item.key for item in in_memory.items()) == sorted(HARD)
    for key in HARD:
        assert content(in_memory, key) == key.encode()


def test_a_key_of_1024_bytes_and_a_folder_s_own_object_on_s3(accounts: dict[str, Account]) -> None:
    store = store_of(accounts, "aws", "hardkeys")
    keys = ["/".join("k" * 204 for _ in range(5)), "folder/"]
    assert len(keys[0]) == 1024
    for key in keys:
        store.write(key, b"" if key.endswith("/") else b"1", Metadata())
    assert sorted(item.key for item in store.items()) == sorted(keys)


def copy(source: ObjectStore, destination: ObjectStore, path: Path, **options: bool) -> Outcome:
    ledger = Ledger(path, source=source.url, destination=destination.url)
    try:
        return Copier(source, destination, ledger, threads=4, tell=lambda text: None).run(**options)
    finally:
        ledger.close()


@pytest.mark.parametrize(("one", "other"), [("aws", "gcp"), ("gcp", "aws")])
def test_a_copy_there_with_everything(one: str, other: str, accounts: dict[str, Account], tmp_path: Path) -> None:
    source, destination = store_of(accounts, one, f"from-{one}"), store_of(accounts, other, f"to-{other}")
    for number in range(30):
        source.write(f"many/{number}", os.urandom(1000 * number), RICH)
    write_large(source, "large", os.urandom(9 * MIB), 5 * MIB)
    outcome = copy(source, destination, tmp_path / "ledger.db")
    assert outcome.ok
    assert (outcome.copied, outcome.verified) == (31, 31)
    assert outcome.losses == ()
    for item in source.items():
        assert content(destination, item.key) == content(source, item.key)
        assert destination.stat(item.key).metadata == source.stat(item.key).metadata
    again = copy(source, destination, tmp_path / "ledger.db")
    assert (again.copied_bytes, again.read_back, again.digest) == (0, 0, outcome.digest)


def test_case_a26_multi_part_objects_are_verified_by_content(accounts: dict[str, Account], tmp_path: Path) -> None:
    """rclone/rclone#4855: 1 MiB whole, 120 MiB in 8 parts, and 120 MiB of which the copy has one flipped byte."""
    source, destination = store_of(accounts, "aws", "a26-from"), store_of(accounts, "gcp", "a26-to")
    source.write("one", os.urandom(MIB), Metadata())
    data = os.urandom(120 * MIB)
    for key in ("parts", "damaged"):
        write_large(source, key, data, 15 * MIB)
    assert "-8" in source.stat("parts").version, "an ETag of eight parts is no MD5"
    ledger = tmp_path / "ledger.db"
    stopped = Ledger(ledger, source=source.url, destination=destination.url)
    copier = Copier(source, destination, stopped, threads=4, tell=lambda text: None)
    on_disk = object_servers.folder(accounts["gcp"]) / "data" / "a26-to" / "damaged"
    verify = copier._verify

    def damaged(row: object) -> None:
        if not getattr(damaged, "done", False) and on_disk.exists():
            damaged.done = True  # type: ignore[attr-defined]
            with on_disk.open("r+b") as file:
                file.seek(100 * MIB)
                byte = file.read(1)
                file.seek(100 * MIB)
                file.write(bytes([byte[0] ^ 1]))
        verify(row)  # type: ignore[arg-type]

    copier._verify = damaged  # type: ignore[method-assign,assignment]
    first = copier.run()
    stopped.close()
    assert [key for key, _ in first.corrupt] == ["damaged"]
    assert first.verified == 2
    second = copy(source, destination, ledger)
    assert (second.copied_bytes, [key for key, _ in second.corrupt]) == (0, ["damaged"])
    assert copy(source, destination, ledger, repair=True).ok


def test_a_wrong_key_is_named_before_anything(accounts: dict[str, Account]) -> None:
    end = object_servers.serve(accounts["aws"], "aws", "us-east-1", ["denied"])
    wrong = credentials.fixed(AwsKeys(end.access_key, "wrong"))
    with pytest.raises(Denied, match="not allowed to list"):
        S3("denied", region="us-east-1", keys=wrong, endpoint=end.url).check(write=False)


def test_a_bucket_that_is_not_there(accounts: dict[str, Account]) -> None:
    for kind in ("aws", "gcp"):
        store_of(accounts, kind, "some")
        place = object_servers.folder(accounts[kind]) / "data" / "nowhere"
        store = store_of(accounts, kind, "nowhere")
        place.rmdir()
        with pytest.raises(NotFound, match="no bucket"):
            store.check(write=False)


def test_a_server_that_was_killed_starts_again_with_its_data(accounts: dict[str, Account]) -> None:
    for kind in ("aws", "gcp"):
        store = store_of(accounts, kind, "kept")
        store.write("a", b"1", RICH)
        before = store.stat("a")
        object_servers.stop(accounts[kind])
        with pytest.raises(Transient):
            store.stat("a")
        again = store_of(accounts, kind, "kept")
        assert again.stat("a") == before
        assert store.stat("a") == before, "it has its old address"


def test_an_upload_goes_on_where_it_was(store: ObjectStore) -> None:
    data = os.urandom(11 * MIB)
    upload = store.begin("large", len(data), RICH)
    found = parts(len(data), 5 * MIB)

    def broken(part: Part) -> Iterator[bytes]:
        yield data[part.start : part.start + 1000]
        raise Transient("the source went away")

    tags = [store.write_part("large", upload, found[0], iter([data[: 5 * MIB]]))]
    with pytest.raises(Transient):
        store.write_part("large", upload, found[1], broken(found[1]))
    tags += [
        store.write_part("large", upload, part, iter([data[part.start : part.start + part.length]]))
        for part in found[1:]
    ]
    store.finish("large", upload, tags)
    assert content(store, "large") == data


PROGRAM = """
import resource, sys
from pathlib import Path
from isthmus.migration.objects.copy import Copier
from isthmus.migration.objects.credentials import AwsKeys, fixed
from isthmus.migration.objects.gcs import Gcs
from isthmus.migration.objects.ledger import Ledger
from isthmus.migration.objects.s3 import S3
s3, access, secret, gcs, path = sys.argv[1:]
source = S3("memory-from", region="us-east-1", keys=fixed(AwsKeys(access, secret)), endpoint=s3)
destination = Gcs("memory-to", token=None, endpoint=gcs)
ledger = Ledger(Path(path), source=source.url, destination=destination.url)
outcome = Copier(source, destination, ledger, tell=lambda text: None).run()
assert outcome.ok, outcome
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_memory_is_bounded_whatever_the_sizes(accounts: dict[str, Account], tmp_path: Path) -> None:
    """24 objects just under the limit of those that are held whole, and two over it: at most 300 MB."""
    source = store_of(accounts, "aws", "memory-from")
    store_of(accounts, "gcp", "memory-to")
    for number in range(24):
        source.write(f"{number}", os.urandom(SMALL), Metadata())
    for number in range(2):
        write_large(source, f"large-{number}", os.urandom(80 * MIB), 20 * MIB)
    ends = [object_servers.serve(accounts[kind], kind, "us-east-1", []) for kind in ("aws", "gcp")]  # type: ignore[arg-type]
    arguments = [ends[0].url, ends[0].access_key, ends[0].secret_key, ends[1].url, str(tmp_path / "ledger.db")]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 300


@pytest.fixture
def two_stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ObjectStore]]:
    """The buckets of aws-sim and gcp-sim in a home of their own; only the engine's outputs are given."""
    from isthmus.cli import engine, migration_ends

    bin_folder = home.tools_bin()
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "home"))
    urls = {"aws-sim": "s3://isthmus-data", "gcp-sim": "gs://isthmus-data"}
    monkeypatch.setattr(engine, "outputs", lambda stack: {"bucket": urls[stack]})
    accounts = [Account(name, home.account_file(name)) for name in urls]
    yield {name: migration_ends.store(name, 4) for name in urls}
    for account in accounts:
        object_servers.remove(account)


def test_the_command_there_and_back(two_stacks: dict[str, ObjectStore], capsys: pytest.CaptureFixture[str]) -> None:
    """Through the command line: copied, nothing left to do, a corrupted object named with exit 1, repaired, and back."""
    from isthmus.cli.main import run

    source, destination = two_stacks["aws-sim"], two_stacks["gcp-sim"]
    for number in range(5):
        source.write(f"run/{number}", bytes([number]) * 1000, Metadata(content_type="text/plain"))
    assert run(["migrate", "objects", "aws-sim", "gcp-sim"]) == 0
    assert "copied 5 objects" in capsys.readouterr().out
    destination.write("run/3", b"\x04" * 1000, Metadata())
    assert run(["migrate", "objects", "aws-sim", "gcp-sim"]) == 1
    assert "1 CORRUPT at the destination:\n  run/3: SHA-256" in capsys.readouterr().out
    assert run(["migrate", "objects", "aws-sim", "gcp-sim", "--repair"]) == 0
    destination.write("new", b"made there", Metadata())
    capsys.readouterr()
    assert run(["migrate", "objects", "gcp-sim", "aws-sim"]) == 0
    assert "copied 1 objects" in capsys.readouterr().out
    assert {item.key: item.size for item in source.items()} == {item.key: item.size for item in destination.items()}


def test_the_command_refuses_a_destination_that_is_not_empty(
    two_stacks: dict[str, ObjectStore], capsys: pytest.CaptureFixture[str]
) -> None:
    from isthmus.cli.main import run

    two_stacks["gcp-sim"].write("theirs", b"1", Metadata())
    assert run(["migrate", "objects", "aws-sim", "gcp-sim"]) == 3
    assert "the destination is not empty: 1 objects" in capsys.readouterr().err
