"""The invokes of simulated AWS, policy documents above all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.simulation import local
from isthmus.simulation.resource import CloudError
from tests.unit.simulation.aws_account import Aws

DOCUMENT = "aws:iam/getPolicyDocument:getPolicyDocument"


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Aws]:
    before = local.backend()
    yield Aws(tmp_path)
    local.use(before)


def call(aws: Aws, token: str, **arguments: Any) -> dict[str, Any]:
    outputs, failures = aws.operations.invoke(token, arguments)
    assert failures == []
    return outputs


def test_policy_document(aws: Aws) -> None:
    condition = {"test": "StringEquals", "variable": "aws:RequestedRegion", "values": ["us-east-1", "us-west-2"]}
    statements = [
        {"sid": "Read", "actions": ["s3:GetObject"], "resources": ["arn:aws:s3:::b/*"], "conditions": [condition]},
        {"effect": "Deny", "notActions": ["s3:*"], "resources": ["*"]},
        {"actions": ["sts:AssumeRole"], "principals": [{"type": "Service", "identifiers": ["ec2.amazonaws.com"]}]},
        {"actions": ["sts:AssumeRole"], "principals": [{"type": "*", "identifiers": ["*"]}]},
    ]
    outputs = call(aws, DOCUMENT, statements=statements)
    document = json.loads(outputs["json"])
    assert document == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "Read",
                "Effect": "Allow",
                "Action": "s3:GetObject",
                "Resource": "arn:aws:s3:::b/*",
                "Condition": {"StringEquals": {"aws:RequestedRegion": ["us-east-1", "us-west-2"]}},
            },
            {"Effect": "Deny", "NotAction": "s3:*", "Resource": "*"},
            {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "ec2.amazonaws.com"}},
            {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": "*"},
        ],
    }
    assert json.loads(outputs["minifiedJson"]) == document and "\n" not in outputs["minifiedJson"]


def test_source_and_override_documents(aws: Aws) -> None:
    def document(sid: str, action: str) -> str:
        return json.dumps({"Statement": [{"Sid": sid, "Effect": "Allow", "Action": action, "Resource": "*"}]})

    own = {"sid": "B", "actions": ["own:B"], "resources": ["*"]}
    outputs = call(
        aws,
        DOCUMENT,
        sourcePolicyDocuments=[document("A", "source:A"), document("B", "source:B")],
        statements=[own],
        overridePolicyDocuments=[document("A", "override:A")],
    )
    found = {item["Sid"]: item["Action"] for item in json.loads(outputs["json"])["Statement"]}
    assert found == {"A": "override:A", "B": "own:B"}


def test_where_and_who(aws: Aws) -> None:
    me = call(aws, "aws:index/getCallerIdentity:getCallerIdentity")
    assert me["arn"] == f"arn:aws:iam::{me['accountId']}:user/isthmus"
    assert call(aws, "aws:index/getRegion:getRegion")["region"] == "us-east-1"
    assert call(aws, "aws:index/getPartition:getPartition")["dnsSuffix"] == "amazonaws.com"
    zones = call(aws, "aws:index/getAvailabilityZones:getAvailabilityZones", state="available")
    assert len(zones["names"]) == len(zones["zoneIds"]) >= 3


def test_session_context(aws: Aws) -> None:
    token = "aws:iam/getSessionContext:getSessionContext"
    session = call(aws, token, arn="arn:aws:sts::111122223333:assumed-role/deployer/me")
    assert session["issuerArn"] == "arn:aws:iam::111122223333:role/deployer" and session["sessionName"] == "me"
    user = "arn:aws:iam::111122223333:user/isthmus"
    assert call(aws, token, arn=user)["issuerArn"] == user
    with pytest.raises(CloudError, match="is no ARN"):
        call(aws, token, arn="me")


def test_instance_type(aws: Aws) -> None:
    token = "aws:ec2/getInstanceType:getInstanceType"
    assert call(aws, token, instanceType="g4dn.12xlarge")["gpuses"][0]["count"] == 4
    with pytest.raises(CloudError, match="InvalidInstanceType"):
        call(aws, token, instanceType="g4dn.huge")
    _, failures = aws.operations.invoke(token, {"instanceTyp": "x"})
    assert {item.property for item in failures} == {"instanceTyp", "instanceType"}
