"""The resource types of the kind cloud's provider: what they take, what a change means, and what is done for each.

Everything here works on plain values; provider.py puts them on the wire.
"""

import base64
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from isthmus.localcluster.kind.cluster import KindCluster, KindRuntime, Progress
from isthmus.localcluster.kind.config import BUCKETS
from isthmus.localcluster.runtime import KUBERNETES_MINOR, LocalClusterConfig, LocalNode
from isthmus.specs.cluster import NAME_PATTERN, GpuCards
from isthmus.specs.errors import Refused
from isthmus.toolchain import home

Values = dict[str, Any]


class ResourceType(ABC):
    """One type of resource."""

    inputs: type[BaseModel]
    """Reads and checks what the program asks for."""
    for_life: tuple[str, ...] = ()
    """Inputs whose change replaces the resource."""
    outputs: tuple[str, ...] = ()
    """Properties that are known only once it is made."""

    def replaces(self, olds: Values, news: Values) -> list[str]:
        """The properties whose change needs another resource."""
        return [key for key in self.for_life if olds.get(key) != news.get(key)]

    @abstractmethod
    def create(self, urn: str, news: Values, progress: Progress) -> tuple[str, Values]:
        """Make it, or go on with what a killed create of the same URN left: its id and outputs."""

    @abstractmethod
    def read(self, identity: str) -> tuple[Values, Values] | None:
        """Its outputs, and those of its inputs that can be seen, as they are now; None when it is gone."""

    @abstractmethod
    def update(self, identity: str, news: Values, progress: Progress) -> Values:
        """Bring it to these inputs; its outputs."""

    @abstractmethod
    def delete(self, identity: str, olds: Values) -> None:
        """Remove it. One that is gone is no error."""


class _Inputs(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class NodeInputs(_Inputs):
    """One node. The first of a cluster also runs the control plane."""

    labels: dict[str, str] = {}
    taints: tuple[dict[str, str], ...] = ()
    gpu: GpuCards | None = None


class ClusterInputs(_Inputs):
    """isthmus:kind:Cluster."""

    name: str = Field(pattern=NAME_PATTERN)
    kubernetes_version: str = Field(default=KUBERNETES_MINOR, alias="kubernetesVersion")
    nodes: tuple[NodeInputs, ...] = Field(min_length=1, max_length=16)


class ClusterType(ResourceType):
    """isthmus:kind:Cluster."""

    inputs = ClusterInputs
    for_life = ("name", "kubernetesVersion")
    outputs = ("endpoint", "certificateAuthority", "nodeNames")

    def replaces(self, olds: Values, news: Values) -> list[str]:
        """See ResourceType."""
        return super().replaces(olds, news) + (["nodes"] if len(olds.get("nodes", ())) != len(news["nodes"]) else [])

    def create(self, urn: str, news: Values, progress: Progress) -> tuple[str, Values]:
        """See ResourceType.

        Raises:
            Refused: the name is taken, by a cluster of another stack or one that is not ours.
        """
        name = news["name"]
        _refuse_other_owner(name, urn)
        cluster = KindRuntime(progress).create(name, _config(news), owner=urn)
        return name, _outputs(cluster)

    def read(self, identity: str) -> tuple[Values, Values] | None:
        """See ResourceType. A stopped cluster is there; one whose containers are gone is not."""
        cluster = KindCluster(identity)
        if not cluster.exists():
            return None
        found = {"name": identity, "kubernetesVersion": KUBERNETES_MINOR, "nodes": [_plain(n) for n in cluster.nodes()]}
        return found, _outputs(cluster)

    def update(self, identity: str, news: Values, progress: Progress) -> Values:
        """See ResourceType."""
        return _outputs(KindRuntime(progress).create(identity, _config(news)))

    def delete(self, identity: str, olds: Values) -> None:
        """See ResourceType."""
        KindCluster(identity).delete()


class BucketInputs(_Inputs):
    """isthmus:kind:Bucket."""

    cluster: str = Field(pattern=NAME_PATTERN)
    name: str = Field(pattern=NAME_PATTERN)
    force_destroy: bool = Field(default=False, alias="forceDestroy")
    """Delete what is in it, too."""


class BucketType(ResourceType):
    """isthmus:kind:Bucket: a folder that every node of the cluster sees at the `url` output."""

    inputs = BucketInputs
    for_life = ("cluster", "name")
    outputs = ("url",)

    def create(self, urn: str, news: Values, progress: Progress) -> tuple[str, Values]:
        """See ResourceType."""
        folder = home.buckets() / news["cluster"] / news["name"]
        folder.parent.mkdir(mode=0o755, exist_ok=True)
        folder.mkdir(mode=0o777, exist_ok=True)
        folder.chmod(0o777)  # pods run under users of their own; the folder above it is only ours
        return f"{news['cluster']}/{news['name']}", self._outputs(news["name"])

    def read(self, identity: str) -> tuple[Values, Values] | None:
        """See ResourceType."""
        cluster, _, name = identity.partition("/")
        if not (home.buckets() / cluster / name).is_dir():
            return None
        return {"cluster": cluster, "name": name}, self._outputs(name)

    def update(self, identity: str, news: Values, progress: Progress) -> Values:
        """See ResourceType."""
        return self._outputs(news["name"])

    def delete(self, identity: str, olds: Values) -> None:
        """See ResourceType.

        Raises:
            Refused: it holds files, and forceDestroy was not set.
        """
        folder = home.buckets() / identity
        if not folder.is_dir():
            return
        if any(folder.iterdir()) and not olds.get("forceDestroy"):
            raise Refused(
                f"bucket {identity} holds files and is not deleted",
                subject=str(folder),
                remedy="empty it, or turn deletionProtection off and run up first",
            )
        shutil.rmtree(folder)
        if not any(folder.parent.iterdir()):
            folder.parent.rmdir()

    def _outputs(self, name: str) -> Values:
        return {"url": f"file://{BUCKETS}/{name}"}


TYPES: Mapping[str, ResourceType] = {"isthmus:kind:Cluster": ClusterType(), "isthmus:kind:Bucket": BucketType()}


def _refuse_other_owner(name: str, urn: str) -> None:
    """A name belongs to the resource that made it; a killed create of the same resource is gone on with."""
    owner = KindCluster(name).owner()
    if owner not in (None, urn):
        raise Refused(
            f"local cluster {name!r} belongs to {owner or 'no stack'}; it is left alone",
            subject=f"local cluster {name}",
            remedy=f"choose another clusterName, or `pulumi import isthmus:kind:Cluster NAME {name}`",
        )


def _config(news: Values) -> LocalClusterConfig:
    asked = ClusterInputs.model_validate(news)
    nodes = tuple(LocalNode(node.labels, node.gpu, node.taints) for node in asked.nodes)
    return LocalClusterConfig(nodes=nodes, kubernetes_version=asked.kubernetes_version)


def _plain(node: LocalNode) -> Values:
    """A node as the program writes it."""
    return NodeInputs(labels=dict(node.labels), taints=tuple(map(dict, node.taints)), gpu=node.cards).model_dump(
        mode="json", exclude_none=True
    )


def _outputs(cluster: KindCluster) -> Values:
    authority = base64.b64encode(cluster.ca_certificate.encode()).decode()
    return {
        "endpoint": cluster.endpoint,
        "certificateAuthority": authority,
        "nodeNames": cluster.node_names(),
    }
