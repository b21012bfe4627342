"""GPU sharing of a node pool: one description for every cloud and every way to share.

What a mode means on a card (partitions, isolation, limits) is in the catalog; isthmus.catalog.sharing checks a GpuSharing
against a card and a cloud. Here is only what holds everywhere.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from isthmus.specs import labels
from isthmus.specs.labels import GPU_RESOURCE

Mode = Literal["none", "time-slicing", "mps", "mig", "dra"]

MODES: tuple[Mode, ...] = ("none", "time-slicing", "mps", "mig", "dra")

FIELDS: dict[Mode, frozenset[str]] = {
    "none": frozenset(),
    "time-slicing": frozenset({"replicas", "rename", "fail_greater_than_one"}),
    "mps": frozenset({"clients"}),
    "mig": frozenset({"layout", "strategy", "replicas", "rename", "fail_greater_than_one"}),
    "dra": frozenset({"claims"}),
}
"""The fields that each mode takes. A field of another mode is refused: it would be silently ignored."""

_PROFILE = re.compile(r"\d+g\.\d+gb(\+me)?")
_TIME_SLICING = re.compile(r"time-slicing-(\d{1,2})(-renamed)?(-lenient)?")
_MPS = re.compile(r"mps-(\d{1,2})")
_MIG = re.compile(r"mig-(single|mixed)((?:_\d+x[0-9a-z.]+)+)(?:-(\d{1,2}))?(-r)?(-l)?")

_LAYOUT = re.compile(r"layout(_\d+x[0-9a-z.]+)+")

MIG_OFF = "all-disabled"
"""Name of the layout without MIG, as upstream has it."""

Interval = Literal["Default", "Short", "Medium", "Long"]


class DeviceClaim(BaseModel):
    """A ResourceClaimTemplate that a pool offers to its workloads (Dynamic Resource Allocation)."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str = Field(pattern=r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$")
    device_class: Literal["gpu", "mig", "vfio"] = Field(default="gpu", alias="deviceClass")
    """A whole card, a MIG device that is made when the claim is prepared, or a card that is taken from NVIDIA's driver and
    given raw, by the vfio driver, to a pod that brings a driver of its own (a virtual machine)."""
    profile: str | None = None
    """The MIG profile, for device class mig."""
    count: int = Field(default=1, ge=1, le=16)
    """Devices in the claim."""
    same_card: bool = Field(default=False, alias="sameCard")
    """All devices of the claim are of one card (a matchAttribute constraint on the parent's UUID)."""
    selectors: tuple[str, ...] = ()
    """CEL expressions that a device must satisfy, for example device.attributes['gpu.nvidia.com'].productName == 'Tesla T4'."""
    strategy: Literal["TimeSlicing", "MPS"] | None = None
    """How containers that share the claim share its devices; None: as the driver does by itself."""
    interval: Interval | None = None
    """Length of a time slice, for strategy TimeSlicing."""
    clients: int | None = Field(default=None, ge=2, le=48)
    """Active thread percentage is 100 / clients, for strategy MPS."""

    @model_validator(mode="after")
    def _fields_agree(self) -> "DeviceClaim":
        if (self.device_class == "mig") != (self.profile is not None):
            raise ValueError(f"claim {self.name}: profile is for deviceClass mig, and mig needs one")
        if self.interval is not None and self.strategy != "TimeSlicing":
            raise ValueError(f"claim {self.name}: interval is for strategy TimeSlicing, not {self.strategy}")
        if self.clients is not None and self.strategy != "MPS":
            raise ValueError(f"claim {self.name}: clients is for strategy MPS, not {self.strategy}")
        if self.device_class == "vfio" and self.strategy is not None:
            raise ValueError(
                f"claim {self.name}: strategy {self.strategy} is NVIDIA's driver's, which vfio takes away; legal: none"
            )
        if self.strategy == "MPS" and self.device_class == "mig":
            raise ValueError(f"claim {self.name}: MPS does not cover MIG devices; legal: TimeSlicing, or no strategy")
        return self


class WorkloadClaim(DeviceClaim):
    """A claim of a workload. Who shares its devices: nobody (`pod`: each pod that names it gets its own), the pods of one
    run, or all runs in the namespace that name it, which then must ask for the same."""

    scope: Literal["pod", "run", "namespace"] = "pod"


