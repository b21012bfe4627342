"""Submitting: refused before anything is created, and never twice."""

from collections.abc import Callable
from typing import Any

import pytest

from isthmus.runs import submit as submitting
from isthmus.runs.cancel import cancel
from isthmus.runs.model import Run, State
from isthmus.specs.errors import InvalidSpec, NotReady, Refused
from isthmus.specs.workload import WorkloadSpec
from workloads import bindings
from workloads.fit import NodeCapacity

Make = Callable[..., WorkloadSpec]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitting, "ADVERTISE_SECONDS", 0)


def submit(harness: Any, spec: WorkloadSpec, **more: Any) -> Run:
    return submitting.submit(
        harness.cluster, harness.store, spec, stack="aws-sim", binding=bindings.for_cloud("aws"), **more
    )


def changes(harness: Any) -> list[tuple[str, str]]:
    return [(method, path) for method, path in harness.api.asked if method != "GET"]


def test_a_run_is_written_down_and_everything_of_it_created(harness: Any, make_spec: Make) -> None:
    run = submit(harness, make_spec())
    assert run.state is State.PENDING
    assert run.cluster_uid == "cluster-1"
    [job] = harness.api.of_kind("PyTorchJob")
    [claim] = harness.api.of_kind("PersistentVolumeClaim")
    assert job["metadata"]["name"] == f"train-{run.id}" == run.job
    assert claim["metadata"]["labels"]["isthmus.dev/run"] == run.id
    assert harness.store.get(run.id) == run


def test_the_namespace_is_made_where_the_stack_has_not(harness: Any, make_spec: Make) -> None:
    submit(harness, make_spec())
    account = {"metadata": {"annotations": {"identity": "x"}}}
    [made] = harness.api.of_kind("ServiceAccount")
    made["metadata"].update(account["metadata"])
    submit(harness, make_spec())
    [kept] = harness.api.of_kind("ServiceAccount")
    assert kept["metadata"]["annotations"] == {"identity": "x"}, "what the stack made is left alone"


def test_more_gpus_than_the_local_node_has_are_refused_with_the_way_out(harness: Any, make_spec: Make) -> None:
    harness.node("large", 8, simulated=True)
    roles = {"Master": {"replicas": 1, "gpus": 8}}
    with pytest.raises(Refused, match="the largest node, local, has 4") as caught:
        submit(harness, make_spec(roles=roles))
    assert "--simulate" in caught.value.remedy
    assert not changes(harness), "refused before anything was created"
    assert not harness.store.runs()
    submit(harness, make_spec(roles=roles), simulated_seconds=90.0)


def test_what_fits_nowhere_is_refused_even_when_simulated(harness: Any, make_spec: Make) -> None:
    harness.node("large", 8, simulated=True)
    roles = {"Master": {"replicas": 1, "gpus": 16}}
    with pytest.raises(Refused, match="fits no simulated node either"):
        submit(harness, make_spec(roles=roles))
    with pytest.raises(Refused, match="the largest node, large, has 8"):
        submit(harness, make_spec(roles=roles), simulated_seconds=90.0)


def test_a_pool_that_can_grow_counts(harness: Any, make_spec: Make) -> None:
    roles = {"Master": {"replicas": 1, "gpus": 8}}
    submit(harness, make_spec(roles=roles), growth=[NodeCapacity("a further node of pool gpu", 8, "A100")])


def test_pods_that_wait_for_a_pool_to_grow_are_told_of(harness: Any, make_spec: Make) -> None:
    harness.node("large", 4, simulated=True)
    told: list[str] = []
    roles = {"Master": {"replicas": 1, "gpus": 4}, "Worker": {"replicas": 1, "gpus": 4}}
    growth = [NodeCapacity("a node of pool gpu", 4, "T4")]
    submit(harness, make_spec(roles=roles), simulated_seconds=90.0, growth=growth, tell=told.append)
    assert len(told) == 1 and "wait until an autoscaler makes more" in told[0]
    submit(harness, make_spec(), simulated_seconds=90.0, growth=growth, tell=told.append)
    assert len(told) == 1, "what fits does not wait"


