"""What every GCP resource type shares: names, labels, self links, Google's error texts, quotas of the catalog."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from isthmus import catalog
from isthmus.simulation import clock
from isthmus.simulation.account import Row
from isthmus.simulation.quota import Quota
from isthmus.simulation.resource import Behaviour, Call, CloudError, Property
from isthmus.toolchain.values import Properties

CLOUD_NAME = "gcp"
COMPUTE_DOC = "Compute Engine API v1 reference"
GKE_DOC = "Kubernetes Engine API v1 reference"
IAM_DOC = "IAM API v1 reference"
STORAGE_DOC = "Cloud Storage JSON API v1 reference"
COMPUTE = "https://www.googleapis.com/compute/v1/"

STARTING_GPUS = 16.0
"""Cards of each GPU quota that a simulated project starts with, in place of a new project's 0: four nodes of four."""
STARTING_GPUS_ALL_REGIONS = 32.0
STARTING_CPUS = 96.0
"""vCPUs of each CPU quota, in place of a new project's 24 or 32: room for the nodes of those cards and as many again."""

PROJECT = Property("project", filled=True, replaces=True)
REGION = Property("region", filled=True, replaces=True)
SELF_LINK = Property("selfLink", computed=True)
CREATED = Property("creationTimestamp", computed=True)
LABELS = (
    Property("labels", "map"),
    Property("pulumiLabels", "map", computed=True, volatile=True),
    Property("effectiveLabels", "map", computed=True, volatile=True),
)
ATTRIBUTION = {"goog-pulumi-provisioned": "true"}
"""The label that the real provider adds to everything unless told not to."""
NAME_RULE = "(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)"

ABSENT = Behaviour("naming one that does not exist is refused with notFound", "documented", COMPUTE_DOC)
IN_USE = Behaviour("deleting one in use is refused with resourceInUseByAnotherResource", "documented", COMPUTE_DOC)


def project_number(project: str) -> str:
    """The twelve-digit number of a simulated project, made from its id."""
    digits = int(hashlib.sha256(f"gcp project {project}".encode()).hexdigest(), 16)
    return str(10**11 + digits % (9 * 10**11))


def project(call: Call) -> str:
    """The project a resource is in: its own argument, else the provider's."""
    return str(call.inputs.get("project") or call.config["project"])


def region(call: Call) -> str:
    """The region a resource is in: its own argument, else the provider's."""
    return str(call.inputs.get("region") or call.config["region"])


def location(call: Call) -> str:
    """The region or zone of a resource with a `location`."""
    return str(call.inputs.get("location") or call.config["region"])


def global_id(collection: str) -> Callable[[Call], str]:
    """A maker of ids like projects/P/global/networks/N."""
    return lambda call: f"projects/{project(call)}/global/{collection}/{call.inputs['name']}"


def regional_id(collection: str) -> Callable[[Call], str]:
    """A maker of ids like projects/P/regions/R/subnetworks/N."""
    return lambda call: f"projects/{project(call)}/regions/{region(call)}/{collection}/{call.inputs['name']}"


def named(inputs: Properties) -> str | None:
    """The natural name of most types."""
    name = inputs.get("name")
    return str(name) if name is not None else None


def linked(call: Call) -> tuple[str, ...]:
    """Other ways to name a Compute resource: its self link and its bare name."""
    return (f"{COMPUTE}{call.id}", str(call.inputs.get("name", call.id)))


def compute(call: Call, **outputs: Any) -> Properties:
    """Outputs that most Compute types have, and the given ones."""
    found: Properties = {"project": project(call), "selfLink": f"{COMPUTE}{call.id}"}
    if call.type.property("region"):
        found["region"] = region(call)
    if call.type.property("creationTimestamp"):
        found["creationTimestamp"] = clock.now(call.account)
    return {**found, **outputs}


def labelled(call: Call, own: str = "labels") -> Properties:
    """The labels a resource ends up with: the program's, the provider's defaults, and Pulumi's own mark."""
    labels = {**ATTRIBUTION, **call.config.get("defaultLabels", {}), **call.inputs.get(own, {})}
    return {"pulumiLabels": labels, "effectiveLabels": labels}


def etag(call: Call) -> Properties:
    """The etag of a policy or an object after a change: different after each."""
    return {"etag": base64.b64encode(bytes.fromhex(call.account.hexadecimal(f"{call.urn} etag", 16))).decode()}


def check_name(call: Call) -> None:
    """Refuses a name that Compute Engine does not take."""
    name = str(call.inputs.get("name", ""))
    if not re.fullmatch(NAME_RULE, name):
        raise CloudError(
            "invalid", f"Invalid value for field 'resource.name': '{name}'. Must be a match of regex '{NAME_RULE}'"
        )


def missing(collection: str) -> Callable[[str], CloudError]:
    """Google's not-found error; the value named may be a full path or a bare name."""

    def error(value: str) -> CloudError:
        shown = value.removeprefix(COMPUTE)
        return CloudError("notFound", f"The resource '{_path(shown, collection)}' was not found", status=404)

    return error


def exists(collection: str) -> Callable[[str], CloudError]:
    """Google's already-exists error."""
    return lambda value: CloudError(
        "alreadyExists", f"The resource '{_path(value, collection)}' already exists", status=409
    )


def busy(noun: str) -> Callable[[str, Row], CloudError]:
    """Compute Engine's refusal to delete what is in use."""
    return lambda name, user: CloudError(
        "resourceInUseByAnotherResource",
        f"The {noun} resource '{name}' is already being used by '{user.id}'",
        status=400,
    )


@cache
def quotas() -> dict[str, Quota]:
    """The catalog's quotas of GCP by code. Those for cards and vCPUs start higher than a new project's."""
    found: dict[str, Quota] = {}
    for fact in catalog.load().quotas(CLOUD_NAME):
        default = float(fact.default) if fact.default is not None else None
        gpus = STARTING_GPUS_ALL_REGIONS if fact.scope == "global" else STARTING_GPUS
        start = {"gpus": gpus, "vcpus": STARTING_CPUS}.get(fact.unit, default or 0.0)
        found[fact.code] = Quota(fact.code, fact.name, fact.unit, default, start, fact.source)
    return found


def zones_of(region_name: str) -> tuple[str, ...]:
    """The zones of a region in the catalog; none for a region it does not have."""
    known = catalog.load()
    if region_name not in known.regions(CLOUD_NAME):
        return ()
    return tuple(zone.name for zone in known.zones(CLOUD_NAME, region_name))


def region_of_location(place: str) -> str:
    """us-central1 for itself and for its zone us-central1-a."""
    return place if place.count("-") < 2 else place.rpartition("-")[0]


def _path(value: str, collection: str) -> str:
    return value if "/" in value else f"{collection}/{value}"
