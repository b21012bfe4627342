"""Amazon EKS as a Cloud. It chooses names and machines; the components beside it make the resources."""

from dataclasses import dataclass
from functools import cached_property

import pulumi
import pulumi_aws as aws

from infra import checks, kubeconfig
from infra.aws.nodes import PlacedPool
from infra.aws.platform import Platform, PlatformArgs
from infra.aws.storage import (
    BucketAccess,
    BucketAccessArgs,
    DataBucket,
    DataBucketArgs,
    ImageRegistry,
    ImageRegistryArgs,
)
from infra.cloud import Bucket, Cluster, Pool, Registry, StorageClass, WorkloadIdentity
from infra.names import fit
from isthmus.catalog import Catalog
from isthmus.specs import labels
from isthmus.specs.cluster import ClusterSpec, NodePool
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.stack import StackSettings

BUCKET_NAME_LIMIT = 63
CONTROL_PLANE_ZONES = 2
"""EKS wants subnets in at least two zones (Amazon EKS user guide, network requirements)."""
CLUSTER_TAG = labels.PREFIX + "cluster"


@dataclass(frozen=True)
class EksCluster(Cluster):
    """An EKS cluster with what makes further pools of it."""

    platform: Platform


@dataclass(frozen=True)
class S3Bucket(Bucket):
    """An S3 bucket with its ARN, which policies name it by."""

    arn: pulumi.Output[str]


class Aws:
    """See infra.cloud.Cloud."""

    name = "aws"
    provides_device_plugin = False

    def __init__(self, settings: StackSettings, catalog: Catalog) -> None:
        self._settings = settings
        self._catalog = catalog
        self._tags = {labels.MANAGED_BY: labels.OWNER, CLUSTER_TAG: settings.cluster_name}

    def check(self) -> None:
        """See Cloud.check."""
        if len(self._settings.zones) < CONTROL_PLANE_ZONES:
            raise InvalidSpec(
                f"EKS wants at least {CONTROL_PLANE_ZONES} zones; the stack has {len(self._settings.zones)}",
                subject="setting zones",
                remedy=f"name more zones of {self._settings.region}: {', '.join(self._zones())}",
            )
        checks.places(self._catalog, self._settings)
        checks.machines(self._catalog, self._settings)
        self._check_admins()

    def cluster(self, spec: ClusterSpec) -> EksCluster:
        """See Cloud.cluster."""
        args = PlatformArgs(
            spec=spec,
            system=self._placed(spec.system_pool),
            nat_per_zone=self._settings.nat_per_zone,
            admins=self._settings.admins,
            deletion_protection=self._settings.deletion_protection,
            tags=self._tags,
        )
        platform = Platform(spec.name, args, self._owned)
        return EksCluster(
            name=spec.name,
            spec=spec,
            endpoint=platform.control_plane.endpoint,
            ca_certificate=platform.control_plane.ca_certificate,
            resource=platform,
            platform=platform,
        )

    def node_pool(self, cluster: Cluster, pool: NodePool) -> Pool:
        """See Cloud.node_pool."""
        placed = self._placed(pool)
        return Pool(pool.name, placed.machine, _eks(cluster).platform.node_group(placed, self._owned))

    def bucket(self, name: str) -> S3Bucket:
        """See Cloud.bucket. Bucket names are shared by all accounts, hence the account's number in it."""
        account = aws.get_caller_identity_output(opts=pulumi.InvokeOutputOptions(provider=self._provider)).account_id
        settings = self._settings
        full = account.apply(
            lambda number: fit(f"{settings.cluster_name}-{name}-{number}-{settings.region}", BUCKET_NAME_LIMIT)
        )
        args = DataBucketArgs(full, force_destroy=not settings.deletion_protection)
        made = DataBucket(f"{settings.cluster_name}-{name}", args, self._owned)
        return S3Bucket(made.bucket, made.bucket.apply(lambda bucket: f"s3://{bucket}"), made, made.arn)

    def image_registry(self, name: str) -> Registry:
        """See Cloud.image_registry."""
        cluster_name = self._settings.cluster_name
        args = ImageRegistryArgs(f"{cluster_name}/{name}", force_delete=not self._settings.deletion_protection)
        made = ImageRegistry(f"{cluster_name}-{name}", args, self._owned)
        return Registry(made.url, made)

    def workload_identity(
        self, cluster: Cluster, namespace: str, service_account: str, bucket: Bucket
    ) -> WorkloadIdentity:
        """See Cloud.workload_identity."""
        if not isinstance(bucket, S3Bucket):
            raise TypeError("the bucket was made by another cloud")
        name = f"{cluster.name}-{namespace}-{service_account}"
        args = BucketAccessArgs(
            cluster_name=_eks(cluster).platform.control_plane.name,
            role_name=f"{cluster.name}-{cluster.spec.region}-{namespace}-{service_account}",
            namespace=namespace,
            service_account=service_account,
            bucket_arn=bucket.arn,
        )
        return WorkloadIdentity({}, BucketAccess(name, args, self._owned))

    def storage_classes(self) -> tuple[StorageClass, ...]:
        """See Cloud.storage_classes. New EKS clusters have no default class."""
        return (StorageClass("gp3", "ebs.csi.aws.com", {"type": "gp3", "encrypted": "true"}, default=True),)

    def gpu_node_labels(self, model: str) -> dict[str, str]:
        """See Cloud.gpu_node_labels. EKS sets no label of its own that names the model."""
        return {labels.GPU_MODEL: self._catalog.gpu(model).model}

    def kubeconfig(self, cluster: Cluster, *, native: bool = False) -> pulumi.Output[str]:
        """See Cloud.kubeconfig."""
        account, region = self._settings.account, cluster.spec.region
        credentials = kubeconfig.isthmus_token(self.name, account, region, cluster.name)
        if native:
            args = ("--profile", account, "--region", region, "eks", "get-token", "--cluster-name", cluster.name)
            credentials = kubeconfig.Exec("aws", (*args, "--output", "json"), "install the AWS CLI, version 2")
        return kubeconfig.render(cluster, cluster.name, credentials)

    def _placed(self, pool: NodePool) -> PlacedPool:
        machine = checks.machine(self._catalog, self.name, self._settings.region, pool)
        return PlacedPool(pool, machine, checks.offering_zones(self._catalog, self._settings, pool, machine))

    @cached_property
    def _provider(self) -> aws.Provider:
        """The explicit provider of everything here: the profile names the account, the version the plugin."""
        return aws.Provider(
            "aws",
            profile=self._settings.account,
            region=self._settings.region,
            default_tags={"tags": self._tags},
            opts=pulumi.ResourceOptions(version=self._settings.provider_version),
        )

    @property
    def _owned(self) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(provider=self._provider)

    def _zones(self) -> tuple[str, ...]:
        return tuple(zone.name for zone in self._catalog.zones(self.name, self._settings.region))

    def _check_admins(self) -> None:
        for admin in self._settings.admins:
            if not admin.startswith("arn:aws:iam::"):
                raise InvalidSpec(
                    f"{admin!r} is not the ARN of an IAM role or user",
                    subject="setting admins",
                    remedy="write arn:aws:iam::ACCOUNT:role/NAME",
                )


def _eks(cluster: Cluster) -> EksCluster:
    if not isinstance(cluster, EksCluster):
        raise TypeError(f"cluster {cluster.name} was made by another cloud")
    return cluster
