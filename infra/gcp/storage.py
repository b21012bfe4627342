"""Buckets and image registries."""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp


@dataclass(frozen=True)
class DataBucketArgs:
    """What a bucket needs to know."""

    bucket_name: str
    region: str
    force_destroy: bool
    """Deleting the bucket deletes its objects."""


class DataBucket(pulumi.ComponentResource):
    """A Cloud Storage bucket in one region: versioned, rights by IAM only, public access impossible. Output: bucket."""

    def __init__(self, name: str, args: DataBucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("isthmus:gcp:DataBucket", name, None, opts)
        bucket = gcp.storage.Bucket(
            name,
            name=args.bucket_name,
            location=args.region.upper(),
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            versioning={"enabled": True},
            force_destroy=args.force_destroy,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.bucket: pulumi.Output[str] = bucket.name
        self.register_outputs({"bucket": self.bucket})


@dataclass(frozen=True)
class ImageRegistryArgs:
    """What a repository needs to know."""

    repository_id: str
    region: str
    project: str


class ImageRegistry(pulumi.ComponentResource):
    """An Artifact Registry repository for images whose tags cannot be moved. Output: url."""

    def __init__(self, name: str, args: ImageRegistryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("isthmus:gcp:ImageRegistry", name, None, opts)
        repository = gcp.artifactregistry.Repository(
            name,
            repository_id=args.repository_id,
            location=args.region,
            format="DOCKER",
            docker_config={"immutable_tags": True},
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.url: pulumi.Output[str] = repository.repository_id.apply(
            lambda made: f"{args.region}-docker.pkg.dev/{args.project}/{made}"
        )
        self.register_outputs({"url": self.url})
