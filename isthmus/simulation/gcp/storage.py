"""Cloud Storage buckets with their grants, and Artifact Registry repositories. Objects are kept by a server of the account
(isthmus.simulation.object_servers); no image is kept."""

from __future__ import annotations

import re

from isthmus.simulation import object_servers
from isthmus.simulation.gcp.base import LABELS, PROJECT, SELF_LINK, STORAGE_DOC, etag, labelled, location, project
from isthmus.simulation.gcp.iam import ETAG, MEMBER, MEMBER_REF, PUBLIC_MEMBERS, ROLE, validate_grant
from isthmus.simulation.resource import Autoname, Behaviour, Call, CloudError, Property, Ref, ResourceType
from isthmus.toolchain.values import Properties

BUCKET_RULE = r"[a-z0-9]([-a-z0-9_.]{1,220}[a-z0-9])"
LABEL_LIMIT = 63
"""Each part of a bucket name between dots."""


def _validate_bucket(call: Call) -> None:
    name = str(call.inputs["name"])
    parts = name.split(".")
    if not re.fullmatch(BUCKET_RULE, name) or name.startswith("goog") or any(len(part) > LABEL_LIMIT for part in parts):
        raise CloudError("invalid", f"Invalid bucket name: '{name}'")


def _bucket(call: Call) -> Properties:
    name = call.inputs["name"]
    return {
        "project": project(call),
        "url": f"gs://{name}",
        "selfLink": f"https://www.googleapis.com/storage/v1/b/{name}",
        "storageClass": call.inputs.get("storageClass", "STANDARD"),
        "publicAccessPrevention": call.inputs.get("publicAccessPrevention", "inherited"),
        **labelled(call),
    }


def _delete_bucket(call: Call) -> None:
    name = call.inputs["name"]
    refusal = CloudError("conflict", f"The bucket you tried to delete ({name}) is not empty.", status=409)
    object_servers.delete_bucket(call.account, name, force=bool(call.inputs.get("forceDestroy")), not_empty=refusal)


BUCKET = ResourceType(
    token="gcp:storage/bucket:Bucket",
    noun="Bucket",
    properties=(
        Property("name", replaces=True, filled=True),
        Property("location", required=True, replaces=True),
        Property("storageClass", filled=True),
        Property("forceDestroy", "bool", default=False),
        Property("uniformBucketLevelAccess", "bool", default=False),
        Property("publicAccessPrevention", filled=True, choices=("enforced", "inherited")),
        Property("versioning", "object", fields=(Property("enabled", "bool", required=True),)),
        *LABELS,
        PROJECT,
        SELF_LINK,
        Property("url", computed=True),
    ),
    make_id=lambda call: str(call.inputs["name"]),
    create=_bucket,
    update=labelled,
    delete=_delete_bucket,
    validate=_validate_bucket,
    name=lambda inputs: str(inputs["name"]) if "name" in inputs else None,
    everywhere=True,
    autoname=Autoname(max_length=63, lower=True),
    missing=lambda value: CloudError("notFound", "The specified bucket does not exist.", status=404),
    exists=lambda name: CloudError(
        "conflict",
        "The requested bucket name is not available. The bucket namespace is shared by all users of the system. Please"
        " select a different name and try again.",
        status=409,
    ),
    create_seconds=(1.0, 3.0),
    delete_seconds=(1.0, 3.0),
    behaviours=(
        Behaviour("names are shared by all projects", "documented", STORAGE_DOC),
        Behaviour("a bucket with objects is not deleted unless forceDestroy says so", "documented", STORAGE_DOC),
        Behaviour(
            "objects are served by fake-gcs-server: no versions, no names over 255 bytes between slashes", "assumed"
        ),
    ),
)


def _validate_bucket_grant(call: Call) -> None:
    validate_grant(call)
    bucket = call.find(BUCKET.token, str(call.inputs["bucket"]))
    closed = bucket is not None and bucket.inputs.get("publicAccessPrevention") == "enforced"
    if closed and call.inputs["member"] in PUBLIC_MEMBERS:
        raise CloudError(
            "conditionNotMet",
            "The member bindings allUsers and allAuthenticatedUsers are not allowed since public access prevention is"
            " enforced.",
            status=412,
        )


BUCKET_MEMBER = ResourceType(
    token="gcp:storage/bucketIAMMember:BucketIAMMember",
    noun="IAM Member of bucket",
    properties=(Property("bucket", required=True, replaces=True), ROLE, MEMBER, ETAG),
    make_id=lambda call: f"b/{call.inputs['bucket']}/{call.inputs['role']}/{call.inputs['member']}",
    create=etag,
    validate=_validate_bucket_grant,
    name=lambda inputs: f"{inputs.get('bucket')}/{inputs.get('role')}/{inputs.get('member')}",
    everywhere=True,
    refs=(Ref("bucket", BUCKET.token, holds=False), MEMBER_REF),
    create_seconds=(2.0, 5.0),
    delete_seconds=(2.0, 5.0),
    behaviours=(Behaviour("public members are refused under public access prevention", "documented", STORAGE_DOC),),
)


def _repository(call: Call) -> Properties:
    identity = call.inputs["repositoryId"]
    return {
        "project": project(call),
        "location": location(call),
        "mode": call.inputs.get("mode", "STANDARD_REPOSITORY"),
        "name": identity,
        "registryUri": f"{location(call)}-docker.pkg.dev/{project(call)}/{identity}",
        **labelled(call),
    }


REPOSITORY = ResourceType(
    token="gcp:artifactregistry/repository:Repository",
    noun="Repository",
    properties=(
        Property("repositoryId", required=True, replaces=True),
        Property(
            "format", required=True, replaces=True, choices=("DOCKER", "MAVEN", "NPM", "PYTHON", "APT", "YUM", "GO")
        ),
        Property("location", filled=True, replaces=True),
        Property("description"),
        Property("mode", filled=True, replaces=True),
        Property("dockerConfig", "object", fields=(Property("immutableTags", "bool", default=False),)),
        *LABELS,
        PROJECT,
        Property("name", computed=True),
        Property("registryUri", computed=True),
    ),
    make_id=lambda call: (
        f"projects/{project(call)}/locations/{location(call)}/repositories/{call.inputs['repositoryId']}"
    ),
    create=_repository,
    update=labelled,
    name=lambda inputs: str(inputs["repositoryId"]) if "repositoryId" in inputs else None,
    aliases=lambda call: (str(call.inputs["repositoryId"]),),
    exists=lambda name: CloudError("alreadyExists", "the repository already exists.", status=409),
    create_seconds=(5.0, 15.0),
    delete_seconds=(5.0, 15.0),
    behaviours=(Behaviour("no image is kept", "assumed"),),
)

TYPES = (BUCKET, BUCKET_MEMBER, REPOSITORY)
