"""What bills and budgets are made from: nodes as they were seen, the fraction of a card each pod had, budgets."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from isthmus.kube import claims
from isthmus.runs import ledger
from isthmus.runs.model import Node
from isthmus.runs.observe import card_share, claimed_share, node_of
from isthmus.runs.store import Store
from isthmus.runs.watch import Watcher
from isthmus.specs.errors import NotFound
from isthmus.specs.sharing import GpuSharing

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
T4 = Node("uid-1", "gpu-0", {"isthmus.dev/gpu-model": "T4"}, {"nvidia.com/gpu": 4}, NOON, NOON)
SLICED = replace(T4, labels=T4.labels | {"nvidia.com/device-plugin.config": "time-slicing-4"})
A100 = replace(T4, labels={"isthmus.dev/gpu-model": "A100"})


def shared(node: Node, mode: str, **fields: Any) -> Node:
    """A node whose label names the device plugin's configuration of this sharing."""
    name = GpuSharing.model_validate({"mode": mode} | fields).config_name
    return replace(node, labels=node.labels | {"nvidia.com/device-plugin.config": name})


GKE_SHARED = replace(T4, labels=T4.labels | {"cloud.google.com/gke-max-shared-clients-per-gpu": "8"})
GKE_MIG = replace(A100, labels=A100.labels | {"cloud.google.com/gke-gpu-partition-size": "2g.10gb"})


def pod(limits: dict[str, str], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "uid": "u", "annotations": annotations or {}},
        "spec": {"nodeName": "gpu-0", "containers": [{"name": "pytorch", "resources": {"limits": limits}}]},
    }


@pytest.mark.parametrize(
    ("limits", "node", "share"),
    [
        ({}, T4, (0, 1)),
        ({"cpu": "4"}, T4, (0, 1)),
        ({"nvidia.com/gpu": "3"}, T4, (3, 1)),
        ({"nvidia.com/gpu": "1"}, SLICED, (1, 4)),
        ({"nvidia.com/gpu.shared": "1"}, SLICED, (1, 4)),
        ({"nvidia.com/mig-2g.10gb": "1"}, A100, (2, 7)),
        ({"nvidia.com/mig-1g.5gb": "2", "nvidia.com/mig-3g.20gb": "1"}, A100, (5, 7)),
        ({"nvidia.com/gpu": "1"}, None, (1, 1)),
        ({"nvidia.com/gpu": "1"}, shared(T4, "mps", clients=10), (1, 10)),
        ({"nvidia.com/gpu": "1"}, shared(A100, "mig", strategy="single", layout={"3g.20gb": 2}), (3, 7)),
        ({"nvidia.com/mig-3g.20gb": "1"}, shared(A100, "mig", layout={"3g.20gb": 1, "1g.5gb": 2}), (3, 7)),
        (
            {"nvidia.com/mig-1g.5gb.shared": "1"},
            shared(A100, "mig", layout={"1g.5gb": 7}, replicas=2, rename=True),
            (1, 14),
        ),
        ({"nvidia.com/gpu": "1"}, GKE_SHARED, (1, 8)),
        ({"nvidia.com/gpu": "1"}, GKE_MIG, (2, 7)),
    ],
)
def test_the_fraction_of_a_card_a_pod_holds(limits: dict[str, str], node: Node | None, share: tuple[int, int]) -> None:
    assert card_share(pod(limits), node) == Fraction(*share)


HALF = {"pool": {"name": "gpu-0"}, "driver": "gpu.nvidia.com", "nodeName": "gpu-0"}
SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "gpu-0"},
    "spec": HALF
    | {
        "devices": [
            {"name": "gpu-0", "attributes": {"productName": {"string": "NVIDIA A100-SXM4-40GB"}}},
            {
                "name": "half",
                "attributes": {
                    "profile": {"string": "3g.20gb"},
                    "productName": {"string": "NVIDIA A100-SXM4-40GB"},
                },
            },
        ]
    },
}


def claim(name: str, *devices: str, holders: int = 1, driver: str = "gpu.nvidia.com") -> dict[str, Any]:
    results = [{"driver": driver, "pool": "gpu-0", "device": device, "request": "cards"} for device in devices]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "isthmus-runs"},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": f"p{number}"} for number in range(holders)],
        },
    }


@pytest.mark.parametrize(
    ("held", "share"),
    [
        ([claim("c", "gpu-0")], (1, 1)),
        ([claim("c", "half")], (3, 7)),
        ([claim("c", "half", "half")], (6, 7)),
        ([claim("c", "gpu-0", holders=4)], (1, 4)),
        ([claim("c", "half", holders=2), claim("d", "gpu-0")], (17, 14)),
        ([claim("c", "gone")], (1, 1)),
        ([claim("c", "nic", driver="nics.example.com")], (0, 1)),
    ],
)
def test_the_fraction_of_a_card_that_claims_give(held: list[dict[str, Any]], share: tuple[int, int]) -> None:
    assert claimed_share(held, claims.published([SLICE])) == Fraction(*share)


