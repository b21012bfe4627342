"""The node agent's messages and what it makes of a claim's parameters; tests/local/test_dra.py runs it against a kubelet."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from isthmus import catalog
from isthmus.localcluster import driver
from isthmus.localcluster.agent import layouts
from isthmus.localcluster.agent.__main__ import look
from isthmus.localcluster.agent.claims import CLAIMED, Claims, sharing_of
from isthmus.localcluster.agent.messages import CLASSES
from isthmus.localcluster.resource_slices import devices
from isthmus.specs import labels
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import InvalidSpec, NotFound
from isthmus.specs.sharing import GpuSharing


def test_messages_have_the_numbers_of_upstreams_files() -> None:
    """Bytes written by hand from the .proto files: field number and wire type, length, content."""
    claim = CLASSES["Claim"](namespace="n", uid="u", name="c")
    assert claim.SerializeToString() == b"\x0a\x01n\x12\x01u\x1a\x01c"
    answer = CLASSES["NodePrepareResourcesResponse"]()
    answer.claims["u"].devices.add(request_names=["r"], pool_name="p", device_name="d", cdi_device_ids=["k=v"])
    device = b"\x0a\x01r\x12\x01p\x1a\x01d\x22\x03k=v"
    prepared = b"\x0a" + bytes([len(device)]) + device
    entry = b"\x0a\x01u\x12" + bytes([len(prepared)]) + prepared
    assert answer.SerializeToString() == b"\x0a" + bytes([len(entry)]) + entry
    info = CLASSES["PluginInfo"](type="DRAPlugin", name="x", endpoint="/e", supported_versions=["v1.DRAPlugin"])
    assert CLASSES["PluginInfo"].FromString(info.SerializeToString()) == info
    assert CLASSES["RegistrationStatus"](plugin_registered=True).SerializeToString() == b"\x08\x01"


def opaque(parameters: dict[str, Any], name: str = "gpu.nvidia.com") -> dict[str, Any]:
    return {"opaque": {"driver": name, "parameters": parameters}}


def test_a_claims_parameters_are_those_of_nvidias_driver() -> None:
    slicing = {"kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}}
    assert sharing_of([opaque(slicing)]) == {"strategy": "TimeSlicing", "interval": "Long"}
    mps = {"kind": "GpuConfig", "sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 25}}}
    assert sharing_of([opaque(mps)]) == {"strategy": "MPS", "clients": 4}
    assert sharing_of([opaque({"kind": "Other"}, name="somebody.else")]) == {}


@pytest.mark.parametrize("parameters", [{"kind": "VfioConfig"}, {"kind": "GpuConfig", "sharing": {"strategy": "Luck"}}])
def test_parameters_that_are_not_the_drivers_are_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec):
        sharing_of([opaque(parameters)])


def test_an_instance_is_made_on_request_and_taken_back(tmp_path: Path) -> None:
    driver.write_cards(tmp_path, [GpuCards(model="T4", count=1), GpuCards(model="A100", count=1)])
    before = (tmp_path / driver.CARDS).read_text()
    card = driver.uuids(tmp_path)[1]
    one = driver.add_instance(tmp_path, card, "3g.20gb", 4)
    other = driver.add_instance(tmp_path, card, "1g.5gb", 0)
    assert driver.add_instance(tmp_path, card, "3g.20gb", 4) == one
    assert driver.instances(tmp_path) == [one, other]
    driver.remove_instance(tmp_path, one)
    assert driver.instances(tmp_path) == [other]
    driver.remove_instance(tmp_path, other)
    assert (tmp_path / driver.CARDS).read_text() == before
    with pytest.raises(NotFound):
        driver.add_instance(tmp_path, "GPU-unknown", "1g.5gb", 0)


def test_an_instance_made_on_request_is_the_one_that_a_layout_makes(tmp_path: Path) -> None:
    driver.write_cards(tmp_path, GpuCards(model="A100", count=1, layout={"3g.20gb": 2}))
    made = driver.instances(tmp_path)
    driver.write_cards(tmp_path, GpuCards(model="A100", count=1))
    card = driver.uuids(tmp_path)[0]
    assert [driver.add_instance(tmp_path, card, "3g.20gb", start) for start in (0, 4)] == made


def test_claims_that_come_and_go_at_once_leave_nothing(tmp_path: Path) -> None:
    """The kubelet asks from several threads while the agent restores: instances stayed on the cards (2026-12-01)."""
    cards = [GpuCards(model="A100", count=4)]
    driver.write_cards(tmp_path, cards)
    small = [
        d for d in devices(catalog.load(), cards, driver.uuids(tmp_path)) if d.profile and d.profile.profile == "1g.5gb"
    ]
    asked = {f"uid-{number}": device for number, device in enumerate(small)}

    def claim(api: str, kind: str, name: str, namespace: str) -> dict[str, Any]:
        result = {"driver": "gpu.nvidia.com", "device": asked[name].name, "request": "r", "pool": "node"}
        return {"metadata": {"uid": name}, "status": {"allocation": {"devices": {"results": [result]}}}}

    kube: Any = Mock(get=claim)
    node: Any = Mock(driver=tmp_path, record=tmp_path / "claims.json", root=lambda: tmp_path / "root")
    claims = Claims(kube, node)
    claims.devices = {device.name: device for device in small}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda uid: claims.prepare("default", uid, uid), asked))
        assert len(driver.instances(tmp_path)) == len(asked) == 28
        list(pool.map(lambda uid: (claims.restore(), claims.unprepare(uid)), asked))
    claims.restore()
    assert driver.instances(tmp_path) == []


@pytest.mark.parametrize(
    ("limits", "asks"), [({"cpu": "1"}, False), ({"nvidia.com/gpu": "1"}, True), ({"nvidia.com/mig-1g.5gb": "1"}, True)]
)
def test_pods_that_hold_cards_are_known_by_what_they_ask_for(limits: dict[str, str], asks: bool) -> None:
    pod = {"spec": {"containers": [{"name": "c"}, {"name": "d", "resources": {"limits": limits}}]}}
    assert layouts.asks_for_cards(pod) is asks


class Changed:
    """A node with its cluster: after whatever the agent reads first, somebody gives it whole cards in place of cut ones -
    the label first, then the cards."""

    name = "node"

    def __init__(self) -> None:
        layout = {"1g.5gb": 7}
        self.held = GpuCards(model="A100", count=1, layout=layout)
        self.labels = {labels.MIG_CONFIG: GpuSharing(mode="mig", layout=layout).layout_name}
        self.cut: list[GpuCards] = []

    def give_whole(self) -> None:
        self.labels, self.held = {}, GpuCards(model="A100", count=1)

    def cards(self) -> GpuCards:
        found = self.held
        self.give_whole()
        return found

    def set_cards(self, cards: GpuCards) -> None:
        self.cut.append(cards)

    def get(self, *words: str) -> dict[str, Any]:
        found = {"metadata": {"labels": dict(self.labels)}}
        self.give_whole()
        return found

    def list(self, *words: str, **more: str) -> list[dict[str, Any]]:
        return []

    def patch(self, *words: Any) -> None: ...


def test_new_cards_are_never_cut_by_the_label_of_those_before() -> None:
    """The agent looks while cards are changed: feature discovery saw whole cards cut again (2026-12-01)."""
    node: Any = Changed()
    look(node, node, Mock())
    assert node.cut == []


def test_the_container_runtime_looks_for_the_variable_that_claims_set() -> None:
    wrapper = Path(driver.__file__).parents[1] / "containers" / "oci-runtime.sh"
    assert CLAIMED in wrapper.read_text()
