"""Runs a Pulumi program without an engine and writes down what it would have asked for.

Used by tests of infra/ and of the whole program. It answers like an engine whose provider gives every resource an id
and echoes its inputs; with `preview` it answers like one that knows no output yet.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi.runtime import mocks
from pulumi.runtime.stack import run_pulumi_func

OUTPUTS: dict[str, dict[str, Any]] = {
    "aws:eks/cluster:Cluster": {
        "endpoint": "https://A1.gr7.us-east-1.eks.amazonaws.com",
        "certificateAuthority": {"data": "Y2E="},
        "vpcConfig": {"clusterSecurityGroupId": "sg-cluster", "subnetIds": []},
    },
    "aws:ec2/launchTemplate:LaunchTemplate": {"latestVersion": 1},
    "aws:ecr/repository:Repository": {"repositoryUrl": "111122223333.dkr.ecr.us-east-1.amazonaws.com/isthmus/images"},
    "gcp:container/cluster:Cluster": {"endpoint": "203.0.113.7", "masterAuth": {"clusterCaCertificate": "Y2E="}},
    "isthmus:kind:Cluster": {"endpoint": "https://127.0.0.1:41000", "certificateAuthority": "Y2E="},
    "isthmus:kind:Bucket": {"url": "file:///kind/buckets/isthmus-data"},
    "gcp:serviceaccount/account:Account": {
        "email": "sa@p.iam.gserviceaccount.com",
        "name": "projects/p/serviceAccounts/sa",
    },
}
CALLS: dict[str, dict[str, Any]] = {
    "aws:index/getCallerIdentity:getCallerIdentity": {
        "accountId": "111122223333", "arn": "arn:aws:sts::111122223333:assumed-role/deployer/me", "userId": "A:me", "id": "1",
    },
    "aws:iam/getSessionContext:getSessionContext": {
        "arn": "arn:aws:sts::111122223333:assumed-role/deployer/me", "issuerArn": "arn:aws:iam::111122223333:role/deployer",
        "issuerId": "A", "issuerName": "deployer", "sessionName": "me", "id": "1",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Registered:
    """One resource as the engine was told of it."""

    token: str
    name: str
    urn: str
    inputs: dict[str, Any]
    custom: bool
    version: str
    provider: str
    protect: bool
    ignored: tuple[str, ...]
    depends_on: tuple[str, ...]


@dataclass
class Recording:
    """Everything a program registered, in the engine's order, and its exports."""

    resources: list[Registered] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    exports: dict[str, Any] = field(default_factory=dict)

    def of(self, token: str) -> list[Registered]:
        """The resources of a type, by name."""
        return sorted((item for item in self.resources if item.token == token), key=lambda item: item.name)

    def one(self, token: str) -> Registered:
        """The only resource of a type."""
        (found,) = self.of(token)
        return found

    def inputs(self) -> dict[str, dict[str, Any]]:
        """URN to inputs, for comparing two recordings."""
        return {item.urn: item.inputs for item in self.resources}

    def depends(self, urn: str) -> set[str]:
        """Everything that must exist before the resource does."""
        by_urn = {item.urn: item for item in self.resources}
        seen: set[str] = set()
        left = [urn]
        while left:
            for dependency in by_urn[left.pop()].depends_on:
                if dependency in by_urn and dependency not in seen:
                    seen.add(dependency)
                    left.append(dependency)
        return seen


class _Answers(mocks.Mocks):
    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def call(self, args: mocks.MockCallArgs) -> Any:
        self._recording.calls.append(args.token)
        return CALLS[args.token]

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        return f"{args.name}-id", {"arn": f"arn:{args.name}", **args.inputs, **OUTPUTS.get(args.typ, {})}


class _Monitor(mocks.MockMonitor):
    def __init__(self, answers: _Answers, recording: Recording, preview: bool) -> None:
        super().__init__(answers)
        self._recording = recording
        self._preview = preview

    def RegisterResource(self, request: Any) -> Any:
        response = super().RegisterResource(request)
        if request.type == "pulumi:pulumi:Stack":
            return response
        inputs = mocks.rpc.deserialize_properties(request.object)
        self._recording.resources.append(
            Registered(
                token=request.type,
                name=request.name,
                urn=response.urn,
                inputs=inputs,
                custom=request.custom,
                version=request.version,
                provider=request.provider,
                protect=request.protect,
                ignored=tuple(request.ignoreChanges),
                depends_on=tuple(sorted(request.dependencies)),
            )
        )
        if self._preview and request.custom and not request.type.startswith("pulumi:providers:"):
            # An engine in preview knows the inputs of a new resource, and neither its id nor what the cloud will add.
            return mocks.resource_pb2.RegisterResourceResponse(urn=response.urn, object=request.object)
        return response


def record(program: Callable[[], Any], *, preview: bool = False, into: Recording | None = None) -> Recording:
    """Runs a program to its end.

    Args:
        into: where to write, for looking at what a program that fails has registered.

    Raises:
        whatever the program raises; an output that cannot be computed counts.
    """
    recording = into if into is not None else Recording()
    answers = _Answers(recording)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    mocks.SETTINGS.rpc_manager.clear()
    mocks.SETTINGS.outputs.clear()
    mocks.set_mocks(answers, "isthmus", "test", preview, monitor=_Monitor(answers, recording, preview))
    try:
        loop.run_until_complete(run_pulumi_func(program))
    finally:
        loop.close()
        asyncio.set_event_loop(None)
    return recording


def known(output: pulumi.Output[Any], into: dict[str, Any], key: str) -> None:
    """Puts an output's value into a dict once it is known."""
    output.apply(lambda value: into.__setitem__(key, value))
