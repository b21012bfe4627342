"""Google Kubernetes Engine: clusters and node pools. A cluster is a local cluster, a pool's nodes are its nodes.

Everything Kubernetes about them is real and shared with the other cloud (nodes.py, admission.py); here is what GKE
decides: names, versions, ranges, labels, the GPU taint (case A13), quota, stock-outs, and what it deploys by itself.
Autopilot is not understood: `enableAutopilot` is refused by name (case A05).
"""

from __future__ import annotations

import base64
import ipaddress
from typing import Any

from isthmus import catalog
from isthmus.localcluster.runtime import KUBERNETES_MINOR
from isthmus.simulation import admission, local, nodes
from isthmus.simulation.account import DELETING, Account, Row
from isthmus.simulation.gcp import machines, system
from isthmus.simulation.gcp.base import (
    ABSENT,
    CLOUD_NAME,
    COMPUTE,
    GKE_DOC,
    labelled,
    location,
    project,
    quotas,
    region_of_location,
    zones_of,
)
from isthmus.simulation.gcp.container_properties import CLUSTER_PROPERTIES, POOL_PROPERTIES
from isthmus.simulation.gcp.iam import ACCOUNT
from isthmus.simulation.gcp.network import NETWORK, SUBNETWORK
from isthmus.simulation.resource import (
    Autoname,
    Behaviour,
    Call,
    CloudError,
    Placement,
    Ref,
    ResourceType,
    Usage,
)
from isthmus.simulation.values import Properties
from isthmus.specs.errors import NotFound
from isthmus.specs.labels import DEVICE_PLUGIN_CONFIG
from isthmus.specs.sharing import GpuSharing

PATCH = "4-gke.1000000"
"""Appended to the minor version: GKE's versions look like 1.36.4-gke.1000000."""
CONTROL_PLANE_PREFIX = 28
DEFAULT_ACCOUNT = "default"


def _seconds(operation: str) -> tuple[float, float]:
    known = float(catalog.load().latency(CLOUD_NAME, operation).seconds)
    return (known * 0.9, known * 1.1)


def local_cluster_name(account: Account, place: str, name: str) -> str:
    """The local cluster behind a simulated GKE cluster."""
    return local.local_name(account.name, place, name)


# Clusters


def _cluster_id(call: Call) -> str:
    return f"projects/{project(call)}/locations/{location(call)}/clusters/{call.inputs['name']}"


def _validate_cluster(call: Call) -> None:
    inputs = call.inputs
    place = location(call)
    zones = zones_of(region_of_location(place))
    if not zones or (place not in zones and place != region_of_location(place)):
        raise CloudError("badRequest", f'Location "{place}" does not exist.')
    for zone in inputs.get("nodeLocations", []):
        if zone not in zones:
            raise CloudError("badRequest", f'Location "{zone}" is not in region "{region_of_location(place)}".')
    wanted = str(inputs.get("minMasterVersion", KUBERNETES_MINOR))
    if wanted != KUBERNETES_MINOR and not wanted.startswith(f"{KUBERNETES_MINOR}."):
        raise CloudError(
            "badRequest",
            f'Master version "{wanted}" is unsupported.',
            remedy=f'set isthmus:kubernetesVersion to "{KUBERNETES_MINOR}": the version of the programs installed here',
        )
    _check_control_plane_range(inputs)
    _check_secondary_ranges(call)


def _check_control_plane_range(inputs: Properties) -> None:
    text = (inputs.get("privateClusterConfig") or {}).get("masterIpv4CidrBlock")
    if text is None:
        return
    try:
        block = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise CloudError("badRequest", f"Invalid master_ipv4_cidr_block: {text}.") from error
    if block.prefixlen != CONTROL_PLANE_PREFIX:
        raise CloudError(
            "badRequest", f"Invalid mask size for master_ipv4_cidr_block {text}: must be /{CONTROL_PLANE_PREFIX}."
        )


def _check_secondary_ranges(call: Call) -> None:
    policy = call.inputs.get("ipAllocationPolicy") or {}
    subnet = call.find(SUBNETWORK.token, str(call.inputs.get("subnetwork", "")))
    if subnet is None:
        return  # the reference check says so
    there = {item["rangeName"] for item in subnet.inputs.get("secondaryIpRanges", [])}
    for key in ("clusterSecondaryRangeName", "servicesSecondaryRangeName"):
        name = policy.get(key)
        if name is not None and name not in there:
            raise CloudError(
                "badRequest",
                f'Pod secondary range "{name}" does not exist in subnetwork "{subnet.name}".'
                if key.startswith("cluster")
                else f'Services secondary range "{name}" does not exist in subnetwork "{subnet.name}".',
            )


def _create_cluster(call: Call) -> Properties:
    name = local_cluster_name(call.account, location(call), call.inputs["name"])
    cluster = nodes.reconcile(call.account, name, lambda: _pools(call))
    local.backend().apply(cluster, [*admission.manifests(), *system.storage_classes()])
    return {
        **_cluster_outputs(call),
        "endpoint": cluster.endpoint.removeprefix("https://"),
        "masterAuth": {"clusterCaCertificate": base64.b64encode(cluster.ca_certificate.encode()).decode()},
    }


