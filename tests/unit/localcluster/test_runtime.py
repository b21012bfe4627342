"""The choice of a runtime, and what is refused before anything changes."""

import os
import sys
from pathlib import Path

import pytest

from isthmus.localcluster import embedded, linux, network, runtime
from isthmus.localcluster.state import ClusterState
from isthmus.specs.errors import InvalidSpec, NoCapacity, NotFound, Refused


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))


def test_not_root_falls_to_kind_and_both_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Refused) as caught:
        runtime.choose()
    assert "embedded: it needs root" in caught.value.message and "kind:" in caught.value.message
    assert caught.value.remedy == "isthmus doctor"


def test_not_linux_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert embedded.EmbeddedRuntime().available() == "it needs Linux, this is darwin"


def test_missing_capability_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(linux, "has_capability", lambda number: number != linux.CAP_NET_ADMIN)
    assert embedded.EmbeddedRuntime().available() == "root lacks CAP_NET_ADMIN here"


def test_missing_packages_are_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(linux, "has_capability", lambda number: True)
    monkeypatch.setattr(embedded, "_on_path", lambda program: program not in {"nft", "runc"})
    problem = embedded.EmbeddedRuntime().available()
    assert problem is not None and "nftables runc" in problem and "isthmus install cluster" in problem


def test_unknown_runtime_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="known: embedded, kind"):
        runtime.choose("minikube")


@pytest.mark.parametrize("name", ["Upper", "-a", "a-", "a" * 41, "a/b", "..", ""])
def test_bad_cluster_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec):
        embedded.EmbeddedRuntime().create(name, runtime.LocalClusterConfig())
    assert list(tmp_path.iterdir()) == []


def test_unknown_cluster_lists_those_there_are(tmp_path: Path) -> None:
    (tmp_path / "clusters" / "demo").mkdir(parents=True)
    (tmp_path / "clusters" / "demo" / "cluster.json").write_text("{}")
    with pytest.raises(NotFound, match="there are: demo"):
        embedded.EmbeddedRuntime().get("dmeo")
    assert [cluster.name for cluster in embedded.EmbeddedRuntime().list()] == ["demo"]


def _addresses(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    links = ",".join(f'{{"ifname":"x{n}","addr_info":[{{"local":"10.200.{n}.1","prefixlen":24}}]}}' for n in numbers)
    answers = {"address": f"[{links}]", "route": '[{"dst":"default"},{"dst":"192.0.2.0/24"}]'}
    monkeypatch.setattr(network, "run", lambda *command, **_: answers[command[3]])


def test_a_free_range_is_found_beside_used_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    _addresses(monkeypatch)
    first = network._free_number("00000000")
    _addresses(monkeypatch, first)
    assert network._free_number("00000000") not in {first, 0, 255}


def test_no_free_range_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    _addresses(monkeypatch, *range(1, 255))
    with pytest.raises(NoCapacity):
        network._free_number("00000000")


def test_a_range_taken_meanwhile_is_said_with_the_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    _addresses(monkeypatch, 7)
    with pytest.raises(NoCapacity, match="x7"):
        network._refuse_taken(ClusterState(name="demo", identity="0123abcd", number=7))
