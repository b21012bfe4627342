"""The plugin as the engine meets it: a process that prints a port and speaks pulumirpc.ResourceProvider."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2 as messages
from pulumi.runtime.proto import provider_pb2_grpc

from isthmus.simulation import faults
from isthmus.simulation.account import Account
from isthmus.specs.stack import SIMULATED_PLUGIN_VERSION
from isthmus.toolchain.values import SECRET_SIGNATURE, SIGNATURE_KEY, UNKNOWN, Secret, decode, encode

ROOT = Path(__file__).parents[2]
VPC = "aws:ec2/vpc:Vpc"
NAME = "a secret that must not lie about"


def start(home: Path, *, shell: bool = False) -> tuple[subprocess.Popen[str], int]:
    """Start the plugin; returns its process (or the shell between us and it) and its port."""
    command = [sys.executable, "-m", "tests.conformance.plugin", "aws"]
    if shell:
        command = ["sh", "-c", f"{' '.join(command)} & echo $! >{home}/pid; wait"]
    environment = {**os.environ, "ISTHMUS_HOME": str(home)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An ISTHMUS_HOME of the test's own."""
    return tmp_path


@pytest.fixture
def stub(home: Path) -> Iterator[Any]:
    """A configured provider in a process of its own."""
    process, port = start(home)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        provider = provider_pb2_grpc.ResourceProviderStub(channel)
        provider.Handshake(messages.ProviderHandshakeRequest(engine_address="127.0.0.1:1"))
        provider.Configure(messages.ConfigureRequest(args=encode({"profile": "aws-sim", "region": "us-east-1"})))
        yield provider
    process.terminate()
    assert process.wait(10) == 0


def urn(token: str = VPC, name: str = "net") -> str:
    return f"urn:pulumi:dev::test::{token}::{name}"


def create(stub: Any, properties: dict[str, Any], token: str = VPC, **more: Any) -> Any:
    request = messages.CreateRequest(urn=urn(token), type=token, name="net", properties=encode(properties), **more)
    return stub.Create(request)


def test_it_says_who_it_is(stub: Any) -> None:
    assert stub.GetPluginInfo(empty_pb2.Empty()).version == SIMULATED_PLUGIN_VERSION
    assert VPC in stub.GetSchema(messages.GetSchemaRequest()).schema
    assert stub.Handshake(messages.ProviderHandshakeRequest()).accept_secrets


def test_create_read_update_delete(stub: Any) -> None:
    inputs = {"cidrBlock": "10.0.0.0/16", "tags": {"a": "1"}}
    made = create(stub, inputs)
    outputs = decode(made.properties)
    assert made.id.startswith("vpc-0") and outputs["tagsAll"] == {"a": "1"}
    old = {"id": made.id, "urn": urn(), "type": VPC}
    news = {**inputs, "tags": {"a": "2", "b": "3"}}
    diff = stub.Diff(messages.DiffRequest(**old, olds=made.properties, old_inputs=encode(inputs), news=encode(news)))
    assert diff.changes == messages.DiffResponse.DIFF_SOME and list(diff.replaces) == []
    assert {path: item.kind for path, item in diff.detailedDiff.items()} == {
        "tags.a": messages.PropertyDiff.UPDATE,
        "tags.b": messages.PropertyDiff.ADD,
    }
    updated = stub.Update(messages.UpdateRequest(**old, olds=made.properties, news=encode(news)))
    assert decode(updated.properties)["tagsAll"] == {"a": "2", "b": "3"}
    read = stub.Read(messages.ReadRequest(**old, properties=updated.properties, inputs=encode(news)))
    assert decode(read.properties) == decode(updated.properties) and decode(read.inputs) == news
    stub.Delete(messages.DeleteRequest(**old, properties=updated.properties))
    assert stub.Read(messages.ReadRequest(**old, properties=updated.properties)).id == ""


def test_a_replacing_change_is_told_with_its_path(stub: Any) -> None:
    olds, news = {"cidrBlock": "10.0.0.0/16"}, {"cidrBlock": "10.1.0.0/16"}
    request = messages.DiffRequest(
        id="vpc-1", urn=urn(), type=VPC, olds=encode(olds), old_inputs=encode(olds), news=encode(news)
    )
    diff = stub.Diff(request)
    assert list(diff.replaces) == ["cidrBlock"] and not diff.deleteBeforeReplace
    assert diff.detailedDiff["cidrBlock"].kind == messages.PropertyDiff.UPDATE_REPLACE
    request.ignoreChanges.append("cidrBlock")
    assert stub.Diff(request).changes == messages.DiffResponse.DIFF_NONE


