"""Kubeflow Trainer v2 beside its elders: jobs and the TrainJobs that they are converted to, both run, with the same ranks,
environment and result; TrainJobs as workloads and as users have them, run as runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.kube import Cluster, wait
from isthmus.localcluster import images, recipes
from isthmus.localcluster.embedded import EmbeddedCluster
from isthmus.runs import submit as submitting
from isthmus.runs import watch
from isthmus.runs.model import Snapshot, State
from isthmus.runs.store import Store
from isthmus.specs import labels
from isthmus.specs.errors import InvalidSpec, IsthmusError, NotFound
from isthmus.specs.workload import WorkloadSpec
from isthmus.toolchain import home
from operators import mpi_operator, trainer, training_operator
from tests.local.jobs import BINDING, Job, apply, install, workload
from workloads import convert, render, trainjob
from workloads.load import parse

pytestmark = [pytest.mark.local, pytest.mark.slow]

SECONDS = 300
RING = """
nc -ll -p $MASTER_PORT -e /bin/true &
env | sort | sed 's/^/env /'
[ "$RANK" != 0 ] && until nc -w 2 $MASTER_ADDR $MASTER_PORT -e /bin/true; do sleep 1; done
echo "{\\"metric\\": \\"sum\\", \\"value\\": $((RANK * WORLD_SIZE))}"
sleep 20
"""
"""Every rank reaches rank 0 by the address it was told, and computes a number from its rank and the world's size."""

WORKERS = """
echo "env TF_CONFIG=$TF_CONFIG"
INDEX=$(echo "$TF_CONFIG" | sed 's/.*"index": *\\([0-9]*\\).*/\\1/')
OTHER=$(echo "$TF_CONFIG" | tr '"' '\\n' | grep :2222 | sed -n "$((2 - INDEX))p")
nc -ll -p 2222 -e /bin/true &
until nc -w 2 ${OTHER%:*} 2222 -e /bin/true; do sleep 1; done
echo "{\\"metric\\": \\"index\\", \\"value\\": $INDEX}"
sleep 20
"""
"""Each of two workers reaches the other one by the address in its TF_CONFIG."""

TOLD = ("RANK", "WORLD_SIZE", "MASTER_PORT", "PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK")
"""What both generations tell. torchrun's PET_MASTER_PORT is Trainer's own 29500 and cannot be set: not compared."""

RANKS = "sleep 1; echo $(env | grep ^OMPI_COMM_WORLD_ | sort) $GIVEN; sleep 15"
MPI = ["mpirun", "--bind-to", "none", "-x", "GIVEN", "sh", "-c", RANKS]

Line = tuple[dict[str, str], float]


@pytest.fixture(scope="module")
def both(kube: Cluster) -> Cluster:
    """Both generations of operators."""
    try:
        home.share(trainer.TOOL), home.share(mpi_operator.TOOL)
    except NotFound as error:
        pytest.skip(f"{error.message}: isthmus install mpi trainjob")
    install(kube, training_operator.manifests())
    install(kube, mpi_operator.manifests())
    install(kube, trainer.manifests())
    return kube


def test_both_forms_have_the_same_ranks_environment_and_result(both: Cluster, namespace: str) -> None:
    spec = workload("forms", RING, roles={"Master": 1, "Worker": 3}, backoffLimit=4)
    newer, older = both_forms(
        both,
        namespace,
        spec,
        lambda lines: told(lines, TOLD),
        4,
        change=lambda job: job["spec"].update(nprocPerNode="1"),
    )
    assert newer == older
    assert [values["RANK"] for values, _ in newer] == ["0", "1", "2", "3"]
    assert [value for _, value in newer] == [0, 4, 8, 12]


def test_a_tfjob_of_workers_and_its_trainjob_have_the_same_cluster(both: Cluster, namespace: str) -> None:
    spec = workload("forms", WORKERS, "TFJob", roles={"Worker": 2}, successPolicy="AllWorkers")
    newer, older = both_forms(both, namespace, spec, lambda lines: told(lines, ("TF_CONFIG",)), 2)
    assert [value for _, value in newer] == [value for _, value in older] == [0, 1]
    for (new, index), (old, _) in zip(newer, older, strict=True):
        mine, theirs = json.loads(new["TF_CONFIG"]), json.loads(old["TF_CONFIG"])
        assert mine["task"] == theirs["task"] == {"type": "worker", "index": index}
        assert mine["environment"] == theirs["environment"]
        assert mine["cluster"].keys() == theirs["cluster"].keys() == {"worker"}
        ports = [[host.rpartition(":")[2] for host in config["cluster"]["worker"]] for config in (mine, theirs)]
        assert ports == [["2222", "2222"]] * 2, "the hosts' names are those of each generation"


