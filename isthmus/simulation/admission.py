"""Where a pod of a simulated cluster runs: a decision of the far side, so that manifests stay the same on every stack.

MutatingAdmissionPolicies (admissionregistration.k8s.io/v1, on by default since Kubernetes 1.36) in the API server:
pods labelled isthmus.dev/execution=simulated may and must go to simulated nodes; all other pods stay on the local node,
with CPU and memory requests capped so that a job sized for real machines fits this one. Pods of DaemonSets are left
alone. The local cluster's own storage class is no default: which one is, the cloud says. Changes are JSON patches, because tolerations and node selectors are atomic lists and maps that an apply patch would replace. Pure.
"""

from __future__ import annotations

from typing import Any

from isthmus.localcluster import pod_policies
from isthmus.localcluster.objects import STORAGE_CLASS
from isthmus.localcluster.pod_policies import EXECUTED, NOT_DAEMON, PODS, SIMULATED, policy
from isthmus.specs.labels import (
    EXECUTION,
    EXECUTION_SIMULATED,
    LOCAL_NODE,
    SIMULATED_NODE,
    SIMULATED_TAINT,
)

Object = dict[str, Any]

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
LOCAL_PROVISIONER = "rancher.io/local-path"
"""The provisioner that every local cluster runs (isthmus/localcluster/objects.py)."""


def manifests(cpus: int | None = None, memory_mib: int | None = None) -> list[Object]:
    """The policies and their bindings.

    Args:
        cpus, memory_mib: what this machine has; default: as the operating system says.
    """
    classes = [
        {
            "apiGroups": ["storage.k8s.io"],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["storageclasses"],
        }
    ]
    return [
        *policy("isthmus-simulated-pods", PODS, [NOT_DAEMON], [_TOLERATE, _SELECT_SIMULATED], SIMULATED),
        *pod_policies.capped_requests(cpus, memory_mib),
        *policy("isthmus-stay-local", PODS, [NOT_DAEMON, _TOLERATES_ALL], [_SELECT_LOCAL], EXECUTED),
        *policy("isthmus-no-local-default", classes, [_LOCAL_DEFAULT], [_NO_DEFAULT]),
    ]


def probes() -> list[Object]:
    """Pods for a dry run that tells whether the policies act."""
    simulated = pod_policies.probe("isthmus-probe-simulated", {EXECUTION: EXECUTION_SIMULATED})
    return [simulated, pod_policies.probe()]


def acted_on(probe: Object) -> bool:
    """Whether every policy has acted on what a dry run made of a probe."""
    selector = probe["spec"].get("nodeSelector") or {}
    if (probe["metadata"].get("labels") or {}).get(EXECUTION) == EXECUTION_SIMULATED:
        return SIMULATED_NODE in selector
    return pod_policies.is_capped(probe) and LOCAL_NODE in selector


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
