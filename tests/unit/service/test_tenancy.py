"""Every route by every role: who gets in, who is told no, and for whom it is not even there. One case for each pair.

The expected answers are written out in `EXPECTED`, not computed from access.NEEDS, so that a slip there is found. The
table in docs/service.md is made from the same rows (test_the_page_shows_this_table).
"""

from pathlib import Path
from typing import Any

import pytest

from isthmus.service.access import NEEDS

WHO = ("nobody", "stranger", "viewer", "member", "maintainer", "admin")
"""`stranger` is a maintainer, of another project."""

EXPECTED: dict[str, tuple[int, int, int, int, int, int]] = {
    # operation                nobody stranger viewer member maintainer admin
    "health": (200, 200, 200, 200, 200, 200),
    "ready": (200, 200, 200, 200, 200, 200),
    "prometheus": (401, 403, 403, 403, 403, 200),
    "whoAmI": (401, 200, 200, 200, 200, 200),
    "listKeys": (401, 200, 200, 200, 200, 200),
    "createKey": (401, 201, 201, 201, 201, 201),
    "revokeKey": (401, 204, 204, 204, 204, 204),
    "listStacks": (401, 200, 200, 200, 200, 200),
    "listUsers": (401, 403, 403, 403, 403, 200),
    "createUser": (401, 403, 403, 403, 403, 201),
    "disableUser": (401, 403, 403, 403, 403, 200),
    "enableUser": (401, 403, 403, 403, 403, 200),
    "createKeyFor": (401, 403, 403, 403, 403, 201),
    "readAudit": (401, 403, 403, 403, 403, 200),
    "listProjects": (401, 200, 200, 200, 200, 200),
    "createProject": (401, 403, 403, 403, 403, 201),
    "getProject": (401, 404, 200, 200, 200, 200),
    "changeProject": (401, 403, 403, 403, 403, 200),
    "listMembers": (401, 404, 200, 200, 200, 200),
    "setMember": (401, 404, 403, 403, 200, 200),
    "removeMember": (401, 404, 403, 403, 204, 204),
    "readProjectAudit": (401, 404, 403, 403, 200, 200),
    "getStatistics": (401, 404, 200, 200, 200, 200),
    "getBudgets": (401, 404, 200, 200, 200, 200),
    "listAlgorithms": (401, 404, 200, 200, 200, 200),
    "getAlgorithm": (401, 404, 200, 200, 200, 200),
    "listVersions": (401, 404, 200, 200, 200, 200),
    "getVersion": (401, 404, 200, 200, 200, 200),
    "createAlgorithmMapping": (401, 404, 403, 403, 201, 201),
    "updateAlgorithmVersion": (401, 404, 403, 403, 201, 201),
    "rollBackAlgorithm": (401, 404, 403, 403, 200, 200),
    "deprecateAlgorithm": (401, 404, 403, 403, 200, 200),
    "restoreAlgorithm": (401, 404, 403, 403, 200, 200),
    "listRuns": (401, 404, 200, 200, 200, 200),
    "getRun": (401, 404, 200, 200, 200, 200),
    "getMetrics": (401, 404, 200, 200, 200, 200),
    "getLogs": (401, 404, 200, 200, 200, 200),
    "listArtefacts": (401, 404, 200, 200, 200, 200),
    "compareRuns": (401, 404, 200, 200, 200, 200),
    "submitRun": (401, 404, 403, 201, 201, 201),
    "cancelRun": (401, 404, 403, 200, 200, 200),
    "retryRun": (401, 404, 403, 201, 201, 201),
    "replayRun": (401, 404, 403, 201, 201, 201),
}


def documents(house: Any) -> dict[str, Any]:
    """A valid body for each operation that takes one."""
    mapping = house.ask("GET", "/v1/projects/vision/algorithms/digits", "admin").json()["mapping"]
    key = {"label": "mine"}
    return {
        "createKey": key,
        "createKeyFor": key,
        "createUser": {"name": "new"},
        "createProject": {"name": "new"},
        "changeProject": {"weight": 2},
        "setMember": {"role": "viewer"},
        "createAlgorithmMapping": {"name": "other", "mapping": mapping},
        "updateAlgorithmVersion": {"mapping": mapping},
        "rollBackAlgorithm": {"version": 1},
        "submitRun": {"algorithm": "digits", "stack": "aws-sim"},
        "replayRun": {"stack": "gcp-sim"},
    }


def names(house: Any, operation: str, who: str) -> dict[str, str]:
    """What the path names, made so that whoever may do it succeeds."""
    owner = who if who in ("member", "maintainer", "admin") else "member"
    house.client("admin").set_deprecated("vision", "digits", False)
    run = house.submit(owner)
    worker = house.worker()
    while operation in ("getLogs", "listArtefacts") and worker.submit_one():
        pass
    if operation == "retryRun":
        house.ask("POST", f"/v1/projects/vision/runs/{run}:cancel", owner)
    found = {"project": "vision", "algorithm": "digits", "version": "1", "run": run, "user": "viewer"}
    if operation == "revokeKey" and who != "nobody":
        found["key"] = house.ask("POST", "/v1/me/keys", who, json={"label": "old"}).json()["id"]
    elif operation == "revokeKey":
        found["key"] = "0" * 12
    if operation in ("disableUser", "enableUser", "removeMember", "setMember"):
        house.ask("POST", "/v1/users", "admin", json={"name": "other"})
        found["user"] = "other"
    if operation == "removeMember":
        house.ask("PUT", "/v1/projects/vision/members/other", "admin", json={"role": "viewer"})
    return found


