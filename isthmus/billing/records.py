"""Runs, pods and nodes as they were seen become what a bill is made from. Pure: nothing is read here but the catalog."""

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal

from isthmus.catalog import Catalog
from isthmus.costs.split import weights
from isthmus.runs.model import Node, Replica, Run
from isthmus.specs import labels
from isthmus.specs.cluster import GpuCards
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.offer import Offer, Purchase, Shape
from isthmus.specs.quantity import mebibytes, millicores
from isthmus.specs.sharing import GpuSharing
from isthmus.specs.usage import NodeRecord, UsageRecord

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
REGION = "topology.kubernetes.io/region"

SPOT_LABELS = {"eks.amazonaws.com/capacityType": "SPOT", "cloud.google.com/gke-spot": "true"}
"""Labels by which EKS and GKE mark spot nodes (EKS and GKE node documentation; both are set by our own stacks)."""

UNKNOWN = "unknown"


def node_record(
    node: Node, catalog: Catalog, *, cloud: str, region: str, start: datetime, end: datetime, spot: bool = False
) -> NodeRecord:
    """A node with its price. A machine or a price that the catalog does not have is unknown, not left out.

    Args:
        region: where the node's own label does not say it.
        spot: whether its pool asks for spot, where its own labels do not say it.
    """
    purchase: Purchase = "spot" if spot or _marked_spot(node) else "on-demand"
    shape = _shape(node, catalog, cloud)
    if shape is None:
        kind = node.labels.get(INSTANCE_TYPE, UNKNOWN)
        return NodeRecord(node.name, kind, purchase, start, end, 1, 1, 1, None, source="not in the catalog")
    offer = catalog.offer(shape, node.labels.get(REGION, region), purchase)
    return machine_record(node.name, shape, offer, catalog, purchase=purchase, start=start, end=end)


def machine_record(
    name: str,
    shape: Shape,
    offer: Offer | None,
    catalog: Catalog,
    *,
    purchase: Purchase,
    start: datetime,
    end: datetime,
) -> NodeRecord:
    """A machine of this shape under this offer, for a span of time; None for one that is not sold there."""
    allocatable = catalog.allocatable(shape.cloud, shape)
    divided = weights(catalog, offer) if offer else None
    return NodeRecord(
        node=name,
        instance_type=shape.name,
        purchase=purchase,
        start=start,
        end=end,
        cpu_millicores=allocatable["cpu_millicores"],
        memory_mib=allocatable["memory_mib"],
        cards=shape.gpu_count,
        usd_per_hour=offer.usd_per_hour if offer and divided else None,
        cpu_weight=divided.cpu if divided else Decimal(0),
        memory_weight=divided.memory if divided else Decimal(0),
        card_weight=divided.cards if divided else Decimal(0),
        source=offer.source if offer else "not sold there under this option",
        as_of=offer.as_of.isoformat() if offer and offer.as_of else "undated",
    )


def usage_records(run: Run, replicas: Iterable[Replica], *, now: datetime, simulated: bool) -> list[UsageRecord]:
    """What the pods of a run held of their nodes, from each one's start to its end (or to now, while it runs).

    Amounts are those of the run's own workload: on a simulated stack the API server caps what pods really ask for.
    """
    records = []
    for replica in replicas:
        if replica.started is None or not replica.node:
            continue
        role = run.spec.roles.get(replica.role)
        end = replica.finished or (run.finished if run.state.final else now) or replica.started
        records.append(
            UsageRecord(
                run=run.id,
                user=run.user or "(none)",
                project=run.project or "(none)",
                pod=f"{replica.name} {replica.uid}",
                node=replica.node,
                start=replica.started,
                end=max(end, replica.started),
                cpu_millicores=millicores(role.cpu) if role else 0,
                memory_mib=mebibytes(role.memory) if role else 0,
                card_parts=replica.card_parts,
                card_whole=replica.card_whole,
                simulated=simulated,
            )
        )
    return records


def _marked_spot(node: Node) -> bool:
    return any(node.labels.get(label) == value for label, value in SPOT_LABELS.items())


def _shape(node: Node, catalog: Catalog, cloud: str) -> Shape | None:
    kind, model = node.labels.get(INSTANCE_TYPE), node.labels.get(labels.GPU_MODEL)
    try:
        shape = catalog.shape(cloud, kind) if kind else None
        if shape is None or shape.gpu_count or model is None:
            return shape
        # A machine that is also sold without cards (GCP N1): as many as it advertises, less the sharing.
        shares = GpuSharing.from_config_name(node.labels.get(labels.DEVICE_PLUGIN_CONFIG, "")).shares
        cards = sum(count for name, count in node.advertised.items() if name.startswith(labels.GPU_RESOURCE))
        return catalog.shape(cloud, kind or "", GpuCards(model=model, count=max(cards // max(shares, 1), 1)))
    except InvalidSpec:
        return None
