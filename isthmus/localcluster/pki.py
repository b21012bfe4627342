"""Keys and certificates of one cluster: three authorities, a certificate per process, short-lived ones for users.

Elliptic curve keys (P-256), because a dozen of them take milliseconds. Keys are files of mode 0600 and are never given
to a process as an argument. `ensure` makes what is missing and renews what ends soon, so it runs before every start.
"""

import base64
import ipaddress
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from isthmus.localcluster.state import API_PORT, DNS_DOMAIN, SERVICE_API, ClusterState, Paths, write_file
from isthmus.specs.errors import InvalidSpec

AUTHORITY_DAYS = 3650
DAYS = 365
RENEW_DAYS = 30
CLOCK_SKEW = timedelta(minutes=5)
"""Certificates begin this long ago, for clocks that differ a little."""

CLIENT_MINUTES_MAX = 24 * 60

ADMIN = "admin"
Purpose = x509.ObjectIdentifier
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


@dataclass(frozen=True)
class Certificate:
    """One certificate that a cluster needs: files <name>.crt and <name>.key under pki/."""

    name: str
    authority: str
    user: str
    """Common name: who the API server takes the holder for."""
    groups: tuple[str, ...] = ()
    purposes: tuple[Purpose, ...] = (CLIENT,)
    names: tuple[str, ...] = ()
    """DNS names and addresses a server answers to."""


AUTHORITIES = {"ca": "isthmus-ca", "front-proxy-ca": "isthmus-front-proxy-ca", "etcd-ca": "isthmus-etcd-ca"}

USERS = {
    ADMIN: Certificate(ADMIN, "ca", "isthmus-admin", ("system:masters",)),
    "controller-manager": Certificate("controller-manager", "ca", "system:kube-controller-manager"),
    "scheduler": Certificate("scheduler", "ca", "system:kube-scheduler"),
    "proxy": Certificate("proxy", "ca", "system:kube-proxy"),
    "coredns": Certificate("coredns", "ca", "isthmus:coredns"),
    "kwok": Certificate("kwok", "ca", "isthmus:kwok"),
    "storage": Certificate("storage", "ca", "isthmus:storage"),
}
"""Who gets a kubeconfig file. The names beginning with system: are bound to their roles by Kubernetes itself
(plugin/pkg/auth/authorizer/rbac/bootstrappolicy, v1.36), the others by isthmus/localcluster/objects.py."""


def certificates(state: ClusterState) -> list[Certificate]:
    """Every certificate of a cluster."""
    local = ("localhost", "127.0.0.1")
    api = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{DNS_DOMAIN}")
    return [
        *USERS.values(),
        Certificate("kubelet", "ca", f"system:node:{state.node}", ("system:nodes",)),
        Certificate("apiserver", "ca", "kube-apiserver", (), (SERVER,), (*api, SERVICE_API, state.address, *local)),
        Certificate("apiserver-kubelet", "ca", "isthmus:apiserver"),
        Certificate("kubelet-server", "ca", state.node, (), (SERVER,), (state.node, state.address)),
        Certificate("front-proxy", "front-proxy-ca", "front-proxy-client"),
        Certificate("etcd", "etcd-ca", "etcd", (), (SERVER, CLIENT), local),
        Certificate("apiserver-etcd", "etcd-ca", "kube-apiserver"),
    ]


def ensure(state: ClusterState, paths: Paths) -> None:
    """Make every key, certificate and kubeconfig that is missing, ends within RENEW_DAYS, or names another address."""
    for folder in (paths.pki, paths.config):
        folder.mkdir(mode=0o700, exist_ok=True)
    for name, subject in AUTHORITIES.items():
        if not _usable(paths.pki / f"{name}.crt"):
            key = _new_key()
            write_file(paths.pki / f"{name}.key", _key_pem(key), durable=True)
            write_file(paths.pki / f"{name}.crt", _pem(_authority(subject, key)), durable=True)
    for wanted in certificates(state):
        if not _usable(paths.pki / f"{wanted.name}.crt", wanted):
            certificate, key_pem = _issue(paths.pki, wanted, timedelta(days=DAYS))
            write_file(paths.pki / f"{wanted.name}.key", key_pem)
            write_file(paths.pki / f"{wanted.name}.crt", certificate)
    _ensure_service_account_key(paths)
    for user in (*USERS, "kubelet"):
        write_file(paths.kubeconfig(user), _as_yaml(kubeconfig(state, paths, user)))


