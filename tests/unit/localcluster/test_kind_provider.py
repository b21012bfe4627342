"""The provider plugin of the kind cloud, without Docker and without an engine: its methods called as gRPC calls them."""

from typing import Any

import pytest
from pulumi.runtime.proto import provider_pb2

from isthmus.localcluster.kind import provider, resources
from isthmus.localcluster.kind.state import State
from isthmus.specs.errors import Refused
from isthmus.toolchain.values import UNKNOWN, decode, encode

URN = "urn:pulumi:kind::isthmus::isthmus:kind:Cluster::isthmus"
NEWS = {
    "name": "isthmus",
    "kubernetesVersion": "1.36",
    "nodes": [{"labels": {"a": "b"}, "taints": []}, {"labels": {}, "taints": []}],
}


class Aborted(Exception):
    pass


class Context:
    def abort(self, code: Any, details: str) -> None:
        raise Aborted(details)


class Recorded(resources.ResourceType):
    """Takes a cluster's inputs and keeps what it was told."""

    inputs = resources.ClusterInputs
    for_life = ("name",)
    outputs = ("endpoint",)

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.there: tuple[dict[str, Any], dict[str, Any]] | None = None

    def create(self, urn: str, news: dict[str, Any], progress: Any) -> tuple[str, dict[str, Any]]:
        progress("making it")
        self.calls.append(("create", urn))
        return news["name"], {"endpoint": "https://127.0.0.1:1"}

    def read(self, identity: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
        return self.there

    def update(self, identity: str, news: dict[str, Any], progress: Any) -> dict[str, Any]:
        self.calls.append(("update", identity))
        return {"endpoint": "https://127.0.0.1:1"}

    def delete(self, identity: str, olds: dict[str, Any]) -> None:
        raise Refused("it is not ours", subject=identity, remedy="leave it")


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    made = Recorded()
    monkeypatch.setattr(provider, "TYPES", {"isthmus:kind:Cluster": made})
    return made


@pytest.fixture
def served() -> provider.LocalProvider:
    return provider.LocalProvider("")


CONTEXT: Any = Context()


def diff(served: provider.LocalProvider, olds: dict[str, Any], news: dict[str, Any]) -> Any:
    return served.Diff(
        provider_pb2.DiffRequest(urn=URN, id="isthmus", old_inputs=encode(olds), news=encode(news)), CONTEXT
    )


def test_inputs_are_checked_by_name(served: provider.LocalProvider) -> None:
    wrong = {**NEWS, "name": "Not A Name", "size": 3, "nodes": []}
    answer = served.Check(provider_pb2.CheckRequest(urn=URN, news=encode(wrong)), CONTEXT)
    assert {failure.property for failure in answer.failures} == {"name", "size", "nodes"}
    right = served.Check(provider_pb2.CheckRequest(urn=URN, news=encode(NEWS)), CONTEXT)
    assert not right.failures and decode(right.inputs) == NEWS


@pytest.mark.parametrize(
    ("change", "diffs", "replaces"),
    [
        ({}, [], []),
        ({"nodes": [{"labels": {"a": "c"}, "taints": []}, {"labels": {}, "taints": []}]}, ["nodes"], []),
        ({"nodes": [{"labels": {"a": "b"}, "taints": []}]}, ["nodes"], ["nodes"]),
        ({"name": "other"}, ["name"], ["name"]),
    ],
)
def test_labels_change_in_place_and_name_or_number_of_nodes_replace(
    served: provider.LocalProvider, change: dict[str, Any], diffs: list[str], replaces: list[str]
) -> None:
    answer = diff(served, NEWS, {**NEWS, **change})
    assert (list(answer.diffs), list(answer.replaces)) == (diffs, replaces)
    assert answer.deleteBeforeReplace, "two clusters of one name cannot be there at once"


def test_a_preview_makes_nothing_and_knows_no_output(served: provider.LocalProvider, kind: Recorded) -> None:
    request = provider_pb2.CreateRequest(urn=URN, properties=encode(NEWS), preview=True)
    assert decode(served.Create(request, CONTEXT).properties) == {**NEWS, "endpoint": UNKNOWN}
    request = provider_pb2.UpdateRequest(
        urn=URN, id="isthmus", olds=encode({**NEWS, "endpoint": "e"}), news=encode(NEWS), preview=True
    )
    assert decode(served.Update(request, CONTEXT).properties) == {**NEWS, "endpoint": "e"}
    assert kind.calls == []


def test_create_read_and_import(served: provider.LocalProvider, kind: Recorded) -> None:
    made = served.Create(provider_pb2.CreateRequest(urn=URN, properties=encode(NEWS)), CONTEXT)
    assert made.id == "isthmus" and kind.calls == [("create", URN)]
    read = provider_pb2.ReadRequest(urn=URN, id="isthmus")
    assert served.Read(read, CONTEXT).id == "", "gone"
    kind.there = (NEWS, {"endpoint": "e"})
    found = served.Read(read, CONTEXT)
    assert (found.id, decode(found.inputs), decode(found.properties)["endpoint"]) == ("isthmus", NEWS, "e")


def test_a_refresh_keeps_what_cannot_be_seen_and_finds_no_change(
    served: provider.LocalProvider, isthmus_home: None
) -> None:
    """Whether a bucket may be deleted with what is in it stands nowhere but in the program."""
    urn = URN.replace("Cluster", "Bucket")
    news = {"cluster": "one", "name": "one-data", "forceDestroy": True}
    made = served.Create(provider_pb2.CreateRequest(urn=urn, properties=encode(news)), CONTEXT)
    read = provider_pb2.ReadRequest(urn=urn, id=made.id, inputs=encode(news), properties=made.properties)
    found = served.Read(read, CONTEXT)
    assert decode(found.inputs) == news
    assert decode(found.properties) == decode(made.properties)


def test_a_cluster_reads_back_as_the_program_wrote_it(isthmus_home: None) -> None:
    wanted = resources.ClusterInputs.model_validate(
        {
            "name": "one",
            "nodes": [{"labels": {"a": "b"}}, {"gpu": {"model": "T4", "count": 2}, "taints": [{"key": "k"}]}],
        }
    ).model_dump(mode="json", by_alias=True, exclude_none=True)
    state = State("one")
    state.ask(resources._config(wanted))
    assert [resources._plain(node) for node in state.asked()] == wanted["nodes"]


def test_an_error_names_object_and_next_command(served: provider.LocalProvider, kind: Recorded) -> None:
    with pytest.raises(Aborted, match=r"it is not ours\n  object: isthmus\n  next: leave it"):
        served.Delete(provider_pb2.DeleteRequest(urn=URN, id="isthmus"), CONTEXT)


def test_an_unknown_type_is_refused_by_name(served: provider.LocalProvider) -> None:
    with pytest.raises(Aborted, match="isthmus:kind:Bucket"):
        served.Check(provider_pb2.CheckRequest(urn=URN.replace("Cluster", "Nothing"), news=encode({})), CONTEXT)


def test_a_bucket_with_files_stays_unless_told(
    isthmus_home: None, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = resources.BucketType()
    news = {"cluster": "one", "name": "one-data", "forceDestroy": False}
    identity, outputs = bucket.create(URN, news, lambda words: None)
    assert outputs == {"url": "file:///kind/buckets/one-data"} and bucket.read(identity) is not None
    folder = tmp_path / "home" / "buckets" / "one" / "one-data"
    (folder / "model").write_text("weights")
    with pytest.raises(Refused, match="holds files"):
        bucket.delete(identity, news)
    assert (folder / "model").exists()
    bucket.delete(identity, {**news, "forceDestroy": True})
    assert bucket.read(identity) is None and not folder.parent.exists()
    bucket.delete(identity, news)


@pytest.fixture
def isthmus_home(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "home"))
