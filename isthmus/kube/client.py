"""`Cluster`: what we ask of an API server, in ten methods.

Objects are plain dicts, as in a manifest. Changes go by server-side apply with one field manager, so that what others
set on the same object stays theirs. This module decides nothing: no waiting (wait.py), no words (explain.py).
"""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from isthmus.kube import kubeconfig as kubeconfigs
from isthmus.kube.paths import KNOWN, Resource, from_aggregated, from_discovery, group_path
from isthmus.kube.transport import READ_SECONDS, ApiError, Transport
from isthmus.specs.errors import InvalidSpec, IsthmusError, NotFound, NotReady

FIELD_MANAGER = "isthmus"
PAGE = 500
"""Objects per list request: what kubectl asks for (its --chunk-size default)."""

WATCH_SECONDS = 60
"""One watch request; the server ends it and we go on, so that a dead connection is noticed within WATCH_SECONDS + 10 s."""

AGGREGATED_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
"""Asks for all groups at once (kubernetes.io, "API Discovery", aggregated; v2 from Kubernetes 1.30)."""

PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}

Object = dict[str, Any]
Objects = list[Object]
Patch = Literal["merge", "json", "strategic"]
Propagation = Literal["Background", "Foreground", "Orphan"]


class Cluster:
    """A Kubernetes API server. Nothing is sent before the first call; safe to share between threads.

    Every method raises NotReady when the server cannot be reached (its address is in the message), and the classes of
    `isthmus.kube.transport.error_for` for what it answers.
    """

    def __init__(self, kubeconfig: Mapping[str, Any] | Path, *, transport: Transport | None = None) -> None:
        """
        Args:
            kubeconfig: the document or its path; its current context is used.
            transport: only for tests.

        Raises:
            InvalidSpec: it is not a usable kubeconfig.
        """
        self._transport = transport or Transport(kubeconfigs.read(kubeconfig))
        self._resources = dict(KNOWN)

    @property
    def server(self) -> str:
        """Address of the API server."""
        return self._transport.server

    def resource(self, api_version: str, kind: str) -> Resource:
        """How the server serves a kind.

        Raises:
            NotFound: it does not serve that kind (a custom resource definition is missing).
        """
        key = (api_version, kind)
        if key not in self._resources:
            try:
                document = self._transport.json("GET", group_path(api_version), subject=f"API {api_version}")
                self._resources.update(from_discovery(api_version, document))
            except NotFound as error:
                raise _no_kind(api_version, kind) from error
        if key not in self._resources:
            raise _no_kind(api_version, kind)
        return self._resources[key]

    def kinds(self) -> list[Resource]:
        """Every kind that can be listed, each once in the version its server prefers. Two requests."""
        found: dict[tuple[str, str], Resource] = {}
        for path in ("/api", "/apis"):
            document = self._transport.json("GET", path, accept=AGGREGATED_DISCOVERY, subject="API discovery")
            for resource in from_aggregated(document):
                group = resource.api_version.rpartition("/")[0]
                found.setdefault((group, resource.plural), resource)
        return list(found.values())

    def apply(
        self, manifest: Mapping[str, Any], *, force: bool = True, dry_run: bool = False, manager: str = FIELD_MANAGER
    ) -> Object:
        """Create or change one object by server-side apply; returns what the server now holds.

        Idempotent. With `force` we take over fields that another manager set to other values. A `manager` of its own
        makes fields go that were in its last manifest and are not in this one, whatever other managers set.
        """
        resource, namespace, name = self._address(manifest)
        query = {"fieldManager": manager, "force": str(force).lower(), "dryRun": "All" if dry_run else None}
        return self._transport.json(
            "PATCH",
            resource.path(namespace, name),
            query=query,
            body=dict(manifest),
            content_type="application/apply-patch+yaml",
            subject=_subject(resource.kind, name, namespace),
        )

    def create(self, manifest: Mapping[str, Any]) -> Object:
        """Create one object that must not exist yet; ApiError with reason AlreadyExists when it does."""
        resource, namespace, name = self._address(manifest)
        return self._transport.json(
            "POST",
            resource.path(namespace),
            query={"fieldManager": FIELD_MANAGER},
            body=dict(manifest),
            subject=_subject(resource.kind, name, namespace),
        )

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object:
        """One object; NotFound when it is not there."""
        resource = self.resource(api_version, kind)
        path = resource.path(self._within(resource, namespace), name)
        return self._transport.json("GET", path, subject=_subject(kind, name, namespace))

    def list(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        selector: str | Mapping[str, str] | None = None,
        fields: str | None = None,
    ) -> Objects:
        """All objects of a kind, in one namespace or (None) in all; apiVersion and kind are filled in on each.

        Args:
            selector: label selector, as text or as labels that must all match.
            fields: field selector.
        """
        return self._list(api_version, kind, namespace, selector, fields)[0]

    def patch(
        self, api_version: str, kind: str, name: str, change: Any, namespace: str | None = None, *,
        how: Patch = "merge", subresource: str = "",
    ) -> Object:  # fmt: skip
        """Change part of an object. `change` is a merge patch, or a list of operations with how="json"."""
        resource = self.resource(api_version, kind)
        return self._transport.json(
            "PATCH",
            resource.path(self._within(resource, namespace), name, subresource),
            query={"fieldManager": FIELD_MANAGER},
            body=change,
            content_type=PATCHES[how],
            subject=_subject(kind, name, namespace),
        )

    def delete(
        self, api_version: str, kind: str, name: str, namespace: str | None = None, *,
        propagation: Propagation = "Background", grace_seconds: int | None = None,
    ) -> bool:  # fmt: skip
        """Delete one object. Idempotent: False when it was not there. Returns before its dependents are gone."""
        resource = self.resource(api_version, kind)
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            path = resource.path(self._within(resource, namespace), name)
            self._transport.json("DELETE", path, body=options, subject=_subject(kind, name, namespace))
        except NotFound:
            return False
        return True

    def watch(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        selector: str | Mapping[str, str] | None = None,
        fields: str | None = None,
        seconds: float,
    ) -> Iterator[tuple[str, Object]]:
        """Events (ADDED, MODIFIED, DELETED) of a kind for `seconds`, starting with ADDED for what is there.

        Survives the end of a connection. After a gap that the server no longer remembers everything is listed and
        reported as ADDED again, so a caller must look at the object, not count events.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            items, version = self._list(api_version, kind, namespace, selector, fields)
            yield from (("ADDED", item) for item in items)
            yield from self._watch_from(version, end, api_version, kind, namespace, selector, fields)

    def logs(
        self,
        pod: str,
        namespace: str,
        container: str | None = None,
        *,
        follow: bool = False,
        previous: bool = False,
        timestamps: bool = False,
        since: str | None = None,
        tail: int | None = None,
        silence_seconds: float = READ_SECONDS,
    ) -> Iterator[str]:
        """Lines of one container's log.

        Args:
            container: default: the pod's only container.
            previous: of the container's run before the last restart.
            timestamps: start each line with the kubelet's RFC 3339 time and a space.
            since: only lines from this RFC 3339 time on (the server cuts it to seconds).
            tail: only the last so many lines.
            silence_seconds: with `follow`, NotReady after so long without a line (ask again with `since`).
        """
        query = {
            "container": container,
            "follow": "true" if follow else None,
            "previous": "true" if previous else None,
            "timestamps": "true" if timestamps else None,
            "sinceTime": since,
            "tailLines": tail,
        }
        path = KNOWN["v1", "Pod"].path(namespace, pod, "log")
        return self._transport.lines(path, query=query, subject=f"pod {namespace}/{pod}", seconds=silence_seconds)

    def ready(self) -> bool:
        """Whether the API server answers and says that it can serve. Never raises for an unreachable server."""
        try:
            return self._transport.text("/readyz", seconds=5) == "ok"
        except IsthmusError:
            return False

    def version(self) -> str:
        """The server's version, for example v1.36.4."""
        return str(self._transport.json("GET", "/version")["gitVersion"])

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def _list(
        self,
        api_version: str,
        kind: str,
        namespace: str | None,
        selector: str | Mapping[str, str] | None,
        fields: str | None,
    ) -> tuple[Objects, str]:
        resource = self.resource(api_version, kind)
        query: Object = {"labelSelector": _selector(selector), "fieldSelector": fields, "limit": PAGE}
        items: Objects = []
        while True:
            subject = f"{kind} objects in {namespace or 'all namespaces'}"
            page = self._transport.json("GET", resource.path(namespace), query=query, subject=subject)
            items += ({"apiVersion": api_version, "kind": kind, **item} for item in page.get("items") or ())
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return items, str(metadata.get("resourceVersion", ""))
            query["continue"] = metadata["continue"]

    def _watch_from(
        self, version: str, end: float, api_version: str, kind: str, namespace: str | None,
        selector: str | Mapping[str, str] | None, fields: str | None,
    ) -> Iterator[tuple[str, Object]]:  # fmt: skip
        """Events since `version` until the end, or until the server has forgotten that version."""
        path = self.resource(api_version, kind).path(namespace)
        while (left := end - time.monotonic()) > 0:
            span = max(1, min(WATCH_SECONDS, int(left)))
            query = {
                "watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": span,
                "labelSelector": _selector(selector), "fieldSelector": fields,
            }  # fmt: skip
            try:
                for line in self._transport.lines(path, query=query, subject=f"watch of {kind}", seconds=span + 10):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        yield event["type"], event["object"]
            except ApiError as error:
                if error.status == 410:
                    return
                raise
            except NotReady:
                if not self.ready():
                    raise

    def _address(self, manifest: Mapping[str, Any]) -> tuple[Resource, str | None, str]:
        metadata = manifest.get("metadata") or {}
        api_version, kind, name = manifest.get("apiVersion"), manifest.get("kind"), metadata.get("name")
        if not (api_version and kind and name):
            raise InvalidSpec(
                "a manifest needs apiVersion, kind and metadata.name", subject=f"{kind or 'object'} {name or ''}"
            )
        resource = self.resource(api_version, kind)
        return resource, self._within(resource, metadata.get("namespace")), name

    @staticmethod
    def _within(resource: Resource, namespace: str | None) -> str | None:
        return (namespace or "default") if resource.namespaced else None


def _selector(selector: str | Mapping[str, str] | None) -> str | None:
    if selector is None or isinstance(selector, str):
        return selector or None
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))


def _subject(kind: str, name: str, namespace: str | None) -> str:
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def _no_kind(api_version: str, kind: str) -> NotFound:
    return NotFound(
        f"the cluster does not serve {kind} ({api_version})", subject=f"{kind} {api_version}", remedy="isthmus up STACK"
    )
