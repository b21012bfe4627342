"""What `isthmus status` says of local clusters that are not whole."""

from typing import Any

import pytest

from isthmus.cli import status
from isthmus.localcluster import runtime
from isthmus.specs.errors import NotReady


class HalfMade:
    @property
    def endpoint(self) -> str:
        raise NotReady("the cluster was not made yet")


class Whole:
    endpoint = "https://127.0.0.1:1"
    name = "whole"

    def status(self) -> runtime.ClusterStatus:
        return runtime.ClusterStatus("whole", "dead")


class Here:
    def available(self) -> None:
        return None

    def list(self) -> list[Any]:
        return [HalfMade(), Whole()]


def test_a_half_made_cluster_does_not_hide_the_one_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "runtimes", lambda: (Here(),))
    assert status._local("https://127.0.0.1:1")["problems"] == ["the local cluster whole is dead"]
