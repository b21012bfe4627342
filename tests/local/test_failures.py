"""What jobs do when something goes wrong, on the real operator: all jobs of this file are started at once, and each test
looks at its own."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from isthmus.kube import Cluster, wait
from isthmus.kube.explain import why_pending
from isthmus.localcluster import kwok
from isthmus.runs.model import State
from isthmus.runs.submit import ensure_namespace
from isthmus.specs import labels
from isthmus.specs.errors import NotFound
from operators import training_operator
from tests.local.jobs import IMAGE, Job, install, workload
from workloads.load import parse

pytestmark = [pytest.mark.local, pytest.mark.slow]

NAMESPACE = "t-failures"
TRIES = 8
"""Seconds that workers wait for their master here; WAIT_SECONDS on a stack."""

GONE_SECONDS = 120
OPEN = "nc -ll -p 23456 -e /bin/true &"
"""A master opens its port, or its workers do not start."""

SLEEP = f"{OPEN} sleep 600"


def replicas(workers: int) -> dict[str, int]:
    return {"Master": 1, "Worker": workers}


SPECS = {
    "deadline": workload("deadline", SLEEP, activeDeadlineSeconds=5),
    "clean-all": workload("clean-all", f"{OPEN} [ $RANK = 0 ] && sleep 8 || sleep 600", roles=replicas(1), cleanPodPolicy="All"),
    "clean-running": workload(
        "clean-running", f"{OPEN} [ $RANK = 0 ] && sleep 8 || sleep 600", roles=replicas(1), cleanPodPolicy="Running"
    ),
    "clean-none": workload("clean-none", f"{OPEN} [ $RANK = 0 ] && sleep 8 || sleep 600", roles=replicas(1), cleanPodPolicy="None"),
    "ttl": workload("ttl", "true", ttlSecondsAfterFinished=3),
    "no-image": workload("no-image", "true", image="docker.io/isthmus/absent:1"),
    "no-command": workload("no-command", "true", command=["/no/such/program"], restartPolicy="Never"),
    "no-volume": workload(
        "no-volume", "true", volumes=[{"name": "data", "size": "1Mi", "mountPath": "/data", "role": "Master"}]
    ),
    "no-port": workload("no-port", "sleep 600", roles=replicas(2), restartPolicy="Never", cleanPodPolicy="Running"),
    "starting": workload("starting", SLEEP, roles=replicas(2)),
    "services": workload("services", SLEEP, roles=replicas(3)),
    "worker-0": workload("worker-0", "[ $HOSTNAME = worker-0-worker-0 ] || sleep 600", "TFJob", {"Worker": 2}),
    "all-workers": workload(
        "all-workers", "[ $HOSTNAME = all-workers-worker-0 ] || sleep 12", "TFJob", {"Worker": 2}, successPolicy="AllWorkers"
    ),
    "one-fails": workload(
        "one-fails", "[ $HOSTNAME = one-fails-worker-0 ] && sleep 5 || exit 3", "TFJob", {"Worker": 2},
        successPolicy="AllWorkers", restartPolicy="Never",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def jobs(kube: Cluster) -> dict[str, Job]:
    """Every job of this file, submitted; the operator lets workers wait TRIES seconds."""
    items = training_operator.manifests()
    for item in items:
        if item["kind"] == "Deployment":
            hurry(item)
    install(kube, items)
    ensure_namespace(kube, NAMESPACE)
    return {
        name: Job(kube, NAMESPACE, spec).submit(unbound if name == "no-volume" else quick)
        for name, spec in SPECS.items()
    }


def hurry(deployment: dict[str, Any]) -> None:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    flag = "--pytorch-init-container-max-tries="
    container["args"] = [f"{flag}{TRIES}" if word.startswith(flag) else word for word in container["args"]]


def quick(item: dict[str, Any]) -> None:
    """Pods that are told to end do so at once."""
    for key, value in item.get("spec", {}).items():
        if key.endswith("ReplicaSpecs"):
            for entry in value.values():
                entry["template"]["spec"]["terminationGracePeriodSeconds"] = 1


def unbound(item: dict[str, Any]) -> None:
    if item["kind"] == "PersistentVolumeClaim":
        item["spec"]["storageClassName"] = "nowhere"


def test_a_job_past_its_deadline_fails_and_its_pods_go(jobs: dict[str, Job]) -> None:
    job = jobs["deadline"]
    assert job.end() is State.FAILED
    assert "active longer than specified deadline" in job.reason()
    wait.until(lambda: not job.pods(), seconds=GONE_SECONDS, what="its pods to go")


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("clean-all", {}),
        ("clean-running", {"master-0": "Succeeded"}),
        ("clean-none", {"master-0": "Succeeded", "worker-0": "Running"}),
    ],
)
def test_what_clean_pod_policy_leaves_when_the_job_is_over(
    jobs: dict[str, Job], name: str, left: dict[str, str]
) -> None:
    job = jobs[name]
    assert job.end() is State.SUCCEEDED
    wait.until(lambda: job.phases() == left, seconds=GONE_SECONDS, what="its pods", why=lambda: str(job.phases()))


def test_a_job_goes_when_its_time_to_live_is_over_and_leaves_nothing(jobs: dict[str, Job]) -> None:
    wait.until(jobs["ttl"].gone, seconds=GONE_SECONDS, what="the job to be gone")


def test_a_missing_image_is_told(jobs: dict[str, Job]) -> None:
    told(jobs["no-image"], lambda text: "image docker.io/isthmus/absent:1 cannot be had" in text)


def test_a_volume_that_never_binds_is_told(jobs: dict[str, Job]) -> None:
    told(jobs["no-volume"], lambda text: "no-volume-data" in text and "nowhere" in text)


def told(job: Job, fits: Callable[[str], bool]) -> None:
    def words() -> list[str]:
        return why_pending(job.kube, job.namespace, {labels.WORKLOAD: job.name})

    wait.until(lambda: any(map(fits, words())), seconds=90, what="the reason", why=lambda: str(words()))


def test_a_wrong_command_fails_with_its_words(jobs: dict[str, Job]) -> None:
    job = jobs["no-command"]
    assert job.end() is State.FAILED
    assert "Master rank 0 ended with exit code 128 (StartError)" in job.reason()


def test_a16_workers_whose_master_never_opens_its_port_fail_the_job_by_host_and_port(jobs: dict[str, Job]) -> None:
    """kubeflow/pytorch-operator#333: the wait for the port has an end, and says where it waited."""
    job = jobs["no-port"]
    assert job.end() is State.FAILED
    assert f"no-port-master-0 port 23456 did not open in {TRIES} tries" in job.reason()


