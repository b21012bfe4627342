"""A few requests to a cluster's own API server, by the standard library alone.

The supervisor lives as long as its cluster: it must not carry the official client's 40 MB, and bring-up must not wait
for its import. Everything else in this project uses isthmus.kube.
"""

import http.client
import json
import ssl
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PLURALS = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "EndpointSlice": "endpointslices",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "StorageClass": "storageclasses",
    "ConfigMap": "configmaps",
    "FlowSchema": "flowschemas",
    "Node": "nodes",
}
"""The kinds that isthmus/localcluster/objects.py and usable.py use."""


class RequestFailed(Exception):
    """The server could not be reached, or answered with an error; the text says which."""


class Rest:
    """A connection to an API server with a client certificate; use it in a `with` statement."""

    def __init__(self, address: str, port: int, pki: Path, user: str, *, seconds: float = 5.0) -> None:
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(str(pki / f"{user}.crt"), str(pki / f"{user}.key"))
        self._connection = http.client.HTTPSConnection(address, port, timeout=seconds, context=context)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def text(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> str:
        """Send one request; the answer's body.

        Raises:
            RequestFailed: no connection, or a status of 400 and above.
        """
        try:
            payload = json.dumps(body) if body is not None else None
            self._connection.request(
                method, path, payload, {"Content-Type": content_type, "Accept": "application/json"}
            )
            response = self._connection.getresponse()
            text = response.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise RequestFailed(f"{method} {path}: {error}") from error
        if response.status >= 400:
            raise RequestFailed(f"{method} {path}: {response.status} {_words(text)}")
        return text

    def apply(self, manifest: dict[str, Any], *, manager: str = "isthmus") -> None:
        """Server-side apply of an object of one of the kinds in PLURALS.

        Args:
            manager: the field manager; what an earlier apply of the same manager set and this one does not is removed.
        """
        self.text(
            "PATCH",
            f"{object_path(manifest)}?fieldManager={manager}&force=true",
            manifest,
            "application/apply-patch+yaml",
        )


def object_path(manifest: dict[str, Any]) -> str:
    """Where an object of one of the kinds in PLURALS is served."""
    version, metadata = manifest["apiVersion"], manifest["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    space = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{root}{space}/{PLURALS[manifest['kind']]}/{metadata['name']}"


def _words(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:300]