def test_a_claim_that_is_allocated_nothing_says_nothing() -> None:
    assert claimed_share([claim("c")], {}) is None


def test_what_a_pod_claims_is_seen_and_kept_when_the_claim_is_gone(harness: Any, make_spec: Any) -> None:
    """A pod's own claim goes with the pod; the other pods of a shared claim may be gone before it."""
    roles = {"Master": {"replicas": 1, "claims": ["half"]}, "Worker": {"replicas": 1, "claims": ["half"]}}
    spec = make_spec(
        roles=roles, claims=[{"name": "half", "deviceClass": "mig", "profile": "3g.20gb", "scope": "namespace"}]
    )
    run = harness.store.begin(spec, stack="aws-sim", namespace="isthmus-runs", simulated_seconds=None, owner="1@1")
    harness.store.set_cluster(run, "cluster-1")
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    harness.api.put(
        {**job, "metadata": {"name": run.job, "namespace": "isthmus-runs", "labels": {"isthmus.dev/run": run.id}}}
    )
    harness.api.put(SLICE)
    harness.api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-0", "labels": A100.labels}})
    for role in ("master", "worker"):
        harness.pod(role, 0)["spec"] |= {
            "nodeName": "gpu-0",
            "resourceClaims": [{"name": "half", "resourceClaimName": "half"}],
        }
    watcher = Watcher(harness.cluster, harness.store, harness.store.get(run.id))

    def shares() -> set[tuple[int, int]]:
        return {(item.card_parts, item.card_whole) for item in harness.store.replicas(run)}

    watcher.look()
    assert shares() == {(3, 14)}, "as asked: the two pods of this run share it"
    harness.api.put(claim("half", "half", holders=3))
    watcher.look()
    assert shares() == {(1, 7)}, "as allocated: a pod of another run shares it too"
    harness.api.put(claim("half", "half", holders=1))
    Watcher(harness.cluster, harness.store, harness.store.get(run.id)).look()
    assert shares() == {(1, 7)}, "one that ends last was not alone all the time"
    harness.api.objects.pop("/apis/resource.k8s.io/v1/namespaces/isthmus-runs/resourceclaims/half")
    watcher.look()
    assert shares() == {(1, 7)}


def test_a_node_as_kubernetes_has_it() -> None:
    node = node_of(
        {
            "metadata": {"name": "n", "uid": "u", "labels": {"a": "b"}, "creationTimestamp": "2026-11-30T12:00:00Z"},
            "status": {"allocatable": {"cpu": "4", "nvidia.com/gpu": "16"}},
        },
        seen=NOON + timedelta(hours=1),
    )
    assert node == Node("u", "n", {"a": "b"}, {"nvidia.com/gpu": 16}, NOON, NOON + timedelta(hours=1))


def test_nodes_outlive_themselves_and_are_told_by_their_uid(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.db")
    again = replace(T4, uid="uid-2", created=NOON + timedelta(hours=2))
    ledger.record_nodes(store, "cluster-1", [T4, again])
    ledger.record_nodes(store, "cluster-1", [replace(T4, seen=NOON + timedelta(hours=1))])
    ledger.record_nodes(store, "cluster-2", [T4])
    assert ledger.nodes(store, "cluster-1") == [replace(T4, seen=NOON + timedelta(hours=1)), again]


def test_watching_a_run_writes_down_its_nodes_and_shares(harness: Any, make_spec: Any) -> None:
    spec = make_spec()
    run = harness.store.begin(spec, stack="aws-sim", namespace="isthmus-runs", simulated_seconds=None, owner="1@1")
    harness.store.set_cluster(run, "cluster-1")
    harness.api.put(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": run.job, "namespace": "isthmus-runs", "labels": {"isthmus.dev/run": run.id}},
        }
    )
    made = harness.pod("master", 0)
    made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    Watcher(harness.cluster, harness.store, harness.store.get(run.id)).look()
    assert [node.name for node in ledger.nodes(harness.store, "cluster-1")] == ["local"]
    [seen] = harness.store.replicas(run)
    assert (seen.node, seen.card_parts, seen.card_whole) == ("local", 1, 1)


def test_budgets_are_set_replaced_and_removed(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.db")
    row = ledger.BudgetRow("project", "vision", "month", Decimal("100.5"), None, simulated=False)
    ledger.set_budget(store, row)
    ledger.set_budget(store, replace(row, simulated=True, gpu_hours=Decimal(8)))
    ledger.set_budget(store, replace(row, usd=Decimal(50)))
    assert ledger.budgets(store) == [
        replace(row, usd=Decimal(50)),
        replace(row, simulated=True, gpu_hours=Decimal(8)),
    ]
    ledger.remove_budget(store, "project", "vision", simulated=True)
    with pytest.raises(NotFound, match="project vision has no simulated budget"):
        ledger.remove_budget(store, "project", "vision", simulated=True)
