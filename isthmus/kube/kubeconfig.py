"""Reads a kubeconfig: where the API server is and who we are to it.

Exists apart from the official loader for three reasons. Its credential plugin call has no time limit. It writes client
keys to temporary files that a kill -9 leaves behind. And it does not renew a certificate that ends while we follow a
run (a simulated EKS credential lives 15 minutes). Only what kubectl's own format says is supported; `auth-provider`,
removed from kubectl in 1.26, is not.
"""

import base64
import binascii
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from isthmus.specs.errors import InvalidSpec, NotReady

EXEC_SECONDS = 60
"""Time limit of a credential plugin. Generous: on a stopped simulated cluster the plugin starts it first."""

RENEW_BEFORE = timedelta(seconds=30)
"""A credential that ends within this time is renewed before use, so that no request is made with one about to end."""


@dataclass(frozen=True)
class Credential:
    """Who we are to an API server. At most one of token, certificate and password is set."""

    token: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)
    """PEM."""
    key: str | None = field(default=None, repr=False)
    """PEM."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    expires: datetime | None = None

    def ends_soon(self, now: datetime) -> bool:
        """Whether it must be renewed before the next request."""
        return self.expires is not None and now + RENEW_BEFORE >= self.expires


@dataclass(frozen=True)
class Connection:
    """One context of a kubeconfig, resolved."""

    server: str
    ca: str | None
    """PEM, or None for the system's authorities."""
    insecure: bool
    tls_name: str | None
    proxy: str | None
    user: Mapping[str, Any] = field(repr=False)
    base: Path

    def credential(self) -> Credential:
        """A credential that is valid now; runs the credential plugin where the kubeconfig names one.

        Raises:
            NotReady: the plugin failed, is missing or took longer than EXEC_SECONDS; its own words are in the message.
            InvalidSpec: the kubeconfig's user section cannot be read.
        """
        if "exec" in self.user:
            return _from_plugin(self.user["exec"], self)
        certificate, key = _pem(self.user, "client-certificate", self.base), _pem(self.user, "client-key", self.base)
        if certificate and key:
            return Credential(certificate=certificate, key=key)
        if path := self.user.get("tokenFile"):
            return Credential(token=_read(self.base / path).strip())
        if token := self.user.get("token"):
            return Credential(token=str(token))
        if username := self.user.get("username"):
            return Credential(username=str(username), password=str(self.user.get("password", "")))
        return Credential()


def read(kubeconfig: Mapping[str, Any] | Path) -> Connection:
    """The current context of a kubeconfig.

    Args:
        kubeconfig: the document, or the path of one (YAML or JSON).

    Raises:
        InvalidSpec: it is not a kubeconfig, or its current context names a cluster or user that it does not hold.
    """
    base = Path.cwd()
    document: Any = kubeconfig
    if isinstance(kubeconfig, Path):
        base = kubeconfig.parent
        try:
            document = yaml.safe_load(_read(kubeconfig))
        except yaml.YAMLError as error:
            raise InvalidSpec("the kubeconfig is not valid YAML", subject=str(kubeconfig)) from error
    if not isinstance(document, Mapping) or not document.get("clusters"):
        raise InvalidSpec("this is not a kubeconfig: it names no cluster")
    name = document.get("current-context") or _only(document, "contexts")
    context = _named(document, "contexts", "context", name)
    cluster = _named(document, "clusters", "cluster", context.get("cluster"))
    user = _named(document, "users", "user", context["user"]) if context.get("user") else {}
    if not str(cluster.get("server", "")).startswith(("https://", "http://")):
        raise InvalidSpec(f"the kubeconfig's cluster {context.get('cluster')!r} has no server address")
    return Connection(
        server=str(cluster["server"]).rstrip("/"),
        ca=_pem(cluster, "certificate-authority", base),
        insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
        tls_name=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url"),
        user=user,
        base=base,
    )


def _from_plugin(spec: Mapping[str, Any], connection: Connection) -> Credential:
    """Runs a client-go credential plugin (kubernetes.io, "Authenticating", client-go credential plugins)."""
    command = [_program(str(spec["command"])), *(str(arg) for arg in spec.get("args") or ())]
    shown = " ".join([str(spec["command"]), *(str(arg) for arg in spec.get("args") or ())])
    try:
        done = subprocess.run(
            command, env=_environment(spec, connection), capture_output=True, text=True, timeout=EXEC_SECONDS, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError as error:
        hint = str(spec.get("installHint") or f"put {spec['command']} on the PATH")
        raise NotReady(
            f"the credential program {spec['command']!r} is not there", subject=shown, remedy=hint
        ) from error
    except subprocess.TimeoutExpired as error:
        raise NotReady(f"the credential program gave no answer in {EXEC_SECONDS} s", subject=shown) from error
    if done.returncode != 0:
        said = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise NotReady(f"the credential program failed (exit {done.returncode}): {said}", subject=shown)
    try:
        status = json.loads(done.stdout)["status"]
        ends = status.get("expirationTimestamp")
        return Credential(
            token=status.get("token"),
            certificate=status.get("clientCertificateData"),
            key=status.get("clientKeyData"),
            expires=datetime.fromisoformat(ends).astimezone(UTC) if ends else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # The answer may hold a token: it is not quoted.
        raise NotReady("the credential program's answer is no ExecCredential", subject=shown) from error


def _program(command: str) -> str:
    """Path of a plugin. `isthmus` by bare name is found beside the running Python too: a user need not have activated
    the environment to run its commands."""
    if os.sep in command or shutil.which(command):
        return command
    beside = Path(sys.executable).parent / command
    return str(beside) if beside.is_file() else command


def _environment(spec: Mapping[str, Any], connection: Connection) -> dict[str, str]:
    environment = dict(os.environ)
    environment.update({str(item["name"]): str(item["value"]) for item in spec.get("env") or ()})
    info: dict[str, Any] = {
        "apiVersion": spec.get("apiVersion"),
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    if spec.get("provideClusterInfo"):
        cluster: dict[str, Any] = {"server": connection.server, "insecure-skip-tls-verify": connection.insecure}
        if connection.ca:
            cluster["certificate-authority-data"] = base64.b64encode(connection.ca.encode()).decode()
        info["spec"]["cluster"] = cluster
    environment["KUBERNETES_EXEC_INFO"] = json.dumps(info)
    return environment


def _only(document: Mapping[str, Any], section: str) -> str:
    entries = document.get(section) or []
    if len(entries) != 1:
        raise InvalidSpec("the kubeconfig has no current-context", remedy="kubectl config use-context NAME")
    return str(entries[0]["name"])


def _named(document: Mapping[str, Any], section: str, key: str, name: Any) -> Mapping[str, Any]:
    for entry in document.get(section) or ():
        if entry.get("name") == name:
            return dict(entry.get(key) or {})
    raise InvalidSpec(f"the kubeconfig has no entry {name!r} under {section}")


def _pem(section: Mapping[str, Any], key: str, base: Path) -> str | None:
    if data := section.get(f"{key}-data"):
        try:
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise InvalidSpec(f"the kubeconfig's {key}-data is not base64 of a PEM") from error
    return _read(base / section[key]) if section.get(key) else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidSpec(f"cannot read {path}: {error.strerror}", subject=str(path)) from error
