"""GKE clusters. Each is a local cluster, whose nodes its pools decide (node_pools.py).

Everything Kubernetes about them is real and shared with the other cloud (nodes.py, admission.py); here is what GKE
decides: names, versions, ranges, labels, and what it deploys by itself.
Autopilot is not understood: `enableAutopilot` is refused by name (case A05).
"""

from __future__ import annotations

import base64
import ipaddress

from isthmus import catalog
from isthmus.localcluster.runtime import KUBERNETES_MINOR
from isthmus.simulation import disks, local, nodes
from isthmus.simulation.account import Account
from isthmus.simulation.gcp import pools, system
from isthmus.simulation.gcp.base import (
    ABSENT,
    CLOUD_NAME,
    GKE_DOC,
    labelled,
    location,
    project,
    region_of_location,
    zones_of,
)
from isthmus.simulation.gcp.container_properties import CLUSTER_PROPERTIES
from isthmus.simulation.gcp.iam import ACCOUNT
from isthmus.simulation.gcp.network import NETWORK, SUBNETWORK
from isthmus.simulation.resource import (
    Autoname,
    Behaviour,
    Call,
    CloudError,
    Ref,
    ResourceType,
)
from isthmus.specs.errors import NotFound
from isthmus.toolchain.values import Properties

PATCH = "4-gke.1000000"
"""Appended to the minor version: GKE's versions look like 1.36.4-gke.1000000."""
CONTROL_PLANE_PREFIX = 28
DEFAULT_ACCOUNT = "default"


def seconds(operation: str) -> tuple[float, float]:
    """How long an operation takes on the real cloud: the catalog's figure, a tenth less to a tenth more."""
    known = float(catalog.load().latency(CLOUD_NAME, operation).seconds)
    return (known * 0.9, known * 1.1)


def local_cluster_name(account: Account, place: str, name: str) -> str:
    """The local cluster behind a simulated GKE cluster."""
    return local.local_name(account.name, place, name)


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
    cluster = nodes.reconcile(
        call.account, name, lambda: pools.of_cluster(call.account, call.id, call.inputs["name"], location(call))
    )
    backend = local.backend()
    backend.admit(cluster)
    if _has_disks(call.inputs):
        backend.load_disk_driver(cluster)
        backend.apply(
            cluster, [*disks.manifests(system.DISK_DRIVER, system.DISK_CONTROLLER), *system.storage_classes()]
        )
    return {
        **_cluster_outputs(call),
        "endpoint": cluster.endpoint.removeprefix("https://"),
        "masterAuth": {"clusterCaCertificate": base64.b64encode(cluster.ca_certificate.encode()).decode()},
    }


def _has_disks(inputs: Properties) -> bool:
    """The disk driver is an add-on that GKE switches on by itself."""
    addon = (inputs.get("addonsConfig") or {}).get("gcePersistentDiskCsiDriverConfig") or {}
    return bool(addon.get("enabled", True))


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
    for row in pools.rows(call.account, call.id, call.inputs["name"], location(call)):
        call.account.remove(pools.POOL_TOKEN, row.key)


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
    create_seconds=seconds("gke-cluster-create"),
    delete_seconds=seconds("gke-cluster-delete"),
    behaviours=(
        ABSENT,
        Behaviour("a real Kubernetes API server on this machine, one local node, no default pool left", "assumed"),
        Behaviour("with every pool deleted the local node stays, without labels of a pool", "assumed"),
        Behaviour("deletion_protection refuses a delete", "documented", "google_container_cluster, Terraform provider"),
        Behaviour("the pods' and services' ranges must be secondary ranges of the subnet", "documented", GKE_DOC),
        Behaviour("any Kubernetes minor version but the installed one is refused as unsupported", "assumed"),
        Behaviour("ranges, private nodes and network policy have no effect on pods", "assumed"),
        Behaviour(
            "standard-rwo is there and the default class; local-path-provisioner serves it under the driver's name",
            "documented",
            GKE_DOC,
        ),
    ),
)

TYPES = (CLUSTER,)
