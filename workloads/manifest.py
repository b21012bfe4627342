"""A user's own manifest of a job, run as it is.

It is read into a WorkloadSpec, so that everything that knows workloads (fit, prices, budgets, runs) knows it too, and keeps
the manifest itself: what is applied is the user's, with the name, namespace and labels of the run, and nothing taken away.
Pure.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from isthmus.kube.objects import pod_requests, show
from isthmus.specs import labels
from isthmus.specs.kinds import KINDS, Kind
from isthmus.specs.names import nearest
from workloads import mxjob, trainjob
from workloads.pods import Object, Placing

Path = tuple[str, ...]
Problem = tuple[Path, str]
"""Where in the document something is wrong, and what."""

OURS = "isthmus.dev/v1"
GPUS = "nvidia.com/"


def is_manifest(document: Mapping[str, Any]) -> bool:
    """Whether a document is a Kubernetes object and not a workload file of ours."""
    return "apiVersion" in document and document["apiVersion"] != OURS


def problems(document: Mapping[str, Any], runtime: Mapping[str, Any] | None = None) -> list[Problem]:
    """What keeps a manifest from being run: its kind, a role or a template that is wrong. Its rules are the model's.

    Args:
        runtime: the TrainingRuntime in the same file as a TrainJob.
    """
    if mxjob.is_mxjob(document):
        return mxjob.problems(document)
    kind, found = _kind(document)
    if kind is None:
        return found
    if kind.name == trainjob.KIND:
        return list(trainjob.problems(document, runtime))
    if not isinstance(document.get("spec"), Mapping):
        return [(("spec",), "spec is missing")]
    found = []
    if kind.replicas_field:
        roles = document["spec"].get(kind.replicas_field)
        if not isinstance(roles, Mapping) or not roles:
            return [(("spec",), f"spec.{kind.replicas_field} is missing: a {kind.name} has its roles there")]
        found += [problem for role in roles for problem in _role(kind, str(role))]
        found += [problem for role, entry in roles.items() for problem in _policy(kind, str(role), entry)]
    for at, template in _templates(document, kind):
        found += _template(kind, at, template)
    return found


def as_values(document: Mapping[str, Any], runtime: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The fields of the WorkloadSpec that a manifest without `problems` stands for. Arguments as there."""
    if document["kind"] == trainjob.KIND:
        return trainjob.as_values(document, runtime)
    if mxjob.is_mxjob(document):
        name = str((document.get("metadata") or {}).get("name", ""))
        return {**as_values(mxjob.to_tfjob(document, name)), "manifest": dict(document)}
    kind = KINDS[document["kind"]]
    metadata, spec = document.get("metadata") or {}, document["spec"]
    templates = dict(_templates(document, kind))
    first = _main(kind, next(iter(templates.values())))
    policy = spec.get("runPolicy") or {} if kind.replicas_field else spec
    values: dict[str, Any] = {
        "apiVersion": OURS,
        "kind": kind.name,
        "name": metadata.get("name") or str(metadata.get("generateName", "")).rstrip("-"),
        "image": first.get("image", ""),
        "command": [*(first.get("command") or ()), *(first.get("args") or ())],
        "roles": _roles(document, kind, templates),
        "restartPolicy": _restart_policy(document, kind, templates),
        "manifest": dict(document),
    }
    for field in ("backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished", "cleanPodPolicy"):
        if policy.get(field) is not None:
            values[field] = policy[field]
    if spec.get("successPolicy") and kind.name == "TFJob":
        values["successPolicy"] = spec["successPolicy"]
    bounds = spec.get("elasticPolicy") or {}
    if kind.name == "PyTorchJob" and bounds.get("minReplicas") and bounds.get("maxReplicas"):
        values["elastic"] = {name: bounds[name] for name in ("minReplicas", "maxReplicas")}
    return values


def place(document: Mapping[str, Any], loc: tuple[Any, ...]) -> tuple[Any, ...]:
    """Where in the manifest a field of the WorkloadSpec comes from."""
    field = loc[:1]
    kind = KINDS["TFJob" if mxjob.is_mxjob(document) else document["kind"]]
    if field == ("name",):
        return ("metadata", *loc)
    if field == ("roles",) and kind.replicas_field:
        return ("spec", kind.replicas_field, *loc[1:])
    if field in {("backoffLimit",), ("activeDeadlineSeconds",), ("ttlSecondsAfterFinished",), ("cleanPodPolicy",)}:
        return ("spec", *(("runPolicy",) if kind.replicas_field else ()), *loc)
    return loc


