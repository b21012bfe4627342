"""MIG in the driver root: what the library says of modes, profiles, placements, instances and their attributes."""

import ctypes
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus import catalog
from isthmus.catalog import mig
from isthmus.localcluster import driver
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import InvalidSpec
from tests.unit.driver.test_driver import Memory, built, handle, root, smi, text  # noqa: F401 - fixtures

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")

SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 0, 2, 3, 6
LAYOUT = {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}
ENGINES = ("copy", "decoders", "encoders", "jpeg", "ofa")


def numbers(*names: str) -> list[tuple[str, Any]]:
    return [(name, ctypes.c_uint) for name in names]


class Attributes(ctypes.Structure):
    _fields_ = [*numbers("sms", *ENGINES, "gi_slices", "ci_slices"), ("memory_mib", ctypes.c_ulonglong)]


class Placement(ctypes.Structure):
    _fields_ = numbers("start", "size")


class ProfileInfo(ctypes.Structure):
    _fields_ = [*numbers("id", "p2p", "slices", "instances", "sms", *ENGINES), ("memory_mib", ctypes.c_ulonglong)]


class InstanceInfo(ctypes.Structure):
    _fields_ = [("device", ctypes.c_void_p), *numbers("id", "profile_id"), ("placement", Placement)]


class ComputeProfileInfo(ctypes.Structure):
    _fields_ = numbers("id", "slices", "instances", "sms", *ENGINES)


class ComputeInfo(ctypes.Structure):
    _fields_ = [
        ("device", ctypes.c_void_p),
        ("gpu_instance", ctypes.c_void_p),
        *numbers("id", "profile_id"),
        ("placement", Placement),
    ]


@pytest.fixture
def cut(root: Path) -> Path:  # noqa: F811
    driver.write_cards(root, GpuCards(model="A100", count=2, layout=LAYOUT))
    return root


@pytest.fixture
def nvml(cut: Path) -> Iterator[ctypes.CDLL]:
    library = ctypes.CDLL(str(cut / driver.LIBRARY))
    assert library.nvmlInit_v2() == SUCCESS
    yield library
    library.nvmlShutdown()


def number(library: ctypes.CDLL, function: str, device: ctypes.c_void_p) -> int:
    value = ctypes.c_uint()
    assert getattr(library, function)(device, ctypes.byref(value)) == SUCCESS
    return value.value


def instance(library: ctypes.CDLL, card: int, index: int) -> ctypes.c_void_p:
    device = ctypes.c_void_p()
    found = library.nvmlDeviceGetMigDeviceHandleByIndex(handle(library, card), index, ctypes.byref(device))
    assert found == SUCCESS
    return device


@pytest.mark.parametrize(
    ("cards", "expected"),
    [
        (GpuCards(model="T4", count=1), None),
        (GpuCards(model="A100", count=1), 0),
        (GpuCards(model="A100", count=1, layout={"7g.40gb": 1}), 1),
    ],
)
def test_the_mode_is_on_off_or_unknown_to_the_card(root: Path, cards: GpuCards, expected: int | None) -> None:  # noqa: F811
    driver.write_cards(root, cards)
    library = ctypes.CDLL(str(root / driver.LIBRARY))
    assert library.nvmlInit_v2() == SUCCESS
    current, pending = ctypes.c_uint(9), ctypes.c_uint(9)
    result = library.nvmlDeviceGetMigMode(handle(library, 0), ctypes.byref(current), ctypes.byref(pending))
    library.nvmlShutdown()
    if expected is None:
        assert result == NOT_SUPPORTED
    else:
        assert (result, current.value, pending.value) == (SUCCESS, expected, expected)


