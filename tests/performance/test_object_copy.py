"""Our copier beside rclone, on the same servers in one run, both with their verification by content.

`isthmus install objects bench` first. Ours reads every object back and compares SHA-256; rclone copies, then `rclone check --download`
reads both sides and compares bytes. Both use 16 threads.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from isthmus.migration.objects import credentials
from isthmus.migration.objects.credentials import AwsKeys
from isthmus.migration.objects.gcs import Gcs
from isthmus.migration.objects.s3 import S3
from isthmus.migration.objects.store import Metadata, ObjectStore, parts
from isthmus.simulation import object_servers
from isthmus.simulation.account import Account
from isthmus.specs.errors import NotFound
from isthmus.toolchain import home

pytestmark = pytest.mark.performance

MIB = 1 << 20
MEMORY_MB = 300
EQUAL = 1.0
CASES = {
    "10,000 objects of 4 KiB, aws to gcp": (10_000, 4096, True),
    "4 objects of 512 MiB, gcp to aws": (4, 512 * MIB, False),
}
"""Large ones are written to S3: fake-gcs-server hashes all that it has of an upload again at each of its chunks, so that the
size of a client's chunks would be all that is measured (25 minutes were not enough for rclone's 16 MiB)."""
PROGRAM = """
import resource, sys
from pathlib import Path
from isthmus.migration.objects.copy import Copier
from isthmus.migration.objects.credentials import AwsKeys, fixed
from isthmus.migration.objects.gcs import Gcs
from isthmus.migration.objects.ledger import Ledger
from isthmus.migration.objects.s3 import S3
s3, access, secret, gcs, path, direction = sys.argv[1:]
names = ("from", "to-ours") if direction == "there" else ("to-ours", "from")
one = S3(names[0], region="us-east-1", keys=fixed(AwsKeys(access, secret)), endpoint=s3)
other = Gcs(names[1], token=None, endpoint=gcs)
source, destination = (one, other) if direction == "there" else (other, one)
ledger = Ledger(Path(path), source=source.url, destination=destination.url)
outcome = Copier(source, destination, ledger, tell=lambda text: None).run()
assert outcome.ok, outcome
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[dict[str, Account]]:
    made = {kind: Account(f"{kind}-bench", tmp_path / f"{kind}-bench.db") for kind in ("aws", "gcp")}
    yield made
    for account in made.values():
        object_servers.remove(account)


def fill(store: ObjectStore, count: int, size: int) -> None:
    """Objects of random bytes, of a few different contents."""
    contents = [os.urandom(min(size, 8 * MIB)) for _ in range(8)]

    def put(number: int) -> None:
        data = contents[number % 8]
        key = f"{number % 100:02}/{number:06}"
        if size <= len(data):
            store.write(key, data, Metadata(content_type="text/plain"))
            return
        upload = store.begin(key, size, Metadata())
        tags = [store.write_part(key, upload, part, iter(contents)) for part in parts(size, 8 * len(data))]
        store.finish(key, upload, tags)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(count)))


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("case", CASES)
def test_at_least_as_fast_as_rclone(case: str, accounts: dict[str, Account], tmp_path: Path) -> None:
    try:
        rclone = str(home.tool("rclone"))
    except NotFound:
        pytest.skip("rclone is not installed: isthmus install objects bench")
    count, size, there = CASES[case]
    buckets = ["from", "to-ours", "to-rclone"]
    s3 = object_servers.serve(accounts["aws"], "aws", "us-east-1", buckets)
    gcs = object_servers.serve(accounts["gcp"], "gcp", "us-central1", buckets)
    keys = credentials.fixed(AwsKeys(s3.access_key, s3.secret_key))
    filled: ObjectStore = Gcs("from", token=None, endpoint=gcs.url)
    if there:
        filled = S3("from", region="us-east-1", keys=keys, endpoint=s3.url)
    fill(filled, count, size)
    environment = {
        **os.environ,
        "RCLONE_CONFIG": "/dev/null",
        "RCLONE_CONFIG_A_TYPE": "s3",
        "RCLONE_CONFIG_A_PROVIDER": "Other",
        "RCLONE_CONFIG_A_ENDPOINT": s3.url,
        "RCLONE_CONFIG_A_REGION": "us-east-1",
        "RCLONE_CONFIG_A_ACCESS_KEY_ID": s3.access_key,
        "RCLONE_CONFIG_A_SECRET_ACCESS_KEY": s3.secret_key,
        "RCLONE_CONFIG_B_TYPE": "google cloud storage",
        "RCLONE_CONFIG_B_ANONYMOUS": "true",
        "RCLONE_CONFIG_B_BUCKET_POLICY_ONLY": "true",
        "RCLONE_CONFIG_B_NO_CHECK_BUCKET": "true",
        "RCLONE_CONFIG_B_ENDPOINT": f"{gcs.url}/storage/v1/",
    }
    many = ["--transfers", "16", "--checkers", "16"]

    def theirs(*arguments: str) -> float:
        started = time.perf_counter()
        done = subprocess.run([rclone, *arguments, *many], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return time.perf_counter() - started

    arguments = [s3.url, s3.access_key, s3.secret_key, gcs.url, str(tmp_path / "ledger.db")]
    arguments.append("there" if there else "back")
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    ours = time.perf_counter() - started
    ends = ("a:from", "b:to-rclone") if there else ("b:from", "a:to-rclone")
    copied = theirs("copy", *ends)
    checked = theirs("check", "--download", *ends)
    memory, ratio = int(done.stdout), (copied + checked) / ours
    rate = count * size / MIB / ours
    print(
        f"\n{case}: ours {ours:.1f} s ({count / ours:.0f} objects/s, {rate:.1f} MiB/s, {memory} MB of memory); rclone"
        f" {copied:.1f} s copying + {checked:.1f} s checking; {ratio:.2f} x as fast as rclone"
    )
    assert memory <= MEMORY_MB
    assert ratio >= EQUAL
