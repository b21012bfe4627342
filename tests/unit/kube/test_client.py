"""What Cluster asks for and what it makes of answers; the transport is a recording, so that nothing is sent."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from isthmus.kube.client import Cluster
from isthmus.kube.paths import KNOWN, from_aggregated
from isthmus.kube.transport import ApiError, error_for
from isthmus.specs.errors import InvalidSpec, IsthmusError, NotFound, NotReady, Refused

Answer = dict[str, Any] | Exception


class Recorded:
    """A transport that gives recorded answers, by method and path, and keeps what was asked."""

    server = "https://10.0.0.1:6443"

    def __init__(self, answers: Mapping[tuple[str, str], list[Answer]], streams: list[list[str]] | None = None) -> None:
        self._answers = {key: list(value) for key, value in answers.items()}
        self._streams = list(streams or [])
        self.asked: list[tuple[str, str, dict[str, Any], Any]] = []

    def json(self, method: str, path: str, *, query: Any = None, body: Any = None, **more: Any) -> dict[str, Any]:
        self.asked.append((method, path, {k: v for k, v in (query or {}).items() if v is not None}, body))
        answer = self._answers[method, path].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def lines(self, path: str, *, query: Any = None, **more: Any) -> Iterator[str]:
        self.asked.append(("STREAM", path, {k: v for k, v in (query or {}).items() if v is not None}, None))
        yield from self._streams.pop(0)

    def text(self, path: str, **more: Any) -> str:
        answer = self._answers["GET", path].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer["text"])


def cluster(
    answers: Mapping[tuple[str, str], list[Answer]], streams: list[list[str]] | None = None
) -> tuple[Cluster, Recorded]:
    recorded = Recorded(answers, streams)
    return Cluster({}, transport=recorded), recorded  # type: ignore[arg-type]


def test_known_kinds_need_no_discovery() -> None:
    path = "/apis/kubeflow.org/v1/namespaces/isthmus-runs/pytorchjobs/a"
    api, recorded = cluster({("PATCH", path): [{"kind": "PyTorchJob"}]})
    api.apply(
        {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a", "namespace": "isthmus-runs"}}
    )
    [(_, _, query, body)] = recorded.asked
    assert query == {"fieldManager": "isthmus", "force": "true"}
    assert body["metadata"]["name"] == "a"


def test_another_kind_costs_one_request_once() -> None:
    listing = {
        "resources": [
            {"name": "queues", "kind": "Queue", "namespaced": True},
            {"name": "queues/status", "kind": "Queue"},
        ]
    }
    api, recorded = cluster(
        {
            ("GET", "/apis/kueue.x-k8s.io/v1"): [listing],
            ("GET", "/apis/kueue.x-k8s.io/v1/namespaces/n/queues/q"): [{}, {}],
        }
    )
    api.get("kueue.x-k8s.io/v1", "Queue", "q", "n")
    api.get("kueue.x-k8s.io/v1", "Queue", "q", "n")
    assert [path for _, path, _, _ in recorded.asked].count("/apis/kueue.x-k8s.io/v1") == 1


def test_a_kind_that_is_not_served_is_named() -> None:
    api, _ = cluster({("GET", "/apis/foo.org/v1"): [NotFound("404")]})
    with pytest.raises(NotFound, match=r"does not serve Foo \(foo.org/v1\)"):
        api.apply({"apiVersion": "foo.org/v1", "kind": "Foo", "metadata": {"name": "a"}})


def test_a_manifest_without_a_name_is_refused() -> None:
    api, recorded = cluster({})
    with pytest.raises(InvalidSpec, match=r"metadata\.name"):
        api.apply({"apiVersion": "v1", "kind": "ConfigMap"})
    assert not recorded.asked


def test_lists_go_on_to_the_last_page_and_name_each_kind() -> None:
    pages: list[Answer] = [
        {"metadata": {"continue": "more"}, "items": [{"metadata": {"name": "a"}}]},
        {"metadata": {}, "items": [{"metadata": {"name": "b"}}]},
    ]
    api, recorded = cluster({("GET", "/api/v1/pods"): pages})
    found = api.list("v1", "Pod", selector={"b": "2", "a": "1"})
    assert [(item["kind"], item["metadata"]["name"]) for item in found] == [("Pod", "a"), ("Pod", "b")]
    assert recorded.asked[1][2] == {"labelSelector": "a=1,b=2", "limit": 500, "continue": "more"}


def test_deleting_twice_is_no_error() -> None:
    path = "/api/v1/namespaces/default/configmaps/a"
    api, _ = cluster({("DELETE", path): [{}, NotFound("gone")]})
    assert api.delete("v1", "ConfigMap", "a") is True
    assert api.delete("v1", "ConfigMap", "a") is False


def test_a_watch_lists_again_when_the_server_has_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 5))
    monkeypatch.setattr("isthmus.kube.client.time.monotonic", lambda: next(clock))
    listing: list[Answer] = [
        {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "a"}}]},
        {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "b"}}]},
    ]
    events = [
        [
            json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "2"}}}),
            json.dumps({"type": "MODIFIED", "object": {"metadata": {"name": "a", "resourceVersion": "3"}}}),
            json.dumps({"type": "ERROR", "object": {"code": 410}}),
        ],
        [json.dumps({"type": "DELETED", "object": {"metadata": {"name": "b", "resourceVersion": "10"}}})],
        [],
        [],
    ]
    api, recorded = cluster({("GET", "/api/v1/pods"): listing}, events)
    seen = [(kind, item["metadata"]["name"]) for kind, item in api.watch("v1", "Pod", seconds=30)]
    assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "b")]
    versions = [query["resourceVersion"] for method, _, query, _ in recorded.asked if method == "STREAM"]
    assert versions[:3] == ["1", "9", "10"], "a watch goes on from the last event it saw"


def test_readiness_never_raises() -> None:
    api, _ = cluster({("GET", "/readyz"): [{"text": "ok"}, {"text": "no"}, NotReady("connection refused")]})
    assert [api.ready(), api.ready(), api.ready()] == [True, False, False]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, NotFound),
        (401, NotReady),
        (403, Refused),
        (422, InvalidSpec),
        (400, InvalidSpec),
        (429, NotReady),
        (500, NotReady),
    ],
)
def test_answers_become_our_errors_with_the_servers_words(status: int, kind: type[IsthmusError]) -> None:
    body = json.dumps({"kind": "Status", "message": "the words of the server", "reason": "Some"}).encode()
    error = error_for(status, body, server="https://s", subject="Pod n/a")
    assert type(error) is kind
    assert "the words of the server" in error.message
    assert error.subject == "Pod n/a"


def test_a_conflict_keeps_its_reason() -> None:
    error = error_for(409, b'{"message": "exists", "reason": "AlreadyExists"}', server="https://s", subject="")
    assert isinstance(error, ApiError)
    assert (error.status, error.reason) == (409, "AlreadyExists")


def test_an_answer_that_is_no_json_is_still_told() -> None:
    assert "bad gateway" in error_for(502, b"<html>bad gateway", server="https://s", subject="").message
    assert "does not serve" in error_for(404, b"404 page not found\n", server="https://s", subject="").message


def test_aggregated_discovery_gives_each_listable_kind() -> None:
    def item(name: str, kind: str, verbs: list[str]) -> dict[str, Any]:
        return {"resource": name, "responseKind": {"kind": kind}, "scope": "Namespaced", "verbs": verbs}

    document = {
        "items": [
            {
                "metadata": {"name": "apps"},
                "versions": [
                    {
                        "version": "v1",
                        "resources": [item("deployments", "Deployment", ["list"]), item("x", "X", ["create"])],
                    }
                ],
            }
        ]
    }
    assert from_aggregated(document) == [KNOWN["apps/v1", "Deployment"]]


def test_paths_quote_what_a_name_may_hold() -> None:
    role = KNOWN["rbac.authorization.k8s.io/v1", "ClusterRole"]
    assert role.path(name="system:node") == "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node"
    assert KNOWN["v1", "Pod"].path("a/../b", "c") == "/api/v1/namespaces/a%2F..%2Fb/pods/c"