def test_claims_on_cards_fit_what_is_published_and_go_with_the_job(harness: Any, make_spec: Make) -> None:
    half = {"name": "half", "deviceClass": "mig", "profile": "3g.20gb"}
    spec = make_spec(
        roles={"Master": {"replicas": 1, "claims": ["half"]}, "Worker": {"replicas": 2, "claims": ["all"]}},
        claims=[half, {"name": "all", "scope": "namespace"}],
    )
    with pytest.raises(Refused, match="3g.20gb devices; no node gives any out on claim"):
        submit(harness, spec)
    harness.node("dra", 0, model="A100")
    device = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}
    where = {"driver": "gpu.nvidia.com", "nodeName": "dra", "pool": {"name": "dra"}, "devices": [device]}
    harness.api.put(
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": where}
    )
    run = submit(harness, spec)
    [template] = harness.api.of_kind("ResourceClaimTemplate")
    [owner] = template["metadata"]["ownerReferences"]
    [job] = harness.api.of_kind("PyTorchJob")
    assert (owner["name"], owner["uid"]) == (run.job, job["metadata"]["uid"])
    [shared] = harness.api.of_kind("ResourceClaim")
    assert shared["metadata"]["name"] == "all" and "ownerReferences" not in shared["metadata"], (
        "another run may hold it"
    )