def test_instances_are_those_of_the_layout(nvml: ctypes.CDLL, cut: Path) -> None:
    facts = catalog.load()
    known = driver.instances(cut)
    assert len(set(known)) == 8 and number(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle(nvml, 1)) == 7
    for card in range(2):
        for index, placed in enumerate(mig.place(facts, "A100", LAYOUT)):
            device, profile = instance(nvml, card, index), placed.profile
            assert text(nvml, "nvmlDeviceGetUUID", device) == known[4 * card + index]
            assert text(nvml, "nvmlDeviceGetName", device) == f"NVIDIA A100-SXM4-40GB MIG {profile.profile}"
            assert number(nvml, "nvmlDeviceIsMigDeviceHandle", device) == 1
            assert number(nvml, "nvmlDeviceGetGpuInstanceId", device) == placed.gpu_instance
            assert number(nvml, "nvmlDeviceGetComputeInstanceId", device) == 0
            attributes, memory = Attributes(), Memory()
            assert nvml.nvmlDeviceGetAttributes_v2(device, ctypes.byref(attributes)) == SUCCESS
            assert (attributes.sms, attributes.memory_mib) == (profile.sms, profile.memory_mib)
            assert attributes.gi_slices == attributes.ci_slices == profile.compute_slices
            assert (attributes.copy, attributes.decoders) == (profile.copy_engines, profile.decoders)
            assert nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == SUCCESS
            assert memory.total == profile.memory_mib << 20
            parent = ctypes.c_void_p()
            nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, ctypes.byref(parent))
            assert parent.value == handle(nvml, card).value
    missing = ctypes.c_void_p()
    assert nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle(nvml, 0), 4, ctypes.byref(missing)) == NOT_FOUND


def test_a_mig_device_is_found_by_its_uuid(nvml: ctypes.CDLL, cut: Path) -> None:
    device = ctypes.c_void_p()
    assert nvml.nvmlDeviceGetHandleByUUID(driver.instances(cut)[5].encode(), ctypes.byref(device)) == SUCCESS
    assert device.value == instance(nvml, 1, 1).value


def test_profiles_and_placements_are_the_catalogs(nvml: ctypes.CDLL) -> None:
    known = {profile.nvml_index: profile for profile in catalog.load().mig_profiles("A100")}
    for index in range(17):
        info = ProfileInfo()
        result = nvml.nvmlDeviceGetGpuInstanceProfileInfo(handle(nvml, 0), index, ctypes.byref(info))
        if index not in known:
            assert result == NOT_SUPPORTED
            continue
        profile = known[index]
        assert (info.id, info.slices, info.instances) == (
            profile.profile_id,
            profile.compute_slices,
            profile.max_instances,
        )
        count, places = ctypes.c_uint(), (Placement * 8)()
        placements = nvml.nvmlDeviceGetGpuInstancePossiblePlacements_v2
        assert placements(handle(nvml, 0), info.id, places, ctypes.byref(count)) == SUCCESS
        found = [(place.start, place.size) for place in places[: count.value]]
        assert found == [(start, profile.memory_slices) for start in profile.placements]


def test_gpu_and_compute_instances_say_where_they_are(nvml: ctypes.CDLL) -> None:
    card = handle(nvml, 0)
    for placed in mig.place(catalog.load(), "A100", LAYOUT):
        gpu, info = ctypes.c_void_p(), InstanceInfo()
        assert nvml.nvmlDeviceGetGpuInstanceById(card, placed.gpu_instance, ctypes.byref(gpu)) == SUCCESS
        assert nvml.nvmlGpuInstanceGetInfo(gpu, ctypes.byref(info)) == SUCCESS
        assert (info.device, info.id, info.profile_id) == (card.value, placed.gpu_instance, placed.profile.profile_id)
        assert (info.placement.start, info.placement.size) == (placed.start, placed.profile.memory_slices)
        compute, what = ctypes.c_void_p(), ComputeInfo()
        assert nvml.nvmlGpuInstanceGetComputeInstanceById(gpu, 0, ctypes.byref(compute)) == SUCCESS
        assert nvml.nvmlComputeInstanceGetInfo_v2(compute, ctypes.byref(what)) == SUCCESS
        assert (what.device, what.id, what.placement.size) == (card.value, 0, placed.profile.compute_slices)
        fitting = [
            number_
            for number_ in range(8)
            if nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(gpu, number_, 0, ctypes.byref(ComputeProfileInfo()))
            == SUCCESS
        ]
        assert fitting == [what.profile_id]
    assert nvml.nvmlDeviceGetGpuInstanceById(card, 14, ctypes.byref(ctypes.c_void_p())) == NOT_FOUND


