"""The queue without a cluster: leases, tokens, fairness, priorities, faults, two services, clocks that differ."""

import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus.service import queue
from isthmus.service.model import RunState, Seen
from isthmus.service.queue import LEASE_SECONDS
from isthmus.service.submissions import Asked
from isthmus.service.worker import GIVE_UP_SECONDS, RESYNC_SECONDS, Watch
from isthmus.specs.errors import InvalidSpec, NotReady, Refused

STACKS = ("aws-sim", "gcp-sim")


def take(house: Any, owner: str = "a", most: int = 100) -> Any:
    return queue.claim(house.database, owner, most_active=most, stacks=STACKS)


def watch_of(house: Any, stack: str = "aws-sim", owner: str = "w") -> Watch:
    return Watch(house.database, house.platform, stack, owner, clock=house.time.monotonic)


def test_a_run_has_one_claimer_until_its_lease_ends(house: Any) -> None:
    run = house.submit()
    first = take(house)
    assert first.order.id == run
    assert take(house, "b") is None
    house.time.pass_(LEASE_SECONDS + 1)
    second = take(house, "b")
    assert second.order.id == run
    assert second.token != first.token
    assert not queue.placed(house.database, first), "the first one's word counts no longer"
    assert house.run(run)["state"] == "Submitting"
    assert queue.placed(house.database, second)
    assert house.run(run)["state"] == "Pending"


def test_a_stalled_claimer_that_comes_back_does_not_submit_twice(house: Any) -> None:
    """SIGSTOP between claim and submission, for longer than the lease: by its id the cluster knows the run."""
    run = house.submit()
    stalled = take(house)
    house.time.pass_(LEASE_SECONDS + 1)
    assert house.worker().submit_one()
    house.platform.submit(stalled.order)
    assert not queue.placed(house.database, stalled)
    assert house.platform.submitted == [run]


def test_a_late_submission_of_a_cancelled_run_is_taken_out_again(house: Any) -> None:
    run = house.submit()
    stalled = take(house)
    house.client().cancel("vision", run)
    house.time.pass_(LEASE_SECONDS + 1)
    worker = house.worker()
    assert not worker.submit_one(), "a cancelled run is not submitted again"
    assert worker.cancel_one()
    house.platform.submit(stalled.order)
    watch = watch_of(house)
    watch.note(run)
    watch.step()
    assert house.platform.jobs == {}
    assert house.run(run)["state"] == "Cancelled"


def test_priority_goes_first_inside_a_project_then_age(house: Any) -> None:
    low, normal, high, later = (house.submit(priority=name) for name in ("low", "normal", "high", "high"))
    assert [take(house).order.id for _ in range(4)] == [high, later, normal, low]


def test_projects_take_turns_whatever_they_queued_and_call_it(house: Any) -> None:
    for _ in range(6):
        house.submit("member", "vision", priority="high")
    for _ in range(3):
        house.submit("stranger", "speech", priority="low")
    assert [take(house).order.project for _ in range(6)] == ["vision", "speech"] * 3


def test_who_holds_cards_waits_for_who_holds_none(house: Any) -> None:
    import json

    mapping = json.loads(
        json.dumps(house.ask("GET", "/v1/projects/vision/algorithms/digits", "admin").json()["mapping"])
    )
    mapping["workload"]["roles"]["Master"] |= {"gpus": 4}
    mapping["workload"]["roles"]["Worker"] |= {"gpus": 1}
    body = {"name": "large", "mapping": mapping}
    assert house.ask("POST", "/v1/projects/vision/algorithms", "admin", json=body).status_code == 201
    house.submit(algorithm="large")
    for _ in range(9):
        house.submit("stranger", "speech")
    house.submit()
    order = [take(house).order.project for _ in range(9)]
    assert order == ["vision", *["speech"] * 7, "vision"], "seven cards are seven turns"