def test_an_mpijob_and_its_trainjob_have_the_same_ranks(
    both: Cluster, embedded_cluster: EmbeddedCluster, namespace: str
) -> None:
    """The launcher prints what every rank was told: the same world, hosts apart."""
    image = "docker.io/isthmus/mpi:4.1.4"
    bring(embedded_cluster, image)
    roles = {"Launcher": 1, "Worker": {"replicas": 2, "memory": "128Mi"}}
    values = {"image": image, "command": MPI, "env": {"GIVEN": "a"}, "backoffLimit": 4}
    spec = workload("forms", "", "MPIJob", roles, **values)

    def ranks(lines: list[str]) -> Line | None:
        found = sorted(line.strip() for line in lines if "OMPI_COMM_WORLD_RANK=" in line)
        return ({"ranks": "\n".join(found)}, 0) if len(found) == 2 else None

    newer, older = both_forms(both, namespace, spec, ranks, 1)
    assert newer == older
    [(said, _)] = newer
    first, second = sorted(said["ranks"].splitlines())
    assert "OMPI_COMM_WORLD_SIZE=2" in first and "OMPI_COMM_WORLD_SIZE=2" in second
    assert {line.split("OMPI_COMM_WORLD_RANK=")[1][0] for line in (first, second)} == {"0", "1"}


def test_a_workload_that_is_a_trainjob_trains_and_leaves_nothing(
    both: Cluster, embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """ddp-digits as a TrainJob: the same program, four nodes, the same accuracy."""
    sample = render.load("ddp-digits")
    fields = {
        "apiVersion": "isthmus.dev/v1", "kind": "TrainJob", "name": "train-digits", "image": sample.image,
        "command": sample.command, "env": {**sample.env, "CHECKPOINTS": "/tmp/checkpoints"},
        "roles": {"Node": {"replicas": 4, "cpu": "50m", "memory": "512Mi"}}, "backoffLimit": 8,
    }  # fmt: skip
    store = Store(tmp_path / "runs.db")
    end = run(both, store, WorkloadSpec.model_validate(fields))
    accuracy = end.latest["accuracy"].value
    assert accuracy is not None and accuracy >= 0.95
    assert {(item.role, item.rank) for item in end.replicas} == {("Node", rank) for rank in range(4)}
    assert end.run.seconds and end.run.seconds > 0
    job = end.run.job
    both.delete(trainjob.API, "TrainJob", job, end.run.namespace)
    wait.until(
        lambda: not left(both, job, end.run.namespace),
        seconds=60, what="its runtime and pods to go", why=lambda: str(left(both, job, end.run.namespace)),
    )  # fmt: skip


def test_a_plain_manifest_names_the_clusters_runtime(both: Cluster, tmp_path: Path) -> None:
    text = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: plain}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    numNodes: 2
    numProcPerNode: 1
    command: [sh, -c]
    args: ['echo "{\\"metric\\": \\"rank\\", \\"value\\": $PET_NODE_RANK}"; sleep 5']
"""
    store = Store(tmp_path / "runs.db")
    end = run(both, store, parse(text, origin="plain.yaml"))
    assert sorted(metric.value or 0 for metric in store.metrics(end.run, "rank")) == [0, 1]
    pods = both.list("v1", "Pod", end.run.namespace, selector={labels.RUN: end.run.id})
    assert len(pods) == 2, "its pods are marked"
    with pytest.raises(IsthmusError, match="absent"):
        submitting.submit(
            both, store, parse(text.replace("torch-distributed", "absent"), origin="plain.yaml"), stack="local", binding=BINDING
        )  # fmt: skip


def test_what_convert_writes_is_run_as_it_is(both: Cluster, tmp_path: Path) -> None:
    """Under the run's own name, which the hosts of its environment begin with."""
    [manifest] = render.render(
        workload("converted", RING, roles={"Master": 1, "Worker": 1}), namespace=labels.RUNS_NAMESPACE, binding=BINDING
    )
    text = yaml.safe_dump_all(convert.to_train_job(manifest).objects)
    store = Store(tmp_path / "runs.db")
    end = run(both, store, parse(text, origin="train.yaml"))
    assert sorted(metric.value or 0 for metric in store.metrics(end.run, "sum")) == [0, 2]


def test_a_failing_program_fails_the_run_by_its_code(both: Cluster, tmp_path: Path) -> None:
    fails = workload("fails", "exit 3", "TrainJob", {"Node": 1}, restartPolicy="Never", backoffLimit=0)
    end = run(both, Store(tmp_path / "runs.db"), fails, State.FAILED)
    assert "Node rank 0 ended with exit code 3" in end.run.reason


