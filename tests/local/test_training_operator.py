"""The real training operator and the sample workloads on a real node: containers started by the kubelet, four processes
each, their numbers from the pods' own logs."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.kube import Cluster, wait
from isthmus.localcluster import objects, recipes
from isthmus.localcluster.embedded import EmbeddedCluster
from isthmus.runs.model import State
from isthmus.runs.submit import ensure_namespace
from isthmus.specs import labels
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import IsthmusError
from isthmus.specs.workload import WorkloadSpec
from operators import device_plugin, training_operator
from tests.local import jobs, test_exit_codes
from tests.local.jobs import apply, install
from workloads import render
from workloads.bindings import Binding

pytestmark = pytest.mark.local

JOB_SECONDS = 240
CARDS = GpuCards(model="T4", count=4)
BINDING = Binding(cloud="kind", storage_class=objects.STORAGE_CLASS)
SMALL = {
    f"roles.{role}.{field}": value
    for role in ("Master", "Worker")
    for field, value in (("cpu", "50m"), ("memory", "512Mi"))
}
"""Requests that fit a small machine four times; on a cloud's cluster an admission policy of the node does this."""


@pytest.fixture(scope="module")
def platform(embedded_cluster: EmbeddedCluster, kube: Cluster) -> Cluster:
    """Cards, device plugin and operator."""
    node = embedded_cluster.local_node()
    for recipe in recipes.required():
        embedded_cluster.load_image(recipes.archive_of(recipe))
    embedded_cluster.set_cards(CARDS)
    kube.patch("v1", "Node", node, {"metadata": {"labels": {labels.GPU_MODEL: CARDS.model}}})
    install(kube, [*device_plugin.manifests([]), *training_operator.manifests()])
    wait.until(
        lambda: kube.get("v1", "Node", node)["status"]["allocatable"].get(labels.GPU_RESOURCE) == str(CARDS.count),
        seconds=60, what="the node to advertise its cards",
    )  # fmt: skip
    return kube


class Job:
    """One submission of a workload in a namespace."""

    def __init__(self, kube: Cluster, namespace: str, spec: WorkloadSpec) -> None:
        self.kube, self.namespace, self.name = kube, namespace, spec.name
        for item in render.namespace(namespace, labels.RUNS_ACCOUNT, {}):
            kube.apply(item)
        for item in render.render(spec, namespace=namespace, binding=BINDING):
            apply(kube, item)

    def state(self) -> str | None:
        job = self.kube.get("kubeflow.org/v1", "PyTorchJob", self.name, self.namespace)
        held = {item["type"] for item in job.get("status", {}).get("conditions", []) if item["status"] == "True"}
        return next((name for name in ("Succeeded", "Failed") if name in held), None)

    def lines(self, pod: str = "master-0", **options: Any) -> list[dict[str, Any]]:
        text = self.kube.logs(f"{self.name}-{pod}", self.namespace, "pytorch", **options)
        return [json.loads(line) for line in text if line.startswith("{")]

    def metrics(self, name: str, **options: Any) -> list[float]:
        return [line["value"] for line in self.lines(**options) if line.get("metric") == name]

    def succeed(self) -> None:
        state = wait.until(self.state, seconds=JOB_SECONDS, what=f"{self.name} to end", why=self.status)
        assert state == "Succeeded", self.status()

    def status(self) -> str:
        return str(self.kube.get("kubeflow.org/v1", "PyTorchJob", self.name, self.namespace).get("status"))

    def pods(self) -> list[dict[str, Any]]:
        return self.kube.list("v1", "Pod", self.namespace, selector={labels.WORKLOAD: self.name})

    def kill_master(self) -> None:
        """kill -9 of the training process itself, from outside its container."""
        uid = self.kube.get("v1", "Pod", f"{self.name}-master-0", self.namespace)["metadata"]["uid"]
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                inside = (
                    uid in (folder / "cgroup").read_text() and b"/opt/isthmus/" in (folder / "cmdline").read_bytes()
                )
            except OSError:
                continue
            if inside:
                os.kill(int(folder.name), signal.SIGKILL)
                return
        pytest.fail("the master's process was not found")


