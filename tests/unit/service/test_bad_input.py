"""What nobody should send and somebody will: every answer is a problem, none a 500."""

import json
from typing import Any

import pytest

from isthmus.service.limits import LARGEST_BODY, Rates
from isthmus.service.mappings import AlgorithmMapping, check
from isthmus.specs.errors import InvalidSpec

RUNS = "/v1/projects/vision/runs"


def test_ten_megabytes_are_refused_without_being_read(house: Any) -> None:
    answer = house.ask("POST", RUNS, content=b"x" * 10_000_000, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert answer.json()["next"]


def test_ten_megabytes_without_a_length_are_refused_while_they_come(house: Any) -> None:
    sent = 0

    def pieces() -> Any:
        nonlocal sent
        for _ in range(160):
            sent += 1 << 16
            yield b" " * (1 << 16)

    answer = house.ask("POST", RUNS, content=pieces(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413, answer.text
    assert answer.json()["type"].endswith("too-large")
    assert LARGEST_BODY < sent


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"1", b'"x"', b"{}", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000,
        b'{"algorithm": "digits", "stack": "aws-sim", "parameters": {"lr": NaN}}',
        b'{"algorithm": "digits", "stack": "aws-sim", "parameters": {"lr": 1e999}}',
        b'{"algorithm": "digits", "stack": "aws-sim", "parameters": {"epochs": 99999999999999999999999999}}',
        b'{"algorithm": "digits", "stack": "aws-sim", "parameters": {"optimizer": "\\u0000"}}',
        b'{"algorithm": "digits", "stack": "aws-sim", "parameters": {"optimizer": "\\ud800"}}',
        b'{"algorithm": "digits", "stack": "aws-sim", "parameters": {"\\u0000": 1}}',
        b'{"algorithm": "digits", "stack": "aws-sim", "parameters": {"epochs": null}}',
        b'{"algorithm": "digits", "stack": "aws-sim", "priority": "urgent"}',
        b'{"algorithm": "digits", "stack": "aws-sim", "user": "admin"}',
        b'{"algorithm": "../digits", "stack": "aws-sim"}',
        b'{"algorithm": "Digits", "stack": "aws-sim"}',
        b'{"algorithm": "digits", "stack": "aws-sim; drop table runs"}',
        b'{"algorithm": "digits", "stack": "aws-sim", "simulated_seconds": -1}',
    ],
)  # fmt: skip
def test_documents_that_are_none(house: Any, body: bytes) -> None:
    answer = house.ask("POST", RUNS, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422), (answer.status_code, answer.text)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]
    assert house.ask("GET", RUNS).json()["runs"] == []


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=501", "limit=x", "cursor=-1", "cursor=1e9", "state=Broken", "metric=", "at_least=nan&metric=a",
        "at_least=1", "since=yesterday", "q=%00", "metric=%00", "user=%ff", "limit=9999999999999999999999",
    ],
)  # fmt: skip
def test_queries_that_are_none(house: Any, query: str) -> None:
    answer = house.ask("GET", f"{RUNS}?{query}")
    assert answer.status_code == 422, (query, answer.text)