class GpuSharing(BaseModel):
    """How the cards of a node pool are shared. Each mode takes its own fields (FIELDS).

    Time-slicing: each card is advertised `replicas` times. MPS: each card serves `clients` processes at once. MIG: each
    card is cut as `layout` says; `replicas` above 1 time-slices each instance. DRA: nothing is advertised, pods claim
    devices (`claims`). Sources: NVIDIA/k8s-device-plugin README and code v0.18.0 (read 2026-08-19, 2026-11-30).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    mode: Mode = "none"
    replicas: int = Field(default=1, ge=1, le=48)
    """Advertised devices per card (time-slicing) or per instance (mig). 48 is GKE's limit on containers per card."""
    rename: bool = False
    """Advertise nvidia.com/gpu.shared instead of nvidia.com/gpu."""
    fail_greater_than_one: bool = Field(default=True, alias="failGreaterThanOne")
    """Refuse a container that asks for more than one share; NVIDIA recommends true."""
    clients: int = Field(default=1, ge=1, le=48)
    """Processes per card under MPS."""
    layout: Mapping[str, int] = Field(default_factory=dict)
    """MIG profile to the number of instances of it on each card, for example {"3g.20gb": 1, "1g.5gb": 4}."""
    strategy: Literal["single", "mixed"] = "mixed"
    """MIG: `single` advertises instances as nvidia.com/gpu (all of one profile), `mixed` as nvidia.com/mig-<profile>."""
    claims: tuple[DeviceClaim, ...] = ()
    """DRA: claim templates for whoever writes pods by hand. Workloads bring their own claims."""

    @field_validator("layout")
    @classmethod
    def _layout_in_order(cls, layout: Mapping[str, int]) -> Mapping[str, int]:
        """Profiles by size, largest first, so that equal layouts are equal texts."""
        for profile, count in layout.items():
            if not _PROFILE.fullmatch(profile):
                raise ValueError(f"{profile!r} is not a MIG profile; legal: 1g.5gb, 3g.40gb, 1g.10gb+me and such")
            if not 1 <= count <= 7:
                raise ValueError(f"{profile}: {count} instances; legal: 1 to 7")
        return dict(sorted(layout.items(), key=_largest_first))

    @model_validator(mode="after")
    def _fields_of_the_mode(self) -> "GpuSharing":
        foreign = sorted(self.model_fields_set - FIELDS[self.mode] - {"mode"})
        foreign = [name for name in foreign if getattr(self, name) != type(self).model_fields[name].get_default(call_default_factory=True)]  # fmt: skip
        if foreign:
            legal = ", ".join(sorted(FIELDS[self.mode])) or "no other field"
            raise ValueError(f"{foreign[0]} does not belong to sharing mode {self.mode}; legal there: {legal}")
        if self.mode == "time-slicing" and self.replicas < 2:
            raise ValueError(f"replicas is {self.replicas}; time-slicing needs 2 to 48")
        if self.mode == "mps" and self.clients < 2:
            raise ValueError(f"clients is {self.clients}; mps needs 2 to 48")
        if self.mode == "mig":
            self._mig_complete()
        names = [claim.name for claim in self.claims]
        if len(set(names)) < len(names):
            raise ValueError(f"claims: the names must differ: {', '.join(names)}")
        return self

    def _mig_complete(self) -> None:
        if not self.layout:
            raise ValueError("layout is empty; mig needs profile: count, for example {3g.20gb: 2}")
        if self.strategy == "single" and len(self.layout) > 1:
            raise ValueError(
                f"strategy is single and layout has {len(self.layout)} profiles ({', '.join(self.layout)});"
                " legal: one profile, or strategy mixed"
            )
        if self.rename and self.replicas < 2:
            raise ValueError("rename is for replicas of 2 or more")

    @property
    def shares(self) -> int:
        """Shares of one card that pods can ask the device plugin for; 0 under dra."""
        if self.mode == "dra":
            return 0
        instances = sum(self.layout.values()) if self.mode == "mig" else 1
        return instances * self.replicas * self.clients

    @property
    def config_name(self) -> str:
        """Name of the device plugin configuration that does this: a ConfigMap key, and the value of the node label
        nvidia.com/device-plugin.config (labels.DEVICE_PLUGIN_CONFIG). "" where the default one serves: no label."""
        if self.mode in ("none", "dra"):
            return ""
        if self.mode == "mps":
            return f"mps-{self.clients}"
        renamed, lenient = self.rename, not self.fail_greater_than_one
        if self.mode == "time-slicing":
            return f"time-slicing-{self.replicas}{'-renamed' if renamed else ''}{'-lenient' if lenient else ''}"
        sliced = f"-{self.replicas}" if self.replicas > 1 else ""
        ending = f"{'-r' if renamed else ''}{'-l' if lenient else ''}"  # a label's value has 63 characters at most
        return f"mig-{self.strategy}{self._layout_words()}{sliced}{ending}"

    @property
    def layout_name(self) -> str:
        """Name of the MIG layout: the MIG manager's configuration, and the value of the node label nvidia.com/mig.config
        (labels.MIG_CONFIG). "" without MIG."""
        if self.mode != "mig":
            return ""
        return f"layout{self._layout_words()}"

    @property
    def node_labels(self) -> dict[str, str]:
        """The labels by which the operators of a cluster know what to do with a node's cards. Not for GKE, which runs
        operators of its own."""
        wanted = {
            labels.DEVICE_PLUGIN_CONFIG: self.config_name,
            labels.MIG_CONFIG: self.layout_name,
            labels.MIG_MANAGER: "true" if self.mode == "mig" else "",
            labels.MPS_CAPABLE: "true" if self.mode == "mps" else "",
            labels.GPU_SHARING: "dra" if self.mode == "dra" else "",
        }
        return {name: value for name, value in wanted.items() if value}

    def _layout_words(self) -> str:
        return "".join(f"_{count}x{profile.replace('+', '.')}" for profile, count in self.layout.items())

    @classmethod
    def from_config_name(cls, name: str) -> "GpuSharing":
        """The sharing that `config_name` names; not shared for "" and for names that are not ours."""
        if found := _TIME_SLICING.fullmatch(name):
            return cls(mode="time-slicing", replicas=int(found[1]), **_endings(found[2], found[3]))
        if found := _MPS.fullmatch(name):
            return cls(mode="mps", clients=int(found[1]))
        if found := _MIG.fullmatch(name):
            layout = layout_named(f"layout{found[2]}") or {}
            strategy: Any = found[1]
            return cls(
                mode="mig",
                strategy=strategy,
                layout=layout,
                replicas=int(found[3] or 1),
                **_endings(found[4], found[5]),
            )
        return cls()

    def advertised(self, cards: int) -> dict[str, int]:
        """What the device plugin makes a node with so many cards advertise: resource name to count. Empty for no cards,
        and under DRA, where no device plugin runs.

        Source: NVIDIA/k8s-device-plugin v0.18.0, internal/rm/device_map.go; the same is read off a node that runs it
        (tests/local/test_sharing_equality.py).
        """
        if cards == 0 or self.mode == "dra":
            return {}
        shared = ".shared" if self.rename else ""
        each = self.replicas * self.clients
        if self.mode == "mig" and self.strategy == "mixed":
            found: dict[str, int] = {}
            for profile, count in self.layout.items():
                resource = f"{mig_resource(profile)}{shared}"
                found[resource] = found.get(resource, 0) + cards * count * each
            return found
        return {f"{GPU_RESOURCE}{shared}": cards * self.shares}


def layout_named(name: str) -> Mapping[str, int] | None:
    """The MIG layout that GpuSharing.layout_name names: empty for MIG switched off, None for a name that is not ours."""
    if name == MIG_OFF:
        return {}
    if not _LAYOUT.fullmatch(name):
        return None
    words = (word.split("x") for word in name.split("_")[1:])
    return {profile.replace(".me", "+me"): int(count) for count, profile in words}


def mig_resource(profile: str) -> str:
    """The resource under which the device plugin advertises a MIG profile with strategy mixed. An instance with media
    engines goes under the name of the profile without: v0.18.0 makes a resource for 1g.5gb+me too, but takes the first
    whose pattern occurs in the profile's name, and 1g.5gb does (api/config/v1/resources.go, and seen on a node)."""
    return f"nvidia.com/mig-{profile.removesuffix('+me')}"


def _endings(renamed: str | None, lenient: str | None) -> dict[str, Any]:
    return {"rename": bool(renamed), "fail_greater_than_one": not lenient}


def _largest_first(item: tuple[str, int]) -> tuple[int, int, str]:
    slices, _, memory = item[0].partition("g.")
    return -int(slices), -int(memory.partition("gb")[0]), item[0]
