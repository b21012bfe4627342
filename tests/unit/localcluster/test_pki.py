"""Certificates: who they are for, how long they live, when they are made anew."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from isthmus.localcluster import pki
from isthmus.localcluster.state import ClusterState, Paths
from isthmus.specs.errors import InvalidSpec

STATE = ClusterState(name="demo", identity="0123abcd", number=7)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    pki.ensure(STATE, Paths(tmp_path))
    return Paths(tmp_path)


def load(paths: Paths, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((paths.pki / f"{name}.crt").read_bytes())


def names(certificate: x509.Certificate, kind: x509.ObjectIdentifier) -> list[str]:
    return [str(item.value) for item in certificate.subject.get_attributes_for_oid(kind)]


def authority(paths: Paths) -> tuple[bytes, bytes]:
    return (paths.pki / "ca.crt").read_bytes(), (paths.pki / "ca.key").read_bytes()


def test_every_certificate_is_signed_by_its_authority(paths: Paths) -> None:
    for wanted in pki.certificates(STATE):
        certificate = load(paths, wanted.name)
        certificate.verify_directly_issued_by(load(paths, wanted.authority))
        assert names(certificate, NameOID.COMMON_NAME) == [wanted.user]
        assert names(certificate, NameOID.ORGANIZATION_NAME) == list(wanted.groups)


def test_the_kubelet_is_the_node_that_the_node_authorizer_knows(paths: Paths) -> None:
    certificate = load(paths, "kubelet")
    assert names(certificate, NameOID.COMMON_NAME) == ["system:node:demo-local"]
    assert names(certificate, NameOID.ORGANIZATION_NAME) == ["system:nodes"]


def test_only_the_administrator_is_a_master() -> None:
    masters = [item.name for item in pki.certificates(STATE) if "system:masters" in item.groups]
    assert masters == [pki.ADMIN]


def test_the_api_server_answers_to_its_address_and_service_names(paths: Paths) -> None:
    found = load(paths, "apiserver").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "kubernetes.default.svc.cluster.local" in found.get_values_for_type(x509.DNSName)
    addresses = {str(address) for address in found.get_values_for_type(x509.IPAddress)}
    assert {"10.200.7.2", "10.96.0.1", "127.0.0.1"} <= addresses


def test_keys_are_for_their_owner_only(paths: Paths) -> None:
    modes = {path.stat().st_mode & 0o777 for path in (*paths.pki.glob("*.key"), *paths.config.glob("*.kubeconfig"))}
    assert modes == {0o600} and paths.pki.stat().st_mode & 0o777 == 0o700


def test_a_second_ensure_changes_no_certificate(paths: Paths) -> None:
    before = {path.name: path.read_bytes() for path in paths.pki.iterdir()}
    pki.ensure(STATE, paths)
    assert {path.name: path.read_bytes() for path in paths.pki.iterdir()} == before


def test_a_new_address_makes_new_server_certificates_only(paths: Paths) -> None:
    before = {path.name: path.read_bytes() for path in paths.pki.glob("*.crt")}
    pki.ensure(ClusterState(name="demo", identity="0123abcd", number=8), paths)
    changed = {path.name for path in paths.pki.glob("*.crt") if path.read_bytes() != before[path.name]}
    assert changed == {"apiserver.crt", "kubelet-server.crt"}


def test_a_lost_authority_key_renews_all_below_it(paths: Paths) -> None:
    (paths.pki / "etcd-ca.key").unlink()
    pki.ensure(STATE, paths)
    for name in ("etcd", "apiserver-etcd"):
        load(paths, name).verify_directly_issued_by(load(paths, "etcd-ca"))


def test_a_key_of_another_certificate_is_noticed(paths: Paths) -> None:
    """A crash between writing the two files leaves a pair that does not match."""
    (paths.pki / "scheduler.key").write_bytes((paths.pki / "admin.key").read_bytes())
    before = load(paths, "scheduler").serial_number
    pki.ensure(STATE, paths)
    assert load(paths, "scheduler").serial_number != before


def test_certificates_that_end_soon_are_renewed(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load(paths, "admin").serial_number
    monkeypatch.setattr(pki, "RENEW_DAYS", pki.DAYS + 1)
    pki.ensure(STATE, paths)
    assert load(paths, "admin").serial_number != before


def test_a_short_lived_certificate_is_for_its_user_and_minutes(paths: Paths) -> None:
    text, key = pki.client_certificate(*authority(paths), "isthmus:alice", ("readers", "writers"), 15)
    certificate = x509.load_pem_x509_certificate(text.encode())
    certificate.verify_directly_issued_by(load(paths, "ca"))
    assert names(certificate, NameOID.COMMON_NAME) == ["isthmus:alice"]
    assert names(certificate, NameOID.ORGANIZATION_NAME) == ["readers", "writers"]
    assert timedelta(minutes=14) < certificate.not_valid_after_utc - datetime.now(UTC) <= timedelta(minutes=15)
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH] and "PRIVATE KEY" in key
    assert not [path for path in paths.pki.iterdir() if "alice" in path.name]


@pytest.mark.parametrize(("user", "minutes"), [("", 15), ("alice", 0), ("alice", 24 * 60 + 1)])
def test_a_short_lived_certificate_has_a_user_and_a_short_life(paths: Paths, user: str, minutes: int) -> None:
    with pytest.raises(InvalidSpec):
        pki.client_certificate(*authority(paths), user, (), minutes)