def kubeconfig(state: ClusterState, paths: Paths, user: str) -> dict[str, Any]:
    """A kubeconfig that carries the user's certificate and key."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": state.name,
                "cluster": {"server": endpoint(state), "certificate-authority-data": _data(paths.pki / "ca.crt")},
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _data(paths.pki / f"{user}.crt"),
                    "client-key-data": _data(paths.pki / f"{user}.key"),
                },
            }
        ],
        "contexts": [{"name": state.name, "context": {"cluster": state.name, "user": user}}],
        "current-context": state.name,
    }


def endpoint(state: ClusterState) -> str:
    """Address of the cluster's API server."""
    return f"https://{state.address}:{API_PORT}"


def client_certificate(
    authority: bytes, authority_key: bytes, user: str, groups: Iterable[str], minutes: int
) -> tuple[str, str]:
    """A fresh client certificate from a cluster's CA: (certificate PEM, key PEM). Nothing is stored.

    Args:
        authority: the CA's certificate, PEM.
        authority_key: its key, PEM; elliptic curve or RSA.

    Raises:
        InvalidSpec: no user, or a life outside 1 minute to CLIENT_MINUTES_MAX.
    """
    if not user:
        raise InvalidSpec("a client certificate needs a user name", subject="client certificate")
    if not 1 <= minutes <= CLIENT_MINUTES_MAX:
        raise InvalidSpec(
            f"a client certificate lives 1 to {CLIENT_MINUTES_MAX} minutes, not {minutes}", subject="client certificate"
        )
    wanted = Certificate(user, "ca", user, tuple(groups))
    return _signed(authority, authority_key, wanted, timedelta(minutes=minutes))


def _issue(folder: Path, wanted: Certificate, life: timedelta) -> tuple[str, str]:
    certificate, key = ((folder / f"{wanted.authority}.{kind}").read_bytes() for kind in ("crt", "key"))
    return _signed(certificate, key, wanted, life)


def _signed(certificate: bytes, certificate_key: bytes, wanted: Certificate, life: timedelta) -> tuple[str, str]:
    authority = x509.load_pem_x509_certificate(certificate)
    authority_key = serialization.load_pem_private_key(certificate_key, password=None)
    if not isinstance(authority_key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise TypeError(f"the key of {wanted.authority} is neither an elliptic curve nor an RSA key")
    key = _new_key()
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in wanted.groups]
    subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, wanted.user)])
    builder = (
        _builder(subject, authority.subject, key, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(wanted.purposes), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    if wanted.names:
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in wanted.names])
        builder = builder.add_extension(alternatives, critical=False)
    return _pem(builder.sign(authority_key, hashes.SHA256())), _key_pem(key)


def _authority(name: str, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return (
        _builder(subject, subject, key, timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, life: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + life)
    )


def _usage(*, sign: bool = False, certificates: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=sign or certificates, key_cert_sign=certificates, crl_sign=certificates, key_encipherment=False,
        content_commitment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _usable(path: Path, wanted: Certificate | None = None) -> bool:
    """Whether a certificate is there with its key and has RENEW_DAYS left; and, if it is not an authority's own,
    whether it is signed by today's authority and answers to the names."""
    if not path.exists() or not path.with_suffix(".key").exists():
        return False
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    if certificate.not_valid_after_utc - datetime.now(UTC) < timedelta(days=RENEW_DAYS):
        return False
    if not _matches_key(certificate, path.with_suffix(".key")):  # a crash came between the two files
        return False
    if wanted is None:
        return True
    authority = x509.load_pem_x509_certificate((path.parent / f"{wanted.authority}.crt").read_bytes())
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError):
        return False
    if not wanted.names:
        return True
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {_general_name(name) for name in wanted.names} <= set(found)


def _matches_key(certificate: x509.Certificate, path: Path) -> bool:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    return key.public_key() == certificate.public_key()


def _ensure_service_account_key(paths: Paths) -> None:
    private, public = paths.pki / "sa.key", paths.pki / "sa.pub"
    if not private.exists():
        write_file(private, _key_pem(_new_key()), durable=True)
    key = serialization.load_pem_private_key(private.read_bytes(), password=None)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    write_file(public, key.public_key().public_bytes(serialization.Encoding.PEM, form).decode())


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain).decode()


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _as_yaml(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1)  # JSON is YAML
