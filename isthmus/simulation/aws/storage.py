"""Object stores, image repositories, keys and log groups: what a cluster's platform needs beside machines.

What matters to a program is names, ownership and that settings belong to a bucket that exists; the objects themselves are
kept by a server of the account (isthmus.simulation.object_servers).
"""

from __future__ import annotations

import re

from isthmus.simulation import object_servers
from isthmus.simulation.aws.base import ARN, PARTITION, REGION, S3_DOC, TAGS, arn, common, region, updated
from isthmus.simulation.resource import Autoname, Behaviour, Call, CloudError, Property, Ref, ResourceType
from isthmus.toolchain.values import Properties

_BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ZONES = {"us-east-1": "Z3AQBSTGFYJSTF", "us-west-2": "Z3BJ6K6RIION7M", "eu-west-1": "Z1BKCTXD74EZPE"}


def _bucket(call: Call) -> Properties:
    name, place = call.inputs["bucket"], region(call)
    return common(
        call,
        arn=f"arn:{PARTITION}:s3:::{name}",
        bucketDomainName=f"{name}.s3.amazonaws.com",
        bucketRegionalDomainName=f"{name}.s3.{place}.amazonaws.com",
        bucketRegion=place,
        hostedZoneId=_ZONES.get(place, f"Z{call.account.hexadecimal(place, 13).upper()}"),
    )


def _validate_bucket(call: Call) -> None:
    name = call.inputs["bucket"]
    if not _BUCKET_NAME.fullmatch(name) or ".." in name or re.fullmatch(r"\d+(\.\d+){3}", name):
        raise CloudError("InvalidBucketName", f"The specified bucket is not valid. ({name})")


def _delete_bucket(call: Call) -> None:
    refusal = CloudError("BucketNotEmpty", "The bucket you tried to delete is not empty", status=409)
    force = bool(call.inputs.get("forceDestroy"))
    object_servers.delete_bucket(call.account, call.inputs["bucket"], force=force, not_empty=refusal)


BUCKET = ResourceType(
    token="aws:s3/bucket:Bucket",
    noun="S3 Bucket",
    properties=(
        Property("bucket", replaces=True),
        Property("bucketPrefix", replaces=True),
        Property("forceDestroy", "bool", default=False),
        Property("objectLockEnabled", "bool", default=False, replaces=True),
        REGION,
        *TAGS,
        ARN,
        Property("bucketDomainName", computed=True),
        Property("bucketRegionalDomainName", computed=True),
        Property("bucketRegion", computed=True),
        Property("hostedZoneId", computed=True),
    ),
    make_id=lambda call: str(call.inputs["bucket"]),
    create=_bucket,
    update=updated,
    delete=_delete_bucket,
    validate=_validate_bucket,
    name=lambda inputs: inputs.get("bucket"),
    everywhere=True,
    aliases=lambda call: (call.outputs["arn"],),
    autoname=Autoname("bucket", "bucketPrefix", 63, lower=True),
    exists=lambda name: CloudError(
        "BucketAlreadyOwnedByYou",
        "Your previous request to create the named bucket succeeded and you already own it.",
        status=409,
    ),
    missing=lambda value: CloudError("NoSuchBucket", f"The specified bucket does not exist ({value})", status=404),
    behaviours=(
        Behaviour("names are 3 to 63 of a-z, 0-9, dot and dash", "documented", "S3 user guide, bucket naming rules"),
        Behaviour("a name that is taken is refused, BucketAlreadyOwnedByYou", "documented", S3_DOC),
        Behaviour("names are unique in this account only, not in the world", "assumed"),
        Behaviour(
            "a bucket with objects is not deleted unless forceDestroy says so, BucketNotEmpty", "documented", S3_DOC
        ),
        Behaviour("objects are served by versitygw: no versions, no key beside a longer one in its folder", "assumed"),
    ),
)


def _setting(
    title: str, noun: str, properties: tuple[Property, ...], absent: str, *, path: str | None = None
) -> ResourceType:
    """A setting of a bucket: one per bucket, its id is the bucket's name."""
    token = f"aws:s3/{path or title[0].lower() + title[1:]}:{title}"
    return ResourceType(
        token=token,
        noun=noun,
        properties=(Property("bucket", required=True, replaces=True), *properties, REGION),
        make_id=lambda call: str(call.inputs["bucket"]),
        create=common,
        everywhere=True,
        # One per bucket. S3 itself overwrites; a second resource for the same bucket is always a mistake.
        name=lambda inputs: inputs.get("bucket"),
        refs=(Ref("bucket", BUCKET.token, holds=False),),
        exists=lambda name: CloudError("OperationAborted", f"bucket {name} has a {noun} already", status=409),
        missing=lambda value: CloudError(absent, f"the bucket {value} has no such configuration", status=404),
        behaviours=(
            Behaviour("the bucket must exist, NoSuchBucket", "documented", S3_DOC),
            Behaviour("a second one for a bucket is refused (S3 overwrites)", "assumed"),
        ),
    )