def _cluster_outputs(call: Call) -> Properties:
    version = f"{KUBERNETES_MINOR}.{PATCH}"
    subnet = call.find(SUBNETWORK.token, str(call.inputs.get("subnetwork", "")))
    ranges = {
        item["rangeName"]: item["ipCidrRange"]
        for item in (subnet.inputs.get("secondaryIpRanges", []) if subnet else [])
    }
    policy = call.inputs.get("ipAllocationPolicy") or {}
    return {
        "project": project(call),
        "location": location(call),
        "selfLink": f"https://container.googleapis.com/v1/{call.id}",
        "nodeLocations": call.inputs.get("nodeLocations") or list(zones_of(region_of_location(location(call)))[:3]),
        "networkingMode": call.inputs.get("networkingMode", "VPC_NATIVE"),
        "datapathProvider": call.inputs.get("datapathProvider", "LEGACY_DATAPATH"),
        "masterVersion": version,
        "nodeVersion": version,
        "servicesIpv4Cidr": ranges.get(policy.get("servicesSecondaryRangeName", ""), "34.118.224.0/20"),
        "clusterIpv4Cidr": ranges.get(policy.get("clusterSecondaryRangeName", ""), "10.4.0.0/14"),
        **labelled(call, "resourceLabels"),
    }


def _update_cluster(call: Call) -> Properties:
    return {"masterVersion": f"{KUBERNETES_MINOR}.{PATCH}", **labelled(call, "resourceLabels")}


def _delete_cluster(call: Call) -> None:
    """Google's provider refuses first; then the cluster goes with whatever pools it still has, as on GKE."""
    if call.inputs.get("deletionProtection", True):
        raise CloudError(
            "deletionProtection",
            "Cannot destroy cluster because deletion_protection is set to true. Set it to false to proceed with cluster"
            " deletion.",
            remedy="set isthmus:deletionProtection to false, run up, then down",
        )
    name = local_cluster_name(call.account, location(call), call.inputs["name"])
    try:
        local.backend().runtime().get(name).delete()
    except NotFound:
        pass
    for row in _pool_rows(call.account, call.id, call.inputs["name"], location(call)):
        call.account.remove(NODE_POOL.token, row.key)


CLUSTER = ResourceType(
    token="gcp:container/cluster:Cluster",
    noun="GKE cluster",
    properties=CLUSTER_PROPERTIES,
    make_id=_cluster_id,
    create=_create_cluster,
    update=_update_cluster,
    delete=_delete_cluster,
    validate=_validate_cluster,
    name=lambda inputs: str(inputs["name"]) if "name" in inputs else None,
    aliases=lambda call: (str(call.inputs["name"]), f"https://container.googleapis.com/v1/{call.id}"),
    autoname=Autoname(max_length=40, lower=True),
    refs=(
        Ref("network", NETWORK.token),
        Ref("subnetwork", SUBNETWORK.token),
        Ref("nodeConfig.serviceAccount", ACCOUNT.token, holds=False, foreign=lambda value: value == DEFAULT_ACCOUNT),
    ),
    missing=lambda value: CloudError("notFound", f"Not found: {value}.", status=404),
    exists=lambda name: CloudError("alreadyExists", f"Already exists: clusters/{name}.", status=409),
    create_seconds=_seconds("gke-cluster-create"),
    delete_seconds=_seconds("gke-cluster-delete"),
    behaviours=(
        ABSENT,
        Behaviour("a real Kubernetes API server on this machine, one local node, no default pool left", "assumed"),
        Behaviour("with every pool deleted the local node stays, without labels of a pool", "assumed"),
        Behaviour("deletion_protection refuses a delete", "documented", "google_container_cluster, Terraform provider"),
        Behaviour("the pods' and services' ranges must be secondary ranges of the subnet", "documented", GKE_DOC),
        Behaviour("any Kubernetes minor version but the installed one is refused as unsupported", "assumed"),
        Behaviour("ranges, private nodes and network policy have no effect on pods", "assumed"),
        Behaviour(
            "standard-rwo is there and the default class; the local provisioner serves it", "documented", GKE_DOC
        ),
    ),
)


# Node pools


def _cluster_of(call: Call) -> Row:
    found = call.find(CLUSTER.token, str(call.inputs["cluster"]))
    if found is None:
        raise CLUSTER.missing(str(call.inputs["cluster"]))
    return found


def _pool_id(call: Call) -> str:
    return f"{_cluster_of(call).id}/nodePools/{call.inputs['name']}"


def _zones(call: Call) -> list[str]:
    cluster = _cluster_of(call)
    return list(call.inputs.get("nodeLocations") or cluster.outputs["nodeLocations"])


def _validate_pool(call: Call) -> None:
    inputs = call.inputs
    cluster = _cluster_of(call)
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
    if machines.cards(inputs) is not None and machines.machine(inputs).family == "e2":
        raise CloudError("badRequest", "Accelerators cannot be attached to e2 machine types.")


