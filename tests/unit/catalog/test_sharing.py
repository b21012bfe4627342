"""Which sharing a card and a cloud take, and where MIG instances go."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus import catalog
from isthmus.catalog import mig, sharing
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.sharing import MODES, GpuSharing

FACTS = catalog.load()
CAPABLE = [gpu.model for gpu in FACTS.gpus() if gpu.mig]


@pytest.mark.parametrize(
    ("model", "layout", "places"),
    [
        ("A100", {"3g.20gb": 2}, [("3g.20gb", 0), ("3g.20gb", 4)]),
        ("A100", {"4g.20gb": 1, "3g.20gb": 1}, [("4g.20gb", 0), ("3g.20gb", 4)]),
        ("A100", {"1g.10gb": 4}, [("1g.10gb", 0), ("1g.10gb", 2), ("1g.10gb", 4), ("1g.10gb", 6)]),
        ("A30", {"2g.12gb": 1, "1g.6gb": 2}, [("2g.12gb", 0), ("1g.6gb", 2), ("1g.6gb", 3)]),
    ],
)
def test_instances_lie_where_the_card_allows(model: str, layout: Mapping[str, int], places: list[Any]) -> None:
    assert [(item.profile.profile, item.start) for item in mig.place(FACTS, model, layout)] == places


@given(st.data())
def test_instances_never_overlap_and_are_told_apart(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(CAPABLE))
    names = [profile.profile for profile in FACTS.mig_profiles(model)]
    layout = data.draw(st.dictionaries(st.sampled_from(names), st.integers(1, 4), min_size=1, max_size=3))
    try:
        placed = mig.place(FACTS, model, layout)
    except InvalidSpec:
        return
    taken = [slice_ for item in placed for slice_ in range(item.start, item.start + item.profile.memory_slices)]
    assert len(taken) == len(set(taken))
    assert len({item.gpu_instance for item in placed}) == len(placed) == sum(layout.values())
    assert all(item.start in item.profile.placements for item in placed)


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        ({"3g.20gb": 1, "4g.20gb": 1, "1g.5gb": 1}, "legal with 4g.20gb: up to 3 x 1g.5gb"),
        ({"3g.20gb": 3}, "3 instances of 3g.20gb on one A100; legal: 1 to 2"),
        ({"1g.5gb+me": 2}, "legal: 1 to 1"),
        ({"3g.40gb": 1}, "the A100 has no MIG profile 3g.40gb; legal: 1g.5gb, 1g.5gb+me, 1g.10gb"),
    ],
)
def test_an_impossible_layout_says_what_is_possible(layout: Mapping[str, int], says: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        mig.place(FACTS, "A100", layout)
    assert says in refused.value.message


def test_the_device_plugin_gives_every_profile_its_name() -> None:
    """go-nvlib rounds an instance's share of the card's memory up to eighths and multiplies it with the card's whole GB:
    the catalog's figures must come out as the profile's name, else the plugin would advertise another one."""
    for model in CAPABLE:
        total = FACTS.gpu(model).memory_mib
        for profile in FACTS.mig_profiles(model):
            eighths = -(-profile.memory_mib * 8 // total)
            gigabytes = int(eighths / 8 * -(-total // 1024) + 0.5)
            assert profile.profile.removesuffix("+me") == f"{profile.compute_slices}g.{gigabytes}gb", model


SLICED = GpuSharing(mode="time-slicing", replicas=4)


@pytest.mark.parametrize(
    ("model", "cloud", "settings", "says"),
    [
        ("T4", "aws", {"mode": "mig", "layout": {"1g.5gb": 7}}, "sharing.mode is mig; legal: none, time-slicing, mps"),
        ("A10G", "aws", {"mode": "mig", "layout": {"1g.5gb": 7}}, "cards with MIG are A30, A100"),
        ("V100", "aws", {"mode": "mps", "clients": 17}, "sharing.clients is 17; legal: 2 to 16 on a V100"),
        ("A100", "aws", {"mode": "mig", "layout": {"1g.20gb": 1}}, "no MIG profile 1g.20gb"),
        ("T4", "gcp", {"mode": "time-slicing", "replicas": 2, "rename": True}, "sharing.rename is true; legal: false"),
        (
            "T4",
            "gcp",
            {"mode": "time-slicing", "replicas": 2, "fail_greater_than_one": False},
            "sharing.failGreaterThanOne is false; legal: true",
        ),
        ("A100", "gcp", {"mode": "mig", "layout": {"1g.5gb": 7}}, "sharing.strategy is mixed; legal: single"),
        (
            "A100",
            "gcp",
            {"mode": "mig", "layout": {"1g.5gb": 3}, "strategy": "single"},
            "sharing.layout is 1g.5gb: 3; legal: 1g.5gb: 7",
        ),
        (
            "T4",
            "aws",
            {"mode": "dra", "claims": [{"name": "a", "deviceClass": "mig", "profile": "1g.5gb"}]},
            "claim a: sharing.mode is mig",
        ),
    ],
)
def test_a_refusal_names_field_value_and_what_is_legal(
    model: str, cloud: str, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        sharing.check(FACTS, GpuSharing.model_validate(settings), model, cloud, subject="pool g")
    assert says in refused.value.message
    assert refused.value.message.startswith("pool g")


@pytest.mark.parametrize(
    ("model", "cloud", "settings"),
    [
        ("T4", "aws", {"mode": "mps", "clients": 48}),
        ("V100", "gcp", {"mode": "mps", "clients": 16}),
        ("A100", "gcp", {"mode": "mig", "layout": {"1g.5gb": 7}, "strategy": "single", "replicas": 3}),
        ("H100", "aws", {"mode": "mig", "layout": {"3g.40gb": 1, "1g.10gb": 4}}),
        ("T4", "aws", {"mode": "dra", "claims": [{"name": "a", "strategy": "TimeSlicing", "interval": "Long"}]}),
    ],
)
def test_what_is_legal_is_taken(model: str, cloud: str, settings: dict[str, Any]) -> None:
    sharing.check(FACTS, GpuSharing.model_validate(settings), model, cloud, subject="pool g")


def test_both_values_are_kept_where_sources_disagree() -> None:
    found = [item for item in FACTS.sharing_properties("mps") if item.property == "error isolation"]
    assert {item.value for item in found} == {"yes", "no"}


def test_every_mode_says_every_property() -> None:
    names = {item.property for mode in MODES for item in FACTS.sharing_properties(mode)}
    for mode in MODES:
        assert {item.property for item in FACTS.sharing_properties(mode)} == names, mode
        assert all(item.source for item in FACTS.sharing_properties(mode))