BUCKET_VERSIONING = _setting(
    "BucketVersioning",
    "S3 Bucket Versioning",
    (
        Property(
            "versioningConfiguration",
            "object",
            required=True,
            fields=(
                Property("status", required=True, choices=("Enabled", "Suspended", "Disabled")),
                Property("mfaDelete", choices=("Enabled", "Disabled")),
            ),
        ),
    ),
    "NoSuchVersioningConfiguration",
)

BUCKET_PUBLIC_ACCESS_BLOCK = _setting(
    "BucketPublicAccessBlock",
    "S3 Bucket Public Access Block",
    (
        Property("blockPublicAcls", "bool", default=False),
        Property("blockPublicPolicy", "bool", default=False),
        Property("ignorePublicAcls", "bool", default=False),
        Property("restrictPublicBuckets", "bool", default=False),
    ),
    "NoSuchPublicAccessBlockConfiguration",
)

BUCKET_ENCRYPTION = _setting(
    "BucketServerSideEncryptionConfiguration",
    "S3 Bucket Server-side Encryption Configuration",
    (
        Property(
            "rules",
            "objects",
            required=True,
            fields=(
                Property(
                    "applyServerSideEncryptionByDefault",
                    "object",
                    fields=(
                        Property("sseAlgorithm", required=True, choices=("AES256", "aws:kms", "aws:kms:dsse")),
                        Property("kmsMasterKeyId"),
                    ),
                ),
                Property("bucketKeyEnabled", "bool"),
            ),
        ),
    ),
    "ServerSideEncryptionConfigurationNotFoundError",
)

BUCKET_OWNERSHIP = _setting(
    "BucketOwnershipControls",
    "S3 Bucket Ownership Controls",
    (
        Property(
            "rule",
            "object",
            required=True,
            fields=(
                Property(
                    "objectOwnership",
                    required=True,
                    choices=("BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter"),
                ),
            ),
        ),
    ),
    "OwnershipControlsNotFoundError",
)

_RULE = (
    Property("id", required=True),
    Property("status", required=True, choices=("Enabled", "Disabled")),
    Property("filter", "object", fields=(Property("prefix"),)),
    Property("abortIncompleteMultipartUpload", "object", fields=(Property("daysAfterInitiation", "int"),)),
    Property("expiration", "object", fields=(Property("days", "int"), Property("expiredObjectDeleteMarker", "bool"))),
    Property(
        "noncurrentVersionExpiration",
        "object",
        fields=(Property("noncurrentDays", "int", required=True), Property("newerNoncurrentVersions", "int")),
    ),
)

BUCKET_LIFECYCLE = _setting(
    "BucketLifecycleConfiguration",
    "S3 Bucket Lifecycle Configuration",
    (Property("rules", "objects", fields=_RULE),),
    "NoSuchLifecycleConfiguration",
)


def _repository_missing(value: str) -> CloudError:
    return CloudError(
        "RepositoryNotFoundException", f"The repository with name '{value}' does not exist in the registry"
    )


REPOSITORY = ResourceType(
    token="aws:ecr/repository:Repository",
    noun="ECR Repository",
    properties=(
        Property("name", replaces=True),
        Property("imageTagMutability", default="MUTABLE", choices=("MUTABLE", "IMMUTABLE")),
        Property("imageScanningConfiguration", "object", fields=(Property("scanOnPush", "bool", required=True),)),
        Property(
            "encryptionConfigurations",
            "objects",
            replaces=True,
            fields=(Property("encryptionType", choices=("AES256", "KMS")), Property("kmsKey")),
        ),
        Property("forceDelete", "bool"),
        REGION,
        *TAGS,
        ARN,
        Property("registryId", computed=True),
        Property("repositoryUrl", computed=True),
    ),
    make_id=lambda call: str(call.inputs["name"]),
    create=lambda call: common(
        call,
        arn=arn(call, "ecr", f"repository/{call.id}"),
        registryId=call.config["accountNumber"],
        repositoryUrl=f"{call.config['accountNumber']}.dkr.ecr.{region(call)}.amazonaws.com/{call.id}",
    ),
    update=updated,
    name=lambda inputs: inputs.get("name"),
    aliases=lambda call: (call.outputs["arn"],),
    autoname=Autoname("name", lower=True),
    exists=lambda name: CloudError(
        "RepositoryAlreadyExistsException", f"The repository with name '{name}' already exists in the registry"
    ),
    missing=_repository_missing,
    behaviours=(
        Behaviour(
            "a name that is taken is refused, RepositoryAlreadyExistsException", "documented", "ECR API reference"
        ),
        Behaviour("serves no images; its address resolves nowhere", "assumed"),
    ),
)


def _validate_key(call: Call) -> None:
    days = call.inputs.get("deletionWindowInDays", 30)
    if not 7 <= days <= 30:
        raise CloudError("ValidationException", "PendingWindowInDays must be between 7 and 30")


def _key_missing(value: str) -> CloudError:
    return CloudError("NotFoundException", f"Key '{value}' does not exist")