def test_sendrecv_delivers_every_value(platform: Cluster, namespace: str) -> None:
    job = Job(platform, namespace, render.load("sendrecv", SMALL))
    job.succeed()
    assert job.metrics("delivered") == [1.0]
    for rank, pod in enumerate(("master-0", "worker-0", "worker-1", "worker-2")):
        hops = [line for line in job.lines(pod) if line.get("event") == "hop"]
        assert [hop["source"] for hop in hops] == [(rank - hop) % 4 for hop in (1, 2, 3, 4)]


def test_digits_are_learned_by_four_processes_with_a_card_each(platform: Cluster, namespace: str) -> None:
    spec = render.load("ddp-digits", SMALL)
    job = Job(platform, namespace, spec)
    job.succeed()
    losses = job.metrics("loss")
    assert len(losses) == int(spec.env["EPOCHS"])
    assert losses[-1] < 0.1 < losses[0]
    (accuracy,) = job.metrics("accuracy")
    assert accuracy >= spec.metrics["accuracy"]
    started = [job.lines(pod)[0] for pod in ("master-0", "worker-0", "worker-1", "worker-2")]
    assert [line["rank"] for line in started] == [0, 1, 2, 3]
    assert {line["world"] for line in started} == {4}
    assert len({line["cards"] for line in started}) == 4  # each process its own card
    assert all(line["cards"].startswith("GPU-") for line in started)


def test_a_killed_master_goes_on_from_its_checkpoint(platform: Cluster, namespace: str) -> None:
    job = Job(platform, namespace, render.load("ddp-digits", SMALL))
    before = wait.until(lambda: _at_least(4, job), seconds=JOB_SECONDS, what="four epochs")
    job.kill_master()
    job.succeed()
    (resumed,) = [line for line in job.lines() if line.get("event") == "resumed"]
    after = job.metrics("loss")
    assert len(before) <= resumed["epoch"] < 30
    assert len(after) == 30 - resumed["epoch"]
    assert after[0] < before[0] / 2  # the curve goes on where it was and does not begin again
    assert job.metrics("accuracy")[0] >= 0.95


def _at_least(count: int, job: Job) -> list[float] | None:
    losses = _losses_so_far(job)
    return losses if len(losses) >= count else None


def _losses_so_far(job: Job) -> list[float]:
    try:
        return job.metrics("loss")
    except IsthmusError:
        return []


def test_a15_a_permanent_error_fails_the_job_and_the_queue_moves_on(platform: Cluster, namespace: str) -> None:
    """kubeflow/trainer#2044: under ExitCode the job stayed Restarting for ever. Its cards go to the pod that waits for them."""
    roles = {"Master": {"replicas": 1, "gpus": 1}, "Worker": {"replicas": 2, "gpus": 1}}
    policies = {"restartPolicy": "ExitCode", "backoffLimit": 3, "cleanPodPolicy": "Running"}
    fails = jobs.workload("permanent", "sleep 3; exit 1", roles=roles, **policies)
    job = jobs.Job(platform, namespace, fails)
    ensure_namespace(platform, namespace)
    job.submit()
    wait.until(lambda: len(job.pods()) == 3, seconds=60, what="its three pods")
    first = {pod["metadata"]["uid"] for pod in job.pods()}
    platform.apply(next_in_line(namespace))
    assert job.end(seconds=60) is State.FAILED
    assert job.reason() == "Master rank 0 ended with exit code 1"
    assert job.conditions().get("Restarting") != "True"
    wait.until(
        lambda: platform.get("v1", "Pod", "next", namespace)["status"].get("phase") == "Succeeded",
        seconds=90, what="the next to get the cards",
    )  # fmt: skip
    assert {pod["metadata"]["uid"] for pod in job.pods()} <= first, "no pod was made anew"
    assert job.phases() == {"master-0": "Failed"}