def placed(document: Mapping[str, Any], placing: Placing, runtime: Mapping[str, Any] | None = None) -> list[Object]:
    """The manifest as it is applied for one run, after the runtime that came with it."""
    if document["kind"] == trainjob.KIND:
        return trainjob.placed(document, runtime, placing)
    job: Object = copy.deepcopy(dict(document))
    if mxjob.is_mxjob(document):
        job = mxjob.to_tfjob(document, placing.name)
    job.pop("status", None)
    kept = {name: value for name, value in (job.get("metadata") or {}).items() if name in {"labels", "annotations"}}
    kept["labels"] = {**(kept.get("labels") or {}), **placing.marks}
    job["metadata"] = {"name": placing.name, "namespace": placing.namespace, **kept}
    for _, template in _templates(job, KINDS[job["kind"]]):
        metadata = template.setdefault("metadata", {})
        metadata["labels"] = {**(metadata.get("labels") or {}), **placing.marks, **placing.pod_labels}
        if placing.pod_annotations:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **placing.pod_annotations}
        if any(name.startswith(GPUS) for name in pod_requests(template["spec"])):
            _tolerate(template["spec"])
    return [job]


def _kind(document: Mapping[str, Any]) -> tuple[Kind | None, list[Problem]]:
    name, version = str(document.get("kind")), str(document.get("apiVersion"))
    kind = KINDS.get(name)
    if kind is None:
        near = nearest(name, KINDS)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return None, [(("kind",), f"{name} is no kind of job{hint}; known: {', '.join(KINDS)}")]
    if version != kind.api_version:
        return None, [(("apiVersion",), f"apiVersion is {version}: a {name} here is {kind.api_version}")]
    return kind, []


def _role(kind: Kind, role: str) -> Iterator[Problem]:
    if role not in kind.roles:
        near = nearest(role, kind.roles)
        hint = f" (did you mean {near[0]}?)" if near else ""
        yield (
            ("spec", kind.replicas_field, role),
            f"{kind.name} has no role {role!r}{hint}; known: {', '.join(kind.roles)}",
        )


def _policy(kind: Kind, role: str, entry: Any) -> Iterator[Problem]:
    policy = entry.get("restartPolicy") if isinstance(entry, Mapping) else None
    if policy is not None and policy not in kind.restart_policies:
        at = ("spec", kind.replicas_field, role, "restartPolicy")
        yield at, f"{'.'.join(at)} is {policy}: a {kind.name} knows {', '.join(kind.restart_policies)}"


def _template(kind: Kind, at: Path, template: Any) -> Iterator[Problem]:
    shown = ".".join(at)
    pod = template.get("spec") if isinstance(template, Mapping) else None
    if not isinstance(pod, Mapping):
        yield at, f"{shown}.spec is missing"
        return
    containers = pod.get("containers")
    if not isinstance(containers, list) or not containers:
        yield (*at, "spec"), f"{shown}.spec.containers is missing"
        return
    names = [str(container.get("name")) for container in containers]
    if kind.container and kind.container not in names:
        yield (
            (*at, "spec", "containers"),
            f"{shown}.spec.containers: the operator looks for one named {kind.container}; there is: {', '.join(names)}",
        )
    for container in containers:
        if not container.get("image"):
            yield (*at, "spec", "containers"), f"{shown}.spec.containers: {container.get('name')} has no image"


def _templates(document: Mapping[str, Any], kind: Kind) -> Iterator[tuple[Path, Any]]:
    """Each pod template with its place."""
    spec = document["spec"]
    if not kind.replicas_field:
        yield ("spec", "template"), spec.get("template")
        return
    for role, entry in spec[kind.replicas_field].items():
        yield (
            ("spec", kind.replicas_field, str(role), "template"),
            entry.get("template") if isinstance(entry, Mapping) else None,
        )


def _roles(document: Mapping[str, Any], kind: Kind, templates: Mapping[Path, Any]) -> dict[str, Any]:
    spec = document["spec"]
    found = {}
    for at, template in templates.items():
        role = at[2] if kind.replicas_field else kind.roles[0]
        counts = spec[kind.replicas_field][role].get("replicas") if kind.replicas_field else spec.get("parallelism")
        asks = pod_requests(template["spec"])
        cards = [name for name in asks if name.startswith(GPUS)]
        found[role] = {
            "replicas": 1 if counts is None else counts,
            "cpu": show(asks["cpu"]) if asks.get("cpu") else "10m",  # what it does not ask for it may still use
            "memory": show(asks["memory"]) if asks.get("memory") else "1Mi",
            **({"gpus": int(asks[cards[0]]), "resource": cards[0]} if cards else {}),
        }
    return found


def _restart_policy(document: Mapping[str, Any], kind: Kind, templates: Mapping[Path, Any]) -> str:
    if not kind.replicas_field:
        pod = next(iter(templates.values()))["spec"]
        return str(pod.get("restartPolicy", "Never"))
    entry = next(iter(document["spec"][kind.replicas_field].values()))
    return str(entry.get("restartPolicy", "Never"))


def _main(kind: Kind, template: Mapping[str, Any]) -> Mapping[str, Any]:
    containers = template["spec"]["containers"]
    return next((entry for entry in containers if entry.get("name") == kind.container), containers[0])


def _tolerate(pod: Object) -> None:
    """GPU nodes are always tainted (case A13); a manifest from a cluster where they are not does not know it."""
    tolerations = pod.setdefault("tolerations", [])
    if not any(entry.get("key") in (None, labels.GPU_TAINT) for entry in tolerations):
        tolerations.append({"key": labels.GPU_TAINT, "operator": "Exists", "effect": "NoSchedule"})
