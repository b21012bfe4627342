"""isthmus sim: what it prints, what it changes and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.cli import main
from isthmus.simulation import capacity, faults, local, quota
from isthmus.simulation.aws.cloud import CLOUD
from isthmus.toolchain import home
from tests.unit.simulation.aws_account import VPC, Aws


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    before = local.backend()
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    yield Aws(home.accounts(), "aws-sim")
    local.use(before)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    code = main.run(["sim", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0
    return list(json.loads(out))


def test_show(aws: Aws, capsys: pytest.CaptureFixture[str]) -> None:
    vpc = aws.make(VPC, "net", cidrBlock="10.0.0.0/16")
    (found,) = rows(capsys, "show", "aws-sim")
    assert (found["id"], found["type"], found["state"], found["region"]) == (vpc.id, "Vpc", "ready", "us-east-1")
    assert vpc.id in run(capsys, "show", "aws-sim")[1]
    code, _, err = run(capsys, "show", "nothing")
    assert code == 1 and "known: aws-sim" in err


def test_quota(aws: Aws, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "quota", "aws-sim", "L-DB2E81BA", "0")
    assert code == 0 and "Running On-Demand G and VT instances (L-DB2E81BA) is now 0 vcpus" in out
    assert quota.limit(aws.account, CLOUD.quotas["L-DB2E81BA"], "us-east-1") == 0
    (found,) = rows(capsys, "quota", "aws-sim", "L-DB2E81BA")
    assert (found["limit"], found["used"]) == ("0", "0")
    code, _, err = run(capsys, "quota", "aws-sim", "L-DB2E81BB", "1")
    assert code == 2 and "L-DB2E81BA" in err
    assert run(capsys, "quota", "aws-sim", "L-DB2E81BA", "--", "-1")[0] == 2


def test_capacity(aws: Aws, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "capacity", "aws-sim", "us-east-1a", "g4dn.12xlarge", "0")[0] == 0
    assert capacity.available(aws.account, "us-east-1a", "g4dn.12xlarge") == 0
    assert rows(capsys, "capacity", "aws-sim") == [
        {"zone": "us-east-1a", "machine": "g4dn.12xlarge", "total": 0, "left": 0}
    ]
    assert run(capsys, "capacity", "aws-sim", "us-east-1a", "g4dn.12xlarge", "none")[0] == 0
    assert capacity.available(aws.account, "us-east-1a", "g4dn.12xlarge") is None
    assert run(capsys, "capacity", "aws-sim", "us-east-1a", "g4dn.12xlarge", "many")[0] == 2


def test_faults(aws: Aws, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "fault", "add", "aws-sim", "--type", "*:Vpc", "--code", "Boom", "--message", "no")[0] == 0
    (found,) = rows(capsys, "fault", "list", "aws-sim")
    assert (found["type"], found["code"], found["spent"]) == ("*:Vpc", "Boom", "no")
    assert run(capsys, "fault", "add", "aws-sim", "--kind", "latency")[0] == 2
    assert run(capsys, "fault", "remove", "aws-sim", "7")[0] == 1
    assert run(capsys, "fault", "remove", "aws-sim")[0] == 0
    assert faults.ordered(aws.account) == []
    assert run(capsys, "fault", "scale", "aws-sim", "0.5") == (
        0,
        "aws-sim: 0.5 real seconds per simulated second\n",
        "",
    )
    assert run(capsys, "fault", "scale", "aws-sim", "11")[0] == 2


def test_reset_refuses_while_there_is_a_cluster(aws: Aws, capsys: pytest.CaptureFixture[str]) -> None:
    aws.cluster()
    quota.set_limit(aws.account, "L-DB2E81BA", 0)
    code, _, err = run(capsys, "reset", "aws-sim")
    assert code == 3 and "holds 1 cluster(s): training" in err and "isthmus sim reset aws-sim --yes" in err
    assert len(aws.backend.list()) == 1 and aws.account.rows()
    assert run(capsys, "reset", "aws-sim", "--yes")[0] == 0
    assert aws.backend.list() == [] and aws.account.rows() == []
    assert quota.limit(aws.account, CLOUD.quotas["L-DB2E81BA"], "us-east-1") == 192
    assert run(capsys, "reset", "aws-sim")[0] == 0
