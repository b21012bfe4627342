"""The devices that a node publishes, and the counters that keep overlapping ones apart."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus import catalog
from isthmus.catalog import mig
from isthmus.localcluster.resource_slices import DEVICES_EACH, Device, devices, resource_slices
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import InvalidSpec

FACTS = catalog.load()
CAPABLE = [gpu.model for gpu in FACTS.gpus() if gpu.mig]


def of(*groups: GpuCards) -> list[Device]:
    total = sum(group.count for group in groups)
    return devices(FACTS, groups, [f"GPU-{index}" for index in range(total)])


def test_several_models_stand_in_one_node() -> None:
    found = of(GpuCards(model="T4", count=2), GpuCards(model="A30", count=1))
    slices = resource_slices("n", found, driver_version="570.172.08", cuda=(12, 8))
    items = [item for part in slices for item in part["spec"].get("devices", ())]
    whole = [item for item in items if item["attributes"]["type"]["string"] == "gpu"]
    assert [item["attributes"]["productName"]["string"] for item in whole] == ["Tesla T4", "Tesla T4", "NVIDIA A30"]
    assert whole[0]["attributes"]["driverVersion"] == {"version": "570.172.8"}  # a semantic version has no leading zero
    assert [len(item["consumesCounters"][0]["counters"]) for item in whole] == [1, 1, 4 + 1]


def test_a_card_is_given_to_one_of_nvidia_s_driver_and_vfio() -> None:
    for model in ("T4", "A30"):
        slices = resource_slices("n", of(GpuCards(model=model, count=1)), driver_version="1.2.3", cuda=(12, 8))
        items = {item["name"]: item for part in slices for item in part["spec"].get("devices", ())}
        raw = items["gpu-vfio-0"]
        assert raw["attributes"]["type"] == {"string": "vfio"}
        assert raw["attributes"]["resource.kubernetes.io/pciBusID"] == {"string": "0000:01:00.0"}
        taken = set(raw["consumesCounters"][0]["counters"])
        assert all(taken & set(item["consumesCounters"][0]["counters"]) for item in items.values())


@pytest.mark.parametrize("count", [1, 8, 16])
def test_slices_keep_the_limits_and_say_how_many_they_are(count: int) -> None:
    slices = resource_slices("n", of(GpuCards(model="A100", count=count)), driver_version="1.2.3", cuda=(12, 8))
    for part in slices:
        spec = part["spec"]
        assert spec["pool"] == {"name": "n", "generation": 1, "resourceSliceCount": len(slices)}
        assert len(spec.get("devices", ())) <= DEVICES_EACH
        assert sum(len(item["counters"]) for item in spec.get("sharedCounters", ())) <= 32
        assert ("devices" in spec) != ("sharedCounters" in spec)
    names = [item["name"] for part in slices for item in part["spec"].get("devices", ())]
    assert len(names) == len(set(names)) and all(len(name) <= 63 for name in names)


@given(st.data())
def test_counters_allow_just_the_instances_that_fit(data: st.DataObject) -> None:
    """Instances of one card exclude each other by its counters exactly when they share a memory slice or would both have
    the media extensions; those that do not can be laid on the card."""
    model = data.draw(st.sampled_from(CAPABLE))
    every = of(GpuCards(model=model, count=1))
    cuts = [device for device in every if device.profile is not None]
    chosen = data.draw(st.lists(st.sampled_from(cuts), min_size=2, max_size=4, unique_by=lambda device: device.name))
    parts = resource_slices("n", every, driver_version="1.2.3", cuda=(12, 8))
    items = {item["name"]: item for part in parts for item in part["spec"].get("devices", ())}
    used = [name for device in chosen for name in items[device.name]["consumesCounters"][0]["counters"]]
    profiles = [(device.profile, device.start) for device in chosen if device.profile is not None]
    slices = [number for profile, start in profiles for number in range(start, start + profile.memory_slices)]
    media = [profile for profile, _ in profiles if profile.profile.endswith("+me")]
    fits = len(slices) == len(set(slices)) and len(media) <= 1
    assert (len(used) == len(set(used))) is fits
    if fits:
        mig.place(FACTS, model, Counter(profile.profile for profile, _ in profiles))


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(InvalidSpec):
        of(GpuCards(model="T44", count=1))