@pytest.mark.parametrize(
    "path",
    ["/v1/projects/%00/runs", "/v1/projects/..%2f..%2fetc/runs", "/v1/projects/Vision", "/v1/projects/vision/runs/%F0%9F",
     "/v1/nothing", "/v2/projects", "/v1/projects/vision/runs/aaaaaa:explode"],
)  # fmt: skip
def test_paths_that_lead_nowhere(house: Any, path: str) -> None:
    answer = house.ask("GET", path)
    assert answer.status_code in (404, 405, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("name", ["7b-finetune", "bert.v2", "Bert", "b" * 41, "a-", "", "é"])
def test_a17_names_that_no_service_could_have(house: Any, name: str) -> None:
    """kubeflow/trainer#1745: a name that is legal for the job but not for its Services is refused before it is there."""
    mapping = house.ask("GET", "/v1/projects/vision/algorithms/digits", "admin").json()["mapping"]
    body = {"name": name, "mapping": mapping}
    assert house.ask("POST", "/v1/projects/vision/algorithms", "maintainer", json=body).status_code == 422
    good = {"name": "bert-v2", "mapping": mapping}
    assert house.ask("POST", "/v1/projects/vision/algorithms", "maintainer", json=good).status_code == 201


def changed(**parts: Any) -> AlgorithmMapping:
    from tests.unit.service.conftest import MAPPING

    document = json.loads(json.dumps(MAPPING))
    for path, value in parts.items():
        place, *rest = path.split("__")
        target = document
        for part in [place, *rest][:-1]:
            target = target[part]
        if value is None:
            del target[[place, *rest][-1]]
        else:
            target[[place, *rest][-1]] = value
    return AlgorithmMapping.model_validate(document)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"workload__kind": "CronJob"}, "CronJob"),
        ({"workload__env__EPOCHS": "{epoch}"}, r"names \{epoch\}, which is no parameter; nearest: epochs"),
        ({"workload__env__LR": "0.1"}, "parameter lr is used nowhere"),
        ({"workload__image": None}, "image"),
        ({"workload__name": "mine"}, "name of the workload is set by the service"),
        ({"workload__roles__Worker__gpus": -1}, "gpus"),
        ({"workload__roles__Worker__cpu": "lots"}, "cpu|quantity|lots"),
        ({"parameters__epochs__default": 1000}, "epochs is 1000, more than 100"),
        ({"parameters__epochs__minimum": 200}, "minimum 200 is more than maximum 100"),
        ({"parameters__optimizer__choices": []}, "choices belong to type choice"),
        ({"parameters__optimizer__minimum": 1}, "only integers and numbers have bounds"),
        ({"parameters__workers__maximum": 20_000}, "replicas"),
        ({"workload__shell": "x"}, "shell"),
    ],
)  # fmt: skip
def test_mappings_that_could_not_be_run(parts: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        check("digits", changed(**parts))


def test_a_parameter_cannot_become_another_argument_or_command() -> None:
    from isthmus.service.mappings import fill

    mapping = changed(
        parameters__optimizer={"type": "text", "default": "sgd", "longest": 200},
        workload__env__NOTE="{{kept}} {optimizer}",
    )
    evil = 'x"; rm -rf / # $(id) `id` --epochs=9 {lr}'
    _, spec = fill("digits", mapping, {"optimizer": evil})
    assert spec.command == ("python3", "/opt/isthmus/ddp_digits.py", f"--optimizer={evil}")
    assert spec.env["NOTE"] == "{kept} " + evil
    with pytest.raises(InvalidSpec, match="cannot be printed"):
        fill("digits", mapping, {"optimizer": "a\nb"})


def test_who_asks_too_fast_is_told_when_to_ask_again(make_house: Any) -> None:
    house = make_house(rates=Rates(rate=2, burst=3))
    house.service.rates.clock = house.time.monotonic
    codes = [house.ask("GET", "/v1/me").status_code for _ in range(5)]
    assert codes == [200, 200, 200, 429, 429]
    assert house.ask("GET", "/v1/me", "viewer").status_code == 200, "others are not slowed down"
    answer = house.ask("GET", "/v1/me")
    assert (answer.json()["type"], answer.headers["Retry-After"]) == ("urn:isthmus:problem:too-many-requests", "1")
    house.time.pass_(1)
    assert house.ask("GET", "/v1/me").status_code == 200


def test_a_fault_of_ours_tells_nothing_but_where_to_look(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house.platform, "places", lambda: 1 / 0)
    answer = house.ask("GET", "/v1/stacks")
    assert answer.status_code == 500
    assert "division" not in answer.text
    assert answer.json()["request_id"]
