"""What a claim gets: its devices made ready, and described to the container runtime.

Preparing a claim looks up what the scheduler allocated, cuts the MIG devices among it, starts an MPS control daemon where
the claim shares by MPS, and writes a CDI file: containers of the claim get an environment variable that names their devices,
which the OCI runtime (containers/oci-runtime.sh) turns into NVIDIA_VISIBLE_DEVICES. What was prepared is kept in a file, so
that a restart forgets nothing. Preparing twice is preparing once.
"""

import json
import shutil
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from isthmus.kube import Cluster
from isthmus.kube.claims import API, DRIVER
from isthmus.localcluster import driver as driver_root
from isthmus.localcluster.agent.nodes import Node
from isthmus.localcluster.agent.plugin import Prepared
from isthmus.localcluster.resource_slices import Device
from isthmus.localcluster.state import read_json, write_json
from isthmus.specs.errors import InvalidSpec, NotFound

CDI_KIND = "k8s.gpu.nvidia.com/claim"
"""The kind that NVIDIA's driver uses for its claims."""

CLAIMED = "ISTHMUS_CLAIMED_"
"""Beginning of the environment variables that name a claim's devices; oci-runtime.sh looks for it."""

PIPES_IN_CONTAINER = "/tmp/nvidia-mps"
"""Where a container finds the MPS control daemon's pipes: CUDA's default."""

CDI, MPS = Path("/run/cdi"), Path("/run/nvidia/claims")
"""On the node: where the container runtime looks for CDI files, and pipes and logs of the claims' MPS control daemons."""

CONFIG_KINDS = {"GpuConfig", "MigDeviceConfig"}
"""Opaque parameters of NVIDIA's driver (resource.nvidia.com/v1beta1)."""


