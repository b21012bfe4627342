"""Which process is the node agent of a kind cluster; tests/e2e/test_kind_sharing.py runs one."""

import os
import time
from pathlib import Path

import pytest

from isthmus.localcluster import processes
from isthmus.localcluster.kind import agent, config
from isthmus.localcluster.kind.state import Paths
from isthmus.localcluster.state import write_json


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(tmp_path)
    (found.node(0) / config.DRIVER).mkdir(parents=True)
    return found


def note(paths: Paths, pid: int, started: int | None) -> None:
    write_json(paths.agent, {"pid": pid, "started": started, "since": time.time()})


def test_a_cluster_without_cards_has_none(tmp_path: Path) -> None:
    Paths(tmp_path).node(0).mkdir(parents=True)
    assert agent.process(Paths(tmp_path)) is None
    agent.start("c", Paths(tmp_path))
    assert not Paths(tmp_path).agent.exists()


def test_it_is_missed_where_there_are_cards(paths: Paths) -> None:
    found = agent.process(paths)
    assert found is not None and not found.running and "does not run" in found.message


def test_a_later_process_of_the_same_number_is_not_ended(paths: Paths) -> None:
    """A note of before a reboot names this very process, which started at another time: it lives to tell."""
    started = processes.start_time(os.getpid())
    assert started is not None
    note(paths, os.getpid(), started + 1)
    agent.stop(paths)
    assert not paths.agent.exists()


def test_the_one_that_was_noted_runs(paths: Paths) -> None:
    note(paths, os.getpid(), processes.start_time(os.getpid()))
    found = agent.process(paths)
    assert found is not None and found.running and found.pid == os.getpid() and not found.message
