"""Google GKE as a Cloud. It chooses names and machines; the components beside it make the resources."""

from dataclasses import dataclass
from functools import cached_property

import pulumi
import pulumi_gcp as gcp

from infra import checks, kubeconfig
from infra.cloud import Bucket, Cluster, Pool, Registry, StorageClass, WorkloadIdentity
from infra.gcp.identity import BucketAccess, BucketAccessArgs
from infra.gcp.nodes import PlacedPool
from infra.gcp.platform import Platform, PlatformArgs
from infra.gcp.storage import DataBucket, DataBucketArgs, ImageRegistry, ImageRegistryArgs
from infra.names import fit
from isthmus.catalog import Catalog
from isthmus.specs import labels
from isthmus.specs.cluster import ClusterSpec, NodePool
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.stack import StackSettings

BUCKET_NAME_LIMIT = 63
SERVICE_ACCOUNT_ANNOTATION = "iam.gke.io/gcp-service-account"
ACCELERATOR_LABEL = "cloud.google.com/gke-accelerator"
OWNER_LABEL = "isthmus-managed-by"
CLUSTER_LABEL = "isthmus-cluster"
"""GCP labels take neither dots nor slashes, so the ownership label is spelt differently here."""
MEMBER_KINDS = ("user:", "group:", "serviceAccount:")


@dataclass(frozen=True)
class GkeCluster(Cluster):
    """A GKE cluster with what makes further pools of it."""

    platform: Platform


class Gcp:
    """See infra.cloud.Cloud."""

    name = "gcp"
    provides_device_plugin = True

    def __init__(self, settings: StackSettings, catalog: Catalog) -> None:
        self._settings = settings
        self._catalog = catalog
        self._project = settings.account
        self._workload_pool = f"{self._project}.svc.id.goog"

    def check(self) -> None:
        """See Cloud.check."""
        checks.places(self._catalog, self._settings)
        checks.machines(self._catalog, self._settings)
        for pool in self._settings.cluster.pools:
            self._placed(pool)
        if self._settings.nat_per_zone:
            raise InvalidSpec(
                "Cloud NAT is regional: there is none per zone",
                subject="setting natPerZone",
                remedy="leave natPerZone out",
            )
        for member in self._settings.admins:
            if not member.startswith(MEMBER_KINDS):
                raise InvalidSpec(
                    f"{member!r} is not an IAM member",
                    subject="setting admins",
                    remedy=f"write it with one of {', '.join(MEMBER_KINDS)} before the address",
                )

    def cluster(self, spec: ClusterSpec) -> GkeCluster:
        """See Cloud.cluster."""
        args = PlatformArgs(
            spec=spec,
            project=self._project,
            workload_pool=self._workload_pool,
            system=self._placed(spec.system_pool),
            admins=self._settings.admins,
            deletion_protection=self._settings.deletion_protection,
        )
        platform = Platform(spec.name, args, self._owned)
        return GkeCluster(
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
        return Pool(pool.name, placed.machine, _gke(cluster).platform.node_group(placed, self._owned))

    def bucket(self, name: str) -> Bucket:
        """See Cloud.bucket. Bucket names are shared by all projects, hence the project's id in it."""
        settings = self._settings
        full = fit(f"{self._project}-{settings.cluster_name}-{name}", BUCKET_NAME_LIMIT)
        args = DataBucketArgs(full, settings.region, force_destroy=not settings.deletion_protection)
        made = DataBucket(f"{settings.cluster_name}-{name}", args, self._owned)
        return Bucket(made.bucket, made.bucket.apply(lambda bucket: f"gs://{bucket}"), made)

    def image_registry(self, name: str) -> Registry:
        """See Cloud.image_registry. Deleting the repository deletes its images."""
        settings = self._settings
        full = f"{settings.cluster_name}-{name}"
        made = ImageRegistry(full, ImageRegistryArgs(full, settings.region, self._project), self._owned)
        return Registry(made.url, made)

    def workload_identity(
        self, cluster: Cluster, namespace: str, service_account: str, bucket: Bucket
    ) -> WorkloadIdentity:
        """See Cloud.workload_identity."""
        args = BucketAccessArgs(
            project=self._project,
            workload_pool=self._workload_pool,
            account_id=f"{cluster.name}-{namespace}-{service_account}",
            namespace=namespace,
            service_account=service_account,
            bucket_name=bucket.name,
            cluster=_gke(cluster).platform.control_plane.cluster,
        )
        made = BucketAccess(f"{cluster.name}-{namespace}-{service_account}", args, self._owned)
        return WorkloadIdentity({SERVICE_ACCOUNT_ANNOTATION: made.email}, made)

    def storage_classes(self) -> tuple[StorageClass, ...]:
        """See Cloud.storage_classes. GKE puts this class, as the default one, into every cluster."""
        parameters = {"type": "pd-balanced"}
        return (StorageClass("standard-rwo", "pd.csi.storage.gke.io", parameters, default=True, provided=True),)

    def gpu_node_labels(self, model: str) -> dict[str, str]:
        """See Cloud.gpu_node_labels."""
        return {labels.GPU_MODEL: self._catalog.gpu(model).model, ACCELERATOR_LABEL: self._accelerator(model)}

    def kubeconfig(self, cluster: Cluster, *, native: bool = False) -> pulumi.Output[str]:
        """See Cloud.kubeconfig."""
        credentials = kubeconfig.isthmus_token(self.name, self._project, cluster.spec.region, cluster.name)
        if native:
            hint = "run: gcloud components install gke-gcloud-auth-plugin"
            credentials = kubeconfig.Exec("gke-gcloud-auth-plugin", (), hint, cluster_info=True)
        return kubeconfig.render(cluster, cluster.name, credentials)

    @cached_property
    def _provider(self) -> gcp.Provider:
        """The explicit provider of everything here: the project names the account, the version the plugin."""
        settings = self._settings
        return gcp.Provider(
            "gcp",
            project=self._project,
            region=settings.region,
            default_labels={OWNER_LABEL: labels.OWNER, CLUSTER_LABEL: settings.cluster_name},
            opts=pulumi.ResourceOptions(version=settings.provider_version),
        )

    @property
    def _owned(self) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(provider=self._provider)

    def _placed(self, pool: NodePool) -> PlacedPool:
        settings = self._settings
        machine = checks.machine(self._catalog, self.name, settings.region, pool)
        zones = checks.offering_zones(self._catalog, settings, pool, machine)
        accelerator = self._accelerator(machine.gpu_model) if machine.gpu_model else None
        return PlacedPool(pool, machine, accelerator, zones)

    def _accelerator(self, model: str) -> str:
        gpu = self._catalog.gpu(model)
        if gpu.gke_accelerator is None:
            sold = [other.model for other in self._catalog.gpus() if other.gke_accelerator]
            raise InvalidSpec(
                f"GKE does not sell the {gpu.model}",
                subject=f"GPU model {model}",
                remedy=f"use one of {', '.join(sold)}",
            )
        return gpu.gke_accelerator


def _gke(cluster: Cluster) -> GkeCluster:
    if not isinstance(cluster, GkeCluster):
        raise TypeError(f"cluster {cluster.name} was made by another cloud")
    return cluster