def test_preview_knows_nothing_of_the_cloud(stub: Any) -> None:
    outputs = decode(create(stub, {"cidrBlock": UNKNOWN}, preview=True).properties)
    assert outputs["cidrBlock"] is UNKNOWN and outputs["arn"] is UNKNOWN and outputs["enableDnsSupport"] is True


def test_secrets_stay_secret(stub: Any, home: Path) -> None:
    made = create(stub, {"cidrBlock": "10.0.0.0/16", "tags": {"password": Secret(NAME)}})
    outputs = decode(made.properties)
    assert isinstance(outputs["tags"], Secret) and isinstance(outputs["tagsAll"], Secret)
    assert made.properties.fields["tags"].struct_value.fields[SIGNATURE_KEY].string_value == SECRET_SIGNATURE
    inputs = encode({"cidrBlock": "10.0.0.0/16", "tags": {"password": Secret(NAME)}})
    read = stub.Read(messages.ReadRequest(id=made.id, urn=urn(), type=VPC, properties=made.properties, inputs=inputs))
    assert decode(read.properties) == outputs and read.inputs == inputs
    kept = [path for path in home.rglob("*") if path.is_file()]
    assert kept and not any(NAME.encode() in path.read_bytes() for path in kept)
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept if path.suffix == ".db")


def test_unknown_types_properties_and_functions_are_refused_by_name(stub: Any) -> None:
    token = "aws:rds/instance:Instance"
    with pytest.raises(grpc.RpcError, match=token):
        stub.Check(messages.CheckRequest(urn=urn(token), type=token, news=encode({})))
    answer = stub.Check(messages.CheckRequest(urn=urn(), type=VPC, news=encode({"cidrBlok": "10.0.0.0/16"})))
    assert "did you mean 'cidrBlock'?" in answer.failures[0].reason
    with pytest.raises(grpc.RpcError, match="getMagic"):
        stub.Invoke(messages.InvokeRequest(tok="aws:index/getMagic:getMagic"))


def test_the_cloud_refuses_in_its_own_words(stub: Any) -> None:
    token = "aws:ec2/subnet:Subnet"
    with pytest.raises(grpc.RpcError) as refused:
        create(stub, {"vpcId": "vpc-0123", "cidrBlock": "10.0.0.0/24"}, token)
    text = refused.value.details()  # type: ignore[attr-defined]
    assert "api error InvalidVpcID.NotFound: The vpc ID 'vpc-0123' does not exist" in text
    assert text.startswith("creating EC2 Subnet (net)")


def test_invoke(stub: Any) -> None:
    answer = stub.Invoke(messages.InvokeRequest(tok="aws:index/getAvailabilityZones:getAvailabilityZones"))
    assert "us-east-1a" in decode(getattr(answer, "return"))["names"]


def test_configuration_is_checked(stub: Any) -> None:
    answer = stub.CheckConfig(messages.CheckRequest(news=encode({"profile": "aws-sim", "assumeRole": "x"})))
    assert answer.failures[0].property == "assumeRole"
    with pytest.raises(grpc.RpcError, match="region"):
        stub.CheckConfig(messages.CheckRequest(news=encode({"profile": "aws-sim"})))
    olds = encode({"profile": "aws-sim", "region": "us-east-1"})
    moved = stub.DiffConfig(messages.DiffRequest(olds=olds, news=encode({"profile": "aws-sim", "region": "eu-west-1"})))
    assert list(moved.replaces) == ["region"]


def test_cancel_ends_a_waiting_operation(stub: Any, home: Path) -> None:
    account = Account("aws-sim", home / "accounts" / "aws-sim.db")
    faults.add(account, faults.Fault("latency", seconds=60))
    threading.Timer(0.3, lambda: stub.Cancel(empty_pb2.Empty())).start()
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as refused:
        create(stub, {"cidrBlock": "10.0.0.0/16"})
    assert refused.value.code() == grpc.StatusCode.CANCELLED  # type: ignore[attr-defined]
    assert time.monotonic() - began < 20 and account.rows() == []


def test_it_dies_with_the_engine(home: Path) -> None:
    engine, _ = start(home, shell=True)
    plugin = int((home / "pid").read_text())
    engine.send_signal(signal.SIGKILL)
    engine.wait(10)
    deadline = time.monotonic() + 10
    while (
        Path(f"/proc/{plugin}").exists() and "Z" not in Path(f"/proc/{plugin}/stat").read_text().rpartition(")")[2][:3]
    ):
        assert time.monotonic() < deadline, "the plugin outlived its engine"
        time.sleep(0.1)
