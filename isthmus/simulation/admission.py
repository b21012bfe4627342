"""Where a pod of a simulated cluster runs: a decision of the far side, so that manifests stay the same on every stack.

MutatingAdmissionPolicies (admissionregistration.k8s.io/v1, on by default since Kubernetes 1.36) in the API server:
pods labelled isthmus.dev/execution=simulated may and must go to simulated nodes; all other pods stay on the local node,
with CPU and memory requests capped so that a job sized for real machines fits this one. Pods of DaemonSets are left
alone. The local cluster's own storage class is no default: which one is, the cloud says. Changes are JSON patches, because tolerations and node selectors are atomic lists and maps that an apply patch would replace. Pure.
"""

from __future__ import annotations

import os
from typing import Any

from isthmus.localcluster.objects import STORAGE_CLASS
from isthmus.specs.labels import (
    EXECUTION,
    EXECUTION_SIMULATED,
    LOCAL_NODE,
    SIMULATED_NODE,
    SIMULATED_TAINT,
)

Object = dict[str, Any]

API = "admissionregistration.k8s.io/v1"
PODS_ON_THIS_MACHINE = 32
"""Containers that fit the local node at the cap, whatever they ask for."""
SMALLEST_CPU_MILLIS = 10
SMALLEST_MEMORY_MIB = 16
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
LOCAL_PROVISIONER = "rancher.io/local-path"
"""The provisioner that every local cluster runs (isthmus/localcluster/objects.py)."""


def manifests(cpus: int | None = None, memory_mib: int | None = None) -> list[Object]:
    """The policies and their bindings.

    Args:
        cpus, memory_mib: what this machine has; default: as the operating system says.
    """
    cpu = max(SMALLEST_CPU_MILLIS, (cpus or os.cpu_count() or 1) * 1000 // PODS_ON_THIS_MACHINE)
    memory = max(SMALLEST_MEMORY_MIB, (memory_mib or _memory_mib()) // PODS_ON_THIS_MACHINE)
    pods = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    classes = [
        {
            "apiGroups": ["storage.k8s.io"],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["storageclasses"],
        }
    ]
    return [
        *_policy("isthmus-simulated-pods", pods, [_NOT_DAEMON, _SIMULATED], [_TOLERATE, _SELECT_SIMULATED]),
        *_policy(
            "isthmus-executed-pods",
            pods,
            [_NOT_DAEMON, _EXECUTED],
            [_caps("cpu", f"{cpu}m"), _caps("memory", f"{memory}Mi")],
        ),
        *_policy("isthmus-stay-local", pods, [_NOT_DAEMON, _EXECUTED, _TOLERATES_ALL], [_SELECT_LOCAL]),
        *_policy("isthmus-no-local-default", classes, [_LOCAL_DEFAULT], [_NO_DEFAULT]),
    ]


def probes() -> list[Object]:
    """Pods for a dry run that tells whether the policies act: an API server takes a moment to load them."""
    return [_probe("isthmus-probe-simulated", {EXECUTION: EXECUTION_SIMULATED}), _probe("isthmus-probe-executed", {})]


def acted_on(probe: Object) -> bool:
    """Whether every policy has acted on what a dry run made of a probe."""
    if (probe["metadata"].get("labels") or {}).get(EXECUTION) == EXECUTION_SIMULATED:
        return SIMULATED_NODE in (probe["spec"].get("nodeSelector") or {})
    asked = probe["spec"]["containers"][0]["resources"]["requests"]
    return asked != _PROBE_REQUESTS and LOCAL_NODE in (probe["spec"].get("nodeSelector") or {})


_PROBE_REQUESTS = {"cpu": "1k", "memory": "1Pi"}


def _probe(name: str, labels: dict[str, str]) -> Object:
    container = {"name": "probe", "image": "none", "resources": {"requests": dict(_PROBE_REQUESTS)}}
    tolerations = [] if labels else [{"operator": "Exists"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"containers": [container], "tolerations": tolerations},
    }


_NOT_DAEMON = (
    "not-of-a-daemonset",
    "!has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(o, o.kind == 'DaemonSet')",
)
_LABELLED = (
    f"has(object.metadata.labels) && object.metadata.labels[?'{EXECUTION}'].orValue('') == '{EXECUTION_SIMULATED}'"
)
_SIMULATED = ("simulated", _LABELLED)
_EXECUTED = ("executed", f"!({_LABELLED})")
_TOLERATES_ALL = (
    "tolerates-everything",
    "has(object.spec.tolerations) && object.spec.tolerations.exists(t, t.?key.orValue('') == '')",
)

_LOCAL_DEFAULT = (
    "default-class-of-the-local-cluster",
    (
        f"object.metadata.name == '{STORAGE_CLASS}' && object.provisioner == '{LOCAL_PROVISIONER}' && "
        f"object.metadata.?annotations[?'{DEFAULT_CLASS}'].orValue('') == 'true'"
    ),
)
_NO_DEFAULT = f"""
[JSONPatch{{op: "replace", path: "/metadata/annotations/" + jsonpatch.escapeKey("{DEFAULT_CLASS}"), value: "false"}}]
"""

_TOLERATE = f"""
(has(object.spec.tolerations) ? [] : [JSONPatch{{op: "add", path: "/spec/tolerations", value: []}}]) + [
  JSONPatch{{op: "add", path: "/spec/tolerations/-", value: Object.spec.tolerations{{
    key: "{SIMULATED_TAINT}", operator: "Exists", effect: "NoSchedule"}}}}]
"""


def _select(label: str) -> str:
    path = f'"/spec/nodeSelector/" + jsonpatch.escapeKey("{label}")'
    return f"""
(has(object.spec.nodeSelector) ? [] : [JSONPatch{{op: "add", path: "/spec/nodeSelector", value: {{}}}}]) + [
  JSONPatch{{op: "add", path: {path}, value: "true"}}]
"""


_SELECT_SIMULATED, _SELECT_LOCAL = _select(SIMULATED_NODE), _select(LOCAL_NODE)


def _caps(resource: str, most: str) -> str:
    """Patches that lower every container's request of a resource to `most`; limits stay as they are."""
    return " + ".join(_caps_of(group, resource, most) for group in ("containers", "initContainers"))


def _caps_of(group: str, resource: str, most: str) -> str:
    asks = f"c.?resources.?requests[?'{resource}']"
    return f"""
object.spec.?{group}.orValue([]).transformList(i, c,
  {asks}.hasValue() && quantity(string({asks}.value())).isGreaterThan(quantity("{most}")),
  JSONPatch{{op: "replace", path: "/spec/{group}/" + string(i) + "/resources/requests/{resource}", value: "{most}"}})
"""


def _policy(name: str, rules: list[Object], conditions: list[tuple[str, str]], patches: list[str]) -> list[Object]:
    policy = {
        "apiVersion": API,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": rules},
            "matchConditions": [{"name": key, "expression": text} for key, text in conditions],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": text.strip()}} for text in patches],
        },
    }
    binding = {
        "apiVersion": API,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name},
    }
    return [policy, binding]


def _memory_mib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
