"""GKE node pools: their nodes are nodes of the cluster, local and simulated.

What GKE decides about them: the GPU taint (case A13), labels, quota and stock-outs in its own words, zones that have no
such machine, and the device plugin that it deploys itself.
"""

from __future__ import annotations

from typing import Any

from isthmus import catalog
from isthmus.simulation import local, nodes
from isthmus.simulation.account import DELETING, Row
from isthmus.simulation.gcp import machines, pools, system
from isthmus.simulation.gcp.base import CLOUD_NAME, COMPUTE, project, quotas, region_of_location
from isthmus.simulation.gcp.container import CLUSTER, DEFAULT_ACCOUNT, local_cluster_name, seconds
from isthmus.simulation.gcp.container_properties import POOL_PROPERTIES
from isthmus.simulation.gcp.iam import ACCOUNT
from isthmus.simulation.growth import GROWTH
from isthmus.simulation.resource import Autoname, Behaviour, Call, CloudError, Placement, Ref, ResourceType, Usage
from isthmus.specs.sharing import GpuSharing
from isthmus.toolchain.values import Properties


def cluster_of(call: Call) -> Row:
    """The cluster that a pool names; GKE's not-found error otherwise."""
    found = call.find(CLUSTER.token, str(call.inputs["cluster"]))
    if found is None:
        raise CLUSTER.missing(str(call.inputs["cluster"]))
    return found


def _pool_id(call: Call) -> str:
    return f"{cluster_of(call).id}/nodePools/{call.inputs['name']}"


def _zones(call: Call) -> list[str]:
    cluster = cluster_of(call)
    return list(call.inputs.get("nodeLocations") or cluster.outputs["nodeLocations"])


def _validate_pool(call: Call) -> None:
    inputs = call.inputs
    cluster = cluster_of(call)
    shape = machines.machine(inputs)
    region = region_of_location(str(cluster.outputs["location"]))
    known = {zone.name: zone for zone in catalog.load().zones(CLOUD_NAME, region)}
    for zone in _zones(call):
        if zone not in known:
            raise CloudError("badRequest", f'Location "{zone}" is not in region "{region}".')
        if not known[zone].has(shape):
            what = f'Accelerator type "{(machines.cards(inputs) or {}).get("type")}"' if shape.cards_apart else ""
            what = what or f'Machine type "{shape.instance_type}"'
            raise CloudError("badRequest", f"{what} does not exist in zone {zone}.")
    scaling = inputs.get("autoscaling") or {}
    if scaling and inputs.get("nodeCount") is not None:
        raise CloudError("badRequest", "node_count and autoscaling cannot both be set.")
    accelerator = machines.cards(inputs)
    if accelerator is not None:
        machines.sharing(accelerator)
    if accelerator is not None and machines.machine(inputs).family == "e2":
        raise CloudError("badRequest", "Accelerators cannot be attached to e2 machine types.")


def _usage(call: Call) -> tuple[Usage, ...]:
    shape, buying = machines.machine(call.inputs), machines.purchase(call.inputs)
    size = machines.nodes_per_zone(call.inputs) * len(_zones(call))
    place = region_of_location(str(cluster_of(call).outputs["location"]))
    scopes = {fact.code: fact.scope for fact in catalog.load().quotas(CLOUD_NAME)}
    return tuple(
        Usage(fact.code, float(fact.amount(shape, buying) * size), "global" if scopes[fact.code] == "global" else place)
        for fact in catalog.load().quotas_for(shape, buying)
        if fact.code in quotas() and size
    )


def _placements(call: Call) -> tuple[Placement, ...]:
    shape, each = machines.machine(call.inputs), machines.nodes_per_zone(call.inputs)
    spot = machines.purchase(call.inputs) == "spot"
    return tuple(Placement(zone, shape.instance_type, each, spot) for zone in _zones(call) if each)


def _create_pool(call: Call) -> Properties:
    shown = machines.taints(call.inputs, automatic=_has_plain_pool(call))
    outputs = _pool_outputs(call, shown)
    # The pool's taints must be readable by whoever reconciles the same cluster meanwhile: they are part of the intent.
    call.account.store(call.type.token, call.key, outputs={**call.outputs, "nodeConfig": outputs["nodeConfig"]})
    _reconcile(call)
    return outputs


def _has_plain_pool(call: Call) -> bool:
    rows = pools.rows(call.account, *_names(cluster_of(call)))
    return any(row.key != call.key and row.state != DELETING and machines.cards(row.inputs) is None for row in rows)


def _pool_outputs(call: Call, shown: list[dict[str, str]]) -> Properties:
    cluster = cluster_of(call)
    group = f"{_group(call)}-grp"
    base = f"{COMPUTE}projects/{project(call)}/zones"
    each = machines.nodes_per_zone(call.inputs)
    return {
        "project": project(call),
        "location": cluster.outputs["location"],
        "nodeLocations": _zones(call),
        "nodeCount": each,
        "initialNodeCount": call.inputs.get("initialNodeCount", each),
        "version": cluster.outputs["masterVersion"],
        "maxPodsPerNode": 110,
        "instanceGroupUrls": [f"{base}/{zone}/instanceGroupManagers/{group}" for zone in _zones(call)],
        "managedInstanceGroupUrls": [f"{base}/{zone}/instanceGroups/{group}" for zone in _zones(call)],
        "nodeConfig": {**machines.config(call.inputs), "effectiveTaints": shown},
    }


