"""Watching: states from the operator's conditions, words for what waits, metrics from the pods' own logs."""

from collections.abc import Callable
from typing import Any

import pytest

from isthmus.runs import submit as submitting
from isthmus.runs import summary, watch
from isthmus.runs.cancel import cancel
from isthmus.runs.model import Metric, Run, Snapshot, State
from isthmus.specs.errors import NotReady, Refused
from isthmus.specs.workload import WorkloadSpec
from workloads import bindings

Make = Callable[..., WorkloadSpec]
RUNNING = ("Running", "True")


@pytest.fixture
def run(harness: Any, make_spec: Make) -> Run:
    return submitting.submit(
        harness.cluster, harness.store, make_spec(), stack="aws-sim", binding=bindings.for_cloud("aws")
    )


def ended(code: int = 0, start: int = 1, end: int = 44) -> dict[str, Any]:
    return {
        "terminated": {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "startedAt": f"2026-11-30T12:00:{start:02}Z",
            "finishedAt": f"2026-11-30T12:00:{end:02}Z",
        }
    }


def metric_line(second: int, name: str, value: float, epoch: int) -> str:
    return f'2026-11-30T12:00:{second:02}.{epoch:09}Z {{"metric": "{name}", "value": {value}, "epoch": {epoch}}}'


def finish(harness: Any, run: Run, accuracy: float = 0.97) -> None:
    harness.job(("Created", "True"), ("Running", "False"), ("Succeeded", "True"))
    harness.pod("master", 0, "Succeeded", state=ended(start=2))
    for index in range(3):
        harness.pod("worker", index, "Succeeded", state=ended(start=1, end=40 + index))
        harness.api.log[f"{run.job}-worker-{index}", False] = []
    harness.api.log[f"{run.job}-master-0", False] = [
        "2026-11-30T12:00:02.0Z starting",
        metric_line(3, "loss", 0.9, 1),
        metric_line(4, "loss", 0.2, 2),
        metric_line(5, "accuracy", accuracy, 2),
    ]


def test_a_run_that_succeeds_is_told_with_its_time_and_metrics(harness: Any, run: Run) -> None:
    finish(harness, run)
    snapshot = watch.refresh(harness.cluster, harness.store, run)
    assert snapshot.run.state is State.SUCCEEDED
    assert snapshot.run.seconds == 43, "first rank's start to last rank's end"
    assert snapshot.run.source == "measured"
    assert summary.succeeded(snapshot)
    text = "\n".join(summary.ending(snapshot))
    assert "43.0 s measured" in text
    assert "accuracy 0.97 (epoch 2), required 0.95: reached; printed by Master rank 0" in text
    assert [(r.rank, r.exit_code) for r in snapshot.replicas] == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_a_metric_that_is_missed_or_missing_is_no_success(harness: Any, run: Run) -> None:
    finish(harness, run, accuracy=0.5)
    snapshot = watch.refresh(harness.cluster, harness.store, run)
    assert snapshot.run.state is State.SUCCEEDED
    assert not summary.succeeded(snapshot)
    assert "required 0.95: NOT reached" in "\n".join(summary.ending(snapshot))


def test_a_required_metric_that_was_never_printed(harness: Any, run: Run) -> None:
    finish(harness, run)
    harness.api.log[f"{run.job}-master-0", False] = []
    snapshot = watch.refresh(harness.cluster, harness.store, run)
    assert not summary.succeeded(snapshot)
    assert "was never printed" in "\n".join(summary.ending(snapshot))


def test_the_end_waits_until_each_rank_has_told_how_it_ended(harness: Any, run: Run) -> None:
    finish(harness, run)
    harness.pod("worker", 2, "Running", state={"running": {"startedAt": "2026-11-30T12:00:01Z"}})
    watcher = watch.Watcher(harness.cluster, harness.store, run)
    assert watcher.look()[0].run.state is State.RUNNING
    harness.pod("worker", 2, "Succeeded", state=ended(end=50))
    assert watcher.look()[0].run.seconds == 49


def test_a_job_whose_worker_never_ends_is_still_over(harness: Any, run: Run) -> None:
    finish(harness, run)
    harness.pod("worker", 2, "Running")
    [job] = harness.api.of_kind("PyTorchJob")
    job["status"]["completionTime"] = "2020-01-01T00:00:00Z"
    snapshot = watch.refresh(harness.cluster, harness.store, run)
    assert snapshot.run.state is State.SUCCEEDED
    assert "1 had not ended" in "\n".join(summary.ending(snapshot))


def test_a_failure_names_rank_and_exit_code(harness: Any, run: Run) -> None:
    harness.job(("Running", "False"), ("Failed", "True"), message="job failed because 1 replica failed")
    harness.pod("master", 0, "Running")
    harness.pod("worker", 1, "Failed", state=ended(137), restarts=0)
    snapshot = watch.refresh(harness.cluster, harness.store, run)
    assert snapshot.run.state is State.FAILED
    assert snapshot.run.reason == "Worker rank 2 ended with exit code 137"
    assert not summary.succeeded(snapshot)


