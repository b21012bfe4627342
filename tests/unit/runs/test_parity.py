"""Parity: equal is equal, and every difference is found at its path."""

import copy
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from isthmus.kube.objects import leaves, show_path
from isthmus.runs import parity
from workloads import bindings
from workloads.bindings import Declared

RULES = bindings.declared(["aws"])


def deployment(image: str = "operator:1", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "training-operator",
            "namespace": "kubeflow",
            "labels": {"isthmus.dev/managed-by": "isthmus"},
            **metadata,
        },
        "spec": {
            "replicas": 1,
            "template": {"spec": {"containers": [{"name": "m", "image": image, "args": ["--a", "--b"]}]}},
        },
    }


def live(item: dict[str, Any], number: int) -> dict[str, Any]:
    """The object as a server gives it back, with all that differs between servers."""
    result = copy.deepcopy(item)
    result["metadata"] |= {
        "uid": f"uid-{number}",
        "resourceVersion": str(number),
        "creationTimestamp": f"2026-11-{number}",
    }
    result["metadata"]["managedFields"] = [{"manager": f"pulumi-{number}"}]
    result["status"] = {"availableReplicas": number}
    return result


def side(name: str, *items: dict[str, Any]) -> parity.Side:
    return parity.side(name, items, RULES)


def test_what_servers_set_is_no_difference() -> None:
    a, b = side("a", live(deployment(), 1)), side("b", live(deployment(), 2))
    assert parity.compare(a.objects, b.objects) == []
    assert a.digest == b.digest
    assert len(a.objects) == 1


def test_a_hand_edit_of_one_deployment_is_found_with_its_exact_path() -> None:
    a, b = side("a", live(deployment(), 1)), side("b", live(deployment("operator:edited"), 2))
    [found] = parity.compare(a.objects, b.objects)
    assert found == parity.Difference(
        "Deployment.apps kubeflow/training-operator",
        "spec.template.spec.containers[0].image",
        "operator:1",
        "operator:edited",
    )
    assert a.digest != b.digest


def test_an_object_on_one_side_only_is_a_difference() -> None:
    [found] = parity.compare(side("a", deployment()).objects, {})
    assert (found.path, found.left, repr(found.right)) == ("", "(present)", "(absent)")


def test_a_value_that_reads_absent_is_not_taken_for_an_absent_one() -> None:
    [found] = parity.compare({"x": {"a": "(absent)"}}, {"x": {}})
    assert found.path == "a"


@pytest.mark.parametrize(
    ("left", "right"), [({"a": 1}, {"a": True}), ({"a": 1}, {"a": "1"}), ({"a": {}}, {}), ({"a": []}, {"a": {}})]
)
def test_values_of_other_types_differ(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert [item.path for item in parity.compare({"x": left}, {"x": right})] == ["a"]


def test_bindings_are_left_out_and_told() -> None:
    def claim(storage: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "ckpt", "namespace": "runs"},
            "spec": {"storageClassName": storage, "volumeName": f"pvc-{storage}", "accessModes": ["ReadWriteOnce"]},
        }

    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trainer", "namespace": "runs"}}
    marked = copy.deepcopy(account)
    marked["metadata"]["annotations"] = {"iam.gke.io/gcp-service-account": "x@y"}
    a, b = side("a", claim("gp3"), account), side("b", claim("standard-rwo"), marked)
    assert parity.compare(a.objects, b.objects) == []
    assert b.left_out == (
        "PersistentVolumeClaim runs/ckpt spec.storageClassName: storage class",
        "ServiceAccount runs/trainer metadata.annotations['iam.gke.io/gcp-service-account']: identity",
    )
    other = claim("gp3")
    other["spec"]["accessModes"] = ["ReadWriteMany"]
    assert [found.path for found in parity.compare(a.objects, side("c", other, account).objects)] == [
        "spec.accessModes[0]"
    ]


def test_a_device_plugin_of_the_clouds_own_is_a_binding_only_where_a_cloud_has_one() -> None:
    plugin = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "nvidia-device-plugin-daemonset", "namespace": "kube-system"},
    }
    assert parity.side("a", [plugin], bindings.declared(["aws", "gcp"])).objects == {}
    assert len(parity.side("a", [plugin], bindings.declared(["aws", "aws"])).objects) == 1


def test_certificates_that_operators_make_are_left_out_of_every_webhook() -> None:
    def webhook(bundle: str, policy: str = "Fail") -> dict[str, Any]:
        hooks = [
            {"clientConfig": {"caBundle": bundle, "service": {"name": n}}, "failurePolicy": policy} for n in ("a", "b")
        ]
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "v"},
            "webhooks": hooks,
        }

    assert parity.compare(side("a", webhook("AAAA")).objects, side("b", webhook("BBBB")).objects) == []
    found = parity.compare(side("a", webhook("AAAA")).objects, side("b", webhook("BBBB", "Ignore")).objects)
    assert [item.path for item in found] == ["webhooks[0].failurePolicy", "webhooks[1].failurePolicy"]