def _usage(call: Call) -> tuple[Usage, ...]:
    shape, buying = machines.machine(call.inputs), machines.purchase(call.inputs)
    size = machines.nodes_per_zone(call.inputs) * len(_zones(call))
    place = region_of_location(str(_cluster_of(call).outputs["location"]))
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
    cluster = _cluster_of(call)
    rows = _pool_rows(call.account, cluster.id, str(cluster.inputs["name"]), str(cluster.outputs["location"]))
    return any(row.key != call.key and row.state != DELETING and machines.cards(row.inputs) is None for row in rows)


def _pool_outputs(call: Call, shown: list[dict[str, str]]) -> Properties:
    cluster = _cluster_of(call)
    group = f"gke-{cluster.inputs['name']}-{call.inputs['name']}-{_suffix(call)}-grp"
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
    cluster = _cluster_of(call)
    name = local_cluster_name(call.account, str(cluster.outputs["location"]), str(cluster.inputs["name"]))
    made = nodes.reconcile(call.account, name, lambda: _pools_of(call.account, cluster))
    with_cards = [pool for pool in _pools_of(call.account, cluster) if pool.machine.gpu_count and pool.size]
    if with_cards:
        sharing = GpuSharing.from_config_name(with_cards[0].labels.get(DEVICE_PLUGIN_CONFIG, ""))
        local.backend().apply(made, system.device_plugin(sharing))


NODE_POOL = ResourceType(
    token="gcp:container/nodePool:NodePool",
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
    create_seconds=_seconds("gke-nodepool-create"),
    delete_seconds=_seconds("gke-nodepool-delete"),
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
        Behaviour("autoscaling keeps the first size: there is no autoscaler", "assumed"),
        Behaviour("GPU quotas start at 16 cards each and 32 in all regions, in place of 0", "assumed"),
        Behaviour("upgrades, repair, disks, shielded nodes and scopes are kept and have no effect", "assumed"),
    ),
)


# Pools as nodes


def _pools(call: Call) -> list[nodes.Pool]:
    """Pools of the cluster a call is about: none on a first create, those there were on one that is continued."""
    rows = _pool_rows(call.account, call.id, call.inputs["name"], location(call))
    return [_pool(call.account, row, region_of_location(location(call))) for row in rows if row.state != DELETING]


def _pools_of(account: Account, cluster: Row) -> list[nodes.Pool]:
    place = str(cluster.outputs["location"])
    rows = _pool_rows(account, cluster.id, str(cluster.inputs["name"]), place)
    return [_pool(account, row, region_of_location(place)) for row in rows if row.state != DELETING]


def _pool_rows(account: Account, cluster_id: str, cluster_name: str, place: str) -> list[Row]:
    """Rows of a cluster's pools, which may name it by its id or, beside a location, by its name."""
    return [
        row
        for row in account.rows(NODE_POOL.token)
        if row.inputs["cluster"] == cluster_id
        or (row.inputs["cluster"] == cluster_name and row.inputs.get("location", place) == place)
    ]


def _pool(account: Account, row: Row, region: str) -> nodes.Pool:
    inputs = row.inputs
    zones = tuple(inputs.get("nodeLocations") or row.outputs.get("nodeLocations") or zones_of(region)[:1])
    cluster = str(inputs["cluster"]).rpartition("/")[2]
    prefix = f"gke-{cluster}-{inputs['name']}-{account.hexadecimal(f'instance group {row.urn}', 8)}"
    place = str(row.urn)
    shown = (row.outputs.get("nodeConfig") or {}).get("effectiveTaints") or machines.config(inputs).get("taints") or []
    return nodes.Pool(
        name=str(inputs["name"]),
        machine=machines.machine(inputs),
        region=region,
        zones=zones,
        size=machines.nodes_per_zone(inputs) * len(zones),
        labels=machines.labels(str(inputs["name"]), inputs),
        taints=machines.node_taints(shown),
        node_name=lambda index, zone: f"{prefix}-{account.hexadecimal(f'{place} node {index}', 4)}",
        provider_id=lambda node, zone: f"gce://{account.name}/{zone}/{node}",
    )


def _suffix(call: Call) -> str:
    return call.account.hexadecimal(f"instance group {call.urn}", 8)


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
        cluster = _cluster_of(call)
        instance = f"gke-{cluster.inputs['name']}-{call.inputs['name']}-{_suffix(call)}-{call.account.hexadecimal(call.urn, 4)}"
        zone = f"projects/{project(call)}/zones/{placement.zone}"
        elsewhere = f" Zones with room: {', '.join(others)}." if others else ""
        return CloudError(
            "GCE_STOCKOUT",
            f"Google Compute Engine: Not all instances running in IGM. Expected {placement.count}, running 0, transitioning"
            f" {placement.count}. Current errors: [GCE_STOCKOUT]: Instance '{instance}' creation failed: The zone '{zone}'"
            " does not have enough resources available to fulfill the request.  Try a different zone, or try again later.",
            status=503,
            remedy=f"isthmus sim capacity {call.account.name} {placement.zone} {placement.machine} {placement.count}."
            f"{elsewhere}",
        )

    return refuse


TYPES = (CLUSTER, NODE_POOL)