def test_a_name_that_jobset_cannot_use_is_refused_before_anything_is_there() -> None:
    with pytest.raises(InvalidSpec, match="at most 38"):
        parse(
            yaml.safe_dump(
                {"apiVersion": trainjob.API, "kind": "TrainJob", "metadata": {"name": "a" * 39}, "spec": {"runtimeRef": {"name": "r"}}}
            ),
            origin="long.yaml",
        )  # fmt: skip


def run(kube: Cluster, store: Store, spec: WorkloadSpec, state: State = State.SUCCEEDED) -> Snapshot:
    """Submit and follow to the end, which must be this one."""
    submitted = submitting.submit(kube, store, spec, stack="local", binding=BINDING)
    end = watch.follow(kube, store, submitted, lambda snapshot, fresh: None)
    assert end.run.state is state, (end.run.reason, end.replicas)
    return end


def left(kube: Cluster, job: str, namespace: str) -> list[str]:
    """What of a TrainJob is still there."""
    runtimes = kube.list(trainjob.API, trainjob.RUNTIME, namespace)
    pods = kube.list("v1", "Pod", namespace, selector={"jobset.sigs.k8s.io/jobset-name": job})
    return [item["metadata"]["name"] for item in (*runtimes, *pods) if item["metadata"]["name"].startswith(job)]


def bring(cluster: EmbeddedCluster, image: str) -> None:
    recipe = recipes.framework(image)
    assert recipe is not None
    images.bring(cluster, recipes.build_framework(recipe, print), print)


def both_forms(
    kube: Cluster, namespace: str, spec: WorkloadSpec, look: Callable[[list[str]], Line | None], pods: int,
    *, change: Callable[[dict[str, Any]], None] = lambda job: None,
) -> tuple[list[Line], list[Line]]:  # fmt: skip
    """What was told and computed in a job's pods, in the new form and in the old one; both run to their good end.

    Args:
        look: a pod's lines as what is compared, None where there is nothing yet.
        pods: how many have something to compare.
        change: is given the old form's manifest.
    """
    submitting.ensure_namespace(kube, namespace)
    job = Job(kube, namespace, spec)
    [manifest] = job.manifests()
    change(manifest)
    converted = convert.to_train_job(json.loads(json.dumps(manifest)))
    assert converted.missing == ()
    apply(kube, manifest)
    older = told_by(kube, namespace, {spec.form.job_label: spec.name}, look, pods)
    assert job.end() is State.SUCCEEDED
    job.delete()
    wait.until(job.gone, seconds=120, what="the first form to be gone")
    for item in converted.objects:
        apply(kube, item)
    newer = told_by(kube, namespace, {"jobset.sigs.k8s.io/jobset-name": spec.name}, look, pods)
    wait.until(
        lambda: ended(kube, namespace, spec.name), seconds=SECONDS, what="the TrainJob to be complete",
        why=lambda: str(kube.get(trainjob.API, "TrainJob", spec.name, namespace).get("status")),
    )  # fmt: skip
    return newer, older


def ended(kube: Cluster, namespace: str, name: str) -> bool:
    status = kube.get(trainjob.API, "TrainJob", name, namespace).get("status", {})
    return any(item["type"] == "Complete" and item["status"] == "True" for item in status.get("conditions", ()))


def told_by(
    kube: Cluster, namespace: str, selector: dict[str, str], look: Callable[[list[str]], Line | None], pods: int
) -> list[Line]:
    """What so many pods have told, in order."""

    def found() -> list[Line] | None:
        lines = []
        for pod in kube.list("v1", "Pod", namespace, selector=selector):
            try:
                said = list(kube.logs(pod["metadata"]["name"], namespace, pod["spec"]["containers"][0]["name"]))
            except IsthmusError:
                continue  # not started yet
            line = look(said)
            if line is not None:
                lines.append(line)
        return sorted(lines, key=lambda one: (one[1], str(one[0]))) if len(lines) == pods else None

    return wait.until(found, seconds=SECONDS, what=f"{pods} pods to tell")


def told(lines: list[str], names: tuple[str, ...]) -> Line | None:
    """The environment that a pod printed and the number that it computed."""
    values = dict(line.removeprefix("env ").split("=", 1) for line in lines if line.startswith("env ") and "=" in line)
    results = [json.loads(line)["value"] for line in lines if line.startswith("{")]
    return ({name: values.get(name, "") for name in names}, results[0]) if results else None
