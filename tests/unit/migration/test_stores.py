"""What the two stores say on the wire and understand, as far as no server is needed."""

from datetime import UTC, datetime, timedelta

import pytest

from isthmus.migration.objects import credentials, gcs, s3
from isthmus.migration.objects.credentials import AwsKeys, Renewed
from isthmus.migration.objects.gcs import Gcs
from isthmus.migration.objects.s3 import S3
from isthmus.migration.objects.signature import Signer
from isthmus.migration.objects.store import Metadata
from isthmus.specs.errors import NotFound

EXAMPLE = AwsKeys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_the_signature_is_that_of_amazon_s_example() -> None:
    """S3 API reference, "Authenticating requests: using the Authorization header", example GET Object."""
    signed = Signer("us-east-1").sign(
        EXAMPLE,
        "GET",
        "https://examplebucket.s3.amazonaws.com/test.txt",
        {"range": "bytes=0-9"},
        payload=EMPTY,
        now=datetime(2013, 5, 24, tzinfo=UTC),
    )
    assert signed["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


def test_the_signature_of_a_listing_is_that_of_amazon_s_example() -> None:
    """The same page, example GET Bucket (List Objects): a query."""
    signed = Signer("us-east-1").sign(
        EXAMPLE,
        "GET",
        "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J",
        {},
        payload=EMPTY,
        now=datetime(2013, 5, 24, tzinfo=UTC),
    )
    assert signed["authorization"].endswith("34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7")


def test_a_clock_that_is_off_is_made_up_for() -> None:
    signer = Signer("us-east-1")
    ahead = signer.set_clock("Sat, 24 May 2098 00:00:00 GMT")
    assert ahead > 365 * 86400
    assert signer.sign(EXAMPLE, "GET", "https://b.example/", {})["x-amz-date"].startswith("20980524T0000")


def test_a_token_is_signed_along() -> None:
    signed = Signer("us-east-1").sign(AwsKeys("a", "b", "session"), "GET", "https://b.example/", {})
    assert signed["x-amz-security-token"] == "session"
    assert ";x-amz-security-token" in signed["authorization"]


def test_keys_never_show() -> None:
    assert "EXAMPLEKEY" not in repr(EXAMPLE)


@pytest.mark.parametrize("value", ["plain", "two  words", "größe", "日本語 " * 20, "line\nbreak", "=?odd", " lead", ""])
def test_values_survive_the_headers_of_s3(value: str) -> None:
    encoded = s3._encoded(value)
    assert encoded.isascii()
    assert "\n" not in encoded
    assert s3._decoded(encoded) == value


def test_what_s3_cannot_keep_of_metadata_is_said() -> None:
    store = S3("b", region="us-east-1", keys=credentials.fixed(EXAMPLE))
    metadata = Metadata(user={"Owner": "me", "owner": "you", "no header": "x", "fine": "y"})
    assert store.losses(metadata) == [
        "metadata 'Owner' becomes 'owner': S3 keeps names in lower case",
        "metadata 'no header': no header can have that name",
        "metadata 'owner': S3 keeps names in lower case, and 'owner' is taken",
    ]
    assert s3._headers(metadata)["x-amz-meta-fine"] == "y"
    assert "2100 bytes" in store.losses(Metadata(user={"a" * 100: "x" * 2000}))[0]


def test_metadata_comes_back_from_headers_as_it_went() -> None:
    metadata = Metadata("text/plain", "gzip", "de", "attachment", "no-store", {"name": "größe", "n": "1"})
    assert s3._metadata(s3._headers(metadata)) == metadata


def test_the_way_a_body_travelled_is_no_metadata() -> None:
    assert s3._metadata({"content-encoding": "aws-chunked"}).content_encoding == ""
    assert s3._metadata({"content-encoding": "aws-chunked, gzip"}).content_encoding == "gzip"


def test_an_object_with_new_metadata_is_another_version() -> None:
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    assert s3._version('"etag"', early) != s3._version('"etag"', late)
    assert s3._etag(s3._version('"e@tag"', early)) == '"e@tag"'
    assert gcs._generation({"generation": "7", "metageneration": "1"}) != gcs._generation(
        {"generation": "7", "metageneration": "2"}
    )


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("x" * 1025, "at most 1024 bytes"),
        ("ü" * 513, "at most 1024 bytes"),
        ("a\nb", "no line breaks"),
        ("..", "for itself"),
        (".well-known/acme-challenge/x", "for itself"),
        ("x" * 1024, ""),
        ("a/", ""),
    ],
)
def test_keys_that_cloud_storage_cannot_hold(key: str, why: str) -> None:
    refused = Gcs("b", token=None).refuses(key)
    assert why in refused
    assert bool(refused) == bool(why)


def test_keys_that_s3_cannot_hold() -> None:
    store = S3("b", region="us-east-1", keys=credentials.fixed(EXAMPLE))
    assert "1024" in store.refuses("ü" * 513)
    assert store.refuses("x" * 1024) == ""


def test_credentials_are_asked_for_again_before_they_end() -> None:
    asked: list[int] = []

    def fetch() -> tuple[int, datetime]:
        asked.append(len(asked))
        life = timedelta(minutes=1) if len(asked) == 1 else timedelta(hours=1)
        return asked[-1], datetime.now(UTC) + life

    renewed = Renewed(fetch)
    assert [renewed(), renewed(), renewed()] == [0, 1, 1]


def test_a_cloud_s_program_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(NotFound, match="aws is not installed"):
        credentials.aws("default")()
    with pytest.raises(NotFound, match="gcloud is not installed"):
        credentials.gcp()()
