"""Objects of a simulated account, as far as no server must run."""

from pathlib import Path

import pytest

from isthmus.simulation import object_servers
from isthmus.simulation.account import Account
from isthmus.simulation.resource import CloudError
from isthmus.specs.errors import NotFound

NOT_EMPTY = CloudError("BucketNotEmpty", "The bucket you tried to delete is not empty", status=409)


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Account:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", "/nonexistent")
    return Account("aws-test", tmp_path / "aws-test.db")


def make(account: Account, bucket: str, *names: str) -> Path:
    place = object_servers.folder(account) / "data" / bucket
    place.mkdir(parents=True)
    for name in names:
        (place / name).write_bytes(b"1")
    return place


def test_a_bucket_with_objects_is_deleted_only_by_force(account: Account) -> None:
    place = make(account, "data", "an-object")
    with pytest.raises(CloudError, match="BucketNotEmpty"):
        object_servers.delete_bucket(account, "data", force=False, not_empty=NOT_EMPTY)
    assert place.exists()
    object_servers.delete_bucket(account, "data", force=True, not_empty=NOT_EMPTY)
    assert not place.exists()


def test_what_a_server_keeps_for_itself_is_no_object(account: Account) -> None:
    (make(account, "data") / ".sgwtmp").mkdir()
    assert not object_servers.holds_objects(account, "data")
    object_servers.delete_bucket(account, "data", force=False, not_empty=NOT_EMPTY)


def test_everything_goes_with_the_last_bucket(account: Account) -> None:
    make(account, "one")
    make(account, "two")
    object_servers.delete_bucket(account, "one", force=False, not_empty=NOT_EMPTY)
    assert object_servers.folder(account).exists()
    object_servers.delete_bucket(account, "two", force=False, not_empty=NOT_EMPTY)
    assert not object_servers.folder(account).exists()


def test_an_account_that_never_had_objects(account: Account) -> None:
    object_servers.delete_bucket(account, "data", force=False, not_empty=NOT_EMPTY)
    object_servers.stop(account)
    object_servers.remove(account)


def test_a_server_that_is_not_installed_is_named(account: Account) -> None:
    with pytest.raises(NotFound, match="versitygw") as caught:
        object_servers.serve(account, "aws", "us-east-1", ["data"])
    assert caught.value.remedy == "isthmus install objects"
