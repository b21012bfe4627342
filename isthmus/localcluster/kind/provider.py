"""The Pulumi provider plugin of the kind cloud: a local cluster, and a folder that stands for a bucket, as resources.

`isthmus:kind:Cluster` is a KindCluster: its name, its Kubernetes version and the number of its nodes are for life (a change
replaces it), labels, taints and cards of nodes change in place. `isthmus:kind:Bucket` is a folder that every node of the
cluster sees. Nothing but names and addresses is in the state.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, plugin_pb2, provider_pb2, provider_pb2_grpc
from pydantic import ValidationError

from isthmus.localcluster.kind.resources import TYPES, ResourceType, Values
from isthmus.specs.errors import IsthmusError
from isthmus.specs.stack import LOCAL_PLUGIN_VERSION
from isthmus.toolchain import plugin
from isthmus.toolchain.values import UNKNOWN, decode, encode, reveal


class LocalProvider(provider_pb2_grpc.ResourceProviderServicer):
    """The types of resources.py behind pulumirpc.ResourceProvider. Holds no state."""

    def __init__(self, engine: str) -> None:
        """`engine` is the engine's address, which hears of progress; "" for none."""
        self._engine = engine_pb2_grpc.EngineStub(grpc.insecure_channel(engine)) if engine else None

    def Handshake(self, request: Any, context: grpc.ServicerContext) -> Any:
        return provider_pb2.ProviderHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: grpc.ServicerContext) -> Any:
        return plugin_pb2.PluginInfo(version=LOCAL_PLUGIN_VERSION)

    def Attach(self, request: Any, context: grpc.ServicerContext) -> Any:
        return empty_pb2.Empty()

    def Cancel(self, request: Any, context: grpc.ServicerContext) -> Any:
        return empty_pb2.Empty()

    def CheckConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    def Configure(self, request: Any, context: grpc.ServicerContext) -> Any:
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:
        kind, news = _type(request.urn, context), reveal(decode(request.news))
        try:
            checked = kind.inputs.model_validate(news).model_dump(mode="json", by_alias=True, exclude_none=True)
        except ValidationError as error:
            failures = [
                provider_pb2.CheckFailure(property=".".join(map(str, item["loc"])), reason=item["msg"])
                for item in error.errors()
            ]
            return provider_pb2.CheckResponse(failures=failures)
        return provider_pb2.CheckResponse(inputs=encode(checked))

    def Diff(self, request: Any, context: grpc.ServicerContext) -> Any:
        kind = _type(request.urn, context)
        olds, news = decode(request.old_inputs) or decode(request.olds), decode(request.news)
        known = set(kind.inputs.model_json_schema(by_alias=True)["properties"])
        changed = [key for key in sorted(known) if olds.get(key) != news.get(key) and key not in request.ignoreChanges]
        replaces = [key for key in kind.replaces(olds, news) if key in changed]
        some = provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE
        # Two with the same name cannot be there at once.
        return provider_pb2.DiffResponse(changes=some, diffs=changed, replaces=replaces, deleteBeforeReplace=True)

    def Create(self, request: Any, context: grpc.ServicerContext) -> Any:
        kind, news = _type(request.urn, context), decode(request.properties)
        if request.preview:
            unknown = dict.fromkeys(kind.outputs, UNKNOWN)
            return provider_pb2.CreateResponse(properties=encode({**news, **unknown}))
        with _answering(context):
            identity, outputs = kind.create(request.urn, news, self._progress(request.urn))
            return provider_pb2.CreateResponse(id=identity, properties=encode({**news, **outputs}))

    def Read(self, request: Any, context: grpc.ServicerContext) -> Any:
        kind = _type(request.urn, context)
        with _answering(context):
            found = kind.read(request.id)
            if found is None:
                return provider_pb2.ReadResponse()
            seen, outputs = found
            inputs = {**decode(request.inputs), **seen}  # what cannot be seen is as it was asked for
            return provider_pb2.ReadResponse(
                id=request.id, inputs=encode(inputs), properties=encode({**inputs, **outputs})
            )

    def Update(self, request: Any, context: grpc.ServicerContext) -> Any:
        kind, news = _type(request.urn, context), decode(request.news)
        olds = decode(request.olds)
        outputs: Values = {key: olds[key] for key in kind.outputs if key in olds}
        if not request.preview:
            with _answering(context):
                outputs = kind.update(request.id, news, self._progress(request.urn))
        return provider_pb2.UpdateResponse(properties=encode({**news, **outputs}))

    def Delete(self, request: Any, context: grpc.ServicerContext) -> Any:
        with _answering(context):
            _type(request.urn, context).delete(request.id, decode(request.properties))
        return empty_pb2.Empty()

    def _progress(self, urn: str) -> Any:
        def tell(words: str) -> None:
            if self._engine is not None:
                self._engine.Log(
                    engine_pb2.LogRequest(severity=engine_pb2.INFO, message=words, urn=urn, ephemeral=True)
                )

        return tell


def _type(urn: str, context: grpc.ServicerContext) -> ResourceType:
    token = urn.split("::")[2].rpartition("$")[2]
    if token not in TYPES:
        context.abort(grpc.StatusCode.NOT_FOUND, f"there is no resource type {token}; known: {', '.join(TYPES)}")
    return TYPES[token]


@contextmanager
def _answering(context: grpc.ServicerContext) -> Iterator[None]:
    """Turn what goes wrong into a gRPC status whose text the engine prints."""
    try:
        yield
    except IsthmusError as error:
        context.abort(grpc.StatusCode.UNKNOWN, plugin.plain_text(error))


if __name__ == "__main__":
    plugin.serve(LocalProvider(next(iter(sys.argv[1:]), "")))
