"""What every cloud must do behind infra.cloud.Cloud. To add a cloud: a stack file in stacks/, and its name in CLOUDS."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import pulumi
import pytest

from infra import cloud as clouds
from infra.cloud import Bucket, Cloud, Cluster, Pool, Registry, StorageClass, WorkloadIdentity
from isthmus import catalog
from isthmus.specs import labels
from isthmus.specs.cluster import NodePool
from isthmus.specs.errors import InvalidSpec
from tests.unit.infra.recording import Recording, record
from tests.unit.infra.stacks import REAL as CLOUDS
from tests.unit.infra.stacks import SOLD, infrastructure, settings

METHODS = [
    "check",
    "cluster",
    "node_pool",
    "bucket",
    "image_registry",
    "workload_identity",
    "storage_classes",
    "gpu_node_labels",
    "kubeconfig",
]
every_cloud = pytest.mark.parametrize("name", CLOUDS)
every_sold_cloud = pytest.mark.parametrize("name", SOLD)
"""Those with an account to mark things in, pools that are made one by one, and places and machines to choose from."""


def choose(name: str, **changes: Any) -> Cloud:
    return clouds.select(settings(name, **changes), catalog.load())


def taints(made: Recording, pool: str) -> list[dict[str, str]]:
    """The taints a pool asks for, whatever the cloud calls them."""
    for item in made.resources:
        if item.inputs.get("nodeGroupName") == pool:
            return list(item.inputs["taints"])
        if item.token == "gcp:container/nodePool:NodePool" and item.inputs["name"] == pool:
            return list(item.inputs["nodeConfig"]["taints"])
        for node in item.inputs.get("nodes", ()):
            if node["labels"][labels.POOL] == pool:
                return list(node["taints"])
    raise LookupError(pool)


def node_labels(made: Recording, pool: str) -> dict[str, str]:
    """The labels a pool asks for, whatever the cloud calls them."""
    for item in made.resources:
        if item.inputs.get("nodeGroupName") == pool:
            return dict(item.inputs["labels"])
        if item.token == "gcp:container/nodePool:NodePool" and item.inputs["name"] == pool:
            return dict(item.inputs["nodeConfig"]["labels"])
        for node in item.inputs.get("nodes", ()):
            if node["labels"][labels.POOL] == pool:
                return dict(node["labels"])
    raise LookupError(pool)


@every_cloud
@pytest.mark.parametrize("method", METHODS)
def test_it_has_the_interfaces_methods_with_the_same_arguments(name: str, method: str) -> None:
    ours = inspect.signature(getattr(type(choose(name)), method)).parameters
    wanted = inspect.signature(getattr(Cloud, method)).parameters
    assert list(ours) == list(wanted)
    assert choose(name).name == name


@every_cloud
def test_the_shipped_settings_pass_its_check(name: str) -> None:
    choose(name).check()


@every_cloud
def test_choosing_and_checking_register_nothing(name: str) -> None:
    made = record(lambda: choose(name).check())
    assert made.resources == [] and made.calls == []


@every_cloud
def test_it_returns_the_interfaces_types(name: str) -> None:
    found: dict[str, Any] = {}

    def program() -> None:
        cloud = choose(name)
        spec = settings(name).cluster
        found["cluster"] = cloud.cluster(spec)
        found["pool"] = cloud.node_pool(found["cluster"], spec.gpu_pools[0])
        found["bucket"] = cloud.bucket("data")
        found["registry"] = cloud.image_registry("images")
        found["identity"] = cloud.workload_identity(found["cluster"], "runs", "trainer", found["bucket"])

    record(program)
    kinds = {"cluster": Cluster, "pool": Pool, "bucket": Bucket, "registry": Registry, "identity": WorkloadIdentity}
    for key, kind in kinds.items():
        assert isinstance(found[key], kind)
        assert isinstance(found[key].resource, pulumi.Resource)
    assert found["pool"].machine.gpu_count == settings(name).gpu_pools[0].gpu.count


@every_cloud
def test_addresses_read_as_users_write_them(name: str) -> None:
    found: dict[str, str] = {}

    def program() -> None:
        cloud = choose(name)
        cloud.bucket("data").url.apply(lambda url: found.__setitem__("bucket", url))
        cloud.image_registry("images").url.apply(lambda url: found.__setitem__("registry", url))

    record(program)
    assert found["bucket"].split("://")[0] in {"s3", "gs", "file"} and "isthmus-data" in found["bucket"]
    assert "isthmus" in found["registry"] and "://" not in found["registry"]


@every_sold_cloud
@pytest.mark.parametrize("turn", [0, 1, *(pytest.param(turn, marks=pytest.mark.slow) for turn in range(2, 20))])
def test_a13_gpu_nodes_are_tainted_in_every_order(name: str, turn: int) -> None:
    """terraform-google-modules/terraform-google-kubernetes-engine#703."""

    def order(pools: Sequence[NodePool]) -> Sequence[NodePool]:
        return list(reversed(pools)) if turn % 2 else pools

    made = record(infrastructure(settings(name), order=order))
    expected = [{"key": labels.GPU_TAINT, "value": "present", "effect": "NO_SCHEDULE"}]
    assert taints(made, "gpu-t4") == taints(made, "gpu-t4-spot") == expected
    assert taints(made, "system") == []