def test_calls_for_the_other_kind_of_device_are_refused(nvml: ctypes.CDLL) -> None:
    card, part = handle(nvml, 0), instance(nvml, 0, 0)
    assert nvml.nvmlDeviceGetGpuInstanceId(card, ctypes.byref(ctypes.c_uint())) == INVALID_ARGUMENT
    assert nvml.nvmlDeviceGetAttributes_v2(card, ctypes.byref(Attributes())) == INVALID_ARGUMENT
    assert nvml.nvmlDeviceGetMinorNumber(part, ctypes.byref(ctypes.c_uint())) == NOT_SUPPORTED
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(part, ctypes.byref(ctypes.c_uint())) == NOT_SUPPORTED


def test_smi_lists_mig_devices_under_their_card(cut: Path) -> None:
    lines = smi(cut, "-L").stdout.splitlines()
    assert lines[0].startswith("GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-")
    assert lines[1] == f"  MIG 2g.10gb     Device  0: (UUID: {driver.instances(cut)[0]})"
    assert len(lines) == 2 + 8
    assert smi(cut, "-q").stdout.count(": Enabled") == 2


def test_a_container_with_a_mig_device_sees_that_one_and_its_card(cut: Path) -> None:
    wanted = driver.instances(cut)[6]
    for visible in (wanted, "1:2"):
        shown = smi(cut, "-L", NVIDIA_VISIBLE_DEVICES=visible).stdout.splitlines()
        assert len(shown) == 2 and driver.uuids(cut)[1] in shown[0] and wanted in shown[1]
    assert len(smi(cut, "-L", NVIDIA_VISIBLE_DEVICES=driver.uuids(cut)[0]).stdout.splitlines()) == 5


def test_the_capability_file_has_the_drivers_numbers(cut: Path) -> None:
    lines = (cut / driver.PROC / "nvidia-caps" / "mig-minors").read_text().splitlines()
    assert lines[:2] == ["config 1", "monitor 2"]
    assert {"gpu0/gi2/access 21", "gpu0/gi2/ci0/access 22", "gpu0/gi11/access 102"} <= set(lines)
    assert len(lines) == 2 + 2 * 15 * 9 and len({line.split()[1] for line in lines}) == len(lines)


def test_several_models_stand_side_by_side(root: Path) -> None:  # noqa: F811
    driver.write_cards(root, [GpuCards(model="T4", count=2), GpuCards(model="A100", count=1, layout={"3g.20gb": 2})])
    fields = smi(root, "--query-gpu=name,pci.bus_id", "--format=csv,noheader").stdout.splitlines()
    assert fields == [
        "Tesla T4, 00000000:01:00.0",
        "Tesla T4, 00000000:02:00.0",
        "NVIDIA A100-SXM4-40GB, 00000000:03:00.0",
    ]


def test_a_card_that_cannot_be_cut_so_is_refused_and_nothing_changes(cut: Path) -> None:
    before = (cut / driver.CARDS).read_text()
    for cards in (
        GpuCards(model="T4", count=1, layout={"1g.5gb": 1}),
        GpuCards(model="A100", count=1, layout={"4g.20gb": 2}),
    ):
        with pytest.raises(InvalidSpec):
            driver.write_cards(cut, cards)
    assert (cut / driver.CARDS).read_text() == before


def test_every_legal_layout_of_every_card_is_read(root: Path) -> None:  # noqa: F811
    for gpu in catalog.load().gpus():
        for profile in catalog.load().mig_profiles(gpu.model):
            layout = {profile.profile: profile.max_instances}
            driver.write_cards(root, GpuCards(model=gpu.model, count=1, layout=layout))
            assert smi(root, "-L").stdout.count(f"MIG {profile.profile}") == profile.max_instances, (gpu.model, profile)


@pytest.mark.parametrize("line", ["instance: MIG-1 1g.5gb 7 0", "profile: 1g.5gb 0 19", "mig: enabled"])
def test_mig_lines_where_they_do_not_belong_are_an_error(root: Path, line: str) -> None:  # noqa: F811
    driver.write_cards(root, GpuCards(model="T4", count=1))
    with (root / driver.CARDS).open("a") as file:
        file.write(line + "\n")
    assert ctypes.CDLL(str(root / driver.LIBRARY)).nvmlInit_v2() == 999
