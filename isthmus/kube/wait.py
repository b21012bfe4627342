"""Bounded waits. Nothing in this project waits for a cluster in any other way, and no wait is without an end."""

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from isthmus.kube.client import Cluster, Object
from isthmus.specs.errors import NotFound, NotReady

T = TypeVar("T")

INTERVAL = 0.25
"""Seconds between the first looks; grows to INTERVAL_MAX, so that a short wait is short and a long one cheap."""

INTERVAL_MAX = 2.0


def until(
    look: Callable[[], T | None],
    *,
    seconds: float,
    what: str,
    why: Callable[[], str] | None = None,
    subject: str = "",
    remedy: str = "",
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Look until there is an answer other than None or False.

    Args:
        look: asks once; NotReady from it counts as "not yet" (an API server that restarts), and is told at the end.
        what: what is waited for: "the training operator to be available".
        why: asked once when time is up: what is known about the reason.

    Raises:
        NotReady: time is up; the message says what was waited for, how long, and why.
    """
    end = clock() + seconds
    interval = INTERVAL
    last: NotReady | None = None
    while True:
        try:
            answer = look()
            last = None
        except NotReady as error:
            answer, last = None, error
        if answer is not None and answer is not False:
            return answer
        if clock() >= end:
            break
        sleep(min(interval, max(0.0, end - clock())))
        interval = min(interval * 1.5, INTERVAL_MAX)
    reason = last.message if last else _reason(why)
    message = f"waited {seconds:.0f} s for {what}" + (f": {reason}" if reason else "")
    raise NotReady(message, subject=subject, remedy=remedy) from last


def ready(cluster: Cluster, *, seconds: float) -> None:
    """Wait until the API server serves."""
    until(lambda: cluster.ready() or None, seconds=seconds, what=f"the API server at {cluster.server}")


def available(cluster: Cluster, name: str, namespace: str, *, seconds: float, kind: str = "Deployment") -> Object:
    """Wait until a Deployment, StatefulSet or DaemonSet runs all its pods in their newest form; returns it."""
    from isthmus.kube.explain import why_pending  # here: explain imports nothing of this module, but is rarely needed

    def look() -> Object | None:
        item = cluster.get("apps/v1", kind, name, namespace)
        return item if rolled_out(item) else None

    return until(
        look,
        seconds=seconds,
        what=f"{kind} {namespace}/{name} to be available",
        why=lambda: "; ".join(why_pending(cluster, namespace)),
        subject=f"{kind} {namespace}/{name}",
    )


def rolled_out(item: Mapping[str, Any]) -> bool:
    """Whether the object's controller has seen its newest form and all its pods are up to date and available."""
    status, spec = item.get("status") or {}, item.get("spec") or {}
    if status.get("observedGeneration", 0) < (item.get("metadata") or {}).get("generation", 0):
        return False
    if item.get("kind") == "DaemonSet":
        wanted = status.get("desiredNumberScheduled", 0)
        done = (status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0))
    else:
        wanted = spec.get("replicas", 1)
        done = (status.get("updatedReplicas", 0), status.get("availableReplicas", 0))
    return all(count >= wanted for count in done)


def established(cluster: Cluster, crd: str, *, seconds: float) -> None:
    """Wait until a custom resource definition is served."""
    definition = "CustomResourceDefinition"

    def look() -> bool:
        try:
            item = cluster.get("apiextensions.k8s.io/v1", definition, crd)
        except NotFound:
            return False
        return condition(item, "Established") == "True"

    until(look, seconds=seconds, what=f"{definition} {crd} to be established", subject=f"{definition} {crd}")


def gone(
    cluster: Cluster, api_version: str, kind: str, name: str, namespace: str | None = None, *, seconds: float
) -> None:
    """Wait until an object no longer exists."""

    def look() -> bool:
        try:
            cluster.get(api_version, kind, name, namespace)
        except NotFound:
            return True
        return False

    shown = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
    until(look, seconds=seconds, what=f"{shown} to be gone", subject=shown)


def condition(item: Mapping[str, Any], kind: str) -> str | None:
    """Status of one of an object's conditions: "True", "False", "Unknown", or None where it has none such."""
    for entry in (item.get("status") or {}).get("conditions") or ():
        if entry.get("type") == kind:
            return str(entry.get("status"))
    return None


def _reason(why: Callable[[], str] | None) -> str:
    if why is None:
        return ""
    try:
        return why()
    except NotReady as error:
        return error.message
