"""Kubeflow Trainer v2.2.0 on JobSet v0.11.1, from upstream's own manifests, for TrainJobs.

Upstream's overlay fetches a release of JobSet by its address; here both come from their modules, and what the overlay sets
(namespace, image tag, the Secret of the webhook's certificate) is set below. Its runtimes name images for CUDA and are left
out: ours come with each TrainJob (workloads/trainjob.py), and one for all has upstream's name and an image that is there, so
that a user's TrainJob runs as it is. JobSet's manager asks for less, and is named as in its release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from operators import manifests as helpers
from operators.manifests import Object

if TYPE_CHECKING:
    import pulumi

TOOL, JOBSET_TOOL = "trainer", "jobset"
NAME, NAMESPACE = "kubeflow-trainer-controller-manager", "kubeflow-system"
JOBSET_NAME, JOBSET_NAMESPACE = "jobset-controller-manager", "jobset-system"
IMAGE = "ghcr.io/kubeflow/trainer/trainer-controller-manager:v2.2.0"
JOBSET_IMAGE = "registry.k8s.io/jobset/jobset:v0.11.1"
"""As the release of v0.11.1 names it; the manifests in the module name a staging registry."""

RUNTIME = "torch-distributed"
"""As upstream names its runtime for PyTorch."""

RUNTIME_IMAGE = "docker.io/isthmus/torch:1.13.1"
"""What its pods run where the TrainJob names no image."""

_PARTS = ("crds", "manager", "rbac", "webhook")
_CLUSTER_WIDE = {
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
}


def deploy(
    provider: pulumi.ProviderResource, *, depends_on: Sequence[pulumi.Resource] = ()
) -> pulumi.ComponentResource:
    """Deploy both; Trainer comes when JobSet's webhooks answer.

    Raises:
        NotFound: upstream's manifests are not installed; the remedy says how.
    """
    from operators import deploy as deployment

    jobset = deployment.objects("jobset", jobset_manifests(), provider, depends_on=depends_on)
    return deployment.objects("trainer", trainer_manifests(), provider, depends_on=[*depends_on, jobset])


def manifests() -> list[Object]:
    """The objects of both."""
    return [*jobset_manifests(), *trainer_manifests()]


def jobset_manifests(upstream: Sequence[Mapping[str, Any]] | None = None) -> list[Object]:
    """JobSet's objects. Pure when `upstream` is given: the documents of upstream's default overlay."""
    items = helpers.marked(_read(JOBSET_TOOL, ("jobset",)) if upstream is None else upstream)
    for item in items:
        if item["kind"] == "Secret":
            item.pop("data", None)  # the operator writes it
        if item["kind"] == "Deployment":
            (container,) = item["spec"]["template"]["spec"]["containers"]
            container["image"] = JOBSET_IMAGE
            container["resources"] = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
            _ready_soon(container)
    return items


def trainer_manifests(upstream: Sequence[Mapping[str, Any]] | None = None) -> list[Object]:
    """Trainer's objects. Pure when `upstream` is given: the documents of upstream's base."""
    space: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    secret: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kubeflow-trainer-webhook-cert"}}
    given = _read(TOOL, _PARTS) if upstream is None else upstream
    items = helpers.marked([space, secret, *given])
    for item in items:
        if item["kind"] not in _CLUSTER_WIDE | {"Namespace"}:
            item["metadata"]["namespace"] = NAMESPACE
        for subject in item.get("subjects") or ():
            if subject["kind"] == "ServiceAccount":
                subject["namespace"] = NAMESPACE
        for hook in item.get("webhooks") or ():
            hook["clientConfig"]["service"]["namespace"] = NAMESPACE
        if item["kind"] == "Deployment":
            (container,) = item["spec"]["template"]["spec"]["containers"]
            container["image"] = IMAGE
            container["resources"] = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
            _ready_soon(container)
    return [*items, _runtime()]


def _runtime() -> Object:
    nodes: Object = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": RUNTIME_IMAGE}]}}},
        },
    }
    [runtime] = helpers.marked(
        [
            {
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "ClusterTrainingRuntime",
                "metadata": {"name": RUNTIME, "labels": {"trainer.kubeflow.org/framework": "torch"}},
                "spec": {
                    "mlPolicy": {"numNodes": 1, "torch": {}},
                    "template": {"spec": {"replicatedJobs": [nodes]}},
                },
            }
        ]
    )
    return runtime


def images() -> list[str]:
    """Images that both need."""
    return [IMAGE, JOBSET_IMAGE]


def _ready_soon(container: Object) -> None:
    container["readinessProbe"] = {**container["readinessProbe"], "initialDelaySeconds": 1, "periodSeconds": 2}


def _read(tool: str, parts: Sequence[str]) -> list[Object]:
    from isthmus.toolchain import home

    return [item for part in parts for item in helpers.read(home.share(tool) / f"{part}.yaml")]
