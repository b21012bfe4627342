"""What is told about a copy."""

from isthmus.migration.objects import report
from isthmus.migration.objects.copy import Outcome


def outcome(**changes: object) -> Outcome:
    values: dict[str, object] = {
        "copied": 2, "copied_bytes": 3_000_000, "read_back": 2, "read_back_bytes": 3_000_000, "seconds": 1.5, "verified": 2,
        "verified_bytes": 3_000_000, "corrupt": (), "problems": (), "gone": (), "removed": (), "deleted": 0, "foreign": 0,
        "losses": (), "digest": "ab" * 32,
    }  # fmt: skip
    return Outcome(**{**values, **changes})  # type: ignore[arg-type]


def test_a_good_copy_is_two_lines() -> None:
    assert report.lines(outcome()) == [
        "copied 2 objects, 3.0 MB in 1.5 s, 2.0 MB/s with reading back",
        "verified by SHA-256: 2 objects, 3.0 MB (2 read back now); digest of all abababababababab",
    ]


def test_everything_that_is_not_as_it_was_is_named() -> None:
    text = "\n".join(
        report.lines(
            outcome(
                corrupt=(("a", "bytes differ"),),
                problems=(("b", "no"),),
                gone=("c",),
                removed=("d",),
                foreign=3,
                losses=(("e", "metadata 'x'"),),
            )
        )
    )
    for said in (
        "1 CORRUPT",
        "  a: bytes differ",
        "  b: no",
        "  c",
        "(--delete):\n  d",
        "  e: metadata 'x'",
        "3 objects",
    ):
        assert said in text


def test_a_long_list_is_cut_and_the_document_has_all() -> None:
    many = outcome(gone=tuple(f"k{number}" for number in range(30)))
    assert "  and 10 more; --json has all" in report.lines(many)
    assert len(report.document(many, source="s3://a", destination="gs://b")["gone"]) == 30