@every_cloud
def test_nodes_carry_the_labels_that_workloads_select_by(name: str) -> None:
    made = record(infrastructure(settings(name)))
    assert node_labels(made, "gpu-t4") == {labels.POOL: "gpu-t4", labels.GPU_MODEL: "T4"}
    assert node_labels(made, "system") == {labels.POOL: "system"}
    assert choose(name).gpu_node_labels("T4")[labels.GPU_MODEL] == "T4"
    with pytest.raises(InvalidSpec, match="T4"):
        choose(name).gpu_node_labels("T44")


@every_cloud
def test_there_is_one_default_storage_class_and_it_waits_for_the_pod(name: str) -> None:
    classes = choose(name).storage_classes()
    assert [kind.default for kind in classes].count(True) == 1 and classes[0].default
    for kind in classes:
        assert isinstance(kind, StorageClass)
        manifest = kind.manifest()
        assert manifest["volumeBindingMode"] == "WaitForFirstConsumer"
        assert manifest["metadata"]["labels"][labels.MANAGED_BY] == labels.OWNER
        assert manifest["metadata"]["name"] == kind.name


@every_sold_cloud
def test_everything_carries_the_mark_of_its_owner(name: str) -> None:
    """Tags on AWS, labels on GCP, put on by the one explicit provider."""
    made = record(infrastructure(settings(name)))
    (provider,) = [item for item in made.resources if item.token == f"pulumi:providers:{name}"]
    assert labels.OWNER in str(provider.inputs)
    for item in made.resources:
        if item.custom and item is not provider:
            assert item.provider.startswith(provider.urn), item.urn


@every_cloud
def test_another_clouds_cluster_is_refused(name: str) -> None:
    other = next(cloud for cloud in CLOUDS if cloud != name)

    def program() -> None:
        foreign = choose(other).cluster(settings(other).cluster)
        with pytest.raises(TypeError, match="another cloud"):
            choose(name).node_pool(foreign, settings(name).gpu_pools[0])

    record(program)


@every_cloud
def test_components_are_parents_of_what_they_make(name: str) -> None:
    """So that a plan reads as a tree, and depending on a component is depending on all of it."""
    made = record(infrastructure(settings(name)))
    for item in made.resources:
        if item.custom and not item.token.startswith("pulumi:"):
            assert f"isthmus:{name}:" in item.urn, item.urn


@every_sold_cloud
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"region": "mars-north1"}, "known"),
        ({"zones": ("nowhere-1a", "nowhere-1b")}, "zone"),
        ({"gpu_pools": (NodePool(name="g", gpu={"model": "T5", "count": 1}),)}, "T4"),
        ({"gpu_pools": (NodePool(name="g", gpu={"model": "T4", "count": 16}),)}, "4"),
        ({"gpu_pools": (NodePool(name="g", instanceType="nothing.large"),)}, "nothing.large"),
    ],
)
def test_bad_settings_are_refused_with_a_way_out(name: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        choose(name, **changes).check()
    assert refused.value.subject
    assert words in f"{refused.value.message} {refused.value.remedy}"
