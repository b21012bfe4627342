"""Buckets, image registries, and the identities that pods use them with."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.aws.roles import POD_IDENTITY, Role, RoleArgs

OBJECT_ACTIONS = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]


@dataclass(frozen=True)
class DataBucketArgs:
    """What a bucket needs to know."""

    bucket_name: pulumi.Input[str]
    force_destroy: bool
    """Deleting the bucket deletes its objects."""


class DataBucket(pulumi.ComponentResource):
    """An S3 bucket: versioned, encrypted, owned by its account alone, closed to the public. Outputs: bucket, arn."""

    def __init__(self, name: str, args: DataBucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("isthmus:aws:DataBucket", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        bucket = aws.s3.Bucket(name, bucket=args.bucket_name, force_destroy=args.force_destroy, opts=child)
        aws.s3.BucketVersioning(name, bucket=bucket.id, versioning_configuration={"status": "Enabled"}, opts=child)
        aws.s3.BucketServerSideEncryptionConfiguration(
            name,
            bucket=bucket.id,
            rules=[{"apply_server_side_encryption_by_default": {"sse_algorithm": "AES256"}}],
            opts=child,
        )
        aws.s3.BucketOwnershipControls(
            name, bucket=bucket.id, rule={"object_ownership": "BucketOwnerEnforced"}, opts=child
        )
        aws.s3.BucketPublicAccessBlock(
            name,
            bucket=bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=child,
        )
        self.bucket: pulumi.Output[str] = bucket.bucket
        self.arn: pulumi.Output[str] = bucket.arn
        self.register_outputs({"bucket": self.bucket})


@dataclass(frozen=True)
class ImageRegistryArgs:
    """What a repository needs to know."""

    repository_name: str
    force_delete: bool
    """Deleting the repository deletes its images."""


class ImageRegistry(pulumi.ComponentResource):
    """An ECR repository whose tags cannot be moved and whose images are scanned. Output: url."""

    def __init__(self, name: str, args: ImageRegistryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("isthmus:aws:ImageRegistry", name, None, opts)
        repository = aws.ecr.Repository(
            name,
            name=args.repository_name,
            image_tag_mutability="IMMUTABLE",
            image_scanning_configuration={"scan_on_push": True},
            encryption_configurations=[{"encryption_type": "AES256"}],
            force_delete=args.force_delete,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.url: pulumi.Output[str] = repository.repository_url
        self.register_outputs({"url": self.url})


@dataclass(frozen=True)
class BucketAccessArgs:
    """Which service account may use which bucket."""

    cluster_name: pulumi.Input[str]
    role_name: str
    namespace: str
    service_account: str
    bucket_arn: pulumi.Output[str]


class BucketAccess(pulumi.ComponentResource):
    """A role for one service account, linked by EKS Pod Identity: the cluster's side carries no annotation."""

    def __init__(self, name: str, args: BucketAccessArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("isthmus:aws:BucketAccess", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        statements = args.bucket_arn.apply(
            lambda arn: [
                {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [arn]},
                {"Effect": "Allow", "Action": OBJECT_ACTIONS, "Resource": [f"{arn}/*"]},
            ]
        )
        role = Role(
            name,
            RoleArgs(
                args.role_name,
                POD_IDENTITY,
                f"Service account {args.namespace}/{args.service_account}",
                statements=statements,
            ),
            child,
        )
        aws.eks.PodIdentityAssociation(
            name,
            cluster_name=args.cluster_name,
            namespace=args.namespace,
            service_account=args.service_account,
            role_arn=role.arn,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[role]),
        )
        self.role_arn: pulumi.Output[str] = role.arn
        self.register_outputs({"roleArn": self.role_arn})
