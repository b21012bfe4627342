"""isthmus kube-token and who may come into a simulated cluster."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.cli import kube_token
from isthmus.simulation import access, local
from isthmus.specs.errors import NotFound, NotReady, Refused
from isthmus.toolchain import home
from tests.unit.simulation.aws_account import ASSOCIATION, ENTRY, REGION, Aws

ADMIN = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
API = {"accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": False}}


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    before = local.backend()
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    made = Aws(home.accounts(), "aws-sim")
    yield made
    local.use(before)


def caller(aws: Aws) -> str:
    found, _ = aws.operations.invoke("aws:index/getCallerIdentity:getCallerIdentity", {})
    return str(found["arn"])


def admit(aws: Aws, arn: str) -> None:
    aws.make(ENTRY, "me", clusterName="training", principalArn=arn)
    aws.make(
        ASSOCIATION, "me", clusterName="training", principalArn=arn, policyArn=ADMIN, accessScope={"type": "cluster"}
    )


def ask(capsys: pytest.CaptureFixture[str], **changes: Any) -> dict[str, Any]:
    """What the command prints."""
    arguments: dict[str, Any] = {"cloud": "aws", "account": "aws-sim", "region": REGION, "cluster": "training"}
    kube_token.kube_token(**{**arguments, **changes})
    return dict(json.loads(capsys.readouterr().out))


def test_only_an_access_entry_lets_the_caller_in(aws: Aws) -> None:
    aws.cluster(**API)
    with pytest.raises(Refused, match="has no access entry"):
        access.access(aws.account, "aws", REGION, "training")
    aws.make(ENTRY, "me", clusterName="training", principalArn=caller(aws), kubernetesGroups=["viewers"])
    assert access.access(aws.account, "aws", REGION, "training").groups == ("viewers",)
    aws.make(
        ASSOCIATION,
        "me",
        clusterName="training",
        principalArn=caller(aws),
        policyArn=ADMIN,
        accessScope={"type": "cluster"},
    )
    found = access.access(aws.account, "aws", REGION, "training")
    assert (found.user, found.groups, found.minutes) == (caller(aws), ("system:masters",), 15)


def test_the_creator_comes_in_where_the_cluster_says_so(aws: Aws) -> None:
    aws.cluster()
    assert access.access(aws.account, "aws", REGION, "training").groups == ("system:masters",)


def test_unknown_clusters_are_named(aws: Aws) -> None:
    with pytest.raises(NotFound, match="no cluster other in us-east-1"):
        access.access(aws.account, "aws", REGION, "other")


def test_a_credential_is_an_exec_credential(
    aws: Aws, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_token, "_answers", lambda server: True)
    aws.cluster(**API)
    admit(aws, caller(aws))
    found = ask(capsys)
    assert (found["apiVersion"], found["kind"]) == ("client.authentication.k8s.io/v1", "ExecCredential")
    assert found["status"]["clientCertificateData"] == f"certificate {caller(aws)} system:masters 15"
    expires = time.mktime(time.strptime(found["status"]["expirationTimestamp"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
    assert 14 * 60 < expires - time.time() <= 15 * 60


def test_a_certificate_is_kept_in_the_cluster_s_folder(
    aws: Aws, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_token, "_answers", lambda server: True)
    aws.cluster()
    (home.clusters() / "aws-sim-us-east-1-training").mkdir()
    first = ask(capsys)
    (kept,) = home.clusters().rglob("credentials/*.json")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    monkeypatch.setattr(kube_token, "_fresh", lambda allowed: pytest.fail("made another"))
    assert ask(capsys) == first
    monkeypatch.undo()


@pytest.mark.parametrize("text", ["", "{}", "no json", '{"expires": "2001-01-01T00:00:00+00:00", "server": "x"}'])
def test_a_kept_certificate_that_is_broken_or_old_is_made_anew(
    aws: Aws, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(kube_token, "_answers", lambda server: True)
    aws.cluster()
    (home.clusters() / "aws-sim-us-east-1-training").mkdir()
    ask(capsys)
    (kept,) = home.clusters().rglob("credentials/*.json")
    kept.write_text(text)
    assert ask(capsys)["status"]["clientKeyData"] == "key"
    assert json.loads(kept.read_text())["server"] == "https://192.0.2.1:6443"


def test_a_stopped_cluster_is_started(
    aws: Aws, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.cluster()
    aws.local_cluster().stop()
    monkeypatch.setattr(kube_token, "_answers", lambda server: aws.local_cluster().document["running"])
    ask(capsys)
    assert aws.local_cluster().document["running"]


def test_a_real_account_asks_the_cloud_s_own_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    program = tmp_path / "aws"
    program.write_text(
        '#!/bin/sh\necho "{\\"kind\\": \\"ExecCredential\\", \\"apiVersion\\": \\"x\\", \\"spec\\": \\"$*\\"}"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = ask(capsys, account="prod")
    assert found["apiVersion"] == "client.authentication.k8s.io/v1"
    assert found["spec"] == "--profile prod --region us-east-1 eks get-token --cluster-name training --output json"
    with pytest.raises(NotFound, match="gke-gcloud-auth-plugin is not installed"):
        ask(capsys, account="prod", cloud="gcp")
    program.write_text("#!/bin/sh\necho 'no such profile' >&2; exit 255\n")
    with pytest.raises(NotReady, match="no such profile"):
        ask(capsys, account="prod")


def test_asking_imports_nothing_heavy() -> None:
    heavy = "('pydantic', 'grpc', 'pulumi', 'kubernetes', 'isthmus.localcluster')"
    text = f"import sys, isthmus.cli.kube_token; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