def test_a_local_clusters_own_objects_are_no_part_of_the_platform() -> None:
    own = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "isthmus:kwok"}}
    assert side("a", own).objects == {}


def test_what_the_program_renders_must_be_there_as_rendered() -> None:
    rendered = deployment()
    rendered["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1000m"}}
    held = live(deployment(), 1)
    held["spec"]["template"]["spec"]["containers"][0] |= {
        "resources": {"requests": {"cpu": "1"}},
        "terminationMessagePath": "/dev",
    }
    held["spec"]["strategy"] = {"type": "RollingUpdate"}
    assert parity.missing([rendered], side("a", held), RULES) == [], (
        "added defaults and other spellings of an amount are fine"
    )
    held["spec"]["replicas"] = 0
    [found] = parity.missing([rendered], side("a", held), RULES)
    assert (found.path, found.left, found.right) == ("spec.replicas", 1, 0)
    [gone] = parity.missing([rendered], side("a"), RULES)
    assert gone.path == ""


def test_a_rule_removes_its_path_and_what_that_leaves_empty() -> None:
    rule = Declared("*", "*", "a.b[*].c['x.y/z']", "why")
    item = {
        "kind": "K",
        "metadata": {"name": "n"},
        "a": {"b": [{"c": {"x.y/z": 1}, "d": 1}, {"c": {"x.y/z": 1, "k": 2}}]},
    }
    after, hits = parity.strip(item, [rule])
    assert after["a"] == {"b": [{"d": 1}, {"c": {"k": 2}}]}
    assert hits == [rule]
    assert parity.strip(item, [Declared("Other", "*", "a", "why")]) == (item, [])


names = st.text("abcxyz./-' []", min_size=1, max_size=5)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=12,
)
objects = st.dictionaries(names, values, min_size=1, max_size=4)


@given(st.dictionaries(names, objects, max_size=3), st.dictionaries(names, objects, max_size=3))
def test_comparing_is_symmetric(left: dict[str, Any], right: dict[str, Any]) -> None:
    there, back = parity.compare(left, right), parity.compare(right, left)
    assert [(d.object, d.path, d.left, d.right) for d in there] == [(d.object, d.path, d.right, d.left) for d in back]


@given(st.dictionaries(names, objects, max_size=3))
def test_an_object_equals_itself(sides: dict[str, Any]) -> None:
    assert parity.compare(sides, copy.deepcopy(sides)) == []


@given(objects, st.data())
def test_any_edit_of_any_leaf_is_found_at_its_path(item: dict[str, Any], data: st.DataObject) -> None:
    path, old = data.draw(st.sampled_from(list(leaves(item))))
    new = data.draw(
        st.one_of(st.integers(), st.text(), st.booleans()).filter(lambda v: v != old or type(v) is not type(old))
    )
    edited: Any = copy.deepcopy(item)
    place = edited
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = new
    assert parity.compare({"x": item}, {"x": edited}) == [parity.Difference("x", show_path(path), old, new)]


@given(objects, st.data())
def test_a_written_path_leads_back_to_its_leaf(item: dict[str, Any], data: st.DataObject) -> None:
    """The paths that parity prints are the paths that a binding may name."""
    named = [path for path, _ in leaves(item) if isinstance(path[-1], str)]
    assume(named)
    path = data.draw(st.sampled_from(named))
    whole = {"kind": "K", "metadata": {"name": "n"}, "spec": item}
    after, hits = parity.strip(whole, [Declared("K", "n", f"spec.{show_path(path)}".replace("spec.[", "spec["), "why")])
    assert hits
    assert parity.compare({"x": whole}, {"x": after})


def test_reading_takes_ours_of_every_kind_and_leaves_what_controllers_made(harness: Any) -> None:
    ours = {"isthmus.dev/managed-by": "isthmus"}
    made = live(deployment(), 1)
    harness.api.put(made)
    child = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "kubeflow", "labels": ours}}
    child["metadata"]["ownerReferences"] = [{"kind": "PyTorchJob", "controller": True}]  # type: ignore[index]
    harness.api.put(child)
    harness.api.put(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "kubeflow", "labels": ours}}
    )
    harness.api.put(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "not-ours", "namespace": "kubeflow"}}
    )
    run = {"isthmus.dev/run": "r1", **ours}
    harness.api.put(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "of-a-run", "namespace": "kubeflow", "labels": run},
        }
    )
    assert [item["metadata"]["name"] for item in parity.read(harness.cluster)] == ["training-operator"]
