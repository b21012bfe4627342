"""The OCI runtime that containerd calls, run for real over a stand-in for runc that shows what it was given."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from isthmus.localcluster import configs
from isthmus.localcluster.state import Paths

pytestmark = pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq (Debian package jq)")


class Node:
    """A folder with the wrapper, a driver root and a bundle."""

    def __init__(self, folder: Path) -> None:
        self.paths, self.bundle = Paths(folder), folder / "bundle"
        self.bundle.mkdir()
        (folder / "runc").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (folder / "runc").chmod(0o755)

    def driver(self) -> None:
        self.paths.driver.mkdir()
        (self.paths.driver / "cards").touch()

    def run(self, config: dict[str, Any], *, drop: bool = False, arguments: list[str] | None = None) -> dict[str, Any]:
        wrapper = self.paths.folder / "wrapper"
        wrapper.write_text(configs.wrapper(self.paths.driver, drop_capability=drop))
        (self.bundle / "config.json").write_text(json.dumps(config))
        words = arguments or ["--root", "/x", "create", "--bundle", str(self.bundle), "id"]
        environment = {"PATH": f"{self.paths.folder}:{os.environ['PATH']}"}
        done = subprocess.run(["sh", str(wrapper), *words], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == words
        return dict(json.loads((self.bundle / "config.json").read_text()))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def config(**environment: str) -> dict[str, Any]:
    process = {"env": [f"{key}={value}" for key, value in environment.items()], "oomScoreAdj": -997,
               "rlimits": [{"type": "RLIMIT_NOFILE"}], "capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"]}}  # fmt: skip
    return {"process": process, "mounts": [{"destination": "/proc"}]}


def targets(document: dict[str, Any]) -> list[str]:
    return [mount["destination"] for mount in document["mounts"]]


@pytest.mark.parametrize("value", ["all", "GPU-1234", "0,1"])
def test_container_that_asks_gets_the_driver(node: Node, value: str) -> None:
    node.driver()
    done = node.run(config(NVIDIA_VISIBLE_DEVICES=value))
    assert targets(done) == [
        "/proc",
        "/run/isthmus/driver",
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
        "/usr/bin/nvidia-smi",
        "/usr/bin/nvidia-cuda-mps-control",
        *(["/run/isthmus/driver/modes"] if value == "all" else []),
    ]
    assert all("ro" in mount["options"] for mount in done["mounts"][1:5])
    (hook,) = done["hooks"]["createContainer"]
    assert hook["args"][1:] == ["--bind", f"{node.paths.driver}/proc", f"{node.bundle}/rootfs/proc/driver"]


def test_devices_of_all_claims_together_are_what_a_container_sees(node: Node) -> None:
    node.driver()
    done = node.run(config(ISTHMUS_CLAIMED_A="GPU-1,GPU-2", PATH="/bin", ISTHMUS_CLAIMED_B="MIG-3"))
    assert done["process"]["env"][-1] == "NVIDIA_VISIBLE_DEVICES=GPU-1,GPU-2,MIG-3"
    assert "/usr/bin/nvidia-smi" in targets(done)


def test_a_card_of_the_vfio_driver_is_none_that_a_container_sees(node: Node) -> None:
    node.driver()
    assert targets(node.run(config(ISTHMUS_CLAIMED_A="void"))) == ["/proc"]
    beside = node.run(config(ISTHMUS_CLAIMED_A="void", ISTHMUS_CLAIMED_B="GPU-1"))
    assert beside["process"]["env"][-1] == "NVIDIA_VISIBLE_DEVICES=GPU-1"


def test_only_who_sees_all_cards_may_set_their_modes(node: Node) -> None:
    node.driver()
    mounts = node.run(config(NVIDIA_VISIBLE_DEVICES="all"))["mounts"]
    assert [mount["destination"] for mount in mounts if "rw" in mount.get("options", [])] == [
        "/run/isthmus/driver/modes"
    ]


@pytest.mark.parametrize("value", ["", "void", "none"])
def test_container_that_asks_for_none_gets_none(node: Node, value: str) -> None:
    node.driver()
    assert targets(node.run(config(NVIDIA_VISIBLE_DEVICES=value))) == ["/proc"]


def test_container_that_does_not_ask_is_left_alone(node: Node) -> None:
    node.driver()
    given = config(PATH="/bin")
    assert node.run(given) == given


def test_node_without_cards_changes_nothing(node: Node) -> None:
    given = config(NVIDIA_VISIBLE_DEVICES="all")
    assert node.run(given) == given


def test_the_last_setting_counts(node: Node) -> None:
    node.driver()
    given = config()
    given["process"]["env"] = ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=void"]
    assert targets(node.run(given)) == ["/proc"]


def test_host_without_the_capability_gives_none_on(node: Node) -> None:
    process = node.run(config(), drop=True)["process"]
    assert process["capabilities"] == {"bounding": ["CAP_CHOWN"]}
    assert process["oomScoreAdj"] == 0 and "rlimits" not in process


def test_exec_is_lessened_too(node: Node) -> None:
    file = node.paths.folder / "process.json"
    file.write_text(json.dumps(config()["process"]))
    node.run(config(), drop=True, arguments=["exec", "--process", str(file), "id"])
    assert "CAP_SYS_RESOURCE" not in file.read_text() and "CAP_CHOWN" in file.read_text()


def test_driver_and_lessening_together(node: Node) -> None:
    node.driver()
    done = node.run(config(NVIDIA_VISIBLE_DEVICES="all"), drop=True)
    assert len(done["mounts"]) == 6 and done["process"]["oomScoreAdj"] == 0
