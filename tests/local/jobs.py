"""Jobs of every kind on a real cluster, many at once: submit, see how each ends, and what it leaves behind."""

from collections.abc import Callable, Iterable
from typing import Any

from isthmus.kube import Cluster, wait
from isthmus.localcluster import objects
from isthmus.runs.model import State
from isthmus.runs.observe import failure, job_state, replica
from isthmus.specs import labels
from isthmus.specs.errors import IsthmusError, NotFound
from isthmus.specs.workload import WorkloadSpec
from operators import manifests, training_operator
from workloads import render
from workloads.bindings import Binding

BINDING = Binding(cloud="kind", storage_class=objects.STORAGE_CLASS)
IMAGE = training_operator.INIT_IMAGE
ROLES: dict[str, dict[str, int]] = {
    "PyTorchJob": {"Master": 1},
    "TFJob": {"Worker": 1},
    "XGBoostJob": {"Master": 1},
    "JAXJob": {"Worker": 1},
    "MPIJob": {"Launcher": 1, "Worker": 1},
    "TrainJob": {"Node": 1},
    "Job": {"Worker": 1},
}
"""The fewest pods that a job of each kind has."""

SIZE = {"cpu": "10m", "memory": "16Mi"}
END_SECONDS = 300
OPERATOR_SECONDS = 240
"""An operator's webhook certificate is made after its pod has started, and the kubelet brings a changed Secret within its
sync period and a half."""

WEBHOOK_SECONDS = 120


def workload(
    name: str, script: str, kind: str = "PyTorchJob", roles: dict[str, Any] | None = None, **more: Any
) -> WorkloadSpec:
    """A workload whose pods run a shell script in busybox."""
    counts = ROLES[kind] if roles is None else roles
    described = {
        role: {**SIZE, **(asked if isinstance(asked, dict) else {"replicas": asked})} for role, asked in counts.items()
    }
    fields = {
        "apiVersion": "isthmus.dev/v1",
        "kind": kind,
        "name": name,
        "image": IMAGE,
        "command": ["sh", "-c", script],
        "roles": described,
    }
    return WorkloadSpec.model_validate(fields | more)


def install(kube: Cluster, items: Iterable[dict[str, Any]]) -> None:
    """Apply operators' manifests in the order of their creation; returns when their Deployments are available."""
    ordered = sorted(items, key=manifests.stage)
    for item in ordered:
        apply(kube, item)
        if item["kind"] == "CustomResourceDefinition":
            wait.established(kube, item["metadata"]["name"], seconds=30)
    for item in ordered:
        if item["kind"] == "Deployment":
            wait.available(kube, item["metadata"]["name"], item["metadata"]["namespace"], seconds=OPERATOR_SECONDS)


def apply(kube: Cluster, item: dict[str, Any]) -> None:
    """Apply once the webhooks answer: a Service's address may reach the node a moment after its pods are available."""

    def done() -> bool:
        try:
            kube.apply(item)
        except IsthmusError as error:
            if "webhook" not in error.message:
                raise
            return False
        return True

    wait.until(done, seconds=WEBHOOK_SECONDS, what="the webhook to answer")


class Job:
    """One job in a namespace."""

    def __init__(self, kube: Cluster, namespace: str, spec: WorkloadSpec) -> None:
        self.kube, self.namespace, self.spec, self.name = kube, namespace, spec, spec.name

    def submit(self, change: Callable[[dict[str, Any]], None] = lambda item: None) -> "Job":
        """Apply it; its manifests are the ones that a run has, but for the run's label.

        Args:
            change: is given each manifest and may change it.
        """
        for item in self.manifests():
            change(item)
            apply(self.kube, item)
        return self

    def manifests(self) -> list[dict[str, Any]]:
        return render.render(self.spec, namespace=self.namespace, binding=BINDING)

    def get(self) -> dict[str, Any]:
        return self.kube.get(self.spec.form.api_version, self.spec.kind, self.name, self.namespace)

    def conditions(self) -> dict[str, str]:
        """Type to status."""
        return {item["type"]: item["status"] for item in self.get().get("status", {}).get("conditions", [])}

    def state(self) -> State:
        return job_state(self.get())[0]

    def end(self, seconds: float = END_SECONDS) -> State:
        """Wait until it is over."""
        wait.until(
            lambda: self.state().final, seconds=seconds, what=f"{self.name} to end", why=lambda: str(self.get().get("status")),
        )  # fmt: skip
        return self.state()

    def reason(self) -> str:
        """Why it failed, in the words of a run."""
        return failure([replica(pod) for pod in self.pods()], job_state(self.get())[1])

    def pods(self) -> list[dict[str, Any]]:
        return self.kube.list("v1", "Pod", self.namespace, selector={labels.WORKLOAD: self.name})

    def pod(self, role: str, index: int = 0) -> dict[str, Any]:
        return self.kube.get("v1", "Pod", f"{self.name}-{role}-{index}", self.namespace)

    def phases(self) -> dict[str, str]:
        """Phase of each pod by the end of its name: worker-0."""
        return {
            pod["metadata"]["name"].removeprefix(f"{self.name}-"): pod.get("status", {}).get("phase", "")
            for pod in self.pods()
            if not pod["metadata"].get("deletionTimestamp")
        }

    def services(self) -> list[str]:
        return [
            item["metadata"]["name"]
            for item in self.kube.list("v1", "Service", self.namespace)
            if any(owner["name"] == self.name for owner in item["metadata"].get("ownerReferences", ()))
        ]

    def delete(self) -> None:
        self.kube.delete(
            self.spec.form.api_version, self.spec.kind, self.name, self.namespace, propagation="Foreground"
        )

    def gone(self) -> bool:
        """Whether the job and all its pods and services are gone."""
        try:
            self.get()
        except NotFound:
            return not self.pods() and not self.services()
        return False
