"""Admission policies for pods on nodes that share this machine. Pure.

A job sized for real machines fits this one only if its pods ask for less: a MutatingAdmissionPolicy
(admissionregistration.k8s.io/v1, on by default since Kubernetes 1.36) caps what they request, and leaves their limits.
Pods of DaemonSets are left alone, and so are pods that only schedule. Changes are JSON patches, because tolerations and
node selectors are atomic lists and maps that an apply patch would replace.
"""

import os
from collections.abc import Sequence
from typing import Any

from isthmus.specs.labels import EXECUTION, EXECUTION_SIMULATED

Object = dict[str, Any]
Condition = tuple[str, str]
"""Name and CEL expression."""

API = "admissionregistration.k8s.io/v1"
PODS_ON_THIS_MACHINE = 32
"""Containers that fit a node at the cap, whatever they ask for."""
SMALLEST_CPU_MILLIS = 10
SMALLEST_MEMORY_MIB = 16

PODS: list[Object] = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]

NOT_DAEMON: Condition = (
    "not-of-a-daemonset",
    "!has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(o, o.kind == 'DaemonSet')",
)
SIMULATED: Object = {"matchLabels": {EXECUTION: EXECUTION_SIMULATED}}
EXECUTED: Object = {"matchExpressions": [{"key": EXECUTION, "operator": "NotIn", "values": [EXECUTION_SIMULATED]}]}
"""Selectors and no conditions: the API server turns a pod into CEL's form for each policy that has one to ask."""


def capped_requests(cpus: int | None = None, memory_mib: int | None = None) -> list[Object]:
    """The policy that caps CPU and memory requests, and its binding.

    Args:
        cpus, memory_mib: what this machine has; default: as the operating system says.
    """
    cpu = max(SMALLEST_CPU_MILLIS, (cpus or os.cpu_count() or 1) * 1000 // PODS_ON_THIS_MACHINE)
    memory = max(SMALLEST_MEMORY_MIB, (memory_mib or _memory_mib()) // PODS_ON_THIS_MACHINE)
    caps = [_caps("cpu", f"{cpu}m"), _caps("memory", f"{memory}Mi")]
    return policy("isthmus-executed-pods", PODS, [NOT_DAEMON], caps, EXECUTED)


def policy(
    name: str,
    rules: list[Object],
    conditions: Sequence[Condition],
    patches: Sequence[str],
    selector: Object | None = None,
) -> list[Object]:
    """A policy and its binding.

    Args:
        rules: which requests it sees.
        conditions: all must hold.
        patches: CEL expressions that give lists of JSON patches, none of which needs what another one does. They are
            made as one: each mutation of a policy costs the API server as much as the first.
        selector: of the objects' labels; default: all.
    """
    patch = " + ".join(f"({text.strip()})" for text in patches)
    made = {
        "apiVersion": API,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": rules, "objectSelector": selector or {}},
            "matchConditions": [{"name": key, "expression": text} for key, text in conditions],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
        },
    }
    binding = {
        "apiVersion": API,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name},
    }
    return [made, binding]


PROBE_REQUESTS = {"cpu": "1k", "memory": "1Pi"}


def probe(name: str = "isthmus-probe-executed", labels: dict[str, str] | None = None) -> Object:
    """A pod for a dry run that tells whether policies act: an API server takes a moment to load them."""
    container = {"name": "probe", "image": "none", "resources": {"requests": dict(PROBE_REQUESTS)}}
    tolerations = [] if labels else [{"operator": "Exists"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "spec": {"containers": [container], "tolerations": tolerations},
    }


def is_capped(answer: Object) -> bool:
    """Whether the policy has acted on what a dry run made of `probe`."""
    return bool(answer["spec"]["containers"][0]["resources"]["requests"] != PROBE_REQUESTS)


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


def _memory_mib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
