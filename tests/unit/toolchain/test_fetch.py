"""Reading a publisher's checksums. The downloads themselves are tested against a real server in tests/conformance."""

import platform

import pytest

from isthmus.toolchain import fetch

A, B = "a" * 64, "B" * 64


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (A, "kubectl", A),
        (f"{A}\n", "kubectl", A),
        (f"{A}  coredns_1.tgz\n", "coredns_1.tgz", A),
        (f"{A} *containerd.tar.gz\n", "containerd.tar.gz", A),
        (f"{A}  release/etcd.tar.gz\n{B}  other\n", "etcd.tar.gz", A),
        (f"{A}  x.tar.gz\n{B}  y.tar.gz\n", "y.tar.gz", B.lower()),
    ],
)
def test_the_digest_of_a_file(text: str, name: str, expected: str) -> None:
    assert fetch.digest_from(text, name) == expected


@pytest.mark.parametrize(
    "text",
    ["", "<html>not found</html>", f"{A}  another\n", f"{A[:-1]}  kubectl", f"{A}\n{B}\n", f"{'g' * 64}  kubectl"],
)
def test_no_digest_no_file(text: str) -> None:
    with pytest.raises(fetch.Unavailable):
        fetch.digest_from(text, "kubectl")


def test_an_architecture_without_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(fetch.Unavailable, match="riscv64"):
        fetch.architecture()
