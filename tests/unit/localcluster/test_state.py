"""A cluster's names and its file."""

from pathlib import Path

import pytest

from isthmus.localcluster import state
from isthmus.localcluster.runtime import LocalClusterConfig, LocalNode
from isthmus.specs.cluster import GpuCards


def test_names_differ_by_home_and_by_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    made = [state.new_state(tmp_path / home, name) for home in "ab" for name in ("one", "two")]
    assert len({item.space for item in made}) == 4
    assert {len(item.interface) for item in made} == {12}  # the kernel takes at most 15 characters
    assert state.new_state(tmp_path / "a", "one").identity == made[0].identity


def test_a_link_to_a_home_is_that_home(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert state.new_state(tmp_path / "link", "x").identity == state.new_state(tmp_path / "real", "x").identity


def test_state_reads_back_as_written(tmp_path: Path) -> None:
    paths = state.Paths(tmp_path)
    assert state.read(paths) is None
    written = state.ClusterState(name="demo", identity="0123abcd", number=9, created=1.5)
    written.ask(LocalClusterConfig(nodes=(LocalNode({"a": "b"}, GpuCards(model="T4", count=4)),)))
    state.write(paths, written)
    assert state.read(paths) == written and written.cards == GpuCards(model="T4", count=4)
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]
    assert paths.state.stat().st_mode & 0o777 == 0o600


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    state.write_json(tmp_path / "x.json", {"a": 1})
    with pytest.raises(TypeError):
        state.write_json(tmp_path / "x.json", {"a": object()})
    assert state.read_json(tmp_path / "x.json") == {"a": 1} and len(list(tmp_path.iterdir())) == 1


def test_addresses_follow_from_the_number() -> None:
    item = state.ClusterState(name="demo", identity="0123abcd", number=9)
    assert (item.network, item.gateway, item.address) == ("10.200.9.0/24", "10.200.9.1", "10.200.9.2")
    with pytest.raises(ValueError, match="no network yet"):
        _ = state.ClusterState(name="demo", identity="0123abcd").address
