"""What the source's cluster holds, and where each of it goes: volumes, identities, jobs, images, services, all else. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from isthmus.migration.plan.model import Choices, End, Line, Object
from isthmus.runs.model import Run
from isthmus.specs import labels
from workloads import bindings

IDENTITY = {"aws": "eks.amazonaws.com/role-arn", "gcp": "iam.gke.io/gcp-service-account"}
"""Annotation of a service account that acts as a cloud identity."""
INTERNAL: dict[str, tuple[tuple[str, str], ...]] = {
    "aws": (
        ("service.beta.kubernetes.io/aws-load-balancer-scheme", "internal"),
        ("service.beta.kubernetes.io/aws-load-balancer-internal", "true"),
    ),
    "gcp": (
        ("networking.gke.io/load-balancer-type", "Internal"),
        ("cloud.google.com/load-balancer-type", "Internal"),
    ),
}
"""Annotations that keep a load balancer inside the network; the first of a cloud is the one to write. (AWS Load Balancer
Controller, service annotations; GKE, internal passthrough Network Load Balancers.)"""
BALANCER = {"aws": "service.beta.kubernetes.io/aws-load-balancer-", "gcp": "networking.gke.io/"}
REGISTRY = {
    "aws": re.compile(r"^\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com/"),
    "gcp": re.compile(r"^[a-z0-9-]+-docker\.pkg\.dev/"),
}
NODE_LABELS = {"aws": ("eks.amazonaws.com/", "k8s.amazonaws.com/"), "gcp": ("cloud.google.com/",)}
EVERYWHERE_ENCRYPTED = {"gcp"}
"""Clouds that encrypt every disk, asked or not (Google Cloud, default encryption at rest)."""
CLUSTERS_OWN = frozenset({"kube-root-ca.crt"})


def volumes(source: End, destination: End, choices: Choices) -> Iterator[Line]:
    """Claims, by the class map (case A28: a class that is missing in it stops the move before anything is copied)."""
    classes = _by_name(source, "StorageClass")
    there = _by_name(destination, "StorageClass")
    ours = {
        bindings.for_cloud(source.settings.cloud).storage_class: bindings.for_cloud(
            destination.settings.cloud
        ).storage_class
    }
    default = next((name for name, one in classes.items() if _is_default(one)), "")
    for claim in _of(source, "PersistentVolumeClaim"):
        spec = claim["spec"]
        name = spec.get("storageClassName") or default
        to = choices.classes.get(name) or ours.get(name) or ""
        mode = ", ".join(spec.get("accessModes") or ())
        size = spec.get("resources", {}).get("requests", {}).get("storage", "?")
        marked = claim["metadata"].get("labels") or {}
        if marked.get(labels.MANAGED_BY) == labels.OWNER and labels.RUN not in marked:
            made = f"the program makes it anew, class {to or 'of the program'}"
            yield Line(
                "volumes", f"volume/{_name(claim)}", f"{_name(claim)}: {size}, of a sample", made, "its content stays"
            )
            continue
        undecided = ""
        if not to:
            undecided = f"class {name or '(default)'} has no counterpart: --class {name}=CLASS"
        elif destination.up and to not in there:
            undecided = f"{destination.name} has no class {to} (it has: {', '.join(sorted(there)) or 'none'}): --class {name}=CLASS"
        elif labels.RUN not in marked:
            undecided = "of no run: a move copies the volumes of runs; copy it yourself, or accept that it stays"
        yield Line(
            "volumes", f"volume/{_name(claim)}", f"{_name(claim)}: {size}, {mode}, class {name}",
            f"class {to}, made by the destination's own provisioner" if to else "",
            _lost(classes.get(name), there.get(to), destination), undecided,
        )  # fmt: skip


def _lost(here: Object | None, there: Object | None, destination: End) -> str:
    """What of a class's behaviour is not kept."""
    if here is None:
        return ""
    said = ["size and access mode kept"]
    policy = here.get("reclaimPolicy", "Delete")
    if there is not None and there.get("reclaimPolicy", "Delete") != policy:
        said.append(f"LOST: reclaim policy {policy}, there {there.get('reclaimPolicy', 'Delete')}")
    encrypted = str((here.get("parameters") or {}).get("encrypted", "")).lower() == "true"
    if encrypted and destination.settings.cloud not in EVERYWHERE_ENCRYPTED:
        kept = str(((there or {}).get("parameters") or {}).get("encrypted", "")).lower() == "true"
        said.append("encryption kept" if kept else "LOST: encryption, unless the account encrypts every disk")
    elif encrypted:
        said.append("encryption kept: every disk is encrypted there")
    return "; ".join(said)


def identities(source: End, destination: End) -> Iterator[Line]:
    """Service accounts that act as a cloud identity. That of the runs is the program's; any other must be decided."""
    mark, there = IDENTITY[source.settings.cloud], IDENTITY[destination.settings.cloud]
    for account in _of(source, "ServiceAccount"):
        role = (account["metadata"].get("annotations") or {}).get(mark, "")
        ours = (account["metadata"].get("namespace"), account["metadata"]["name"]) == (
            labels.RUNS_NAMESPACE,
            labels.RUNS_ACCOUNT,
        )
        if ours:
            made = "the program binds it to the bucket" + (
                f", annotation {there}" if destination.settings.cloud == "gcp" else ""
            )
            yield Line("identities", f"identity/{_name(account)}", role or "EKS Pod Identity, no annotation", made)
        elif role:
            yield Line(
                "identities", f"identity/{_name(account)}", f"{mark}: {role}", "",
                undecided="the program gives it no identity there: add one to it, or accept that its pods have none",
            )  # fmt: skip


