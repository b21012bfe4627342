"""GpuSharing: each mode takes its own fields, and its name carries all of it."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from isthmus.specs.sharing import GpuSharing

PROFILES = ("7g.141gb", "4g.71gb", "3g.71gb", "2g.35gb", "1g.35gb", "1g.18gb", "1g.18gb+me")


@st.composite
def sharings(draw: st.DrawFn) -> GpuSharing:
    mode = draw(st.sampled_from(["none", "time-slicing", "mps", "mig"]))
    if mode == "mps":
        return GpuSharing(mode="mps", clients=draw(st.integers(2, 48)))
    if mode == "none":
        return GpuSharing()
    settings: dict[str, Any] = {"fail_greater_than_one": draw(st.booleans())}
    if mode == "time-slicing":
        return GpuSharing(
            mode="time-slicing", replicas=draw(st.integers(2, 48)), rename=draw(st.booleans()), **settings
        )
    strategy = draw(st.sampled_from(["single", "mixed"]))
    most = 1 if strategy == "single" else 4
    layout = draw(st.dictionaries(st.sampled_from(PROFILES), st.integers(1, 7), min_size=1, max_size=most))
    assume(most == 1 or sum(int(profile[0]) * count for profile, count in layout.items()) <= 7)  # what a card can be
    replicas = draw(st.integers(1, 48))
    rename = replicas > 1 and draw(st.booleans())
    return GpuSharing(mode="mig", strategy=strategy, layout=layout, replicas=replicas, rename=rename, **settings)


@given(sharings())
def test_the_name_of_a_configuration_carries_all_of_it(sharing: GpuSharing) -> None:
    name = sharing.config_name
    assert GpuSharing.from_config_name(name) == sharing
    assert len(name) <= 63 and (name == "" or name[0].isalnum() and name[-1].isalnum())  # a label's value
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.")


@given(sharings(), st.integers(1, 16))
def test_what_a_node_advertises_is_its_cards_times_their_shares(sharing: GpuSharing, cards: int) -> None:
    assert sum(sharing.advertised(cards).values()) == cards * sharing.shares
    assert sharing.advertised(0) == {}


def test_equal_layouts_are_equal_whatever_their_order() -> None:
    one = GpuSharing(mode="mig", layout={"1g.5gb": 2, "3g.20gb": 1})
    other = GpuSharing(mode="mig", layout={"3g.20gb": 1, "1g.5gb": 2})
    assert one == other and one.config_name == other.config_name == "mig-mixed_1x3g.20gb_2x1g.5gb"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"mode": "mps", "clients": 4, "replicas": 4}, "replicas does not belong to sharing mode mps"),
        ({"mode": "time-slicing", "replicas": 4, "clients": 4}, "clients does not belong to sharing mode time-slicing"),
        ({"mode": "mig", "layout": {"1g.5gb": 7}, "clients": 4}, "clients does not belong to sharing mode mig"),
        ({"replicas": 4}, "replicas does not belong to sharing mode none"),
        ({"mode": "time-slicing"}, "replicas is 1; time-slicing needs 2 to 48"),
        ({"mode": "mps"}, "clients is 1; mps needs 2 to 48"),
        ({"mode": "mps", "clients": 49}, "less than or equal to 48"),
        ({"mode": "mig"}, "layout is empty"),
        ({"mode": "mig", "layout": {"half": 2}}, "'half' is not a MIG profile"),
        ({"mode": "mig", "layout": {"1g.5gb": 8}}, "8 instances; legal: 1 to 7"),
        (
            {"mode": "mig", "layout": {"2g.12gb": 1, "1g.6gb": 2}, "strategy": "single"},
            "strategy is single and layout has 2 profiles (2g.12gb, 1g.6gb)",
        ),
        ({"mode": "dra", "claims": [{"name": "a", "deviceClass": "mig"}]}, "profile is for deviceClass mig"),
        ({"mode": "dra", "claims": [{"name": "a", "interval": "Long"}]}, "interval is for strategy TimeSlicing"),
        (
            {
                "mode": "dra",
                "claims": [{"name": "a", "deviceClass": "mig", "profile": "1g.5gb", "strategy": "MPS", "clients": 2}],
            },
            "MPS does not cover MIG devices",
        ),
        ({"mode": "dra", "claims": [{"name": "a"}, {"name": "a"}]}, "the names must differ"),
    ],
)
def test_what_would_be_ignored_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as refused:
        GpuSharing.model_validate(settings)
    assert says in str(refused.value)
