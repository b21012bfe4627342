"""The driver root as programs see it: the compiled library through ctypes, nvidia-smi as a process."""

import ctypes
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.localcluster import driver
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import InvalidSpec, NotFound

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")

SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, TOO_SMALL = 0, 1, 2, 3, 6, 7
NO_DRIVER, TIMEOUT, VERSION_MISMATCH, UNKNOWN = 9, 10, 25, 999
XID_EVENT = 8


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class MemoryV2(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class Pci(ctypes.Structure):
    _fields_ = [
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("pci_subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    ]


class Event(ctypes.Structure):
    _fields_ = [
        ("device", ctypes.c_void_p),
        ("type", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    driver.build(folder)
    return folder


@pytest.fixture
def root(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("NVIDIA_VISIBLE_DEVICES", raising=False)
    return Path(shutil.copytree(built, tmp_path / "driver"))


@pytest.fixture
def four_t4(root: Path) -> Path:
    driver.write_cards(root, GpuCards(model="T4", count=4))
    return root


@pytest.fixture
def nvml(four_t4: Path) -> Iterator[ctypes.CDLL]:
    library = ctypes.CDLL(str(four_t4 / driver.LIBRARY))
    assert library.nvmlInit_v2() == SUCCESS
    yield library
    library.nvmlShutdown()


def handle(library: ctypes.CDLL, index: int) -> ctypes.c_void_p:
    device = ctypes.c_void_p()
    assert library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == SUCCESS
    return device


def text(library: ctypes.CDLL, function: str, device: ctypes.c_void_p) -> str:
    buffer = ctypes.create_string_buffer(96)
    assert getattr(library, function)(device, buffer, 96) == SUCCESS
    return buffer.value.decode()


def smi(root: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [root / driver.SMI, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_four_cards_are_counted(nvml: ctypes.CDLL) -> None:
    count = ctypes.c_uint()
    assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == SUCCESS
    assert count.value == 4


def test_a_card_is_what_the_catalog_says(nvml: ctypes.CDLL, four_t4: Path) -> None:
    device = handle(nvml, 1)
    assert text(nvml, "nvmlDeviceGetName", device) == "Tesla T4"
    assert text(nvml, "nvmlDeviceGetUUID", device) == driver.uuids(four_t4)[1]
    memory = Memory()
    assert nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == SUCCESS
    assert (memory.total, memory.free, memory.used) == (15360 << 20, 15360 << 20, 0)
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor))
    assert (major.value, minor.value) == (7, 5)


def test_pci_address_has_nvmls_layout(nvml: ctypes.CDLL) -> None:
    pci = Pci()
    assert nvml.nvmlDeviceGetPciInfo_v3(handle(nvml, 2), ctypes.byref(pci)) == SUCCESS
    assert (pci.bus_id, pci.bus_id_legacy) == (b"00000000:03:00.0", b"0000:03:00.0")
    assert pci.pci_device_id == 0x1EB810DE
    again = ctypes.c_void_p()
    assert nvml.nvmlDeviceGetHandleByPciBusId_v2(pci.bus_id, ctypes.byref(again)) == SUCCESS
    assert again.value == handle(nvml, 2).value


def test_versioned_memory_needs_its_version(nvml: ctypes.CDLL) -> None:
    memory = MemoryV2()
    assert nvml.nvmlDeviceGetMemoryInfo_v2(handle(nvml, 0), ctypes.byref(memory)) == VERSION_MISMATCH
    memory.version = ctypes.sizeof(MemoryV2) | 2 << 24
    assert nvml.nvmlDeviceGetMemoryInfo_v2(handle(nvml, 0), ctypes.byref(memory)) == SUCCESS
    assert memory.total == 15360 << 20


def test_errors_are_nvmls_own(nvml: ctypes.CDLL) -> None:
    device, small = ctypes.c_void_p(), ctypes.create_string_buffer(4)
    assert nvml.nvmlDeviceGetHandleByIndex_v2(4, ctypes.byref(device)) == INVALID_ARGUMENT
    assert nvml.nvmlDeviceGetHandleByUUID(b"GPU-unknown", ctypes.byref(device)) == NOT_FOUND
    assert nvml.nvmlDeviceGetName(handle(nvml, 0), small, 4) == TOO_SMALL
    assert nvml.nvmlDeviceGetNumaNodeId(handle(nvml, 0), ctypes.byref(ctypes.c_uint())) == NOT_SUPPORTED
    nvml.nvmlErrorString.restype = ctypes.c_char_p
    assert nvml.nvmlErrorString(NOT_SUPPORTED) == b"Not Supported"


def test_init_is_counted_and_calls_outside_it_fail(nvml: ctypes.CDLL) -> None:
    assert nvml.nvmlInit_v2() == SUCCESS
    assert nvml.nvmlShutdown() == SUCCESS
    assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(ctypes.c_uint())) == SUCCESS
    assert nvml.nvmlShutdown() == SUCCESS
    assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(ctypes.c_uint())) == UNINITIALIZED
    assert nvml.nvmlShutdown() == UNINITIALIZED
    assert nvml.nvmlInit_v2() == SUCCESS  # the fixture shuts down


def watch(library: ctypes.CDLL) -> ctypes.c_void_p:
    events = ctypes.c_void_p()
    assert library.nvmlEventSetCreate(ctypes.byref(events)) == SUCCESS
    for index in range(4):
        assert (
            library.nvmlDeviceRegisterEvents(handle(library, index), ctypes.c_ulonglong(XID_EVENT), events) == SUCCESS
        )
    return events


def test_healthy_cards_have_no_event(nvml: ctypes.CDLL) -> None:
    event = Event()
    assert nvml.nvmlEventSetWait_v2(watch(nvml), ctypes.byref(event), 0) == TIMEOUT


def test_a_lost_card_is_reported_once_to_each_set(nvml: ctypes.CDLL, four_t4: Path) -> None:
    events, event = watch(nvml), Event()
    driver.set_health(four_t4, "2", driver.XID_FALLEN_OFF_BUS)
    assert nvml.nvmlEventSetWait_v2(events, ctypes.byref(event), 0) == SUCCESS
    assert (event.type, event.data, event.device) == (XID_EVENT, 79, handle(nvml, 2).value)
    assert (event.gpu_instance, event.compute_instance) == (0xFFFFFFFF, 0xFFFFFFFF)
    assert nvml.nvmlEventSetWait_v2(events, ctypes.byref(event), 0) == TIMEOUT
    assert nvml.nvmlEventSetWait_v2(watch(nvml), ctypes.byref(event), 0) == SUCCESS  # a program started later
    driver.set_health(four_t4, "2", None)
    assert nvml.nvmlEventSetWait_v2(events, ctypes.byref(event), 0) == TIMEOUT
    driver.set_health(four_t4, "2", 48)
    assert nvml.nvmlEventSetWait_v2(events, ctypes.byref(event), 0) == SUCCESS
    assert event.data == 48


def test_a_waiting_program_wakes_up(nvml: ctypes.CDLL, four_t4: Path) -> None:
    events, event = watch(nvml), Event()
    results: list[int] = []
    waiting = threading.Thread(
        target=lambda: results.append(nvml.nvmlEventSetWait_v2(events, ctypes.byref(event), 20_000))
    )
    waiting.start()
    driver.set_health(four_t4, "0", 79)
    waiting.join(timeout=10)
    assert results == [SUCCESS]


def test_without_a_cards_file_there_is_no_driver(root: Path) -> None:
    library = ctypes.CDLL(str(root / driver.LIBRARY))
    assert library.nvmlInit_v2() == NO_DRIVER
    answer = smi(root, "-L")
    assert answer.returncode == 9
    assert "Driver Not Loaded" in answer.stderr


@pytest.mark.parametrize("line", ["nonsense", "colour: green", "name: Tesla T4", "cuda-version: many"])
def test_a_broken_cards_file_is_an_error(root: Path, line: str) -> None:
    (root / driver.CARDS).write_text(f"driver-version: 1\n{line}\n")
    assert ctypes.CDLL(str(root / driver.LIBRARY)).nvmlInit_v2() == UNKNOWN


def test_a_node_without_cards_shows_none(root: Path) -> None:
    driver.write_cards(root, None)
    answer = smi(root, "-L")
    assert (answer.returncode, answer.stdout) == (0, "")


def test_smi_lists_and_says_what_it_is(four_t4: Path) -> None:
    answer = smi(four_t4, "-L")
    assert answer.stdout.splitlines()[3] == f"GPU 3: Tesla T4 (UUID: {driver.uuids(four_t4)[3]})"
    assert "stand-in" in answer.stderr
    assert "stand-in" in smi(four_t4).stdout
    attributes = smi(four_t4, "-q").stdout
    assert "stand-in" in attributes
    assert attributes.count("Product Name") == 4


def test_smi_queries_as_csv(four_t4: Path) -> None:
    fields = "--query-gpu=name,uuid,memory.total,index"
    answer = smi(four_t4, fields, "--format=csv").stdout.splitlines()
    assert answer[0] == "name, uuid, memory.total [MiB], index"
    assert answer[4] == f"Tesla T4, {driver.uuids(four_t4)[3]}, 15360 MiB, 3"
    assert smi(four_t4, "--query-gpu=memory.total", "--format=csv,noheader,nounits").stdout == "15360\n" * 4
    unknown = smi(four_t4, "--query-gpu=colour", "--format=csv")
    assert (unknown.returncode, unknown.stdout) == (2, "")


@pytest.mark.parametrize(
    ("visible", "shown"), [("all", [0, 1, 2, 3]), ("", []), ("void", []), ("none", []), ("1,3", [1, 3]), ("7", [])]
)
def test_visible_devices_narrow_what_is_shown(four_t4: Path, visible: str, shown: list[int]) -> None:
    answer = smi(four_t4, "--query-gpu=uuid", "--format=csv,noheader", NVIDIA_VISIBLE_DEVICES=visible)
    assert answer.stdout.split() == [driver.uuids(four_t4)[index] for index in shown]


def test_a_card_can_be_chosen_by_uuid(four_t4: Path) -> None:
    wanted = driver.uuids(four_t4)[2]
    answer = smi(four_t4, "--query-gpu=index,uuid", "--format=csv,noheader", NVIDIA_VISIBLE_DEVICES=wanted)
    assert answer.stdout.strip() == f"0, {wanted}"


def test_uuids_are_stable_and_never_shared(four_t4: Path, tmp_path: Path) -> None:
    before = driver.uuids(four_t4)
    driver.write_cards(four_t4, None)
    driver.write_cards(four_t4, GpuCards(model="T4", count=8))
    assert driver.uuids(four_t4)[:4] == before
    driver.write_cards(tmp_path / "other", GpuCards(model="T4", count=4))
    assert not set(before) & set(driver.uuids(tmp_path / "other"))


def test_bad_cards_are_refused_and_change_nothing(four_t4: Path) -> None:
    before = (four_t4 / driver.CARDS).read_text()
    with pytest.raises(InvalidSpec, match="T44"):
        driver.write_cards(four_t4, GpuCards(model="T44", count=1))
    with pytest.raises(NotFound, match="GPU-"):
        driver.set_health(four_t4, "9", 79)
    with pytest.raises(InvalidSpec):
        driver.set_health(four_t4, "0", -1)
    assert (four_t4 / driver.CARDS).read_text() == before


def test_writing_cards_twice_gives_the_same_file(four_t4: Path) -> None:
    before = (four_t4 / driver.CARDS).read_text()
    driver.write_cards(four_t4, GpuCards(model="T4", count=4))
    assert (four_t4 / driver.CARDS).read_text() == before


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotFound, match="C compiler") as caught:
        driver.build(tmp_path / "driver")
    assert "install" in caught.value.remedy


def test_the_second_build_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "home"))
    driver.build(tmp_path / "first")
    monkeypatch.setenv("PATH", str(tmp_path))  # no compiler any more
    driver.build(tmp_path / "again")
    assert (tmp_path / "again" / driver.SMI).read_bytes() == (tmp_path / "first" / driver.SMI).read_bytes()


def test_every_function_a_program_may_bind_is_there(nvml: ctypes.CDLL) -> None:
    """A missing name kills a lazily bound program at its first call; the device plugin died of one (a preferred allocation
    asks how near two cards are)."""
    level = ctypes.c_int(-1)
    first, second = handle(nvml, 0), handle(nvml, 1)
    assert nvml.nvmlDeviceGetTopologyCommonAncestor(first, second, ctypes.byref(level)) == SUCCESS
    assert level.value == 30
    for name in ("nvmlDeviceGetNvLinkState", "nvmlDeviceGetP2PStatus", "nvmlDeviceGetNvLinkRemotePciInfo_v2"):
        assert getattr(nvml, name)() == 3, name


def test_containers_find_the_driver_where_it_says() -> None:
    """The container runtime's wrapper mounts the files; the library looks for its cards at the fixed path."""
    here = Path(driver.__file__).parent
    wrapper = (here.parent / "containers" / "oci-runtime.sh").read_text()
    for file, path in driver.CONTAINER_FILES.items():
        assert file in path
        assert path in wrapper
    assert driver.CONTAINER_PATH in wrapper
    assert f'"{driver.CONTAINER_PATH}/{driver.CARDS}"' in (here / "cards.h").read_text()
