"""The gRPC face of a simulated cloud: a Pulumi provider plugin as the engine starts it.

The engine starts the plugin, reads one line (the port) and talks pulumirpc.ResourceProvider to it. This module only
translates; what the cloud does is in operations.py. It holds no state of its own.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from isthmus.simulation import check
from isthmus.simulation.account import Account, open_account
from isthmus.simulation.clock import Cancelled
from isthmus.simulation.operations import Operations
from isthmus.simulation.resource import Cloud, CloudError
from isthmus.toolchain import plugin
from isthmus.toolchain.values import UNKNOWN, Properties, decode, encode, has_unknown, reveal


class ProviderServer(provider_pb2_grpc.ResourceProviderServicer):
    """One simulated cloud behind pulumirpc.ResourceProvider."""

    def __init__(self, cloud: Cloud, open_named: Callable[[str], Account] = open_account) -> None:
        """Serve `cloud`; accounts are opened by `open_named` when the engine configures the provider."""
        self._cloud = cloud
        self._open = open_named
        self._operations: Operations | None = None

    def Handshake(self, request: Any, context: grpc.ServicerContext) -> Any:
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True, accept_resources=True, accept_outputs=True)

    def GetPluginInfo(self, request: Any, context: grpc.ServicerContext) -> Any:
        return plugin_pb2.PluginInfo(version=self._cloud.version)

    def GetSchema(self, request: Any, context: grpc.ServicerContext) -> Any:
        schema = {
            "name": self._cloud.name,
            "version": self._cloud.version,
            "resources": {t: {} for t in self._cloud.types},
        }
        return provider_pb2.GetSchemaResponse(schema=json.dumps(schema))

    def Attach(self, request: Any, context: grpc.ServicerContext) -> Any:
        return empty_pb2.Empty()

    def Cancel(self, request: Any, context: grpc.ServicerContext) -> Any:
        if self._operations is not None:
            self._operations.cancelled.set()
        return empty_pb2.Empty()

    def CheckConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        values, failures = self._configuration(decode(request.news))
        if not failures and not has_unknown(values):
            with _answering(context, self._cloud, "configuring", ""):
                plain = reveal(values)
                self._cloud.configure(plain, self._cloud.account_of(plain))
        return provider_pb2.CheckResponse(inputs=request.news, failures=_failures(failures))

    def DiffConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        olds, news = (
            decode(request.old_inputs if request.HasField("old_inputs") else request.olds),
            decode(request.news),
        )
        changed = [
            key for key in sorted({*olds, *news} - {"version"}) if reveal(olds.get(key)) != reveal(news.get(key))
        ]
        # Another account or region is another place: what is there cannot be updated into it.
        moved = [key for key in changed if key in {"profile", "project", "region"} and news.get(key) is not UNKNOWN]
        some = provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(changes=some, diffs=changed, replaces=moved)

    def Configure(self, request: Any, context: grpc.ServicerContext) -> Any:
        values = decode(request.args)
        if not has_unknown(values):
            with _answering(context, self._cloud, "configuring", ""):
                plain = reveal(self._configuration(values)[0])
                name = self._cloud.account_of(plain)
                self._operations = Operations(self._cloud, self._open(name), self._cloud.configure(plain, name))
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, acceptResources=True, acceptOutputs=True
        )

    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:
        token = _token(request)
        with _answering(context, self._cloud, "checking", token):
            inputs, failures = self._ready(context).check(
                token, request.urn, decode(request.news), decode(request.olds), request.randomSeed.hex()
            )
            return provider_pb2.CheckResponse(inputs=encode(inputs), failures=_failures(failures))

    def Diff(self, request: Any, context: grpc.ServicerContext) -> Any:
        olds = decode(request.old_inputs) or decode(request.olds)
        token = _token(request)
        with _answering(context, self._cloud, "comparing", token):
            changes, first = self._ready(context).diff(token, request.urn, olds, decode(request.news))
            changes = [change for change in changes if not _ignored(change.path, request.ignoreChanges)]
            return _diff_response(changes, first)

    def Create(self, request: Any, context: grpc.ServicerContext) -> Any:
        token, inputs = _token(request), decode(request.properties)
        with _answering(context, self._cloud, "creating", token, request.name):
            operations = self._ready(context)
            if request.preview:
                return provider_pb2.CreateResponse(properties=encode(operations.preview_create(token, inputs)))
            identity, outputs = operations.create(token, request.urn, inputs, request.timeout)
            return provider_pb2.CreateResponse(id=identity, properties=encode(outputs))

    def Read(self, request: Any, context: grpc.ServicerContext) -> Any:
        token = _token(request)
        with _answering(context, self._cloud, "reading", token, request.name):
            row = self._ready(context).read(
                token, request.id, request.urn, decode(request.properties), decode(request.inputs)
            )
            if row is None:
                return provider_pb2.ReadResponse()
            return provider_pb2.ReadResponse(id=row.id, properties=encode(row.outputs), inputs=encode(row.inputs))

    def Update(self, request: Any, context: grpc.ServicerContext) -> Any:
        token, news, olds = _token(request), decode(request.news), decode(request.olds)
        with _answering(context, self._cloud, "updating", token, request.name):
            operations = self._ready(context)
            if request.preview:
                return provider_pb2.UpdateResponse(properties=encode(operations.preview_update(token, olds, news)))
            outputs = operations.update(token, request.id, request.urn, olds, news, request.timeout)
            return provider_pb2.UpdateResponse(properties=encode(outputs))

    def Delete(self, request: Any, context: grpc.ServicerContext) -> Any:
        token = _token(request)
        with _answering(context, self._cloud, "deleting", token, request.name):
            self._ready(context).delete(token, request.id, request.urn, decode(request.properties), request.timeout)
        return empty_pb2.Empty()

    def Invoke(self, request: Any, context: grpc.ServicerContext) -> Any:
        with _answering(context, self._cloud, "invoking", request.tok):
            outputs, failures = self._ready(context).invoke(request.tok, decode(request.args))
            response = provider_pb2.InvokeResponse(failures=_failures(failures))
            getattr(response, "return").CopyFrom(encode(outputs))
            return response

    def _configuration(self, values: Properties) -> tuple[Properties, list[check.Failure]]:
        """Provider arguments: anything but strings travels as JSON text, so it is decoded first."""
        known = {item.name: item for item in self._cloud.configuration}
        given = {key: value for key, value in values.items() if key != "version"}
        for key, value in given.items():
            if key in known and known[key].kind != "string" and isinstance(value, str):
                given[key] = json.loads(value)
        return check.checked(self._cloud.configuration, given, owner=f"pulumi:providers:{self._cloud.name}")

    def _ready(self, context: grpc.ServicerContext) -> Operations:
        if self._operations is None:
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, "the provider's arguments are not known yet, so it cannot be asked"
            )
            raise AssertionError("abort raises")
        return self._operations


@contextmanager
def _answering(context: grpc.ServicerContext, cloud: Cloud, verb: str, token: str, name: str = "") -> Iterator[None]:
    """Turn what goes wrong in a handler into a gRPC status whose text the engine prints."""
    try:
        yield
    except CloudError as error:
        context.abort(grpc.StatusCode.UNKNOWN, cloud.render(verb, cloud.types.get(token), name, error))
    except Cancelled as error:
        context.abort(grpc.StatusCode.CANCELLED, str(error))
    except Exception as error:
        if type(error) is Exception:
            raise  # context.abort raises a bare Exception: already answered
        traceback.print_exception(error, file=sys.stderr)
        context.abort(grpc.StatusCode.INTERNAL, plugin.plain_text(error))


def serve(cloud: Cloud) -> NoReturn:
    """Run the plugin until the engine closes it or dies."""
    plugin.serve(ProviderServer(cloud))


def _token(request: Any) -> str:
    """The type token: newer engines send it, older ones only in the URN (`urn:pulumi:stack::project::parents$type::name`)."""
    return str(request.type or request.urn.split("::")[2].rpartition("$")[2])


def _failures(failures: list[check.Failure]) -> list[Any]:
    return [provider_pb2.CheckFailure(property=item.property, reason=item.reason) for item in failures]


def _ignored(path: str, ignored: Any) -> bool:
    return any(path == item or path.startswith((f"{item}.", f"{item}[")) for item in ignored)


_KINDS: Mapping[tuple[str, bool], int] = {
    ("add", False): provider_pb2.PropertyDiff.ADD,
    ("add", True): provider_pb2.PropertyDiff.ADD_REPLACE,
    ("delete", False): provider_pb2.PropertyDiff.DELETE,
    ("delete", True): provider_pb2.PropertyDiff.DELETE_REPLACE,
    ("update", False): provider_pb2.PropertyDiff.UPDATE,
    ("update", True): provider_pb2.PropertyDiff.UPDATE_REPLACE,
}


def _diff_response(changes: list[check.Change], delete_first: bool) -> Any:
    response = provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME if changes else provider_pb2.DiffResponse.DIFF_NONE,
        hasDetailedDiff=True,
        deleteBeforeReplace=delete_first,
    )
    for change in changes:
        top = change.path.partition(".")[0].partition("[")[0]
        if top not in response.diffs:
            response.diffs.append(top)
        if change.replaces and top not in response.replaces:
            response.replaces.append(top)
        response.detailedDiff[change.path].kind = _KINDS[(change.kind, change.replaces)]  # type: ignore[assignment]
        response.detailedDiff[change.path].inputDiff = True
    return response