def _uuid(call: Call) -> str:
    digits = call.account.hexadecimal(call.urn, 32)
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


KEY = ResourceType(
    token="aws:kms/key:Key",
    noun="KMS Key",
    properties=(
        Property("description", filled=True),
        Property("deletionWindowInDays", "int"),
        Property("enableKeyRotation", "bool", default=False),
        Property("isEnabled", "bool", default=True),
        Property("keyUsage", default="ENCRYPT_DECRYPT", replaces=True),
        Property("customerMasterKeySpec", default="SYMMETRIC_DEFAULT", replaces=True),
        Property("multiRegion", "bool", default=False, replaces=True),
        Property("policy", filled=True, json=True),
        REGION,
        *TAGS,
        ARN,
        Property("keyId", computed=True),
    ),
    make_id=_uuid,
    create=lambda call: common(
        call,
        arn=arn(call, "kms", f"key/{call.id}"),
        keyId=call.id,
        description=call.inputs.get("description", ""),
        policy=call.inputs.get("policy") or _key_policy(call),
    ),
    update=updated,
    validate=_validate_key,
    aliases=lambda call: (call.outputs["arn"],),
    missing=_key_missing,
    behaviours=(
        Behaviour("a deleted key is gone at once; the real one waits 7 to 30 days", "assumed"),
        Behaviour("nothing is encrypted with it", "assumed"),
    ),
)


def _key_policy(call: Call) -> str:
    root = f"arn:{PARTITION}:iam::{call.config['accountNumber']}:root"
    return (
        '{"Id":"key-default-1","Statement":[{"Action":"kms:*","Effect":"Allow","Principal":{"AWS":"' + root + '"},'
        '"Resource":"*","Sid":"Enable IAM User Permissions"}],"Version":"2012-10-17"}'
    )


KEY_ALIAS = ResourceType(
    token="aws:kms/alias:Alias",
    noun="KMS Alias",
    properties=(
        Property("name", replaces=True),
        Property("namePrefix", replaces=True),
        Property("targetKeyId", required=True),
        REGION,
        ARN,
        Property("targetKeyArn", computed=True),
    ),
    make_id=lambda call: str(call.inputs["name"]),
    create=lambda call: common(
        call, arn=arn(call, "kms", call.id), targetKeyArn=arn(call, "kms", f"key/{call.inputs['targetKeyId']}")
    ),
    name=lambda inputs: inputs.get("name"),
    validate=lambda call: _check_alias(call.inputs["name"]),
    refs=(Ref("targetKeyId", KEY.token, holds=False),),
    autoname=Autoname("name", "namePrefix", 256),
    exists=lambda name: CloudError("AlreadyExistsException", f"An alias with the name {name} already exists"),
    missing=lambda value: CloudError("NotFoundException", f"Alias {value} is not found."),
    behaviours=(Behaviour("names start with alias/", "documented", "KMS API reference, CreateAlias"),),
)


def _check_alias(name: str) -> None:
    if not name.startswith("alias/"):
        raise CloudError("ValidationException", f"Alias name {name} must begin with 'alias/'")


LOG_GROUP = ResourceType(
    token="aws:cloudwatch/logGroup:LogGroup",
    noun="CloudWatch Logs Log Group",
    properties=(
        Property("name", replaces=True),
        Property("namePrefix", replaces=True),
        Property("retentionInDays", "int", default=0),
        Property("kmsKeyId"),
        Property("logGroupClass", default="STANDARD", replaces=True),
        Property("skipDestroy", "bool", default=False),
        REGION,
        *TAGS,
        ARN,
    ),
    make_id=lambda call: str(call.inputs["name"]),
    create=lambda call: common(call, arn=arn(call, "logs", f"log-group:{call.id}")),
    update=updated,
    name=lambda inputs: inputs.get("name"),
    validate=lambda call: _check_retention(call.inputs.get("retentionInDays", 0)),
    aliases=lambda call: (call.outputs["arn"],),
    autoname=Autoname("name", "namePrefix", 512),
    exists=lambda name: CloudError("ResourceAlreadyExistsException", "The specified log group already exists"),
    missing=lambda value: CloudError("ResourceNotFoundException", "The specified log group does not exist."),
    behaviours=(
        Behaviour(
            "days of retention are those CloudWatch takes", "documented", "CloudWatch Logs API, PutRetentionPolicy"
        ),
        Behaviour("no logs arrive in it", "assumed"),
    ),
)

_DAYS = (0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653)


def _check_retention(days: int) -> None:
    if days not in _DAYS:
        raise CloudError("InvalidParameterException", f"retentionInDays must be one of {', '.join(map(str, _DAYS))}")


TYPES = (
    BUCKET,
    BUCKET_VERSIONING,
    BUCKET_PUBLIC_ACCESS_BLOCK,
    BUCKET_ENCRYPTION,
    BUCKET_OWNERSHIP,
    BUCKET_LIFECYCLE,
    REPOSITORY,
    KEY,
    KEY_ALIAS,
    LOG_GROUP,
)
