"""A kind cluster on this machine as a Cloud: the same platform in containers, without an account.

Pools become nodes of one cluster resource, since kind cannot add a node later. The first node of the system pool also runs
the control plane. What a machine cannot have is told by the platform's words for it: the bucket is a folder that every
node sees, and images are put into the nodes, so the registry is only the name they go by.
"""

from collections.abc import Mapping
from decimal import Decimal
from functools import cached_property
from typing import Any

import pulumi

from infra import kubeconfig
from infra.cloud import Bucket, Cluster, Pool, Registry, StorageClass, WorkloadIdentity
from infra.kind.resources import LocalBucket, LocalCluster, LocalProvider
from isthmus.catalog import Catalog, sharing
from isthmus.specs import labels
from isthmus.specs.cluster import ClusterSpec, NodePool, cards_of
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.offer import Shape
from isthmus.specs.stack import LOCAL_PLUGIN_VERSION, StackSettings

REGION = "local"
MACHINE = "node"
"""The one instance type there is."""
MAX_NODES = 16
IMAGES = "docker.io/isthmus"
"""What the images built here are called (workloads/images); every node has them."""


class Kind:
    """See infra.cloud.Cloud."""

    name = "kind"
    provides_device_plugin = False

    def __init__(self, settings: StackSettings, catalog: Catalog) -> None:
        self._settings = settings
        self._catalog = catalog

    def check(self) -> None:
        """See Cloud.check."""
        settings = self._settings
        if settings.mode != "real":
            raise InvalidSpec("a kind cluster is always real", subject="setting mode", remedy="leave mode out")
        for setting, values in (("region", (settings.region,)), ("zones", settings.zones)):
            if values != (REGION,):
                raise InvalidSpec(
                    f"this machine has one place, {REGION}, not {', '.join(values)}",
                    subject=f"setting {setting}",
                    remedy=f"write {REGION}",
                )
        for pool in settings.cluster.pools:
            self._check_pool(pool)
        count = sum(pool.size for pool in settings.cluster.pools)
        if not settings.system_pool.size or count > MAX_NODES:
            raise InvalidSpec(
                f"a kind cluster has 1 to {MAX_NODES} nodes, one of them in the system pool; these pools have {count}",
                subject="setting systemPool",
            )

    def cluster(self, spec: ClusterSpec) -> Cluster:
        """See Cloud.cluster. All pools of the spec are made with it."""
        made = LocalCluster(
            spec.name,
            cluster_name=spec.name,
            kubernetes_version=spec.kubernetes_version,
            nodes=[self._node(pool) for pool in spec.pools for _ in range(pool.size)],
            opts=pulumi.ResourceOptions(provider=self._provider, protect=self._settings.deletion_protection),
        )
        return Cluster(spec.name, spec, made.endpoint, made.certificate_authority, made)

    def node_pool(self, cluster: Cluster, pool: NodePool) -> Pool:
        """See Cloud.node_pool. The nodes came with the cluster."""
        if not isinstance(cluster.resource, LocalCluster):
            raise TypeError(f"cluster {cluster.name} was made by another cloud")
        return Pool(pool.name, self._machine(pool), cluster.resource)

    def bucket(self, name: str) -> Bucket:
        """See Cloud.bucket. Its URL is the folder that nodes see (file://...)."""
        settings = self._settings
        made = LocalBucket(
            f"{settings.cluster_name}-{name}",
            cluster=settings.cluster_name,
            name=f"{settings.cluster_name}-{name}",
            force_destroy=not settings.deletion_protection,
            opts=pulumi.ResourceOptions(provider=self._provider),
        )
        return Bucket(pulumi.Output.from_input(f"{settings.cluster_name}-{name}"), made.url, made)

    def image_registry(self, name: str) -> Registry:
        """See Cloud.image_registry. Nothing is pulled: images of this name are in every node."""
        made = pulumi.ComponentResource("isthmus:kind:Images", f"{self._settings.cluster_name}-{name}")
        return Registry(pulumi.Output.from_input(IMAGES), made)

    def workload_identity(
        self, cluster: Cluster, namespace: str, service_account: str, bucket: Bucket
    ) -> WorkloadIdentity:
        """See Cloud.workload_identity. There is no identity to give: who may mount a node's folders may use the bucket."""
        return WorkloadIdentity({}, bucket.resource)

    def storage_classes(self) -> tuple[StorageClass, ...]:
        """See Cloud.storage_classes. kind puts this class into every cluster."""
        return (StorageClass("standard", "rancher.io/local-path", default=True, provided=True),)

    def gpu_node_labels(self, model: str) -> dict[str, str]:
        """See Cloud.gpu_node_labels."""
        return {labels.GPU_MODEL: self._catalog.gpu(model).model}

    def kubeconfig(self, cluster: Cluster, *, native: bool = False) -> pulumi.Output[str]:
        """See Cloud.kubeconfig. kind's own form holds the administrator's key, so there is only the one with a command."""
        credentials = kubeconfig.isthmus_token(self.name, self._settings.account, REGION, cluster.name)
        return kubeconfig.render(cluster, cluster.name, credentials)

    @cached_property
    def _provider(self) -> LocalProvider:
        return LocalProvider("local", LOCAL_PLUGIN_VERSION)

    def _check_pool(self, pool: NodePool) -> None:
        if pool.instance_type not in (None, MACHINE):
            raise InvalidSpec(
                f"pool {pool.name}: the only machine here is {MACHINE!r}, not {pool.instance_type!r}",
                subject=f"pool {pool.name}",
                remedy=f"write instanceType: {MACHINE}, or only a gpu",
            )
        if pool.gpu is not None:
            model = self._catalog.gpu(pool.gpu.model).model
            sharing.check(self._catalog, pool.sharing, model, self.name, subject=f"pool {pool.name}")
        if pool in self._settings.gpu_pools and pool.gpu is None:
            raise InvalidSpec(
                f"GPU pool {pool.name} has no cards",
                subject=f"pool {pool.name}",
                remedy="give a gpu (model and count)",
            )
        if pool.spot:
            raise InvalidSpec(f"pool {pool.name}: nothing here is sold as spot", subject=f"pool {pool.name}")

    def _node(self, pool: NodePool) -> Mapping[str, Any]:
        node: dict[str, Any] = {"labels": {labels.POOL: pool.name}, "taints": []}
        if pool.gpu is not None:
            node["labels"] |= self.gpu_node_labels(pool.gpu.model)
            node["gpu"] = cards_of(pool.gpu.model, pool.gpu.count, pool.sharing).model_dump(mode="json")
            node["labels"] |= pool.sharing.node_labels
            node["taints"] = [{"key": labels.GPU_TAINT, "value": "present", "effect": "NoSchedule"}]
        return node

    def _machine(self, pool: NodePool) -> Shape:
        """A container shares this machine, so it has no size of its own."""
        gpu = self._catalog.gpu(pool.gpu.model) if pool.gpu else None
        return Shape(
            cloud=self.name,
            instance_type=MACHINE,
            vcpus=0,
            memory_gib=Decimal(0),
            gpu_model=gpu.model if gpu else None,
            gpu_count=pool.gpu.count if pool.gpu else 0,
            gpu_memory_gib=Decimal(gpu.memory_mib) / 1024 if gpu else None,
        )
