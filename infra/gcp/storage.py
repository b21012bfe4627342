"""Buckets and image registries."""

import pulumi
import pulumi_gcp as gcp


class DataBucket(pulumi.ComponentResource):
    """A Cloud Storage bucket in one region: versioned, rights by IAM only, public access impossible. Output: bucket."""

    def __init__(
        self,
        name: str,
        bucket_name: str,
        region: str,
        force_destroy: bool,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("isthmus:gcp:DataBucket", name, None, opts)
        bucket = gcp.storage.Bucket(
            name,
            name=bucket_name,
            location=region.upper(),
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            versioning={"enabled": True},
            force_destroy=force_destroy,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.bucket: pulumi.Output[str] = bucket.name
        self.register_outputs({"bucket": self.bucket})


class ImageRegistry(pulumi.ComponentResource):
    """An Artifact Registry repository for images whose tags cannot be moved. Output: url."""

    def __init__(
        self, name: str, repository_id: str, region: str, project: str, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("isthmus:gcp:ImageRegistry", name, None, opts)
        repository = gcp.artifactregistry.Repository(
            name,
            repository_id=repository_id,
            location=region,
            format="DOCKER",
            docker_config={"immutable_tags": True},
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.url: pulumi.Output[str] = repository.repository_id.apply(
            lambda made: f"{region}-docker.pkg.dev/{project}/{made}"
        )
        self.register_outputs({"url": self.url})