def test_one_service_for_each_replica_while_it_lives_and_none_after(jobs: dict[str, Job]) -> None:
    job = jobs["services"]
    names = {f"services-{name}" for name in ("master-0", "worker-0", "worker-1", "worker-2")}
    wait.until(lambda: set(job.services()) == names, seconds=60, what="the services", why=lambda: str(job.services()))
    job.delete()
    wait.until(job.gone, seconds=GONE_SECONDS, what="the job to be gone", why=lambda: str(job.phases()))


def test_a_job_deleted_while_starting_leaves_nothing(jobs: dict[str, Job]) -> None:
    job = Job(jobs["starting"].kube, NAMESPACE, workload("at-once", SLEEP, roles=replicas(2))).submit(quick)
    job.delete()
    wait.until(job.gone, seconds=GONE_SECONDS, what="the job to be gone", why=lambda: str(job.phases()))
    jobs["starting"].delete()
    wait.until(jobs["starting"].gone, seconds=GONE_SECONDS, what="the job to be gone")


def test_a_worker_whose_pod_is_evicted_is_made_anew_and_the_job_succeeds(jobs: dict[str, Job]) -> None:
    """What becomes of the pods of a node that is drained."""
    lost = workload("lost", f"{OPEN} sleep 40", roles=replicas(1), backoffLimit=10)
    job = Job(jobs["starting"].kube, NAMESPACE, lost).submit(quick)
    first = wait.until(
        lambda: running(job, "worker"), seconds=120, what="the worker to run", why=lambda: str(job.phases())
    )
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": first["metadata"]["name"], "namespace": NAMESPACE},
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{first['metadata']['name']}/eviction"
    job.kube._transport.json("POST", path, body=body)
    again = wait.until(
        lambda: pod if (pod := running(job, "worker")) and pod["metadata"]["uid"] != first["metadata"]["uid"] else None,
        seconds=60, what="a new worker", why=lambda: str(job.phases()),
    )  # fmt: skip
    assert again["metadata"]["name"] == first["metadata"]["name"]
    assert job.end() is State.SUCCEEDED


