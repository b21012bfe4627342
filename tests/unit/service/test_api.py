"""The API as its users meet it, in one process."""

from typing import Any

import pytest

from isthmus.service import schemas
from isthmus.service.model import Measured, QueueFull, RunState, Seen
from isthmus.service.submissions import Limits
from isthmus.specs.errors import InvalidSpec, NotFound, Refused


def test_a_run_is_submitted_by_its_parameters_alone(house: Any) -> None:
    client = house.client()
    run = client.submit("vision", schemas.NewRun(algorithm="digits", parameters={"epochs": 5}, stack="aws-sim"))
    assert run.state == "Queued"
    assert (run.version, run.user, run.project) == (1, "member", "vision")
    assert run.parameters == {"epochs": 5, "lr": 0.1, "optimizer": "sgd", "workers": 3}
    assert house.worker().submit_one()
    order = house.platform.jobs[run.id]
    assert order.spec.env == {"EPOCHS": "5", "LR": "0.1"}
    assert order.spec.command[-1] == "--optimizer=sgd"
    assert order.spec.roles["Worker"].replicas == 3
    assert client.run("vision", run.id).state == "Pending"


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"epochs": 101}, "epochs is 101, more than 100"),
        ({"epochs": 0}, "less than 1"),
        ({"epochs": "5"}, "must be an integer"),
        ({"epochs": True}, "must be an integer"),
        ({"epochs": 1.5}, "must be an integer"),
        ({"epoch": 5}, "no parameter 'epoch'; nearest: epochs"),
        ({"optimizer": "rmsprop"}, "must be one of sgd, adam"),
        ({"lr": 2}, "more than 1"),
    ],
)
def test_parameters_out_of_bounds_are_refused_by_name(house: Any, parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        house.client().submit("vision", schemas.NewRun(algorithm="digits", parameters=parameters, stack="aws-sim"))
    assert words in caught.value.message
    assert caught.value.remedy
    assert house.ask("GET", "/v1/projects/vision/runs").json()["runs"] == []


def test_unknown_algorithm_version_and_stack_say_what_there_is(house: Any) -> None:
    client = house.client()
    with pytest.raises(NotFound, match="nearest: digits"):
        client.submit("vision", schemas.NewRun(algorithm="digit", stack="aws-sim"))
    with pytest.raises(NotFound, match="no version 7; the current one is 1"):
        client.submit("vision", schemas.NewRun(algorithm="digits", version=7, stack="aws-sim"))
    with pytest.raises(Refused, match="serves: aws-sim, gcp-sim"):
        client.submit("vision", schemas.NewRun(algorithm="digits", stack="azure"))


def test_an_error_is_a_problem_with_what_to_do_next(house: Any) -> None:
    answer = house.ask("GET", "/v1/projects/vision/runs/aaaaaa", headers={"X-Request-Id": "abc-1"})
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "urn:isthmus:problem:not-found"
    assert (problem["status"], problem["object"], problem["request_id"]) == (404, "run aaaaaa", "abc-1")
    assert problem["next"]


def test_a_key_sent_again_gives_the_same_run(house: Any) -> None:
    body = {"algorithm": "digits", "stack": "aws-sim"}
    headers = {"Idempotency-Key": "k1"}
    first = house.ask("POST", "/v1/projects/vision/runs", json=body, headers=headers)
    again = house.ask("POST", "/v1/projects/vision/runs", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    other = house.ask("POST", "/v1/projects/vision/runs", json=body | {"stack": "gcp-sim"}, headers=headers)
    assert other.status_code == 422
    assert first.json()["id"] in other.json()["detail"]
    # Somebody else's key of the same text is another key.
    theirs = house.ask("POST", "/v1/projects/vision/runs", "maintainer", json=body, headers=headers)
    assert theirs.status_code == 201
    assert theirs.json()["id"] != first.json()["id"]


def test_versions_are_kept_and_a_run_keeps_its_own(house: Any) -> None:
    maintainer, member = house.client("maintainer"), house.client()
    old = house.submit()
    mapping = maintainer.algorithm("vision", "digits").mapping
    changed = mapping.model_copy(update={"workload": mapping.workload | {"image": "docker.io/isthmus/torch:2"}})
    second = maintainer.update_algorithm_version("vision", "digits", changed, note="newer torch")
    assert (second.version, second.current) == (2, True)
    new = house.submit()
    assert [member.run("vision", run).version for run in (old, new)] == [1, 2]
    assert member.run("vision", old).image == "docker.io/isthmus/torch:1.13.1"
    back = maintainer.roll_back_algorithm("vision", "digits", 1)
    assert (back.version, back.current) == (1, True)
    assert [item.version for item in member.versions("vision", "digits")] == [2, 1]
    assert member.run("vision", house.submit()).version == 1
    assert member.run("vision", house.submit(version=2)).version == 2
    third = maintainer.update_algorithm_version("vision", "digits", changed)
    assert third.version == 3, "a number is never used twice"


def test_a_deprecated_algorithm_takes_no_new_runs_but_its_old_ones_can_be_repeated(house: Any) -> None:
    maintainer, member = house.client("maintainer"), house.client()
    run = house.submit()
    maintainer.set_deprecated("vision", "digits", True)
    with pytest.raises(Refused, match="deprecated since 2026-11-30"):
        member.submit("vision", schemas.NewRun(algorithm="digits", stack="aws-sim"))
    assert member.replay("vision", run, "gcp-sim").replay_of == run
    maintainer.set_deprecated("vision", "digits", False)
    house.submit()


def test_cancel_while_queued_never_reaches_the_cluster(house: Any) -> None:
    run = house.submit()
    cancelled = house.client().cancel("vision", run)
    assert cancelled.state == "Cancelled"
    assert not house.worker().submit_one()
    assert house.platform.asked == []
    assert house.client().cancel("vision", run).state == "Cancelled", "asking again is fine"


def test_cancel_in_the_cluster_is_done_by_the_worker(house: Any) -> None:
    run = house.submit()
    worker = house.worker()
    worker.submit_one()
    assert house.client().cancel("vision", run).cancelling
    assert worker.cancel_one()
    assert house.platform.cancelled == [run]
    assert house.run(run)["state"] == "Cancelled"
    assert not worker.cancel_one()


def test_only_its_user_and_maintainers_cancel_a_run(house: Any) -> None:
    run = house.submit("maintainer")
    assert house.ask("POST", f"/v1/projects/vision/runs/{run}:cancel", "member").status_code == 403
    mine = house.submit("member")
    assert house.ask("POST", f"/v1/projects/vision/runs/{mine}:cancel", "maintainer").status_code == 200


def test_retry_is_for_runs_that_ended_without_success(house: Any) -> None:
    run = house.submit(parameters={"epochs": 7}, priority="high")
    client = house.client()
    with pytest.raises(Refused, match="Queued"):
        client.retry("vision", run)
    client.cancel("vision", run)
    again = client.retry("vision", run)
    assert (again.retry_of, again.parameters["epochs"], again.priority) == (run, 7, "high")


def test_too_many_waiting_runs_are_told_to_come_later(make_house: Any) -> None:
    house = make_house(limits=Limits(queued_of_project=2, queued=3))
    house.submit()
    house.submit()
    answer = house.ask("POST", "/v1/projects/vision/runs", json={"algorithm": "digits", "stack": "aws-sim"})
    assert answer.status_code == 429
    assert answer.json()["type"].endswith("queue-full")
    assert int(answer.headers["Retry-After"]) >= 1
    house.submit("stranger", "speech")
    with pytest.raises(QueueFull, match="the service"):
        house.client("stranger").submit("speech", schemas.NewRun(algorithm="digits", stack="aws-sim"))
    house.worker().submit_one()
    house.submit("stranger", "speech")


def test_a_budget_refuses_before_anything_is_queued(house: Any) -> None:
    house.platform.over_budget = Refused("budget of project vision: 9 USD used", subject="budget of project vision")
    answer = house.ask("POST", "/v1/projects/vision/runs", json={"algorithm": "digits", "stack": "aws-sim"})
    assert answer.status_code == 409
    assert "9 USD used" in answer.json()["detail"]
    assert house.ask("GET", "/v1/projects/vision/runs").json()["runs"] == []


def test_data_that_must_stay_is_not_taken_elsewhere(house: Any) -> None:
    run = house.submit()
    house.client("admin").change_project("vision", schemas.ProjectChange(clouds=["aws/us-east-1"]))
    house.submit()
    with pytest.raises(Refused, match="must stay in aws/us-east-1; stack gcp-sim is in gcp/us-central1"):
        house.client().replay("vision", run, "gcp-sim")
    with pytest.raises(Refused, match="must stay"):
        house.client().submit("vision", schemas.NewRun(algorithm="digits", stack="gcp-sim"))


def numbers(**values: float) -> tuple[Measured, ...]:
    from datetime import UTC, datetime

    at = datetime(2026, 11, 30, 12, 5, tzinfo=UTC)
    return tuple(Measured(name, value, 1, None, "Master", 0, at, 0) for name, value in values.items())


def finish(house: Any, run: str, state: RunState = RunState.SUCCEEDED, **values: Any) -> None:
    """Let a run be submitted and end."""
    from isthmus.service.worker import Watch

    worker = house.worker()
    while worker.submit_one():
        pass
    metrics = numbers(**values.pop("metrics", {}))
    started = house.time.now
    house.platform.shows[run] = Seen(state, started=started, finished=started, metrics=metrics, **values)
    for stack in ("aws-sim", "gcp-sim"):
        watch = Watch(house.database, house.platform, stack, "test", clock=house.time.monotonic)
        watch.step()
        watch.stop()


def test_runs_are_found_by_text_state_and_metrics_in_pages(house: Any) -> None:
    good = house.submit(parameters={"epochs": 50})
    finish(house, good, metrics={"accuracy": 0.97, "loss": 0.1})
    bad = house.submit(parameters={"epochs": 5})
    finish(house, bad, RunState.FAILED, reason="Master rank 0 ended with exit code 1", metrics={"accuracy": 0.5})
    waiting = house.submit(priority="high")
    client = house.client()

    def found(**wanted: Any) -> list[str]:
        return [run.id for run in client.runs("vision", **wanted)]

    assert found() == [waiting, bad, good]
    assert found(limit=1) == [waiting, bad, good], "three pages"
    assert found(q="epochs=50") == [good]
    assert found(q="DIGITS aws") == [waiting, bad, good]
    assert found(q="100%") == []
    assert found(state="Failed") == [bad]
    assert found(metric="accuracy", at_least=0.9) == [good]
    assert found(metric="accuracy", at_most=0.9) == [bad]
    assert found(user="maintainer") == []
    assert found(until="2026-11-30T11:00:00Z") == []
    assert client.run("vision", good).metrics == {"accuracy": 0.97, "loss": 0.1}
    assert client.metrics("vision", good, "loss")[0].value == 0.1


def test_runs_are_compared_with_a_tolerance_and_replay_agrees(house: Any) -> None:
    first = house.submit(parameters={"epochs": 30})
    finish(house, first, metrics={"accuracy": 0.970})
    again = house.client().replay("vision", first, "gcp-sim")
    finish(house, again.id, metrics={"accuracy": 0.972})
    compared = house.client().compare("vision", [first, again.id], tolerance=0.01)
    [accuracy] = compared.metrics
    assert accuracy.within
    assert accuracy.spread == pytest.approx(0.002)
    assert {item.name for item in compared.differences} == {"stack", "seconds"}
    assert not house.client().compare("vision", [first, again.id], tolerance=0.001).metrics[0].within
    with pytest.raises(InvalidSpec, match="2 to 20"):
        house.client().compare("vision", [first, first])


def test_logs_and_artefacts_are_of_runs_that_a_cluster_has_had(house: Any) -> None:
    from isthmus.service.platform import LogLine

    run = house.submit()
    with pytest.raises(NotFound, match="no cluster has had it"):
        list(house.client().logs("vision", run))
    house.worker().submit_one()
    house.platform.printed = [LogLine("Master", 0, house.time.now, "epoch 1"), LogLine("Worker", 2, None, "ready")]
    lines = list(house.client().logs("vision", run, follow=True))
    assert lines == ["2026-11-30T12:00:00.000+00:00 Master-0 epoch 1", " Worker-2 ready"]
    [artefact] = house.client().artefacts("vision", run)
    assert artefact.volume == f"digits-{run}-out"


def test_statistics_keep_measured_and_simulated_apart(house: Any) -> None:
    finish(house, house.submit())
    finish(house, house.submit(), RunState.FAILED, reason="Worker rank 1 ended with exit code 137 (OOMKilled)")
    finish(house, house.submit(simulated_seconds=60))
    house.submit()
    found = {item.source: item for item in house.client().statistics("vision", "user")}
    assert (found["measured"].succeeded, found["measured"].failed, found["measured"].waiting) == (1, 1, 1)
    assert found["measured"].failure_rate == 0.5
    assert found["measured"].failures == {"memory": 1}
    assert found["simulated"].runs == 1


def test_every_change_is_in_the_audit_with_who_did_it(house: Any) -> None:
    run = house.submit()
    house.client().cancel("vision", run)
    house.client("maintainer").set_member("vision", "stranger", "viewer")
    entries = house.client("maintainer").audit("vision")
    assert [(item.user, item.action, item.object) for item in entries] == [
        ("maintainer", "set member", "user stranger"),
        ("member", "cancel", f"run {run}"),
        ("member", "submit", f"run {run}"),
    ]
    assert all(item.request_id for item in entries)


def test_prometheus_reads_what_the_database_says(house: Any) -> None:
    finish(house, house.submit(), metrics={"accuracy": 0.9})
    house.submit()
    house.time.pass_(30)
    text = house.ask("GET", "/metrics", "admin").text
    assert 'isthmus_runs{project="vision",state="Queued"} 1.0' in text
    assert "isthmus_queue_oldest_seconds 30.0" in text
    assert 'isthmus_failure_rate_by_algorithm{algorithm="digits",source="measured"} 0.0' in text
