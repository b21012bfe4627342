"""Node pools: the system pool and GPU pools, on demand or spot.

GKE counts nodes per zone; a pool's size here is the whole pool, so it is spread over as many zones as divide it evenly.
A pool whose min and max differ is left to GKE's own autoscaler from then on.
"""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from isthmus.specs import labels
from isthmus.specs.cluster import NodePool
from isthmus.specs.offer import Shape

DISK_GIB = 50
GPU_DISK_GIB = 100
"""Training images and unpacked layers run to tens of GiB."""
DRIVER = "LATEST"
"""GKE installs the newest driver that the node image supports."""


@dataclass(frozen=True)
class PlacedPool:
    """A pool, the machine it was turned into, its cards' name on GCP, and the zones of the stack that offer it."""

    pool: NodePool
    machine: Shape
    accelerator: str | None
    zones: tuple[str, ...]


@dataclass(frozen=True)
class NodeGroupArgs:
    """What a node pool needs to know."""

    cluster_name: pulumi.Input[str]
    location: str
    placed: PlacedPool
    node_account: pulumi.Input[str]
    node_tag: str
    after: list[pulumi.Resource]
    """What must exist before the first node starts and until the last one is gone."""


class NodeGroup(pulumi.ComponentResource):
    """A GKE node pool. Output: node_pool_name."""

    def __init__(self, name: str, args: NodeGroupArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("isthmus:gcp:NodeGroup", name, None, opts)
        pool = args.placed.pool
        zones, per_zone = spread(pool.size, args.placed.zones)
        autoscaled = pool.min != pool.max
        node_pool = gcp.container.NodePool(
            name,
            name=pool.name,
            cluster=args.cluster_name,
            location=args.location,
            node_locations=list(args.placed.zones if autoscaled else zones),
            node_count=None if autoscaled else per_zone,
            initial_node_count=per_zone if autoscaled else None,
            autoscaling=_autoscaling(pool) if autoscaled else None,
            management={"auto_repair": True, "auto_upgrade": True},
            upgrade_settings=_upgrade(args.placed),
            node_config=_node_config(args),
            # The first size of an autoscaled pool replaces the pool when it changes, and means nothing afterwards.
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=args.after, ignore_changes=["initialNodeCount"] if autoscaled else None
            ),
        )
        self.node_pool_name: pulumi.Output[str] = node_pool.name
        self.register_outputs({"nodePoolName": self.node_pool_name})


def spread(size: int, zones: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
    """The zones that a pool of `size` nodes uses, and its nodes in each: as many zones as divide the size evenly."""
    if size == 0:
        return zones, 0
    used = max(count for count in range(1, len(zones) + 1) if size % count == 0)
    return zones[:used], size // used


def node_labels(placed: PlacedPool) -> dict[str, str]:
    """Our own labels of a pool's nodes, on top of those that GKE sets."""
    ours = {labels.POOL: placed.pool.name}
    if placed.machine.gpu_model:
        ours[labels.GPU_MODEL] = placed.machine.gpu_model
        if placed.pool.sharing.mode == "dra":
            ours |= {labels.GPU_SHARING: "dra", NO_DEVICE_PLUGIN: "true"}
    return ours


NO_DEVICE_PLUGIN = "gke-no-default-nvidia-gpu-device-plugin"
"""Node label by which GKE leaves its device plugin out, so that a DRA driver can have the cards (GKE documentation,
Prepare your GKE infrastructure for DRA)."""


def _node_config(args: NodeGroupArgs) -> gcp.container.NodePoolNodeConfigArgsDict:
    placed = args.placed
    gpus = bool(placed.machine.gpu_count)
    return {
        "machine_type": placed.machine.instance_type,
        "image_type": "COS_CONTAINERD",
        "disk_type": "pd-balanced",
        "disk_size_gb": GPU_DISK_GIB if gpus else DISK_GIB,
        "spot": placed.pool.spot,
        "service_account": args.node_account,
        # The scope is wide because the account is narrow: rights are given by IAM roles alone.
        "oauth_scopes": ["https://www.googleapis.com/auth/cloud-platform"],
        "workload_metadata_config": {"mode": "GKE_METADATA"},
        "shielded_instance_config": {"enable_secure_boot": not gpus, "enable_integrity_monitoring": True},
        "metadata": {"disable-legacy-endpoints": "true"},
        "labels": node_labels(placed),
        "tags": [args.node_tag],
        # Written out although GKE adds it by itself: it does so only if a pool without cards exists already, and never
        # afterwards (case A13). Written out it is there in every order, and GKE does not add a second one.
        "taints": [{"key": labels.GPU_TAINT, "value": "present", "effect": "NO_SCHEDULE"}] if gpus else [],
        "guest_accelerators": [_cards(placed)] if gpus else [],
    }


def _cards(placed: PlacedPool) -> gcp.container.NodePoolNodeConfigGuestAcceleratorArgsDict:
    cards: gcp.container.NodePoolNodeConfigGuestAcceleratorArgsDict = {
        "type": placed.accelerator or "",
        "count": placed.machine.gpu_count,
        "gpu_driver_installation_config": {"gpu_driver_version": DRIVER},
    }
    sharing = placed.pool.sharing
    if sharing.mode == "mig":
        (cards["gpu_partition_size"],) = sharing.layout  # one profile, as the check of the settings has made sure
    if sharing.replicas * sharing.clients > 1:
        cards["gpu_sharing_config"] = {
            "gpu_sharing_strategy": "MPS" if sharing.mode == "mps" else "TIME_SHARING",
            "max_shared_clients_per_gpu": sharing.replicas * sharing.clients,
        }
    return cards


def _autoscaling(pool: NodePool) -> gcp.container.NodePoolAutoscalingArgsDict:
    # ANY takes the zone that has room, which is what scarce cards need; BALANCED would wait for the empty one.
    return {"total_min_node_count": pool.min, "total_max_node_count": pool.max, "location_policy": "ANY"}


def _upgrade(placed: PlacedPool) -> gcp.container.NodePoolUpgradeSettingsArgsDict:
    """A GPU pool upgrades in place: a surge node would need quota and cards that are rarely to spare."""
    if placed.machine.gpu_count:
        return {"max_surge": 0, "max_unavailable": 1}
    return {"max_surge": 1, "max_unavailable": 0}
