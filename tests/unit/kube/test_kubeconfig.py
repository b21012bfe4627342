"""Kubeconfigs: what is read, and credential programs with all they can do wrong."""

import base64
import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from isthmus.kube import kubeconfig
from isthmus.specs.errors import InvalidSpec, NotReady


def document(user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }


def program(folder: Path, text: str) -> str:
    path = folder / "credential"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def plugin(command: str, **more: Any) -> dict[str, Any]:
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": command,
            "interactiveMode": "Never",
            **more,
        }
    }


def test_the_current_context_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("PEM")
    path = tmp_path / "config"
    path.write_text(json.dumps(document({"token": "t"}, {"certificate-authority": "ca.pem", "tls-server-name": "api"})))
    connection = kubeconfig.read(path)
    assert (connection.server, connection.ca, connection.tls_name) == ("https://10.0.0.1:6443", "PEM", "api")
    assert connection.credential().token == "t"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"clusters": []}, "names no cluster"),
        ({"current-context": "gone"}, "no entry 'gone' under contexts"),
        ({"users": []}, "no entry 'u' under users"),
        ({"clusters": [{"name": "c", "cluster": {}}]}, "no server address"),
    ],
)
def test_a_kubeconfig_that_lacks_something_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        kubeconfig.read({**document(), **change})


def test_yaml_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("a: [")
    with pytest.raises(InvalidSpec, match="not valid YAML"):
        kubeconfig.read(path)
    with pytest.raises(InvalidSpec, match="cannot read"):
        kubeconfig.read(tmp_path / "absent")


def test_a_certificate_comes_from_data_or_files(tmp_path: Path) -> None:
    data = {f"client-{name}-data": base64.b64encode(name.encode()).decode() for name in ("certificate", "key")}
    credential = kubeconfig.read(document(data)).credential()
    assert (credential.certificate, credential.key) == ("certificate", "key")
    with pytest.raises(InvalidSpec, match="base64"):
        kubeconfig.read(document({"client-certificate-data": "?", "client-key-data": "?"})).credential()


def test_a_credential_program_is_run_with_its_environment(tmp_path: Path) -> None:
    ends = datetime.now(UTC) + timedelta(minutes=15)
    answer = json.dumps({"status": {"token": "$ACCOUNT", "expirationTimestamp": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}})
    command = program(tmp_path, f'cat <<END\n{answer}\nEND\necho "$KUBERNETES_EXEC_INFO" > {tmp_path}/info')
    user = plugin(command, env=[{"name": "ACCOUNT", "value": "demo"}], provideClusterInfo=True)
    credential = kubeconfig.read(document(user)).credential()
    assert credential.token == "demo"
    assert not credential.ends_soon(datetime.now(UTC))
    assert credential.ends_soon(ends - timedelta(seconds=10))
    info = json.loads((tmp_path / "info").read_text())
    assert info["spec"]["cluster"]["server"] == "https://10.0.0.1:6443"


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    user = {"token": "very-secret", "client-key-data": "very-secret"}
    connection = kubeconfig.read(document(user))
    assert "very-secret" not in repr(connection)
    assert "very-secret" not in repr(
        kubeconfig.Credential(token="very-secret", key="very-secret", password="very-secret")
    )


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'no cluster of that name' >&2; exit 3", r"exit 3\): no cluster of that name"),
        ("echo not-json", "no ExecCredential"),
        ("echo '[]'", "no ExecCredential"),
    ],
)
def test_a_credential_program_that_fails_is_told_in_its_own_words(tmp_path: Path, script: str, words: str) -> None:
    with pytest.raises(NotReady, match=words):
        kubeconfig.read(document(plugin(program(tmp_path, script)))).credential()


def test_a_credential_program_that_is_missing_is_named() -> None:
    user = plugin("no-such-program-here", installHint="apt-get install it")
    with pytest.raises(NotReady, match="no-such-program-here") as caught:
        kubeconfig.read(document(user)).credential()
    assert caught.value.remedy == "apt-get install it"


def test_a_credential_program_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeconfig, "EXEC_SECONDS", 0.2)
    with pytest.raises(NotReady, match="no answer"):
        kubeconfig.read(document(plugin(program(tmp_path, "exec sleep 30")))).credential()
