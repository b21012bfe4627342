"""The sockets by which the kubelet finds and calls a DRA driver."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from isthmus.localcluster.agent.messages import CLASSES, DRA, REGISTRATION

KUBELET = Path("/var/lib/kubelet")
"""On the node."""

Prepared = list[dict[str, Any]]
"""Devices of a claim: request_names, pool_name, device_name, cdi_device_ids."""


class Plugin:
    """Serves one driver until `stop`.

    Args:
        root: the node's file system, as this process sees it.
        name: the driver's name.
        prepare: (namespace, name, uid) of a claim to its devices; raises with the reason otherwise.
        unprepare: uid of a claim; idempotent.
    """

    def __init__(
        self, root: Path, name: str, prepare: Callable[[str, str, str], Prepared], unprepare: Callable[[str], None]
    ) -> None:
        self.root = root
        self._name, self._prepare, self._unprepare = name, prepare, unprepare
        self._endpoint = KUBELET / "plugins" / name / "dra.sock"
        registration = KUBELET / "plugins_registry" / f"{name}-reg.sock"
        self._sockets = [root / path.relative_to("/") for path in (self._endpoint, registration)]
        self._server = grpc.server(ThreadPoolExecutor(4))
        calls = {
            f"{DRA}.DRAPlugin": {
                "NodePrepareResources": (self._prepare_all, "NodePrepareResourcesRequest"),
                "NodeUnprepareResources": (self._unprepare_all, "NodeUnprepareResourcesRequest"),
            },
            f"{REGISTRATION}.Registration": {
                "GetInfo": (self._info, "InfoRequest"),
                "NotifyRegistrationStatus": (self._registered, "RegistrationStatus"),
            },
        }
        for service, methods in calls.items():
            handlers = {
                method: grpc.unary_unary_rpc_method_handler(
                    call,
                    request_deserializer=CLASSES[kind].FromString,
                    response_serializer=lambda answer: answer.SerializeToString(),
                )
                for method, (call, kind) in methods.items()
            }
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        for socket in self._sockets:  # the kubelet calls as soon as it sees the second
            socket.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            socket.unlink(missing_ok=True)
            self._server.add_insecure_port(f"unix://{socket}")
        self._server.start()

    def stop(self) -> None:
        """Let the kubelet forget the driver: it does when the registration socket is gone."""
        self._server.stop(grace=1).wait()
        for socket in reversed(self._sockets):
            socket.unlink(missing_ok=True)

    def _info(self, request: Any, context: Any) -> Any:
        return CLASSES["PluginInfo"](
            type="DRAPlugin", name=self._name, endpoint=str(self._endpoint), supported_versions=["v1.DRAPlugin"]
        )

    def _registered(self, request: Any, context: Any) -> Any:
        return CLASSES["RegistrationStatusResponse"]()

    def _prepare_all(self, request: Any, context: Any) -> Any:
        answer = CLASSES["NodePrepareResourcesResponse"]()
        for claim in request.claims:
            found = answer.claims[claim.uid]
            try:
                for device in self._prepare(claim.namespace, claim.name, claim.uid):
                    found.devices.add(**device)
            except Exception as error:  # noqa: BLE001 - the reason is the pod's, whatever it is; the kubelet asks again
                found.error = str(error)
        return answer

    def _unprepare_all(self, request: Any, context: Any) -> Any:
        answer = CLASSES["NodeUnprepareResourcesResponse"]()
        for claim in request.claims:
            found = answer.claims[claim.uid]
            try:
                self._unprepare(claim.uid)
            except Exception as error:  # noqa: BLE001 - as above
                found.error = str(error)
        return answer