def jobs(source: End, destination: End, runs: Sequence[Run]) -> Iterator[Line]:
    """Runs that have not ended: made anew at the destination, from their checkpoint volumes where they have some."""
    for run in runs:
        cards = f", {run.spec.gpus} cards" if run.spec.gpus else ""
        name = f"{run.job}: {run.spec.kind}, {run.state.value}{cards}"
        how = "made anew from its volumes" if run.spec.volumes else "made anew"
        lost = (
            ""
            if run.spec.volumes or run.started is None
            else "it has no volume: what it has computed is lost, or wait (--drain)"
        )
        yield Line("jobs", f"job/{run.id}", name, f"{how} on {destination.name}", undecided=lost)
    for template, owner in _pod_specs(source):
        for label in sorted(template.get("nodeSelector") or {}):
            if label.startswith(NODE_LABELS[source.settings.cloud]):
                yield Line(
                    "jobs", f"node-label/{owner}", f"{owner} selects nodes by {label}", "",
                    undecided=f"no node has that label there: select by {labels.GPU_MODEL}, or accept that it stays pending",
                )  # fmt: skip


def images(source: End) -> Iterator[Line]:
    """Images in the source cloud's own registry: nodes of another cloud have no right to pull them."""
    pattern = REGISTRY[source.settings.cloud]
    found = {
        container["image"]
        for template, _ in _pod_specs(source)
        for container in [*template.get("containers", ()), *template.get("initContainers", ())]
        if pattern.match(str(container.get("image", "")))
    }
    for image in sorted(found):
        yield Line(
            "images", f"image/{image.rpartition('/')[2]}", image, "the destination's registry",
            undecided=f"copy it (crane copy {image} REGISTRY/...) and name it in the workload, then accept this line",
        )  # fmt: skip


def services(source: End, destination: End) -> Iterator[Line]:
    """Load balancers: an internal one must stay internal."""
    here, there = source.settings.cloud, destination.settings.cloud
    for service in _of(source, "Service"):
        if service["spec"].get("type") != "LoadBalancer":
            continue
        marks = service["metadata"].get("annotations") or {}
        internal = any(str(marks.get(name, "")).lower() == value.lower() for name, value in INTERNAL[here])
        to = f"internal ({INTERNAL[there][0][0]}: {INTERNAL[there][0][1]})" if internal else "public"
        others = sorted(
            name for name in marks if name.startswith(BALANCER[here]) and name not in {one for one, _ in INTERNAL[here]}
        )
        yield Line(
            "services", f"service/{_name(service)}", f"{_name(service)}: {'internal' if internal else 'public'}", to,
            "its address changes",
            f"annotations without a counterpart: {', '.join(others)}" if others else "",
        )  # fmt: skip


def others(source: End) -> Iterator[Line]:
    """Objects in the runs' namespace that nobody but their maker can make anew: not ours, and of no run."""
    for item in source.objects:
        metadata = item["metadata"]
        marked = metadata.get("labels") or {}
        if (
            metadata.get("namespace") != labels.RUNS_NAMESPACE
            or marked.get(labels.MANAGED_BY) == labels.OWNER
            or metadata.get("ownerReferences")
            or item["kind"] in {"PersistentVolumeClaim", "Pod", "Event", "ServiceAccount"}
            or metadata["name"] in CLUSTERS_OWN
            or (item["kind"] == "Service" and item["spec"].get("type") == "LoadBalancer")
        ):
            continue
        yield Line(
            "other", f"object/{item['kind']}/{metadata['name']}", f"{item['kind']} {metadata['name']}", "",
            undecided="not made by isthmus: apply it there yourself, or accept that it stays behind",
        )  # fmt: skip


def _of(end: End, kind: str) -> list[Object]:
    return sorted((item for item in end.objects if item["kind"] == kind), key=_name)


def _by_name(end: End, kind: str) -> dict[str, Object]:
    return {item["metadata"]["name"]: item for item in _of(end, kind)}


def _name(item: Object) -> str:
    metadata = item["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])


def _is_default(item: Object) -> bool:
    marks = item["metadata"].get("annotations") or {}
    return bool(marks.get("storageclass.kubernetes.io/is-default-class") == "true")


def _pod_specs(end: End) -> Iterator[tuple[dict[str, Any], str]]:
    """Pod templates of what runs in the runs' namespace, with the object they belong to."""
    for item in end.objects:
        if item["metadata"].get("namespace") != labels.RUNS_NAMESPACE or item["kind"] == "Pod":
            continue
        yield from ((spec, f"{item['kind']}/{item['metadata']['name']}") for spec in _templates(item.get("spec")))


def _templates(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if isinstance(value.get("template"), dict) and isinstance(value["template"].get("spec"), dict):
            yield value["template"]["spec"]
            return
        for inner in value.values():
            yield from _templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _templates(inner)
