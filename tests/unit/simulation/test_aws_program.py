"""infra/aws.py against the simulated account, without an engine: every resource of the aws-sim stack is made for real.

The mocks of Pulumi's SDK stand for the engine: they hand each registration to check and create, as it would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime import mocks
from pulumi.runtime.stack import run_pulumi_func

from isthmus.simulation import local
from isthmus.simulation.account import READY
from isthmus.toolchain.values import decode, encode
from tests.unit.infra.stacks import infrastructure, settings
from tests.unit.simulation.aws_account import NODE_GROUP, Aws

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pulumi_aws")


class Engine(mocks.Mocks):
    """Checks and creates what a program registers."""

    def __init__(self, aws: Aws) -> None:
        self.aws = aws
        self.failures: list[str] = []

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        if not args.typ.startswith("aws:"):
            return f"{args.name}-id", dict(args.inputs)
        row = self.aws.make(args.typ, args.name, **decode(encode(args.inputs)))
        return row.id, row.outputs

    def call(self, args: mocks.MockCallArgs) -> dict[str, Any]:
        outputs, failures = self.aws.operations.invoke(args.token, decode(encode(args.args)))
        assert not failures, failures
        return outputs


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Aws]:
    before = local.backend()
    yield Aws(tmp_path, "aws-sim")
    local.use(before)


def run(aws: Aws, **changes: Any) -> None:
    """Run the program of the aws-sim stack."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    mocks.SETTINGS.rpc_manager.clear()
    mocks.SETTINGS.outputs.clear()
    mocks.set_mocks(Engine(aws), "isthmus", "aws-sim", False)
    try:
        loop.run_until_complete(run_pulumi_func(infrastructure(settings("aws-sim", **changes))))
    finally:
        loop.close()
        asyncio.set_event_loop(None)


def test_the_whole_platform_is_understood(aws: Aws) -> None:
    run(aws)
    rows = aws.account.rows()
    assert len(rows) > 50 and all(row.state == READY for row in rows)
    assert {row.name for row in aws.account.rows(NODE_GROUP)} == {
        "isthmus:system",
        "isthmus:gpu-t4",
        "isthmus:gpu-t4-spot",
    }
    document = aws.local_cluster().document
    assert document["cards"] == {"model": "T4", "count": 4}
    assert document["labels"]["isthmus.dev/gpu-model"] == "T4"
    assert len(document["nodes"]) == 1  # the second node of the system pool


def test_it_comes_down_in_the_reverse_order(aws: Aws) -> None:
    run(aws)
    for row in reversed([row for row in aws.account.rows() if row.urn]):
        aws.delete(row)
    assert aws.account.rows() == [] and aws.backend.list() == []


def test_a_second_program_run_finds_everything_as_it_is(aws: Aws) -> None:
    """A state that was lost: the next `up` takes over every resource and makes none twice."""
    run(aws)
    before = {(row.type, row.id) for row in aws.account.rows()}
    aws.restart()
    run(aws)
    assert {(row.type, row.id) for row in aws.account.rows()} == before