def _update_pool(call: Call) -> Properties:
    before = (call.outputs.get("nodeConfig") or {}).get("effectiveTaints") or []
    automatic = machines.AUTOMATIC_TAINT in before
    outputs = _pool_outputs(call, machines.taints(call.inputs, automatic=automatic))
    call.account.store(call.type.token, call.key, inputs=call.stored_inputs, outputs={**call.outputs, **outputs})
    _reconcile(call)
    return outputs


def _delete_pool(call: Call) -> None:
    if call.find(CLUSTER.token, str(call.inputs["cluster"])) is not None:
        _reconcile(call)


def _reconcile(call: Call) -> None:
    """Nodes as the cluster's pools now ask for, and the device plugin if one of them has cards here."""
    cluster = cluster_of(call)
    name = local_cluster_name(call.account, str(cluster.outputs["location"]), str(cluster.inputs["name"]))
    made = nodes.reconcile(call.account, name, lambda: pools.of_cluster(call.account, *_names(cluster)))
    there = pools.of_cluster(call.account, *_names(cluster))
    with_cards = [pool for pool in there if pool.machine.gpu_count and pool.size]
    if with_cards:
        sharing = nodes.sharing_of(with_cards[0].labels)
        if sharing.mode == "dra":
            local.backend().delete(made, system.device_plugin(GpuSharing()))
        else:
            local.backend().apply(made, system.device_plugin(sharing))


def _names(cluster: Row) -> tuple[str, str, str]:
    return cluster.id, str(cluster.inputs["name"]), str(cluster.outputs["location"])


def _group(call: Call) -> str:
    name = str(cluster_of(call).inputs["name"])
    return pools.group_name(call.account, name, str(call.inputs["name"]), call.urn)


NODE_POOL = ResourceType(
    token=pools.POOL_TOKEN,
    noun="NodePool",
    properties=POOL_PROPERTIES,
    make_id=_pool_id,
    create=_create_pool,
    update=_update_pool,
    delete=_delete_pool,
    validate=_validate_pool,
    name=lambda inputs: f"{str(inputs['cluster']).rpartition('/')[2]}/{inputs['name']}" if "name" in inputs else None,
    autoname=Autoname(max_length=40, lower=True),
    usage=_usage,
    placements=_placements,
    refs=(
        Ref("cluster", CLUSTER.token, holds=False),
        Ref("nodeConfig.serviceAccount", ACCOUNT.token, holds=False, foreign=lambda value: value == DEFAULT_ACCOUNT),
    ),
    missing=lambda value: CloudError("notFound", f"Not found: {value}.", status=404),
    exists=lambda name: CloudError("alreadyExists", f"Already exists: nodePools/{name}.", status=409),
    create_seconds=seconds("gke-nodepool-create"),
    delete_seconds=seconds("gke-nodepool-delete"),
    behaviours=(
        Behaviour(
            "the GPU taint is added only if a pool without cards exists, and never afterwards",
            "documented",
            "terraform-google-modules/terraform-google-kubernetes-engine#703 (case A13)",
        ),
        Behaviour("a taint written out in the program is not added a second time", "assumed"),
        Behaviour("quota names and QUOTA_EXCEEDED", "recorded", "GoogleCloudPlatform/ai-on-gke issue 849 (2024-10)"),
        Behaviour("GCE_STOCKOUT and its text", "recorded", "tranquilitybase-io/tb-gcp issue 589 (2021-01)"),
        Behaviour("node labels and allocatable", "documented", "karpenter-provider-gcp (2026-08), GKE node sizing"),
        Behaviour(
            "the first node is the local one: both pools' labels, no taint; other nodes only schedule", "assumed"
        ),
        Behaviour("NVIDIA's device plugin v0.18.0 runs in place of Google's, on the local node", "assumed"),
        Behaviour(GROWTH, "assumed"),
        Behaviour(
            "quotas start at 16 cards each, 32 in all regions and 96 vCPUs, in place of 0, 0 and 24 or 32", "assumed"
        ),
        Behaviour("upgrades, repair, disks, shielded nodes and scopes are kept and have no effect", "assumed"),
    ),
)


def quota_refusal(call: Call) -> Any:
    """GKE's refusal of a pool that would pass a quota."""

    def refuse(quota: Any, limit: float, used: float, asked: float) -> CloudError:
        place = "globally" if quota.code.endswith("ALL_REGIONS") else f"in region {call.region}"
        return CloudError(
            "QUOTA_EXCEEDED",
            f"Code: QUOTA_EXCEEDED Message: Quota '{quota.code}' exceeded.  Limit: {limit:.1f} {place}."
            f" ({used:g} in use, {asked:g} more asked for)",
            status=403,
            remedy=f"isthmus sim quota {call.account.name} {quota.code} {used + asked:g}",
        )

    return refuse


def stockout(call: Call) -> Any:
    """GKE's failure of a pool whose machines a zone does not have."""

    def refuse(placement: Placement, others: list[str]) -> CloudError:
        instance = f"{_group(call)}-0000"
        zone = f"projects/{project(call)}/zones/{placement.zone}"
        elsewhere = f" [zones with room: {', '.join(others)}]" if others else ""
        return CloudError(
            "GCE_STOCKOUT",
            f"Google Compute Engine: Not all instances running in IGM. Expected {placement.count}, running 0, transitioning"
            f" {placement.count}. Current errors: [GCE_STOCKOUT]: Instance '{instance}' creation failed: The zone '{zone}'"
            " does not have enough resources available to fulfill the request.  Try a different zone, or try again later"
            f"{elsewhere}",
            status=503,
            remedy=f"isthmus sim capacity {call.account.name} {placement.zone} {placement.machine} {placement.count}",
        )

    return refuse


TYPES = (NODE_POOL,)