def test_a_trainjob_comes_when_its_runtime_is_known_which_goes_with_it(harness: Any, make_spec: Make) -> None:
    refusals = iter(["specified trainingRuntime must be created before the TrainJob is created"])

    def webhook(method: str, path: str) -> None:
        if method == "PATCH" and "/trainjobs/" in path:
            for words in refusals:
                raise Refused(words)

    harness.api.fail = webhook
    run = submit(harness, make_spec(kind="TrainJob", roles={"Node": {"replicas": 2}}, volumes=[]))
    [runtime], [job] = harness.api.of_kind("TrainingRuntime"), harness.api.of_kind("TrainJob")
    [owner] = runtime["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("TrainJob", run.job, job["metadata"]["uid"])
    assert runtime["metadata"]["name"] == run.job
    assert not [path for _, path in harness.api.asked if path.endswith("-rehearsal") and "/trainjobs/" in path]


def test_simulating_without_simulated_nodes_would_really_run(harness: Any, make_spec: Make) -> None:
    with pytest.raises(Refused, match="no simulated nodes, so every pod would really run"):
        submit(harness, make_spec(), simulated_seconds=90.0)


def test_simulated_pods_say_so_and_how_long(harness: Any, make_spec: Make) -> None:
    harness.node("large", 8, simulated=True)
    run = submit(harness, make_spec(), simulated_seconds=90.0)
    [job] = harness.api.of_kind("PyTorchJob")
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        metadata = replica["template"]["metadata"]
        assert metadata["labels"]["isthmus.dev/execution"] == "simulated"
        assert metadata["annotations"] == {"isthmus.dev/duration": "90s"}
    assert run.source == "simulated"


def test_a_run_that_executes_carries_no_mark(harness: Any, make_spec: Make) -> None:
    submit(harness, make_spec())
    [job] = harness.api.of_kind("PyTorchJob")
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        assert "isthmus.dev/execution" not in replica["template"]["metadata"]["labels"]


def test_a_missing_operator_or_storage_class_is_named(harness: Any, make_spec: Make) -> None:
    del harness.api.objects["/apis/storage.k8s.io/v1/storageclasses/gp3"]
    with pytest.raises(Refused, match=r"no storage class gp3 .*\(it has: none\)"):
        submit(harness, make_spec())

    def gone(method: str, path: str) -> None:
        if "kubeflow.org" in path:
            from isthmus.specs.errors import NotFound

            raise NotFound("does not serve this kind")

    harness.api.fail = gone
    with pytest.raises(Refused, match="PyTorchJob: the training-operator is not there") as caught:
        submit(harness, make_spec())
    assert caught.value.remedy.startswith(
        "isthmus up aws-sim, with training-operator under isthmus:operators in stacks/"
    )


def test_what_the_webhook_refuses_creates_nothing_and_is_no_run(harness: Any, make_spec: Make) -> None:
    def webhook(method: str, path: str) -> None:
        if method == "PATCH" and "pytorchjobs" in path:
            raise InvalidSpec("admission webhook denied the request: spec.x")

    harness.api.fail = webhook
    with pytest.raises(InvalidSpec, match="webhook denied"):
        submit(harness, make_spec())
    assert not harness.api.of_kind("PyTorchJob")
    assert not harness.api.of_kind("PersistentVolumeClaim")
    assert not harness.store.runs()


class Killed(BaseException):
    """Stands for kill -9: nobody catches it."""


@pytest.mark.parametrize("before", ["persistentvolumeclaims", "pytorchjobs", "the end"])
def test_killed_while_submitting_the_same_command_finishes_the_same_run(
    harness: Any, make_spec: Make, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    def dies(method: str, path: str) -> None:
        if method == "PATCH" and before in path and "rehearsal" not in path:
            raise Killed

    record = harness.store.record

    def dies_at_the_end(*args: Any, **more: Any) -> Run:
        raise Killed

    harness.api.fail = dies
    if before == "the end":
        monkeypatch.setattr(harness.store, "record", dies_at_the_end)
    monkeypatch.setattr(submitting, "owner", lambda: "dead")
    with pytest.raises(Killed):
        submit(harness, make_spec())
    harness.back()
    monkeypatch.setattr(harness.store, "record", record)
    monkeypatch.setattr(submitting, "owner", lambda: "alive")
    monkeypatch.setattr(submitting, "lives", lambda owner: owner == "alive")
    told: list[str] = []
    run = submit(harness, make_spec(), tell=told.append)
    assert [one.id for one in harness.store.runs()] == [run.id], "one run, and not two"
    assert len(harness.api.of_kind("PyTorchJob")) == 1
    assert len(harness.api.of_kind("PersistentVolumeClaim")) == 1
    assert "interrupted" in told[0]
    assert submit(harness, make_spec()).id != run.id, "asked for again, it is another run"


def test_a_run_that_another_command_is_submitting_is_not_taken(
    harness: Any, make_spec: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = harness.store.begin(
        make_spec(), stack="aws-sim", namespace="isthmus-runs", simulated_seconds=None, owner=submitting.owner()
    )
    assert submit(harness, make_spec()).id != other.id


def test_a_server_that_goes_away_leaves_the_intent(
    harness: Any, make_spec: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaves(method: str, path: str) -> None:
        if method == "PATCH" and "pytorchjobs" in path and "rehearsal" not in path:
            raise NotReady("connection refused")

    harness.api.fail = leaves
    with pytest.raises(NotReady):
        submit(harness, make_spec())
    [run] = harness.store.runs()
    assert run.state is State.SUBMITTING
    harness.back()
    monkeypatch.setattr(submitting, "lives", lambda owner: False)
    assert submit(harness, make_spec()).id == run.id


def test_an_owner_is_known_by_more_than_its_pid() -> None:
    me = submitting.owner()
    assert submitting.lives(me)
    pid = me.partition("@")[0]
    assert not submitting.lives(f"{pid}@1.00"), "the pid was used again"
    assert not submitting.lives("4194999@1.00")
    assert not submitting.lives("nonsense")


def sample(harness: Any, uid: str) -> None:
    """A job that `up` deployed: it has the workload's own name and no run's id."""
    harness.api.put(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {
                "name": "train",
                "namespace": "isthmus-runs",
                "labels": {"isthmus.dev/workload": "train"},
                "creationTimestamp": "2026-11-30T12:00:00Z",
                "uid": uid,
            },
        }
    )


def test_a_sample_that_up_deployed_becomes_a_run_once(harness: Any, make_spec: Make) -> None:
    sample(harness, "job-1")
    run = submitting.adopt(harness.cluster, harness.store, make_spec(), stack="aws-sim")
    assert run.job == "train"
    assert run.created.isoformat() == "2026-11-30T12:00:00+00:00", (
        "it waits since the job was made, not since we looked"
    )
    assert submitting.adopt(harness.cluster, harness.store, make_spec(), stack="aws-sim").id == run.id
    harness.api.objects["/api/v1/namespaces/kube-system"]["metadata"]["uid"] = "cluster-2"
    assert submitting.adopt(harness.cluster, harness.store, make_spec(), stack="aws-sim").id != run.id


@pytest.mark.parametrize("ended", [False, True])
def test_a_sample_is_not_cancelled_behind_the_engine(harness: Any, make_spec: Make, ended: bool) -> None:
    """Its job is Pulumi's: one deleted by hand would be missing from a state that says it is there."""
    sample(harness, "job-1")
    run = submitting.adopt(harness.cluster, harness.store, make_spec(), stack="aws-sim")
    harness.job(("Succeeded" if ended else "Running", "True"))
    with pytest.raises(Refused, match="deployed train") as caught:
        cancel(harness.cluster, harness.store, run, delete_volumes=ended)
    assert "isthmus:samples in stacks/Pulumi.aws-sim.yaml" in caught.value.remedy
    assert "isthmus down aws-sim" in caught.value.remedy
    assert harness.api.of_kind("PyTorchJob")
    assert harness.store.get(run.id).state is not State.CANCELLED


def test_a_sample_about_to_be_followed_is_no_interrupted_submission(
    harness: Any, make_spec: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample(harness, "job-1")
    record = harness.store.record

    def dies(*args: Any, **more: Any) -> Run:
        raise Killed

    monkeypatch.setattr(harness.store, "record", dies)
    with pytest.raises(Killed):
        submitting.adopt(harness.cluster, harness.store, make_spec(), stack="aws-sim")
    monkeypatch.setattr(harness.store, "record", record)
    monkeypatch.setattr(submitting, "lives", lambda owner: False)
    run = submit(harness, make_spec())
    assert run.job == f"train-{run.id}"
