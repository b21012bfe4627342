"""Quantities, requests, what the server added, and paths."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.kube import objects
from isthmus.specs.errors import InvalidSpec


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500m", "0.5"),
        ("2", "2"),
        ("0.1", "0.1"),
        ("1Gi", str(2**30)),
        ("1G", str(10**9)),
        ("1.5Gi", str(3 * 2**29)),
        ("100n", "1e-7"),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("1E", str(10**18)),
        ("2Ei", str(2**61)),
        ("-3", "-3"),
        (".5", "0.5"),
    ],
)
def test_quantity_means_the_number_kubernetes_means(text: str, number: str) -> None:
    assert objects.quantity(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "one", "1 Gi", "1gi", "Gi", "1mi", "--1", "1e", "0x10", "1Gi1"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec, match="quantity"):
        objects.quantity(text)


@given(st.integers(-(10**12), 10**12), st.sampled_from(sorted(objects.SUFFIXES)))
def test_every_suffix_scales(number: int, suffix: str) -> None:
    assert objects.quantity(f"{number}{suffix}") == number * objects.SUFFIXES[suffix]


def test_amounts_are_shown_for_people() -> None:
    shown = [objects.show(objects.quantity(text)) for text in ("1Gi", "1536Mi", "8", "250m", "100Ki", "0")]
    assert shown == ["1Gi", "1.5Gi", "8", "0.25", "102400", "0"]


def test_a_pod_asks_for_its_containers_or_its_largest_init_container() -> None:
    spec = {
        "containers": [
            {"resources": {"requests": {"cpu": "500m"}, "limits": {"nvidia.com/gpu": "1", "cpu": "4"}}},
            {"resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}},
        ],
        "initContainers": [
            {"resources": {"requests": {"cpu": "2", "memory": "64Mi"}}},
            {"restartPolicy": "Always", "resources": {"requests": {"memory": "1Gi"}}},
        ],
        "overhead": {"cpu": "100m"},
    }
    asked = objects.pod_requests(spec)
    assert asked["cpu"] == Decimal("2.1")
    assert asked["memory"] == 2 * 2**30, "a sidecar counts with the containers"
    assert asked["nvidia.com/gpu"] == 1, "a limit without a request is the request"


@pytest.mark.parametrize(
    ("toleration", "covered"),
    [
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}, True),
        ({"key": "nvidia.com/gpu", "value": "other"}, False),
        ({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations_are_those_of_kubernetes(toleration: dict[str, str], covered: bool) -> None:
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    assert objects.tolerates([toleration], taint) is covered


def test_what_the_server_and_tools_added_is_dropped_and_nothing_else() -> None:
    live = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "operator",
            "namespace": "kubeflow",
            "uid": "1",
            "resourceVersion": "7",
            "generation": 2,
            "creationTimestamp": "2026-11-30T12:00:00Z",
            "managedFields": [{}],
            "labels": {"app": "operator"},
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
                "deployment.kubernetes.io/revision": "1",
                "pulumi.com/patchForce": "true",
                "own": "kept",
            },
        },
        "spec": {"replicas": 1},
        "status": {"readyReplicas": 1},
    }
    assert objects.desired(live) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "operator",
            "namespace": "kubeflow",
            "labels": {"app": "operator"},
            "annotations": {"own": "kept"},
        },
        "spec": {"replicas": 1},
    }
    assert live["status"] == {"readyReplicas": 1}, "the object itself is not touched"


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert objects.digest({"a": 1, "b": [1, 2]}) == objects.digest({"b": [1, 2], "a": 1})
    assert objects.digest({"a": [1, 2]}) != objects.digest({"a": [2, 1]})
    assert objects.digest({"a": 1}) != objects.digest({"a": "1"})


def test_paths_are_written_as_jsonpath() -> None:
    path: tuple[Any, ...] = ("metadata", "labels", "isthmus.dev/run")
    assert objects.show_path(path) == "metadata.labels['isthmus.dev/run']"
    assert objects.show_path(("spec", "containers", 0, "image")) == "spec.containers[0].image"


def test_leaves_tell_an_empty_mapping_from_an_absent_one() -> None:
    assert list(objects.leaves({"a": {}, "b": [1, {"c": None}]})) == [
        (("a",), {}),
        (("b", 0), 1),
        (("b", 1, "c"), None),
    ]


def test_an_object_is_named_without_the_version_of_its_api() -> None:
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "a", "namespace": "n"}}
    assert objects.key(job) == "PyTorchJob.kubeflow.org n/a"
    assert objects.key({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}) == "Namespace n"
