"""Stack settings: what is refused, and how it is said."""

from pathlib import Path
from typing import Any

import pytest

from isthmus.specs import stack
from isthmus.specs.errors import InvalidSpec

ROOT = Path(__file__).resolve().parents[3]


def values(**changes: Any) -> dict[str, Any]:
    """Valid settings, with changes; a change to None takes the setting out."""
    base: dict[str, Any] = {
        "cloud": "aws",
        "mode": "simulated",
        "account": "aws-sim",
        "region": "us-east-1",
        "zones": ["us-east-1a", "us-east-1b"],
        "systemPool": {"name": "system", "instanceType": "m5.xlarge"},
        "gpuPools": [{"name": "gpu", "gpu": {"model": "T4", "count": 4}}],
    }
    base |= changes
    return {key: value for key, value in base.items() if value is not None}


def test_valid_settings_make_a_cluster() -> None:
    settings = stack.parse(values(), origin="x")
    assert [pool.name for pool in settings.cluster.pools] == ["system", "gpu"]
    assert settings.provider_version == stack.SIMULATED_PLUGIN_VERSION
    assert stack.parse(values(mode="real"), origin="x").provider_version is None


def test_a05_there_is_no_autopilot_setting() -> None:
    with pytest.raises(InvalidSpec, match="there is no setting 'autopilot'"):
        stack.parse(values(autopilot=True), origin="stacks/Pulumi.gcp.yaml")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cloud": "azure"}, "cloud"),
        ({"region": None}, "region"),
        ({"zones": []}, "zones"),
        ({"clusterName": "Bad_Name"}, "clusterName"),
        ({"systemPool": {"name": "s"}}, "instanceType or a gpu"),
        ({"systemPool": {"name": "s", "instanceType": "m5.xlarge", "min": 3, "max": 2}}, "not between"),
        ({"gpuPools": [{"name": "system", "gpu": {"model": "T4", "count": 1}}]}, "must differ"),
        ({"gpuPools": [{"name": "g", "gpu": {"model": "T4", "count": 0}}]}, "count"),
        ({"costReport": True}, "samples"),
        ({"kubernetesVersion": "latest"}, "kubernetesVersion"),
    ],
)
def test_bad_settings_are_named(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSpec, match=says):
        stack.parse(values(**change), origin="x")


def test_an_unknown_stack_is_wrong_usage_and_the_nearest_is_named() -> None:
    with pytest.raises(InvalidSpec, match="nearest: aws-sim.*known: aws, aws-sim, gcp, gcp-sim") as caught:
        stack.load(ROOT, "aws-smi")
    assert caught.value.remedy == "use aws-sim"


def test_invalid_yaml_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "Pulumi.x.yaml").write_text("config:\n  isthmus:cloud: aws\n   bad: : :\n", encoding="utf-8")
    with pytest.raises(InvalidSpec, match=r"stacks/Pulumi\.x\.yaml, line 3"):
        stack.load(tmp_path, "x")


def test_every_stack_of_the_repository_is_valid() -> None:
    found = stack.names(ROOT)
    assert {"aws", "gcp", "aws-sim", "gcp-sim"} <= set(found)
    for name in found:
        stack.load(ROOT, name)


def test_the_engine_hands_over_the_same_settings_as_the_file() -> None:
    import json

    flat = {
        f"isthmus:{key}": value if isinstance(value, str) else json.dumps(value) for key, value in values().items()
    } | {"pulumi:disable-default-providers": "[]"}
    assert stack.from_config(flat, stack="x") == stack.parse(values(), origin="x")
