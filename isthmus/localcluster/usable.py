"""When a local cluster is usable, and if it is not, the first cause in words.

Usable means: its processes are ready, the node is Ready and takes pods, and an object was written and read back. Ready
processes alone are not enough: pods cannot be made before the controllers have caught up.
"""

import json
import re
import time
from pathlib import Path
from typing import Any

from isthmus.kube import objects
from isthmus.localcluster import pki
from isthmus.localcluster.rest import RequestFailed, Rest
from isthmus.localcluster.state import API_PORT, ClusterState, Paths

PASSING_TAINTS = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
"""Kubernetes removes these when it has seen that the node is ready. Others (a cordon) are the user's business."""


def problem(state: ClusterState, paths: Paths, document: dict[str, Any]) -> str:
    """What keeps the cluster from being usable, the first cause first; "" when nothing does."""
    for entry in document["processes"]:
        if not entry["ready"] and entry["name"] in {"etcd", "containerd", "kube-apiserver", "kubelet"}:
            return _words(paths, entry)
    if not document["objects"]["ready"]:
        return document["objects"]["message"] or "its own roles are not in the API server yet"
    try:
        with Rest(state.address, API_PORT, paths.pki, pki.ADMIN) as rest:
            found = _node_problem(rest, state)
            if found:
                return found
            _write_and_read_back(rest)
    except RequestFailed as error:
        return str(error)
    return next((_words(paths, entry) for entry in document["processes"] if not entry["ready"]), "")


def _words(paths: Paths, entry: dict[str, Any]) -> str:
    if entry["message"]:
        return f"{entry['name']}: {entry['message']}: {last_line(paths.log(entry['name']))}"
    if entry["pid"] is not None:
        return f"{entry['name']} is not ready yet"
    if entry["last_exit"] is None:
        return f"{entry['name']} was not started yet"
    return f"{entry['name']} ended with code {entry['last_exit']}: {last_line(paths.log(entry['name']))}"


def _node_problem(rest: Rest, state: ClusterState) -> str:
    """Give the node its labels; what keeps pods from being made and scheduled there, or ""."""
    path = f"/api/v1/nodes/{state.node}"
    node = json.loads(rest.text("GET", path))
    if not objects.holds(node, "Ready"):
        told = objects.conditions(node).get("Ready", {})
        return f"the node is not ready: {told.get('message', 'it has not reported yet')}"
    for taint in node["spec"].get("taints", ()):
        if taint["key"] in PASSING_TAINTS:
            return f"the node still has the taint {taint['key']}"
    rest.text("GET", "/api/v1/namespaces/default/serviceaccounts/default")  # pods cannot be made before it is there
    labelled = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": state.node, "labels": state.node_labels}}
    rest.apply(labelled, manager="isthmus-local-node")  # a manager of its own: labels that are no longer wanted go
    return _pods_problem(rest, state)


def _pods_problem(rest: Rest, state: ClusterState) -> str:
    """A kubelet that was just started answers before it knows its pods: their logs cannot be read yet."""
    running = f"/api/v1/pods?fieldSelector=spec.nodeName={state.node},status.phase=Running"
    wanted = _uids(rest.text("GET", running))
    if wanted and wanted - _uids(rest.text("GET", f"/api/v1/nodes/{state.node}/proxy/pods")):
        return "the kubelet has not taken up its running pods yet"
    return ""


def _uids(text: str) -> set[str]:
    return {item["metadata"]["uid"] for item in json.loads(text).get("items") or ()}


def _write_and_read_back(rest: Rest) -> None:
    now = str(time.time())
    mark = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "isthmus-usable", "namespace": "kube-system"},
        "data": {"since": now},
    }
    rest.apply(mark)
    found = json.loads(rest.text("GET", "/api/v1/namespaces/kube-system/configmaps/isthmus-usable"))
    if found["data"]["since"] != now:
        raise RequestFailed("an object that was written reads back as another")


def last_line(path: Path) -> str:
    """The last line of a log that tells of an error, else the last line."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return f"see {path}"
    told = [line for line in lines[-40:] if re.match(r"[EF]\d{4} |Error:", line)]  # what klog calls an error, or cobra
    return (told or lines or [f"see {path}"])[-1][:400]
