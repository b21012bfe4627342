"""Pools become nodes, and the policies that place pods, as pure functions."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from isthmus import catalog
from isthmus.simulation import admission, nodes
from isthmus.simulation.nodes import Pool, desired
from isthmus.specs.offer import Shape
from isthmus.specs.sharing import GpuSharing

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")


def pool(name: str, machine: str, size: int, **labels: str) -> Pool:
    return Pool(
        name=name,
        machine=catalog.load().shape("aws", machine),
        region="us-east-1",
        zones=ZONES,
        size=size,
        labels={"pool": name, **labels},
        node_name=lambda index, zone: f"{name}-{index}",
        provider_id=lambda node, zone: f"aws:///{zone}/{node}",
    )


SYSTEM, GPU, MORE = pool("system", "m5.xlarge", 2), pool("gpu", "g4dn.12xlarge", 2), pool("more", "g5.xlarge", 1)


def test_one_local_node_stands_for_the_first_of_both_kinds() -> None:
    wanted = desired([SYSTEM, GPU, MORE])
    assert set(wanted.simulated) == {"system-1", "gpu-1", "more-0"}
    assert wanted.local_labels["pool"] == "gpu" and wanted.local_labels["isthmus.dev/local-node"] == "true"
    assert wanted.cards is not None and (wanted.cards.model, wanted.cards.count) == ("T4", 4)


def test_pools_of_size_0_stand_for_nothing() -> None:
    wanted = desired([pool("none", "g4dn.12xlarge", 0), MORE])
    assert wanted.cards is not None and wanted.cards.model == "A10G"
    assert wanted.simulated == {}
    assert desired([]).cards is None and set(desired([]).local_labels) == {"isthmus.dev/local-node"}
    assert desired([pool("none", "g4dn.12xlarge", 0)]).cards is None


def test_simulated_nodes_look_like_the_cloud_s() -> None:
    node = desired([SYSTEM, GPU]).simulated["gpu-1"]
    labels = node["metadata"]["labels"]
    assert labels["node.kubernetes.io/instance-type"] == "g4dn.12xlarge"
    assert (labels["topology.kubernetes.io/zone"], labels["topology.kubernetes.io/region"]) == (ZONES[1], "us-east-1")
    assert node["spec"]["providerID"] == f"aws:///{ZONES[1]}/gpu-1"
    facts = catalog.load().allocatable("aws", GPU.machine)
    assert node["status"]["allocatable"] == {
        "cpu": f"{facts['cpu_millicores']}m",
        "memory": f"{facts['memory_mib']}Mi",
        "ephemeral-storage": "95Gi",
        "pods": str(facts["pods"]),
        "nvidia.com/gpu": "4",
    }
    assert node["status"]["capacity"]["cpu"] == "48" and node["status"]["capacity"]["memory"] == f"{192 * 1024}Mi"


def test_karpenter_s_figures_for_known_machines() -> None:
    machine = catalog.load().shape("aws", "g5.12xlarge")
    assert nodes.allocatable(machine, GpuSharing())["cpu"] == "47810m"


def test_a_machine_without_a_row_falls_back_to_the_formulas() -> None:
    machine = Shape(
        cloud="aws",
        instance_type="x9.large",
        vcpus=2,
        memory_gib=Decimal(8),
        gpu_model=None,
        gpu_count=0,
        gpu_memory_gib=None,
    )
    assert nodes.allocatable(machine, GpuSharing())["pods"] == "110"


def test_sharing_names_and_what_is_advertised() -> None:
    for sharing in (
        GpuSharing(),
        GpuSharing(mode="time-slicing", replicas=4),
        GpuSharing(mode="time-slicing", replicas=10, rename=True),
        GpuSharing(mode="time-slicing", replicas=2, rename=True, fail_greater_than_one=False),
    ):
        assert GpuSharing.from_config_name(sharing.config_name) == sharing
    assert GpuSharing.from_config_name("somebody-else-s") == GpuSharing()
    assert GpuSharing().advertised(4) == {"nvidia.com/gpu": 4} and GpuSharing().advertised(0) == {}
    assert GpuSharing(mode="time-slicing", replicas=10).advertised(8) == {"nvidia.com/gpu": 80}
    assert GpuSharing(mode="time-slicing", replicas=4, rename=True).advertised(2) == {"nvidia.com/gpu.shared": 8}


def policies() -> dict[str, dict[str, Any]]:
    return {
        item["metadata"]["name"]: item["spec"]
        for item in admission.manifests(cpus=2, memory_mib=24576)
        if item["kind"] == "MutatingAdmissionPolicy"
    }


def test_every_policy_is_bound_and_about_creations() -> None:
    found = admission.manifests(cpus=2, memory_mib=24576)
    bound = {item["spec"]["policyName"] for item in found if item["kind"] == "MutatingAdmissionPolicyBinding"}
    assert bound == set(policies())
    for name, spec in policies().items():
        (rule,) = spec["matchConstraints"]["resourceRules"]
        of_pods = (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])
        assert of_pods or name == "isthmus-no-local-default"
        assert spec["failurePolicy"] == "Fail"


def test_requests_are_capped_to_a_share_of_this_machine() -> None:
    text = str(policies()["isthmus-executed-pods"]["mutations"])
    assert '"62m"' in text and '"768Mi"' in text
    small = str(admission.manifests(cpus=1, memory_mib=64))
    assert '"31m"' in small and '"16Mi"' in small


def test_probes_tell_whether_the_policies_act() -> None:
    simulated, executed = admission.probes()
    assert not admission.acted_on(simulated) and not admission.acted_on(executed)
    simulated["spec"]["nodeSelector"] = {"isthmus.dev/simulated-node": "true"}
    executed["spec"]["nodeSelector"] = {"isthmus.dev/local-node": "true"}
    assert admission.acted_on(simulated) and not admission.acted_on(executed)
    executed["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "62m", "memory": "768Mi"}
    assert admission.acted_on(executed)