def test_a_weight_of_two_gets_twice_the_turns(house: Any) -> None:
    house.ask("PATCH", "/v1/projects/vision", "admin", json={"weight": 2})
    for _ in range(9):
        house.submit("member", "vision")
        house.submit("stranger", "speech")
    first = [take(house).order.project for _ in range(9)]
    assert first.count("vision") == 6


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    waiting=st.lists(
        st.tuples(st.sampled_from(["vision", "speech"]), st.sampled_from(["low", "normal", "high"])), max_size=10
    )
)
def test_nobody_waits_for_ever_and_nothing_is_taken_twice(house: Any, waiting: list[tuple[str, str]]) -> None:
    """Whatever is queued: every run is claimed exactly once, and no project gets two turns more than another that waits."""
    users = {"vision": house.service.keys.principal(house.keys["member"])}
    users["speech"] = house.service.keys.principal(house.keys["stranger"])
    asked = [
        house.service.submissions.submit(users[project], project, Asked("digits", None, {}, "aws-sim", priority))[0]
        for project, priority in waiting
    ]
    left = {name: sum(project == name for project, _ in waiting) for name in users}
    turns, taken = dict.fromkeys(users, 0), []
    while (claimed := take(house)) is not None:
        taken.append(claimed)
        left[claimed.order.project] -= 1
        turns[claimed.order.project] += 1
        if all(left.values()):
            assert abs(turns["vision"] - turns["speech"]) <= 1
    assert sorted(item.order.id for item in taken) == sorted(asked)
    for item in taken:
        assert queue.failed(house.database, item, "the next example begins with nothing")


def test_a_full_stack_takes_no_more_and_another_one_does(house: Any) -> None:
    for stack in ("aws-sim", "aws-sim", "gcp-sim"):
        house.submit(stack=stack)
    worker = house.worker(most_active=1)
    while worker.submit_one():
        pass
    assert sorted(order.stack for order in house.platform.jobs.values()) == ["aws-sim", "gcp-sim"]
    for run in house.platform.jobs:
        house.platform.shows[run] = Seen(RunState.SUCCEEDED)
    for stack in STACKS:
        watch_of(house, stack).step()
    assert worker.submit_one()


def test_a_refusal_of_the_cluster_is_final_and_says_why(house: Any) -> None:
    run = house.submit()
    house.platform.fault = Refused("each Worker pod asks for 8 GPUs", remedy="set roles.Worker.gpus to at most 4")
    assert house.worker().submit_one()
    shown = house.run(run)
    assert (shown["state"], shown["reason"]) == ("Refused", "each Worker pod asks for 8 GPUs")
    assert shown["next"] == "set roles.Worker.gpus to at most 4"
    assert not house.worker().submit_one()


def test_a_cluster_that_is_gone_for_ten_minutes_loses_nothing(house: Any) -> None:
    runs = [house.submit() for _ in range(3)]
    worker = house.worker()
    house.platform.fault = NotReady("the API server at https://10.0.0.1:6443 cannot be reached")
    for _ in range(120):
        worker.submit_one()
        house.time.pass_(5)
    shown = house.run(runs[0])
    assert shown["state"] == "Submitting"
    assert "10.0.0.1" in shown["reason"]
    assert 20 < len(house.platform.asked) < 100, "it is asked again and again, not without a pause"
    house.platform.fault = None
    house.time.pass_(30)
    while worker.submit_one():
        pass
    assert sorted(house.platform.submitted) == sorted(runs)
    assert {house.run(run)["state"] for run in runs} == {"Pending"}


def test_nothing_is_tried_for_ever(house: Any) -> None:
    run = house.submit()
    house.platform.fault = NotReady("away")
    house.worker().submit_one()
    house.time.pass_(GIVE_UP_SECONDS + 1)
    house.worker().submit_one()
    shown = house.run(run)
    assert (shown["state"], shown["reason"]) == ("Failed", "given up after 2 attempts: away")


def test_a_fault_nobody_foresaw_ends_after_five_attempts(house: Any) -> None:
    run = house.submit()
    house.platform.fault = ZeroDivisionError("x")
    for _ in range(6):
        house.worker().submit_one()
        house.time.pass_(60)
    assert house.run(run)["state"] == "Failed"
    assert len(house.platform.asked) == 5


def test_cancelling_waits_for_a_cluster_that_is_away(house: Any) -> None:
    run = house.submit()
    worker = house.worker()
    worker.submit_one()
    house.client().cancel("vision", run)
    house.platform.fault = NotReady("away")
    assert not worker.cancel_one()
    assert not worker.cancel_one(), "its pause has not passed"
    house.platform.fault = None
    house.time.pass_(60)
    assert worker.cancel_one()
    assert house.run(run)["state"] == "Cancelled"


def test_two_services_share_one_database_and_submit_each_run_once(house: Any) -> None:
    runs = [house.submit() for _ in range(20)]
    workers = [house.worker(name=name) for name in ("one", "two", "three")]

    def work(worker: Any) -> None:
        while worker.submit_one():
            pass

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(house.platform.asked) == sorted(runs)


