"""Claims on cards: what is rendered for a pool, and case A12: no strategy that the driver would reject."""

from typing import Any

import pytest

from isthmus.kube import claims
from isthmus.specs.cluster import GpuCards, NodePool
from isthmus.specs.errors import InvalidSpec, Refused
from isthmus.specs.sharing import DeviceClaim, GpuSharing
from operators import dra


def pool(*claims: dict[str, Any]) -> NodePool:
    sharing = GpuSharing.model_validate({"mode": "dra", "claims": list(claims)})
    return NodePool(name="g", gpu=GpuCards(model="A100", count=2), sharing=sharing)


LONG = {"name": "long", "strategy": "TimeSlicing", "interval": "Long"}


def test_a12_the_gate_a_strategy_needs_is_worked_out_or_named() -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#762: TimeSlicing with interval Long was rejected as an unknown strategy,
    because the driver ran with its default gates."""
    assert dra.gates([pool(LONG, {"name": "half", "strategy": "MPS", "clients": 2})]) == [
        "MPSSupport",
        "TimeSlicingSettings",
    ]
    template = claims.template(DeviceClaim.model_validate(LONG), {"name": "long"})
    with pytest.raises(Refused) as refused:
        dra.check_gates(template, [])
    assert "TimeSlicingSettings" in refused.value.message and "TimeSlicingSettings" in refused.value.remedy
    dra.check_gates(template, ["TimeSlicingSettings"])


def test_cards_for_vfio_need_their_gate() -> None:
    raw = {"name": "raw", "deviceClass": "vfio"}
    assert dra.gates([pool(raw)]) == ["PassthroughSupport"]
    template = claims.template(DeviceClaim.model_validate(raw), {"name": "raw"})
    with pytest.raises(Refused, match="PassthroughSupport"):
        dra.check_gates(template, [])
    dra.check_gates(template, ["PassthroughSupport"])


def test_a_template_says_what_the_claim_says() -> None:
    claim = DeviceClaim(
        name="two",
        deviceClass="mig",
        profile="1g.5gb",
        count=2,
        sameCard=True,
        strategy="TimeSlicing",
        interval="Long",
        selectors=("device.attributes['gpu.nvidia.com'].architecture == 'Ampere'",),
    )
    devices = claims.template(claim, {"name": "two"})["spec"]["spec"]["devices"]
    (request,) = devices["requests"]
    assert request["exactly"]["deviceClassName"] == "mig.nvidia.com" and request["exactly"]["count"] == 2
    expressions = [item["cel"]["expression"] for item in request["exactly"]["selectors"]]
    assert expressions[1] == "device.attributes['gpu.nvidia.com'].profile == '1g.5gb'"
    assert devices["constraints"] == [{"matchAttribute": "gpu.nvidia.com/parentUUID", "requests": ["cards"]}]
    parameters = devices["config"][0]["opaque"]["parameters"]
    assert parameters["kind"] == "MigDeviceConfig"
    assert parameters["sharing"] == {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}


def test_a_pool_without_claims_brings_nothing() -> None:
    assert dra.manifests([NodePool(name="g", gpu=GpuCards(model="T4", count=1))]) == []


def test_pools_bring_the_classes_and_each_template_once() -> None:
    made = dra.manifests([pool(LONG), pool(LONG, {"name": "one"})])
    assert [f"{item['kind']}/{item['metadata']['name']}" for item in made] == [
        "DeviceClass/gpu.nvidia.com",
        "DeviceClass/mig.nvidia.com",
        "DeviceClass/vfio.gpu.nvidia.com",
        "ResourceClaimTemplate/long",
        "ResourceClaimTemplate/one",
    ]


@pytest.mark.parametrize(
    "item",
    [
        {"kind": "Pod", "metadata": {"name": "p"}, "spec": {}},
        {
            "kind": "ResourceClaim",
            "metadata": {"name": "c"},
            "spec": {"devices": {"config": [{"opaque": {"parameters": {"sharing": {"strategy": "Luck"}}}}]}},
        },
    ],
)
def test_what_is_no_claim_is_refused(item: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec):
        dra.check_gates(item, ["TimeSlicingSettings"])