def next_in_line(namespace: str) -> dict[str, Any]:
    """A pod that needs all four cards."""
    asks = {"limits": {labels.GPU_RESOURCE: str(CARDS.count)}}
    container = {"name": "next", "image": jobs.IMAGE, "command": ["true"], "resources": asks}
    spec = {"restartPolicy": "Never", "containers": [container]}
    metadata = {"name": "next", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_a15_a_retryable_error_is_tried_again_and_the_job_succeeds(platform: Cluster, namespace: str) -> None:
    """The same job whose master ends with 137 once: the first pod is replaced, and the job is done."""
    measured = test_exit_codes.measure(platform, namespace, [test_exit_codes.Cell("PyTorchJob", "ExitCode", 137)])
    assert list(measured.values()) == [("Succeeded", 2)]


LATE_MASTER = """
sleep 9
nc -ll -p $MASTER_PORT -e /bin/true &
nc -ll -p 23457 -e sh -c 'echo done >> /tmp/workers' &
until [ "$(wc -l < /tmp/workers 2>/dev/null || echo 0)" -ge 3 ]; do sleep 0.2; done
kill %1 %2
"""

IMPATIENT_WORKER = """
nc -w 2 $MASTER_ADDR $MASTER_PORT -e /bin/true || exit 1
until nc -w 2 $MASTER_ADDR 23457 -e /bin/true; do sleep 0.2; done
"""


def late_master() -> WorkloadSpec:
    """A job whose master opens its port 9 s after it starts; its name resolves long before. Workers try once and fail."""
    role = {"gpus": 0, "cpu": "20m", "memory": "32Mi"}
    script = f'if [ "$RANK" = 0 ]; then {LATE_MASTER} else {IMPATIENT_WORKER} fi'
    return WorkloadSpec.model_validate(
        {
            "apiVersion": "isthmus.dev/v1",
            "kind": "PyTorchJob",
            "name": "late",
            "image": training_operator.INIT_IMAGE,
            "command": ["sh", "-c", script],
            "roles": {"Master": {"replicas": 1, **role}, "Worker": {"replicas": 3, **role}},
        }
    )


def wait_for_late_master(platform: Cluster, namespace: str) -> None:
    job = Job(platform, namespace, late_master())
    job.succeed()
    for pod in job.pods():
        status = pod["status"]
        containers = [*status["containerStatuses"], *status.get("initContainerStatuses", [])]
        assert [item["restartCount"] for item in containers] == [0] * len(containers), pod["metadata"]["name"]


def test_a16_workers_wait_for_the_masters_port(platform: Cluster, namespace: str) -> None:
    """kubeflow/pytorch-operator#333: workers failed when the master's name resolved but its port was not open yet."""
    wait_for_late_master(platform, namespace)


@pytest.mark.slow
def test_a16_workers_wait_for_the_masters_port_twenty_times(platform: Cluster, namespace: str) -> None:
    """The same twenty times."""
    for _ in range(20):
        wait_for_late_master(platform, namespace)
        platform.delete("kubeflow.org/v1", "PyTorchJob", "late", namespace)
        wait.until(lambda: not platform.list("v1", "Pod", namespace), seconds=60, what="the job's pods to be gone")


def test_a16_the_wait_ends_and_names_host_and_port(platform: Cluster, namespace: str) -> None:
    """The operator's own template, with three tries: what a worker says whose master never opens its port."""
    text = training_operator.init_container().replace("{{.InitContainerImage}}", training_operator.INIT_IMAGE)
    text = text.replace("{{.MaxTries}}", "3").replace("{{.MasterAddr}}", "127.0.0.1")
    (container,) = yaml.safe_load(text)
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    metadata = {"name": "waits", "namespace": namespace}
    platform.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    wait.until(
        lambda: platform.get("v1", "Pod", "waits", namespace)["status"].get("phase") == "Failed",
        seconds=60, what="the wait to end",
    )  # fmt: skip
    assert "127.0.0.1 port 23456 did not open in 3 tries" in "".join(platform.logs("waits", namespace))


def test_a17_the_webhook_refuses_names_that_no_service_can_have(platform: Cluster, namespace: str) -> None:
    """kubeflow/trainer#1745. The webhook is the operator's own, asked by the API server over its Service."""
    (job,) = render.render(late_master(), namespace=namespace, binding=BINDING)
    for name in ("7b-finetune", "bert.v2", "x" * 64):
        job["metadata"]["name"] = name
        with pytest.raises(IsthmusError, match="DNS-1035|no more than 63 characters"):
            platform.apply(job)