def test_two_services_on_postgresql(make_house: Any, postgresql: Any) -> None:
    if postgresql is None:
        pytest.skip("no PostgreSQL on this machine")
    house = make_house(postgresql.new_database())
    test_two_services_share_one_database_and_submit_each_run_once(house)
    run = house.submit()
    postgresql.stop("immediate")
    answer = house.ask("POST", "/v1/projects/vision/runs", json={"algorithm": "digits", "stack": "aws-sim"})
    assert answer.status_code == 503
    postgresql.start()
    assert house.run(run)["state"] == "Queued", "a crash of the server loses nothing that was acknowledged"
    house.submit()


def test_leases_go_by_the_clock_of_the_database(make_house: Any, postgresql: Any) -> None:
    """Two services whose machines' clocks differ by an hour do not take each other's leases for ended."""
    if postgresql is None:
        pytest.skip("no PostgreSQL on this machine")
    house = make_house(postgresql.new_database())
    house.submit()
    assert take(house, "on time") is not None
    house.time.pass_(3600)
    assert take(house, "an hour ahead") is None


def test_one_service_watches_a_stack_and_another_takes_over(house: Any) -> None:
    run = house.submit()
    house.worker().submit_one()
    one, two = watch_of(house, owner="one"), watch_of(house, owner="two")
    assert (one.step(), two.step()) == (1, 0)
    house.platform.shows[run] = Seen(RunState.RUNNING)
    house.time.pass_(60)
    assert two.step() == 1, "one has not renewed its lease"
    assert house.run(run)["state"] == "Running"
    assert one.step() == 0
    two.stop()
    assert one.step() == 1


def test_a_job_deleted_by_hand_is_found_by_the_resync(house: Any) -> None:
    run = house.submit(simulated_seconds=600)
    house.worker().submit_one()
    watch = watch_of(house)
    watch.step()
    house.platform.shows[run] = Seen(RunState.LOST, reason="its job was removed from the cluster by someone else")
    watch.step()
    assert house.run(run)["state"] == "Pending", "no event told it, and it is not due"
    house.time.pass_(RESYNC_SECONDS + 1)
    watch.step()
    shown = house.run(run)
    assert (shown["state"], shown["reason"]) == ("Lost", "its job was removed from the cluster by someone else")


def test_metrics_that_the_database_could_not_take_are_written_the_next_time(
    house: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.exc import OperationalError

    from isthmus.service.model import Measured

    run = house.submit()
    house.worker().submit_one()
    watch, record = watch_of(house), queue.record
    house.platform.shows[run] = Seen(
        RunState.RUNNING, metrics=(Measured("loss", 0.5, 1, None, "Master", 0, house.time.now, 0),)
    )

    def away(*given: Any) -> None:
        raise OperationalError("UPDATE", {}, Exception("locked"))

    monkeypatch.setattr(queue, "record", away)
    with pytest.raises(OperationalError):
        watch.step()
    monkeypatch.setattr(queue, "record", record)
    house.platform.shows[run] = Seen(RunState.RUNNING)
    house.time.pass_(5)
    watch.step()
    assert house.run(run)["metrics"] == {"loss": 0.5}


def test_a_final_state_stays(house: Any) -> None:
    run = house.submit()
    worker = house.worker()
    worker.submit_one()
    house.client().cancel("vision", run)
    worker.cancel_one()
    row = queue.by_id(house.database, run)
    queue.record(house.database, row.seq, Seen(RunState.SUCCEEDED))
    assert house.run(run)["state"] == "Cancelled"


def test_a_run_that_ended_before_it_could_be_cancelled_keeps_its_end(
    house: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = house.submit()
    worker = house.worker()
    worker.submit_one()
    house.client().cancel("vision", run)
    monkeypatch.setattr(house.platform, "cancel", lambda order: RunState.SUCCEEDED)
    assert worker.cancel_one()
    house.platform.shows[run] = Seen(RunState.SUCCEEDED)
    watch_of(house).step()
    assert house.run(run)["state"] == "Succeeded"


def test_what_the_api_server_finds_wrong_is_refused(house: Any) -> None:
    run = house.submit()
    house.platform.fault = InvalidSpec("spec.pytorchReplicaSpecs is wrong")
    house.worker().submit_one()
    assert house.run(run)["state"] == "Refused"
