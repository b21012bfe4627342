"""The one interface that every cloud implements, and the choice of the cloud for a stack.

The program talks to this and nothing else; `infra.aws` and `infra.gcp` are the only places that import a cloud's SDK,
and `select` imports only the one that is asked for (pulumi_gcp alone costs seconds). It will not deploy anything into
a cluster: that is what operators/ and workloads/ do, under a Kubernetes provider made from `kubeconfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pulumi

from isthmus.specs import labels
from isthmus.specs.cluster import ClusterSpec, NodePool
from isthmus.specs.offer import Shape
from isthmus.specs.stack import StackSettings

if TYPE_CHECKING:
    from isthmus.catalog import Catalog


@dataclass(frozen=True)
class Cluster:
    """A control plane with its network and system pool: what is needed to run a first pod."""

    name: str
    spec: ClusterSpec
    endpoint: pulumi.Output[str]
    """https URL of the API server; unknown in the first preview."""
    ca_certificate: pulumi.Output[str]
    """The API server's CA, PEM in base64, as a kubeconfig wants it."""
    resource: pulumi.Resource
    """Depend on this: it includes access rights and the system pool, so dependents are also destroyed before them."""


@dataclass(frozen=True)
class Pool:
    """A node pool that exists once `resource` does."""

    name: str
    machine: Shape
    """The machine that the pool's spec was turned into."""
    resource: pulumi.Resource


@dataclass(frozen=True)
class Bucket:
    """An object store: versioned, encrypted, closed to the public."""

    name: pulumi.Output[str]
    url: pulumi.Output[str]
    """s3://NAME or gs://NAME."""
    resource: pulumi.Resource


@dataclass(frozen=True)
class Registry:
    """A private container image registry that the cluster's nodes may pull from."""

    url: pulumi.Output[str]
    """What to write before /IMAGE:TAG."""
    resource: pulumi.Resource


@dataclass(frozen=True)
class WorkloadIdentity:
    """A cloud identity that a Kubernetes service account acts as, without any stored key."""

    annotations: Mapping[str, pulumi.Output[str]]
    """What the service account must carry (a binding); empty where the cloud keeps the link on its own side (EKS)."""
    resource: pulumi.Resource


@dataclass(frozen=True)
class StorageClass:
    """A StorageClass that volumes of this cloud use."""

    name: str
    provisioner: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    default: bool = False
    provided: bool = False
    """True where the cloud itself puts it into every cluster; such a class must not be created again."""

    def manifest(self) -> dict[str, Any]:
        """The class as a Kubernetes object. Volumes wait for their first pod, so that they land in its zone."""
        annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if self.default else {}
        return {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": self.name, "labels": {labels.MANAGED_BY: labels.OWNER}, "annotations": annotations},
            "provisioner": self.provisioner,
            "parameters": dict(self.parameters),
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": True,
            "reclaimPolicy": "Delete",
        }


class Cloud(Protocol):
    """A cloud that can hold the platform.

    Every method that creates resources registers them with the running Pulumi program: it is declarative, so calling
    it with the same arguments in the next run changes nothing. Calling one twice in the same run is an error of the
    engine (duplicate URN). Outputs are unknown in the first preview and nothing here needs them to be known.
    """

    name: str
    """aws, gcp, kind: as in the settings."""
    provides_device_plugin: bool
    """True where the cloud itself runs the device plugin on GPU nodes (GKE): then operators/ must not."""

    def check(self) -> None:
        """Refuses settings that this cloud cannot satisfy, before anything is created. Changes nothing, needs no network.

        Raises:
            InvalidSpec: an unknown region, zone, GPU model or instance type (nearest names suggested), an instance type
                without the GPU asked for, a sharing mode or a name that the cloud does not take.
        """
        ...

    def cluster(self, spec: ClusterSpec) -> Cluster:
        """The network, the control plane, its add-ons, access for whoever deploys, and the system pool.

        Once per program. The cloud's own errors (quota, stock-out) come back from the engine as that resource's failure.
        """
        ...

    def node_pool(self, cluster: Cluster, pool: NodePool) -> Pool:
        """A pool of a cluster made by this cloud.

        Nodes carry the labels isthmus.dev/pool and, with cards, isthmus.dev/gpu-model and the taint
        nvidia.com/gpu=present:NoSchedule, always and from the start (case A13).

        Raises:
            InvalidSpec: the catalog has no machine for the pool; `check` has said so before.
        """
        ...

    def bucket(self, name: str) -> Bucket:
        """A bucket whose full name is made from the cluster's name and `name`. Never emptied by us: destroying a bucket
        that holds objects fails, and says so, unless the stack has deletionProtection off."""
        ...

    def image_registry(self, name: str) -> Registry:
        """A repository for images. Nodes of the cluster may pull, nobody else is given anything."""
        ...

    def workload_identity(
        self, cluster: Cluster, namespace: str, service_account: str, bucket: Bucket
    ) -> WorkloadIdentity:
        """Lets pods of one service account read and write the objects of one bucket, and nothing else.

        The Kubernetes service account itself is not created here.
        """
        ...

    def storage_classes(self) -> tuple[StorageClass, ...]:
        """The storage classes of this cloud, the default one first. Pure."""
        ...

    def gpu_node_labels(self, model: str) -> dict[str, str]:
        """Labels of every node with cards of that model: isthmus.dev/gpu-model, and the cloud's own. Pure.

        Raises:
            InvalidSpec: the catalog does not know the model.
        """
        ...

    def kubeconfig(self, cluster: Cluster, *, native: bool = False) -> pulumi.Output[str]:
        """A kubeconfig (JSON, which is YAML) that holds no secret: credentials come from a command when they are used.

        Args:
            native: ask the cloud's own program (aws, gke-gcloud-auth-plugin) instead of `isthmus kube-token`.
        """
        ...


def select(settings: StackSettings, catalog: Catalog | None = None) -> Cloud:
    """The cloud of a stack. Imports only that cloud's SDK; registers nothing with the engine yet.

    Args:
        catalog: facts to choose machines by; the project's own if not given.
    """
    if catalog is None:
        from isthmus import catalog as facts

        catalog = facts.load()
    if settings.cloud == "aws":
        from infra.aws import Aws

        return Aws(settings, catalog)
    if settings.cloud == "gcp":
        from infra.gcp import Gcp

        return Gcp(settings, catalog)
    from infra.kind import Kind

    return Kind(settings, catalog)