def routes(house: Any) -> dict[str, tuple[str, str]]:
    """Method and path of each operation."""
    return {
        operation["operationId"]: (method.upper(), path)
        for path, methods in house.http.app.openapi()["paths"].items()
        for method, operation in methods.items()
    }


def test_every_operation_has_a_row() -> None:
    assert EXPECTED.keys() == NEEDS.keys()


@pytest.mark.parametrize("who", WHO)
def test_every_route_by_role(house: Any, who: str) -> None:
    bodies, served = documents(house), routes(house)
    wrong = []
    for operation, expected in EXPECTED.items():
        method, path = served[operation]
        path = path.format(**names(house, operation, who)) if "{" in path else path
        more: dict[str, Any] = {"json": bodies[operation]} if operation in bodies else {}
        if operation == "compareRuns":
            more["params"] = {"run": [house.submit(), house.submit()]}
        answer = house.ask(method, path, None if who == "nobody" else who, **more)
        if answer.status_code != expected[WHO.index(who)]:
            wrong.append((operation, expected[WHO.index(who)], answer.status_code, answer.text[:200]))
        if answer.status_code in (401, 403, 404):
            assert "vision" not in answer.text.replace("/v1/projects/vision", "").replace("project vision", "").replace(
                "project 'vision'", ""
            ), "an answer to somebody who may not see it tells nothing of it"
    assert not wrong


@pytest.mark.parametrize("user", ["viewer", "member", "stranger"])
def test_nobody_makes_themselves_more_than_they_are(house: Any, user: str) -> None:
    escalations = [
        ("PUT", f"/v1/projects/vision/members/{user}", {"role": "maintainer"}),
        ("POST", f"/v1/users/{user}/keys", {"label": "mine"}),
        ("POST", "/v1/users/admin/keys", {"label": "theirs"}),
        ("POST", "/v1/users", {"name": "me2", "administrator": True}),
        ("POST", "/v1/projects", {"name": "mine"}),
    ]
    for method, path, body in escalations:
        answer = house.ask(method, path, user, json=body)
        assert answer.status_code in (403, 404), (path, answer.text)
    extra = house.ask("POST", "/v1/me/keys", user, json={"label": "x", "user": "admin", "administrator": True})
    assert extra.status_code == 422, "a field that is not there is not ignored"
    key = house.ask("POST", "/v1/me/keys", user, json={"label": "x"}).json()["key"]
    house.keys["made"] = key
    me = house.ask("GET", "/v1/me", "made").json()
    assert (me["name"], me["administrator"]) == (user, False)
    assert (
        house.ask("PUT", f"/v1/projects/speech/members/{user}", "maintainer", json={"role": "viewer"}).status_code
        == 404
    )


def test_another_projects_objects_are_not_there_under_ones_own_name(house: Any) -> None:
    """A run or key of another project is not reached by naming it under a project one belongs to."""
    run = house.submit("member")
    for method, suffix in (("GET", ""), ("GET", "/metrics"), ("GET", "/logs"), ("POST", ":cancel"), ("POST", ":retry")):
        assert house.ask(method, f"/v1/projects/speech/runs/{run}{suffix}", "stranger").status_code == 404
    both = {"run": [run, house.submit("stranger", "speech")]}
    assert house.ask("GET", "/v1/projects/speech/runs:compare", "stranger", params=both).status_code == 404
    mine = house.ask("GET", "/v1/me/keys", "member").json()[0]["id"]
    assert house.ask("DELETE", f"/v1/me/keys/{mine}", "stranger").status_code == 404
    assert house.ask("GET", "/v1/projects", "stranger").json()[0]["name"] == "speech"


def test_a_role_that_is_taken_away_is_gone_at_once(house: Any) -> None:
    house.submit("member")
    house.client("maintainer").remove_member("vision", "member")
    answer = house.ask("POST", "/v1/projects/vision/runs", "member", json={"algorithm": "digits", "stack": "aws-sim"})
    assert answer.status_code == 404


def table() -> str:
    """The tenancy table as docs/service.md shows it."""
    lines = ["| operation | " + " | ".join(WHO) + " |", "| --- |" + " --- |" * len(WHO)]
    lines += [f"| {name} | " + " | ".join(str(code) for code in codes) + " |" for name, codes in EXPECTED.items()]
    return "\n".join(lines)


def test_the_page_shows_this_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "service.md"
    assert table() in page.read_text(), f"put this into {page.name}:\n{table()}"