class Claims:
    """The claims prepared on a node. The kubelet asks from several threads, while the agent's loop restores: one at a time."""

    def __init__(self, kube: Cluster, node: Node) -> None:
        self._kube, self._node, self._root, self._record = kube, node, node.driver, node.record
        self._one_at_a_time = threading.Lock()
        self.devices: dict[str, Device] = {}
        """What the node publishes, by name."""

    def prepare(self, namespace: str, name: str, uid: str) -> Prepared:
        """Make a claim's devices ready.

        Raises:
            NotFound: the claim is gone, or names a device that this node does not publish.
            InvalidSpec: its parameters are not those of the driver.
        """
        with self._one_at_a_time:
            held = self._held()
            if uid not in held:
                claim = self._kube.get(API, "ResourceClaim", name, namespace)
                if claim["metadata"]["uid"] != uid:
                    raise NotFound(f"the claim {namespace}/{name} was made anew", subject=f"claim {uid}")
                held[uid] = self._make_ready(uid, claim["status"]["allocation"]["devices"])
                write_json(self._record, held)
            return [dict(device) for device in held[uid]["devices"]]

    def unprepare(self, uid: str) -> None:
        """Take a claim's devices back; no error where there is no such claim."""
        with self._one_at_a_time:
            held = self._held()
            gone = held.pop(uid, None)
            if gone is None:
                return
            for instance in gone["instances"]:
                driver_root.remove_instance(self._root, instance)
            if gone["mps"]:
                self._say(uid, "quit")
                shutil.rmtree(self._there(MPS) / uid, ignore_errors=True)
            (self._there(CDI) / f"isthmus-{uid}.json").unlink(missing_ok=True)
            write_json(self._record, held)

    def restore(self) -> None:
        """Bring back what a restart or new cards took away: instances in the driver root, MPS control daemons."""
        with self._one_at_a_time:
            for uid, entry in self._held().items():
                for card, profile, start in entry["cuts"]:
                    driver_root.add_instance(self._root, card, profile, start)
                if entry["mps"] and not self._say(uid, "get_server_list"):
                    self._start_mps(uid, entry["mps"])

    def _make_ready(self, uid: str, allocation: Mapping[str, Any]) -> dict[str, Any]:
        results = [item for item in allocation["results"] if item["driver"] == DRIVER]
        sharing = sharing_of(allocation.get("config") or ())
        uuids: dict[str, list[str]] = {}
        cuts: list[tuple[str, str, int]] = []
        for result in results:
            device = self.devices.get(result["device"])
            if device is None:
                raise NotFound(f"this node has no device {result['device']}", subject=f"claim {uid}")
            identity = device.uuid
            if device.profile is not None:
                cuts.append((device.uuid, device.profile.profile, device.start))
                identity = driver_root.add_instance(self._root, *cuts[-1])
            raw = device.raw  # of the vfio driver: nothing that NVIDIA's knows
            uuids.setdefault(result["request"], []).extend([] if raw else [identity])
        clients = int(sharing.get("clients", 0)) if sharing.get("strategy") == "MPS" else 0
        if clients:
            self._start_mps(uid, clients)
        self._write_cdi(uid, uuids, mps=bool(clients))
        devices = [
            {
                "request_names": [result["request"]],
                "pool_name": result["pool"],
                "device_name": result["device"],
                "cdi_device_ids": [f"{CDI_KIND}={_cdi_name(uid, result['request'])}"],
            }
            for result in results
        ]
        made = [identity for some in uuids.values() for identity in some if identity.startswith("MIG-")]
        return {"devices": devices, "instances": made, "cuts": cuts, "mps": clients}

    def _write_cdi(self, uid: str, uuids: Mapping[str, list[str]], *, mps: bool) -> None:
        devices = []
        for request, some in uuids.items():
            variable = CLAIMED + _cdi_name(uid, request).replace("-", "_").upper()
            edits: dict[str, Any] = {"env": [f"{variable}={','.join(some) or 'void'}"]}
            if mps:
                edits["env"].append(f"CUDA_MPS_PIPE_DIRECTORY={PIPES_IN_CONTAINER}")
                pipes = str(MPS / uid / "pipe")
                edits["mounts"] = [{"hostPath": pipes, "containerPath": PIPES_IN_CONTAINER, "options": ["bind", "rw"]}]
            devices.append({"name": _cdi_name(uid, request), "containerEdits": edits})
        document = {"cdiVersion": "0.6.0", "kind": CDI_KIND, "devices": devices}
        folder = self._there(CDI)
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{uid}"
        temporary.write_text(json.dumps(document), encoding="utf-8")
        temporary.rename(folder / f"isthmus-{uid}.json")

    def _start_mps(self, uid: str, clients: int) -> None:
        for folder in ("pipe", "log"):
            (self._there(MPS) / uid / folder).mkdir(parents=True, exist_ok=True)
        self._control(uid, "-d")
        self._say(uid, f"set_default_active_thread_percentage {100 // clients}")

    def _say(self, uid: str, line: str) -> bool:
        """Send a command to a claim's MPS control daemon; whether there is one."""
        return self._control(uid, text=line)

    def _control(self, uid: str, *words: str, text: str = "") -> bool:
        folders = {"PIPE": "pipe", "LOG": "log"}
        environment = {f"CUDA_MPS_{kind}_DIRECTORY": str(MPS / uid / name) for kind, name in folders.items()}
        return self._node.control_mps(*words, environment=environment, text=text)

    def _there(self, path: Path) -> Path:
        """A path of the node, as this process sees it."""
        return self._node.root() / path.relative_to("/")

    def _held(self) -> dict[str, Any]:
        held: dict[str, Any] = read_json(self._record) or {}
        return held


def sharing_of(config: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """How a claim's devices are shared: strategy, interval and clients, as far as its parameters for our driver say.

    Raises:
        InvalidSpec: parameters of another kind, or a strategy there is not.
    """
    found: dict[str, Any] = {}
    for item in config:
        opaque = item.get("opaque") or {}
        if opaque.get("driver") != DRIVER:
            continue
        parameters = opaque.get("parameters") or {}
        if parameters.get("kind") not in CONFIG_KINDS:
            raise InvalidSpec(f"parameters of kind {parameters.get('kind')}; legal: {', '.join(sorted(CONFIG_KINDS))}")
        sharing = parameters.get("sharing") or {}
        strategy = sharing.get("strategy")
        if strategy == "TimeSlicing":
            found = {"strategy": strategy, **(sharing.get("timeSlicingConfig") or {})}
        elif strategy == "MPS":
            percentage = int((sharing.get("mpsConfig") or {}).get("defaultActiveThreadPercentage", 100))
            found = {"strategy": strategy, "clients": max(1, 100 // percentage)}
        elif strategy is not None:
            raise InvalidSpec(f"sharing strategy {strategy}; legal: TimeSlicing, MPS")
    return found


def _cdi_name(uid: str, request: str) -> str:
    return f"{uid}-{request.replace('/', '-')}"