def test_a_worker_whose_node_is_gone_is_made_anew_on_another(jobs: dict[str, Job]) -> None:
    """A simulated node's object is deleted in the middle of a run, as when a cloud takes a machine back; Kubernetes looks for
    such pods every 20 s and gives their node 40 s to come back."""
    kube = jobs["starting"].kube
    amounts = {"cpu": "1", "memory": "1Gi", "pods": "10"}
    rooms = [kwok.simulated_node(f"room-{index}", amounts, {"room": "yes"}) for index in range(4)]
    kwok.add(kube, rooms)
    try:
        roles = {role: {"replicas": count, "cpu": "800m", "memory": "16Mi"} for role, count in replicas(2).items()}
        job = Job(kube, NAMESPACE, workload("taken", "true", roles=roles, backoffLimit=10)).submit(elsewhere)
        first = wait.until(
            lambda: running(job, "worker"), seconds=120, what="the worker to run", why=lambda: str(job.phases())
        )
        kwok.remove(kube, [first["spec"]["nodeName"]])
        again = wait.until(
            lambda: pod if (pod := running(job, "worker")) and pod["metadata"]["uid"] != first["metadata"]["uid"] else None,
            seconds=GONE_SECONDS, what="a new worker", why=lambda: str(job.phases()),
        )  # fmt: skip
        assert again["spec"]["nodeName"] != first["spec"]["nodeName"]
        assert job.end() is State.SUCCEEDED
        job.delete()
        wait.until(job.gone, seconds=GONE_SECONDS, what="the job to be gone", why=lambda: str(job.phases()))
    finally:
        kwok.remove(kube, [room["metadata"]["name"] for room in rooms])


def elsewhere(item: dict[str, Any]) -> None:
    """Pods that simulated nodes play, for so long that a lost one is missed meanwhile."""
    for entry in item["spec"]["pytorchReplicaSpecs"].values():
        template = entry["template"]
        template["metadata"]["labels"][labels.EXECUTION] = labels.EXECUTION_SIMULATED
        template["metadata"]["annotations"] = {labels.DURATION: "150s"}
        template["spec"] |= {"nodeSelector": {"room": "yes"}, "tolerations": [{"operator": "Exists"}]}


def running(job: Job, role: str) -> dict[str, Any] | None:
    try:
        pod = job.pod(role)
    except NotFound:
        return None
    return pod if pod.get("status", {}).get("phase") == "Running" else None


MXNET = """
apiVersion: kubeflow.org/v1
kind: MXJob
metadata: {name: mx}
spec:
  mxReplicaSpecs:
    Scheduler: {replicas: 1, template: {spec: {containers: [{name: mxnet, image: <IMAGE>, command: [sh, -c, <SCHEDULER>]}]}}}
    Server: {replicas: 1, template: {spec: {containers: [{name: mxnet, image: <IMAGE>, command: [sh, -c, sleep 600]}]}}}
    Worker: {replicas: 2, template: {spec: {containers: [{name: mxnet, image: <IMAGE>, command: [sh, -c, <WORKER>]}]}}}
"""
SCHEDULER = (
    "nc -ll -p $DMLC_PS_ROOT_PORT -e sh -c 'echo x >> /tmp/met' & "
    "until [ $(grep -c x /tmp/met 2>/dev/null || echo 0) -ge $DMLC_NUM_WORKER ]; do sleep 1; done; echo role $DMLC_ROLE"
)
WORKER = "until nc -w 2 $DMLC_PS_ROOT_URI $DMLC_PS_ROOT_PORT -e /bin/true; do sleep 1; done; echo $MX_CONFIG"


def test_an_mxjob_runs_as_a_tfjob_and_its_workers_find_the_scheduler(jobs: dict[str, Job]) -> None:
    text = (
        MXNET.replace("<IMAGE>", IMAGE)
        .replace("<SCHEDULER>", json.dumps(SCHEDULER))
        .replace("<WORKER>", json.dumps(WORKER))
    )
    job = Job(jobs["starting"].kube, NAMESPACE, parse(text, origin="mx.yaml")).submit(quick)
    assert job.end() is State.SUCCEEDED
    told = [json.loads(list(job.kube.logs(f"mx-worker-{index}", NAMESPACE, "tensorflow"))[-1]) for index in (0, 1)]
    assert [config["task"] for config in told] == [{"type": "worker", "index": 0}, {"type": "worker", "index": 1}]
    assert list(job.kube.logs("mx-chief-0", NAMESPACE, "tensorflow"))[-1] == "role scheduler"


def test_success_is_worker_0s_by_default_and_all_workers_where_asked(jobs: dict[str, Job]) -> None:
    assert jobs["worker-0"].end() is State.SUCCEEDED
    assert jobs["worker-0"].phases()["worker-1"] == "Running", "the other one is not waited for"
    assert jobs["all-workers"].end() is State.SUCCEEDED
    assert set(jobs["all-workers"].phases().values()) == {"Succeeded"}


def test_with_all_workers_asked_for_the_job_fails_when_one_does(jobs: dict[str, Job]) -> None:
    assert jobs["one-fails"].end() is State.FAILED
    assert "Worker rank 1 ended with exit code 3" in jobs["one-fails"].reason()
