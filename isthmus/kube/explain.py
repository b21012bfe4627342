"""Why is it pending? In words, from what the API server knows: pods, nodes, claims and events.

The scheduler says "0/5 nodes are available: 5 Insufficient nvidia.com/gpu". A person needs to know how many there are,
where, and who has them. Each sentence names an object and a cause. The functions below `Facts` are pure; only
`why_pending`, `cluster_problems` and `Facts.read` ask a cluster, and only to read.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from isthmus.kube.client import Cluster, Object
from isthmus.kube.objects import conditions, holds, pod_requests, quantity, show, tolerates
from isthmus.specs.errors import IsthmusError
from isthmus.specs.labels import GPU_MODEL, GPU_RESOURCE

MOST = 12
"""Sentences at most: after that the rest is counted, not listed."""

IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"})
"""Waiting reasons of the kubelet that mean: the image is not there (kubernetes, pkg/kubelet/images/types.go)."""

CREATE_FAILURES = frozenset({"FailedCreate", "FailedCreatePod", "FailedCreateService"})
"""Event reasons of controllers that could not create an object (quota, admission)."""

REJECTED = "Pod was rejected:"
"""How the kubelet begins its message for a pod it did not admit (pkg/kubelet/kubelet.go, v1.36)."""

VOLUME_REASONS = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume"})


@dataclass(frozen=True)
class Facts:
    """What was read from one cluster, once."""

    pods: list[Object] = field(default_factory=list)
    """Pods to explain."""
    nodes: list[Object] = field(default_factory=list)
    placed: list[Object] = field(default_factory=list)
    """All pods that hold something of a node."""
    claims: list[Object] = field(default_factory=list)
    classes: list[Object] = field(default_factory=list)
    """Storage classes."""
    events: list[Object] = field(default_factory=list)

    @classmethod
    def read(cls, cluster: Cluster, namespace: str | None, selector: str | Mapping[str, str] | None = None) -> "Facts":
        """Read what explaining needs: six lists, fewer when no pod waits."""
        pods = cluster.list("v1", "Pod", namespace, selector=selector)
        events = cluster.list("v1", "Event", namespace)
        if not any(is_waiting(pod) for pod in pods):
            return cls(pods=pods, events=events)
        return cls(
            pods=pods,
            nodes=cluster.list("v1", "Node"),
            placed=cluster.list("v1", "Pod", fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"),
            claims=cluster.list("v1", "PersistentVolumeClaim", namespace),
            classes=cluster.list("storage.k8s.io/v1", "StorageClass"),
            events=events,
        )


def why_pending(cluster: Cluster, namespace: str, selector: str | Mapping[str, str] | None = None) -> list[str]:
    """Why pods of a namespace are not running yet, one sentence each; empty when none waits.

    Args:
        selector: only pods with these labels; also what could not be created for objects of that selection.
    """
    return explain(Facts.read(cluster, namespace, selector), within=namespace)


def cluster_problems(cluster: Cluster) -> list[str]:
    """What is wrong in a cluster, one sentence each; empty when nothing is.

    The API server itself, nodes, operators and other Deployments, aggregated APIs, then pods that wait and why. Never
    raises for an unreachable server: that is then the one sentence.
    """
    try:
        if not cluster.ready():
            cluster.version()
            return [f"the API server at {cluster.server} answers but does not serve yet"]
        nodes = cluster.list("v1", "Node")
        problems = [*node_problems(nodes)]
        for kind in ("Deployment", "StatefulSet", "DaemonSet"):
            problems += controller_problems(cluster.list("apps/v1", kind))
        problems += api_problems(cluster.list("apiregistration.k8s.io/v1", "APIService"))
        problems += explain(Facts.read(cluster, None))
    except IsthmusError as error:
        return [error.message]
    return _shorten(problems)


def explain(facts: Facts, *, within: str | None = None) -> list[str]:
    """The sentences for the pods of `facts` that wait, and for what could not be created.

    Args:
        within: a namespace that goes without saying.
    """
    reasons: dict[str, list[str]] = {}
    for pod in facts.pods:
        if is_waiting(pod):
            for reason in explain_pod(pod, facts):
                reasons.setdefault(reason, []).append(_name(pod).removeprefix(f"{within}/"))
    sentences = [f"{_pods(names)}: {reason}" for reason, names in reasons.items()]
    sentences += refused(facts.pods, within=within)
    return _shorten([*sentences, *_not_created(facts.events)])


def refused(pods: Sequence[Object], *, within: str | None = None) -> list[str]:
    """Pods that a kubelet turned away, a sentence for each owner: they stay, and a controller goes on making more of them
    (case A09, kubernetes/kubernetes#108152)."""
    found: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        status = pod.get("status") or {}
        if status.get("phase") == "Failed" and str(status.get("message", "")).startswith(REJECTED):
            owner = next(iter(pod["metadata"].get("ownerReferences") or ()), {"uid": pod["metadata"]["name"]})
            key = (str(owner["uid"]), str(status["message"]).removeprefix(REJECTED).strip())
            found.setdefault(key, []).append(_name(pod).removeprefix(f"{within}/"))
    return [f"{_pods(names)}: refused by the kubelet, and must be deleted: {why}" for (_, why), names in found.items()]


def is_waiting(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is neither done nor has all its containers running."""
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        return False
    status = pod.get("status") or {}
    if status.get("phase") in {"Succeeded", "Failed"}:
        return False
    if status.get("phase", "Pending") == "Pending":
        return True
    return any("waiting" in (entry.get("state") or {}) for entry in status.get("containerStatuses") or ())


def explain_pod(pod: Mapping[str, Any], facts: Facts) -> list[str]:
    """Why one waiting pod is not running, without its name. Always at least one reason."""
    status = pod.get("status") or {}
    scheduled: Mapping[str, Any] = next(
        (entry for entry in status.get("conditions") or () if entry.get("type") == "PodScheduled"), {}
    )
    if scheduled.get("reason") == "SchedulingGated":
        return ["waiting behind a scheduling gate (a queue has not admitted it)"]
    if not (pod.get("spec") or {}).get("nodeName"):
        if scheduled.get("status") == "False":
            return unschedulable(pod, str(scheduled.get("message", "")), facts)
        return ["not looked at by the scheduler yet"]
    found = [*_containers(pod, facts), *_mounts(pod, facts)]
    return found or [f"being started on node {pod['spec']['nodeName']}"]


def unschedulable(pod: Mapping[str, Any], message: str, facts: Facts) -> list[str]:
    """The scheduler's message in words with amounts. A part we do not know is passed on as it is."""
    spec = pod.get("spec") or {}
    reasons: list[str] = []
    lacking = [
        _lacking(resource, pod, facts)
        for resource in dict.fromkeys(re.findall(r"Insufficient ([^\s,.]+(?:\.[^\s,.]+)*)", message))
    ]
    reasons += filter(None, lacking)
    if "Too many pods" in message:
        reasons.append("nodes have as many pods as they may")
    if "affinity/selector" in message or "node selector" in message:
        reasons.append(_selector_words(spec, facts.nodes))
    if "untolerated taint" in message:
        reasons += _taint_words(spec, message, facts.nodes)
    if "unschedulable" in message and "taint" not in message:
        reasons.append("nodes are cordoned")
    if "persistentvolumeclaim" in message.lower() or "volume" in message:
        reasons += _claim_words(pod, facts) or [_first(message)]
    if "no nodes available" in message:
        reasons.append("the cluster has no node yet")
    return reasons or [f"not scheduled: {_first(message)}" if message else "not scheduled yet"]


def node_problems(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Nodes that are not Ready, with the kubelet's words, and GPU nodes whose device plugin the kubelet does not hear."""
    problems, total = [], 0
    for node in nodes:
        total += 1
        told = conditions(node)
        if not holds(node, "Ready"):
            said = str(told.get("Ready", {}).get("message") or "the kubelet has not reported").strip()
            problems.append(f"node {_name(node)} is not ready: {_first(said)}")
        elif without_cards(node):
            problems.append(
                f"node {_name(node)} is to have {node['metadata']['labels'][GPU_MODEL]} cards and advertises none: its device"
                " plugin has not registered with the kubelet; if it stays so, delete the plugin's pod there, without --force"
            )
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure"):
            if holds(node, kind):
                problems.append(f"node {_name(node)} has {kind}: {_first(str(told[kind].get('message', '')))}")
    return problems if total else ["the cluster has no node yet"]


def without_cards(node: Mapping[str, Any]) -> bool:
    """Whether a node of a GPU pool offers pods no card of any kind: whole, shared or a part."""
    offered = (node.get("status") or {}).get("allocatable") or {}
    return GPU_MODEL in ((node.get("metadata") or {}).get("labels") or {}) and not any(
        quantity(amount) for name, amount in offered.items() if name.startswith(f"{GPU_RESOURCE.partition('/')[0]}/")
    )


def controller_problems(items: Iterable[Mapping[str, Any]]) -> list[str]:
    """Deployments, StatefulSets and DaemonSets that do not run all their pods."""
    problems = []
    for item in items:
        status, spec = item.get("status") or {}, item.get("spec") or {}
        if item.get("kind") == "DaemonSet":
            wanted, has = status.get("desiredNumberScheduled", 0), status.get("numberAvailable", 0)
        elif item.get("kind") == "StatefulSet":
            wanted, has = spec.get("replicas", 1), status.get("readyReplicas", 0)
        else:
            wanted, has = spec.get("replicas", 1), status.get("availableReplicas", 0)
        if has < wanted:
            problems.append(f"{item.get('kind')} {_name(item)} has {has} of {wanted} pods available")
    return problems


def api_problems(services: Iterable[Mapping[str, Any]]) -> list[str]:
    """Aggregated APIs that do not answer: they make namespaces hang on deletion."""
    problems = []
    for service in services:
        for entry in (service.get("status") or {}).get("conditions") or ():
            if entry.get("type") == "Available" and entry.get("status") == "False":
                problems.append(f"API {_name(service)} is not available: {_first(str(entry.get('message', '')))}")
    return problems


def free(nodes: Iterable[Mapping[str, Any]], placed: Iterable[Mapping[str, Any]], resource: str) -> dict[str, Decimal]:
    """What each node still has of a resource: allocatable less the requests of its pods."""
    left = {
        _name(node): quantity(((node.get("status") or {}).get("allocatable") or {}).get(resource, 0)) for node in nodes
    }
    for pod in placed:
        spec = pod.get("spec") or {}
        if (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"} or spec.get("nodeName") not in left:
            continue
        left[spec["nodeName"]] -= pod_requests(spec).get(resource, Decimal(0))
    return left


def _lacking(resource: str, pod: Mapping[str, Any], facts: Facts) -> str:
    """Which amount is missing; "" when some node has it free, so that another reason keeps the pod from there."""
    wanted = pod_requests(pod.get("spec") or {}).get(resource, Decimal(0))
    total = free(facts.nodes, (), resource)
    if not any(total.values()):
        return f"no node has any {resource}"
    largest = max(total, key=lambda name: total[name])
    if total[largest] < wanted:
        return f"no node has {show(wanted)} {resource}: the largest ({largest}) has {show(total[largest])}"
    left = free(facts.nodes, facts.placed, resource)
    most = max(left, key=lambda name: left[name])
    holders = [_name(other) for other in facts.placed if _holds(other, resource)]
    used = f"; in use by {_few(holders)}" if holders else ""
    if left[most] >= wanted:
        return ""
    return f"no node has {show(wanted)} {resource} free: {most} has the most, {show(left[most])} of {show(total[most])}{used}"


def _holds(pod: Mapping[str, Any], resource: str) -> bool:
    return resource not in {"cpu", "memory"} and pod_requests(pod.get("spec") or {}).get(resource, Decimal(0)) > 0


def _selector_words(spec: Mapping[str, Any], nodes: list[Object]) -> str:
    for key, value in (spec.get("nodeSelector") or {}).items():
        there = sorted({str(labels[key]) for node in nodes if key in (labels := _labels(node))})
        if value not in there:
            seen = f"nodes have {key} = {', '.join(there)}" if there else f"no node has the label {key}"
            return f"no node with {key} = {value}, which is asked for: {seen}"
    return "no node matches the node selector and affinity"


def _taint_words(spec: Mapping[str, Any], message: str, nodes: list[Object]) -> list[str]:
    names: dict[str, list[str]] = {}
    for node in nodes:
        for taint in (node.get("spec") or {}).get("taints") or ():
            if taint.get("effect") != "PreferNoSchedule" and not tolerates(spec.get("tolerations") or (), taint):
                shown = f"{taint.get('key')}={taint['value']}" if taint.get("value") else str(taint.get("key"))
                names.setdefault(shown, []).append(_name(node))
    if not names:
        return [f"nodes have a taint that is not tolerated: {_first(message)}"]
    return [f"the taint {taint} of {_few(there)} is not tolerated" for taint, there in names.items()]


def _claim_words(pod: Mapping[str, Any], facts: Facts) -> list[str]:
    namespace = (pod.get("metadata") or {}).get("namespace", "default")
    wanted = [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in (pod.get("spec") or {}).get("volumes") or ()
        if "persistentVolumeClaim" in volume
    ]
    claims = {_name(claim): claim for claim in facts.claims}
    words = []
    for name in wanted:
        claim = claims.get(f"{namespace}/{name}")
        if claim is None:
            words.append(f"volume claim {name} does not exist")
        elif (claim.get("status") or {}).get("phase") != "Bound":
            words.append(f"volume claim {name} is not bound: {claim_reason(claim, facts)}")
    return words


def claim_reason(claim: Mapping[str, Any], facts: Facts) -> str:
    """Why a volume claim is not bound."""
    wanted = (claim.get("spec") or {}).get("storageClassName")
    classes = {_name(item): item for item in facts.classes}
    if not wanted:
        return "it names no storage class and the cluster has no default one"
    if wanted not in classes:
        return f"there is no storage class {wanted} (there are: {', '.join(sorted(classes)) or 'none'})"
    said = _last_message(facts.events, "PersistentVolumeClaim", _name(claim), {"ProvisioningFailed"})
    if said:
        return said
    if classes[wanted].get("volumeBindingMode") == "WaitForFirstConsumer":
        return f"storage class {wanted} makes it when its first pod has a node"
    return f"waiting for the provisioner {classes[wanted].get('provisioner')}"


def _containers(pod: Mapping[str, Any], facts: Facts) -> Iterator[str]:
    status = pod.get("status") or {}
    for entry in status.get("initContainerStatuses") or ():
        state = entry.get("state") or {}
        if "running" in state and not entry.get("ready"):
            yield f"waiting for init container {entry.get('name')} to end"
        elif "waiting" in state:
            yield from _waiting(pod, "init container", entry, facts)
    for entry in status.get("containerStatuses") or ():
        if "waiting" in (entry.get("state") or {}):
            yield from _waiting(pod, "container", entry, facts)


def _waiting(pod: Mapping[str, Any], kind: str, entry: Mapping[str, Any], facts: Facts) -> Iterator[str]:
    waiting = entry["state"]["waiting"]
    reason, message = waiting.get("reason", ""), str(waiting.get("message", ""))
    if reason in IMAGE_REASONS:
        said = _last_message(facts.events, "Pod", _name(pod), {"Failed"}) or message
        yield f"image {entry.get('image')} cannot be had ({reason}): {_first(said)}"
    elif reason == "CrashLoopBackOff":
        last = (entry.get("lastState") or {}).get("terminated") or {}
        ended = f"exit code {last.get('exitCode', 'unknown')}, {entry.get('restartCount', 0)} restarts"
        yield f"{kind} {entry.get('name')} keeps ending ({ended}) and is waiting to start again"
    elif reason not in {"ContainerCreating", "PodInitializing", ""}:
        yield f"{kind} {entry.get('name')} cannot start ({reason}): {_first(message)}"


def _mounts(pod: Mapping[str, Any], facts: Facts) -> Iterator[str]:
    said = _last_message(facts.events, "Pod", _name(pod), VOLUME_REASONS | {"FailedCreatePodSandBox"})
    if said:
        yield f"not started yet: {said}"


def _not_created(events: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Pods that a controller could not even create: only its events know."""
    latest: dict[str, Mapping[str, Any]] = {}
    for event in sorted(events, key=_when):
        involved = event.get("involvedObject") or {}
        owner = f"{involved.get('kind')} {involved.get('namespace')}/{involved.get('name')}"
        if event.get("reason") in CREATE_FAILURES and event.get("type") == "Warning":
            latest[owner] = event
        elif str(event.get("reason", "")).startswith("SuccessfulCreate"):
            latest.pop(owner, None)
    for owner, event in latest.items():
        message = str(event.get("message", ""))
        quota = re.search(r"exceeded quota: ([^,]+), requested: (.+), used: (.+), limited: (.+)", message)
        if quota:
            name, wanted, used, limit = quota.groups()
            yield f"{owner} may not create its pods: quota {name} allows {limit}, in use {used}, asked {wanted}"
        else:
            yield f"{owner} could not create its pods: {_first(message)}"


def _last_message(events: Iterable[Mapping[str, Any]], kind: str, name: str, reasons: Iterable[str]) -> str:
    allowed = set(reasons)
    found = ""
    for event in sorted(events, key=_when):
        involved = event.get("involvedObject") or {}
        about = f"{involved.get('namespace')}/{involved.get('name')}"
        if involved.get("kind") == kind and about == name and event.get("reason") in allowed:
            found = _first(str(event.get("message", "")))
    return found


def _when(event: Mapping[str, Any]) -> str:
    series = (event.get("series") or {}).get("lastObservedTime")
    metadata = event.get("metadata") or {}
    return str(
        event.get("lastTimestamp") or series or event.get("eventTime") or metadata.get("creationTimestamp") or ""
    )


def _pods(names: list[str]) -> str:
    return f"pod {names[0]}" if len(names) == 1 else f"{len(names)} pods ({_few(names)})"


def _shorten(sentences: list[str]) -> list[str]:
    if len(sentences) <= MOST:
        return sentences
    return [*sentences[:MOST], f"and {len(sentences) - MOST} more"]


def _few(names: Iterable[str], most: int = 3) -> str:
    unique = list(dict.fromkeys(names))
    more = f" and {len(unique) - most} more" if len(unique) > most else ""
    return ", ".join(unique[:most]) + more


def _first(message: str) -> str:
    """The first line, cut before the scheduler's remarks on preemption."""
    line = message.strip().splitlines()[0] if message.strip() else "no reason was given"
    return line.split(" preemption:")[0].rstrip(". ")[:300]


def _name(item: Mapping[str, Any]) -> str:
    metadata = item.get("metadata") or {}
    return f"{metadata['namespace']}/{metadata.get('name')}" if metadata.get("namespace") else str(metadata.get("name"))


def _labels(item: Mapping[str, Any]) -> Mapping[str, Any]:
    return (item.get("metadata") or {}).get("labels") or {}
