"""`isthmus sharing explain` and `validate`, and the device plugin's configurations they check."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given

from isthmus.cli import main
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.sharing import GpuSharing
from operators import plugin_config
from tests.unit.specs.test_sharing import sharings

A08: dict[str, Any] = {
    "version": "v1",
    "flags": {"renameByDefault": True, "failRequestsGreaterThanOne": False},
    "sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}},
}


def written(folder: Path, document: object) -> str:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_a08_misplaced_fields_are_named_with_where_they_belong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """NVIDIA/k8s-device-plugin#1433: they were silently ignored, and the node kept the unshared name."""
    assert main.run(["sharing", "validate", written(tmp_path, A08)]) == 2
    said = capsys.readouterr().err
    for field in ("renameByDefault", "failRequestsGreaterThanOne"):
        assert f"flags.{field} is in the wrong place" in said
    assert said.count("it belongs in sharing.timeSlicing") == 2


def test_a08_with_the_fields_moved_the_node_advertises_the_shared_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = {"version": "v1", "sharing": {"timeSlicing": {**A08["flags"], **A08["sharing"]["timeSlicing"]}}}
    assert main.run(["sharing", "validate", written(tmp_path, moved), "--cards", "2", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["advertises"] == "nvidia.com/gpu.shared: 8"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sharing": {"mps": A08["sharing"]["timeSlicing"], **A08["sharing"]}}, "exclude each other"),
        ({"sharing": {"timeSlicing": {"resources": []}}}, "sharing.timeSlicing.resources is empty"),
        (
            {"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 1}]}}},
            "sharing.timeSlicing.resources[0].replicas is 1; legal: 2 or more",
        ),
        (
            {"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": "4"}]}}},
            "replicas is '4'; legal: a whole number",
        ),
        (
            {"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4, "rename": "x"}]}}},
            "resources[0].rename is ignored by the plugin; use renameByDefault",
        ),
        (
            {"sharing": {"mps": {"resources": [{"name": "nvidia.com/mig-1g.5gb", "replicas": 2}]}}},
            "MPS does not cover MIG devices",
        ),
        ({"flags": {"migStrategy": "both"}}, "flags.migStrategy is 'both'; legal: none, single, mixed"),
        ({"flags": {"wrong": 1}}, "flags.wrong is no field of the device plugin"),
        (
            {"migStrategy": "single"},
            "migStrategy is in the wrong place, where the plugin ignores it; it belongs in flags",
        ),
        ({"sharing": [1]}, "sharing is [1]; legal: a mapping of timeSlicing, mps"),
        ({"version": "v2"}, "version is 'v2'; legal: v1"),
    ],
)
def test_a_configuration_that_would_not_be_followed_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        plugin_config.validate({"version": "v1", **change}, origin="config.yaml")
    assert says in refused.value.message


@given(sharings())
def test_what_we_write_is_valid(sharing: GpuSharing) -> None:
    plugin_config.validate(plugin_config.configuration(sharing), origin="ours")


def test_explain_says_what_a_card_gives(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["sharing", "explain", "a100-80gb", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["model"] == "A100-80GB"
    assert {"mode": "mig", "shares": "2 x 3g.40gb"}.items() <= {**shown["shares"][7], "note": ""}.items()
    disputed = [item for item in shown["properties"] if (item["mode"], item["property"]) == ("mps", "error isolation")]
    assert {item["value"] for item in disputed} == {"yes", "no"} and all(item["source"] for item in disputed)


def test_a_stack_file_is_checked_pool_by_pool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool = {"name": "g", "gpu": {"model": "T4", "count": 4}, "sharing": {"mode": "mig", "layout": {"1g.5gb": 7}}}
    config = {
        "isthmus:cloud": "aws",
        "isthmus:account": "default",
        "isthmus:region": "us-east-1",
        "isthmus:zones": ["us-east-1a"],
        "isthmus:systemPool": {"name": "system", "instanceType": "m5.xlarge"},
        "isthmus:gpuPools": [pool],
    }
    assert main.run(["sharing", "validate", written(tmp_path, {"config": config})]) == 2
    assert "pool g: sharing.mode is mig" in capsys.readouterr().err
    pool["sharing"] = {"mode": "mps", "clients": 4}
    assert main.run(["sharing", "validate", written(tmp_path, {"config": config}), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["advertises"] == "nvidia.com/gpu: 16"


def test_a_sharing_setting_alone_is_checked_against_a_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, {"mode": "mps", "clients": 20})
    assert main.run(["sharing", "validate", path, "--gpu", "V100"]) == 2
    assert "2 to 16 on a V100" in capsys.readouterr().err
    assert main.run(["sharing", "validate", path, "--gpu", "T4"]) == 0