def test_what_waits_is_explained(harness: Any, run: Run) -> None:
    harness.job(("Created", "True"))
    pod = harness.pod("master", 0, "Pending")
    pod["spec"].pop("nodeName")
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "9"}}
    message = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    pod["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    ]
    snapshot = watch.refresh(harness.cluster, harness.store, run)
    assert snapshot.run.state is State.PENDING
    assert snapshot.waiting == (f"pod {run.job}-master-0: no node has 9 nvidia.com/gpu: the largest (local) has 4",)
    assert "no node has 9" in summary.live(snapshot)


def test_restarts_keep_metrics_once_and_the_first_start(harness: Any, run: Run) -> None:
    harness.job(RUNNING)
    name = f"{run.job}-master-0"
    harness.pod("master", 0, state={"running": {"startedAt": "2026-11-30T12:00:01Z"}})
    harness.api.log[name, False] = [metric_line(3, "loss", 0.9, 1), metric_line(4, "loss", 0.8, 2)]
    watcher = watch.Watcher(harness.cluster, harness.store, run)
    assert len(watcher.look()[1]) == 2
    assert watcher.look()[1] == [], "read again, nothing is new"
    # It printed one more line, died, and the restarted container repeats epoch 2 from its checkpoint.
    harness.api.log[name, True] = [*harness.api.log[name, False], metric_line(5, "loss", 0.7, 3)]
    harness.api.log[name, False] = [metric_line(20, "loss", 0.79, 2)]
    harness.pod(
        "master",
        0,
        restarts=1,
        state={"running": {"startedAt": "2026-11-30T12:00:18Z"}},
        last=ended(1, end=6)["terminated"],
    )
    fresh = watcher.look()[1]
    assert [(m.epoch, m.restart) for m in fresh] == [(3, 0), (2, 1)]
    kept = {m.epoch: m.value for m in harness.store.metrics(run)}
    assert kept == {1: 0.9, 2: 0.79, 3: 0.7}
    assert harness.store.replicas(run)[0].restarts == 1
    assert str(harness.store.get(run.id).started) == "2026-11-30 12:00:01+00:00"


def test_another_watcher_reads_the_same_logs_and_adds_nothing(harness: Any, run: Run) -> None:
    finish(harness, run)
    first = watch.refresh(harness.cluster, harness.store, run)
    count = len(harness.store.metrics(run))
    harness.store.add_metrics(run, [])
    watch.Watcher(harness.cluster, harness.store, run).look()
    assert len(harness.store.metrics(run)) == count == 3
    assert watch.refresh(harness.cluster, harness.store, first.run).run == first.run


def test_following_survives_a_server_that_is_away_for_a_while(harness: Any, run: Run) -> None:
    harness.job(RUNNING)
    harness.pod("master", 0)
    harness.api.log[f"{run.job}-master-0", False] = []
    now, told = [0.0], []

    def sleep(seconds: float) -> None:
        now[0] += 10
        if now[0] == 10:
            harness.away()
        if now[0] == 60:
            harness.back()
            finish(harness, run)

    def tell(snapshot: Snapshot, fresh: list[Metric]) -> None:
        told.append(snapshot.run.state)

    end = watch.follow(harness.cluster, harness.store, run, tell, sleep=sleep, clock=lambda: now[0])
    assert told == [State.RUNNING, State.SUCCEEDED]
    assert summary.succeeded(end)


def test_following_gives_up_and_says_how_to_go_on(harness: Any, run: Run) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += 30

    harness.away()
    with pytest.raises(NotReady, match="the run is not touched") as caught:
        watch.follow(harness.cluster, harness.store, run, lambda *_: None, sleep=sleep, clock=lambda: now[0])
    assert caught.value.remedy == f"isthmus runs follow {run.id}"
    assert watch.UNREACHABLE_SECONDS <= now[0] <= 2 * watch.UNREACHABLE_SECONDS


@pytest.mark.parametrize(("uid", "words"), [("cluster-1", "removed from the cluster"), ("cluster-2", "has a new one")])
def test_a_job_that_is_gone_is_lost_and_says_how(harness: Any, run: Run, uid: str, words: str) -> None:
    harness.api.objects["/api/v1/namespaces/kube-system"]["metadata"]["uid"] = uid
    harness.cluster.delete("kubeflow.org/v1", "PyTorchJob", run.job, run.namespace)
    snapshot = watch.refresh(harness.cluster, harness.store, run)
    assert snapshot.run.state is State.LOST
    assert words in snapshot.run.reason


def test_a_run_between_two_clusters_is_not_lost(harness: Any, run: Run) -> None:
    """Somebody looks while a move has taken its job away, and again with what was read before the job came elsewhere."""
    harness.store.set_cluster(run, "")
    harness.cluster.delete("kubeflow.org/v1", "PyTorchJob", run.job, run.namespace)
    snapshot = watch.refresh(harness.cluster, harness.store, run)
    assert snapshot.run.state is State.PENDING
    assert snapshot.waiting == ("it is being moved: no cluster has its job now",)
    harness.store.move(run, stack="gcp-sim", cluster_uid="cluster-9")
    snapshot = watch.follow(harness.cluster, harness.store, run, lambda *_: None)
    assert (snapshot.run.state, snapshot.run.stack) == (State.PENDING, "gcp-sim")


def test_a_simulated_run_reads_no_log_and_needs_no_metric(harness: Any, make_spec: Make) -> None:
    harness.node("large", 8, simulated=True)
    run = submitting.submit(
        harness.cluster,
        harness.store,
        make_spec(),
        stack="aws-sim",
        binding=bindings.for_cloud("aws"),
        simulated_seconds=90.0,
    )
    harness.job(("Succeeded", "True"))
    harness.pod("master", 0, "Succeeded", state=ended())
    snapshot = watch.refresh(harness.cluster, harness.store, run)
    assert summary.succeeded(snapshot)
    text = "\n".join(summary.ending(snapshot))
    assert "43.0 s simulated" in text
    assert "measured, first rank" not in text
    assert "computed nothing" in text
    assert summary.as_dict(snapshot)["source"] == "simulated"


def test_cancelling_takes_the_job_and_keeps_volumes_and_metrics(harness: Any, run: Run) -> None:
    harness.job(RUNNING)
    harness.pod("master", 0)
    harness.api.log[f"{run.job}-master-0", False] = [metric_line(3, "loss", 0.9, 1)]
    after = cancel(harness.cluster, harness.store, run)
    assert after.state is State.CANCELLED
    assert not harness.api.of_kind("PyTorchJob")
    assert len(harness.api.of_kind("PersistentVolumeClaim")) == 1
    assert len(harness.store.metrics(run)) == 1
    with pytest.raises(Refused, match="already ended"):
        cancel(harness.cluster, harness.store, after)
    cancel(harness.cluster, harness.store, after, delete_volumes=True)
    assert not harness.api.of_kind("PersistentVolumeClaim")


def test_cancelling_a_failed_run_frees_what_still_runs_and_it_stays_failed(harness: Any, run: Run) -> None:
    harness.job(("Failed", "True"), message="bad")
    harness.pod("master", 0, "Failed", state=ended(1))
    harness.pod("worker", 0, "Running")
    failed = watch.refresh(harness.cluster, harness.store, run).run
    after = cancel(harness.cluster, harness.store, failed)
    assert after.state is State.FAILED
    assert after.reason == "Master rank 0 ended with exit code 1"
    assert not harness.api.of_kind("Pod")


def test_pods_that_go_once_the_job_is_over_are_told_as_removed(harness: Any, make_spec: Make) -> None:
    """cleanPodPolicy Running: parameter servers never end by themselves."""
    spec = make_spec(
        kind="TFJob",
        roles={"Worker": {"replicas": 1}, "PS": {"replicas": 1}},
        volumes=[],
        metrics={},
        cleanPodPolicy="Running",
    )
    run = submitting.submit(harness.cluster, harness.store, spec, stack="aws-sim", binding=bindings.for_cloud("aws"))
    [job] = harness.api.of_kind("TFJob")
    job["status"] = {"conditions": [{"type": "Running", "status": "True"}]}
    harness.pod("worker", 0, kind="TFJob")
    server = harness.pod("ps", 0, kind="TFJob")
    watcher = watch.Watcher(harness.cluster, harness.store, run)
    assert watcher.look()[0].run.state is State.RUNNING
    job["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    harness.pod("worker", 0, "Succeeded", kind="TFJob", state=ended())
    server["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:45Z"
    snapshot = watcher.look()[0]
    assert snapshot.run.state is State.SUCCEEDED, "a pod that is being removed is not waited for"
    assert {(item.role, item.phase) for item in snapshot.replicas} == {("Worker", "Succeeded"), ("PS", "Removed")}
    assert "had not ended" not in "\n".join(summary.ending(snapshot))


def test_a_pod_that_was_made_anew_is_told_once_as_removed(harness: Any, run: Run) -> None:
    harness.job(RUNNING)
    harness.pod("worker", 1, uid="first")
    watcher = watch.Watcher(harness.cluster, harness.store, run)
    watcher.look()
    harness.pod("worker", 1, uid="second")
    phases = {item.uid: item.phase for item in watcher.look()[0].replicas}
    assert phases == {"first": "Removed", "second": "Running"}


def test_a_job_that_went_by_its_time_to_live_says_so(harness: Any, make_spec: Make) -> None:
    run = submitting.submit(
        harness.cluster,
        harness.store,
        make_spec(ttlSecondsAfterFinished=5),
        stack="aws-sim",
        binding=bindings.for_cloud("aws"),
    )
    harness.cluster.delete("kubeflow.org/v1", "PyTorchJob", run.job, run.namespace)
    snapshot = watch.refresh(harness.cluster, harness.store, run)
    assert snapshot.run.state is State.LOST
    assert "its job went 5 s after it was over" in snapshot.run.reason
