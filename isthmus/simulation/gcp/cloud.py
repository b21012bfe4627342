"""Simulated Google Cloud, assembled: its types, functions, provider arguments and the way its errors read."""

from __future__ import annotations

import re

from isthmus import catalog
from isthmus.simulation.gcp import container, iam, network, node_pools, storage
from isthmus.simulation.gcp.base import CLOUD_NAME, project_number, quotas, region_of_location, zones_of
from isthmus.simulation.resource import Behaviour, Cloud, CloudError, Function, Property, ResourceType, registry
from isthmus.specs.stack import SIMULATED_PLUGIN_VERSION
from isthmus.toolchain.values import Properties

PROJECT_RULE = re.compile(r"[a-z][-a-z0-9]{4,28}[a-z0-9]")
FROM_OPERATIONS = ("QUOTA_EXCEEDED", "GCE_STOCKOUT")
"""Codes that come out of a long-running operation, not of the request itself."""

CONFIGURATION = (
    Property("project", required=True),
    Property("region"),
    Property("zone"),
    Property("defaultLabels", "map"),
    Property("addPulumiAttributionLabel", "bool"),
    Property("userProjectOverride", "bool"),
    Property("billingProject"),
)


def _configure(values: Properties, account: str) -> Properties:
    if not PROJECT_RULE.fullmatch(account):
        raise CloudError("badRequest", f"Invalid project id: {account}", remedy="set isthmus:account to a project id")
    region = values.get("region")
    known = catalog.load().regions(CLOUD_NAME)
    if region is not None and region not in known:
        raise CloudError("badRequest", f"Unknown region {region}; the simulated cloud knows {', '.join(known)}")
    return {
        "project": account,
        "region": region or "",
        "projectNumber": project_number(account),
        "defaultLabels": values.get("defaultLabels") or {},
    }


def _region_of(inputs: Properties, config: Properties) -> str:
    place = inputs.get("region") or inputs.get("location")
    return region_of_location(str(place).lower()) if place else str(config.get("region", ""))


def _render(verb: str, kind: ResourceType | None, name: str, error: CloudError) -> str:
    """An error as Google's provider prints it, and on a line of its own what to type."""
    noun = kind.noun if kind else name
    if error.code == "deletionProtection":
        text = error.message
    elif error.code in FROM_OPERATIONS:
        text = f"Error waiting for {verb} {noun} {name}: {error.message}"
    else:
        text = f"Error {verb} {noun} {name}: googleapi: Error {error.status}: {error.message}, {error.code}"
    return f"{text}\n  next: {error.remedy}" if error.remedy else text


FUNCTIONS = (
    Function(
        "gcp:organizations/getClientConfig:getClientConfig",
        (),
        lambda given, config, account: iam.client_config(config),
        (Behaviour("gives project and region, never an access token", "assumed"),),
    ),
    Function(
        "gcp:organizations/getProject:getProject",
        (Property("projectId"),),
        lambda given, config, account: iam.project_info(config),
        (Behaviour("knows the provider's own project only", "assumed"),),
    ),
)

CLOUD = Cloud(
    name=CLOUD_NAME,
    version=SIMULATED_PLUGIN_VERSION,
    types=registry(*network.TYPES, *iam.TYPES, *storage.TYPES, *container.TYPES, *node_pools.TYPES),
    functions={function.token: function for function in FUNCTIONS},
    configuration=CONFIGURATION,
    account_of=lambda values: str(values["project"]),
    configure=_configure,
    region_of=_region_of,
    render=_render,
    quotas=quotas(),
    over_quota=node_pools.quota_refusal,
    out_of_capacity=node_pools.stockout,
    zones=zones_of,
    still_attached=lambda kind, identity, interface: CloudError(
        "resourceInUseByAnotherResource",
        f"The {kind.noun} resource '{identity}' is already being used by '{interface}'",
    ),
)
