"""Manifests: the same for every cloud but for the declared bindings; golden files for the samples."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.kube.objects import leaves, show_path
from isthmus.specs import labels
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.kinds import KINDS
from isthmus.specs.workload import WorkloadSpec
from workloads import bindings, render

GOLDEN = Path(__file__).parent / "golden"


def spec(**change: Any) -> WorkloadSpec:
    values: dict[str, Any] = {
        "apiVersion": "isthmus.dev/v1",
        "kind": "PyTorchJob",
        "name": "train",
        "image": "docker.io/isthmus/torch:1",
        "command": ["python3", "/opt/isthmus/train.py"],
        "roles": {"Master": {"replicas": 1, "gpus": 1}, "Worker": {"replicas": 3, "gpus": 1, "memory": "2Gi"}},
        "volumes": [{"name": "ckpt", "size": "1Gi", "mountPath": "/checkpoints", "role": "Master"}],
    }
    return WorkloadSpec.model_validate(values | change)


def job(workload: WorkloadSpec, cloud: str = "aws", **more: Any) -> dict[str, Any]:
    return render.render(workload, namespace="runs", binding=bindings.for_cloud(cloud), **more)[-1]


def pod(manifest: dict[str, Any], role: str) -> dict[str, Any]:
    template: dict[str, Any] = manifest["spec"]["pytorchReplicaSpecs"][role]["template"]
    return template


@pytest.mark.parametrize("name", render.samples())
@pytest.mark.parametrize("cloud", sorted(bindings.CLOUDS))
def test_samples_render_as_their_golden_files(name: str, cloud: str) -> None:
    """Rewrite them with ISTHMUS_REWRITE=1 after looking at the change."""
    manifests = render.render(
        render.load(name), namespace=labels.RUNS_NAMESPACE, binding=bindings.for_cloud(cloud), run="r12345"
    )
    text = yaml.safe_dump_all(manifests, sort_keys=False)
    path = GOLDEN / f"{name}.{cloud}.yaml"
    if os.environ.get("ISTHMUS_REWRITE"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), "run this test with ISTHMUS_REWRITE=1 and look at the difference"


@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "kinds").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_kind_renders_as_its_golden_file(path: Path) -> None:
    """Rewritten as above. Each is a workload that uses what its kind has."""
    manifests = render.render(
        render.load(path), namespace=labels.RUNS_NAMESPACE, binding=bindings.for_cloud("aws"), run="r12345"
    )
    text = yaml.safe_dump_all(manifests, sort_keys=False)
    golden = GOLDEN / f"kind.{path.stem}.yaml"
    if os.environ.get("ISTHMUS_REWRITE"):
        golden.write_text(text)
    assert text == golden.read_text(), "run this test with ISTHMUS_REWRITE=1 and look at the difference"


def test_every_kind_has_a_golden_file() -> None:
    there = {render.load(path).kind for path in (Path(__file__).parent / "kinds").glob("*.yaml")}
    assert there == set(KINDS)


def test_clouds_differ_in_the_storage_class_only() -> None:
    def flat(cloud: str) -> dict[str, Any]:
        manifests = render.render(spec(), namespace="runs", binding=bindings.for_cloud(cloud))
        return {show_path(path): value for path, value in leaves(manifests)}

    aws, gcp = flat("aws"), flat("gcp")
    assert {path for path in aws.keys() | gcp.keys() if aws.get(path) != gcp.get(path)} == {"[0].spec.storageClassName"}


def test_the_job_says_what_the_workload_says() -> None:
    manifest = job(spec(backoffLimit=2, activeDeadlineSeconds=60, restartPolicy="ExitCode", env={"A": "1"}))
    assert manifest["spec"]["runPolicy"] == {"cleanPodPolicy": "None", "backoffLimit": 2, "activeDeadlineSeconds": 60}
    worker = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert (worker["replicas"], worker["restartPolicy"]) == (3, "ExitCode")
    [container] = worker["template"]["spec"]["containers"]
    assert container["name"] == "pytorch", "the operator looks for this name"
    assert container["resources"] == {
        "requests": {"cpu": "1", "memory": "2Gi"},
        "limits": {"memory": "2Gi", "nvidia.com/gpu": "1"},
    }
    assert {"name": "A", "value": "1"} in container["env"]


def test_a25_no_image_is_pulled_when_it_is_there() -> None:
    """kubernetes-sigs/kind#328: images loaded into a node must not be pulled again."""
    for role in ("Master", "Worker"):
        assert [c["imagePullPolicy"] for c in pod(job(spec()), role)["spec"]["containers"]] == ["IfNotPresent"]


def test_only_pods_with_cards_go_to_tainted_nodes() -> None:
    roles = {"Master": {"replicas": 1}, "Worker": {"replicas": 1, "gpus": 1}}
    manifest = job(spec(roles=roles, gpu={"model": "T4", "count": 1}))
    assert "tolerations" not in pod(manifest, "Master")["spec"]
    assert "nodeSelector" not in pod(manifest, "Master")["spec"]
    worker = pod(manifest, "Worker")["spec"]
    assert worker["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert worker["nodeSelector"] == {"isthmus.dev/gpu-model": "T4"}
    assert "nodeSelector" not in pod(job(spec()), "Worker")["spec"], "without a model any card will do"


def test_a_volume_is_mounted_by_its_role_only_and_claimed_once() -> None:
    claim, manifest = render.render(spec(), namespace="runs", binding=bindings.for_cloud("gcp"), run="r1")
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert claim["spec"]["storageClassName"] == "standard-rwo"
    name = claim["metadata"]["name"]
    assert pod(manifest, "Master")["spec"]["volumes"] == [
        {"name": "ckpt", "persistentVolumeClaim": {"claimName": name}}
    ]
    assert pod(manifest, "Master")["spec"]["containers"][0]["volumeMounts"] == [
        {"name": "ckpt", "mountPath": "/checkpoints"}
    ]
    assert "volumes" not in pod(manifest, "Worker")["spec"]


def test_everything_of_a_run_carries_its_labels() -> None:
    for manifest in render.render(spec(), namespace="runs", binding=bindings.for_cloud("aws"), run="r1"):
        marks = manifest["metadata"]["labels"]
        assert marks == {"isthmus.dev/managed-by": "isthmus", "isthmus.dev/workload": "train", "isthmus.dev/run": "r1"}
        assert manifest["metadata"]["name"].startswith("train-r1")
    assert pod(job(spec(), run="r1"), "Worker")["metadata"]["labels"]["isthmus.dev/run"] == "r1"
    assert "isthmus.dev/run" not in job(spec())["metadata"]["labels"], "a sample of the platform is no run"


def test_marks_of_the_caller_reach_every_pod_and_nothing_else() -> None:
    manifest = job(spec(), pod_labels={"a": "1"}, pod_annotations={"b": "2"})
    for role in ("Master", "Worker"):
        assert pod(manifest, role)["metadata"]["labels"]["a"] == "1"
        assert pod(manifest, role)["metadata"]["annotations"] == {"b": "2"}
    assert "a" not in manifest["metadata"]["labels"]


def test_containers_give_up_what_training_does_not_need() -> None:
    template = pod(job(spec()), "Worker")["spec"]
    assert template["securityContext"]["runAsNonRoot"] is True
    assert template["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert template["automountServiceAccountToken"] is False
    [container] = template["containers"]
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_a17_the_longest_name_still_makes_legal_services() -> None:
    """kubeflow/trainer#1745: a pod's Service has the pod's name, at most 63 characters."""
    longest = spec(name="a" * 40, roles={"Master": {"replicas": 1}, "Worker": {"replicas": 10000}})
    assert len(render.job_name(longest, "r12345") + "-worker-9999") <= 63


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"roles": {"Master": {"replicas": 1, "cpu": "lots"}}}, "'lots' is no Kubernetes quantity"),
        ({"roles": {"Master": {"replicas": 1, "memory": "0"}}}, "roles.Master.memory must be more than 0"),
        (
            {"volumes": [{"name": "v", "size": "big", "mountPath": "/v", "role": "Master"}]},
            "'big' is no Kubernetes quantity",
        ),
        ({"volumes": [{"name": "v", "size": "1Gi", "mountPath": "/v", "role": "Worker"}]}, "role Worker has 3 pods"),
        ({"command": []}, "command is empty"),
    ],
)
def test_what_cannot_be_rendered_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        job(spec(**change))


def test_an_unknown_cloud_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="known: aws, gcp, kind"):
        bindings.for_cloud("azure")


def test_the_namespace_of_runs_carries_the_identity() -> None:
    space, account = render.namespace("runs", "trainer", {"iam.gke.io/gcp-service-account": "x"})
    assert space["kind"] == "Namespace"
    assert account["metadata"]["annotations"] == {"iam.gke.io/gcp-service-account": "x"}
    assert "annotations" not in render.namespace("runs", "trainer", {})[1]["metadata"]


HALF = {"name": "half", "deviceClass": "mig", "profile": "3g.20gb", "selectors": ["device.driver != ''"]}


@pytest.mark.parametrize("resource", ["nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared"])
def test_a_role_asks_for_shares_by_their_name(resource: str) -> None:
    worker = pod(
        job(
            spec(
                roles={"Master": {"replicas": 1}, "Worker": {"replicas": 2, "gpus": 1, "resource": resource}},
                volumes=[],
            )
        ),
        "Worker",
    )
    assert worker["spec"]["containers"][0]["resources"]["limits"] == {"memory": "1Gi", resource: "1"}
    assert worker["spec"]["tolerations"], "parts of cards are on the same tainted nodes"


@pytest.mark.parametrize(
    ("scope", "kind", "name"),
    [
        ("pod", "ResourceClaimTemplate", "train-r1-half"),
        ("run", "ResourceClaim", "train-r1-half"),
        ("namespace", "ResourceClaim", "half"),
    ],
)
def test_a_claim_is_made_for_who_shares_it(scope: str, kind: str, name: str) -> None:
    workload = spec(
        claims=[HALF | {"scope": scope}],
        roles={"Master": {"replicas": 1}, "Worker": {"replicas": 2, "claims": ["half"]}},
        volumes=[],
    )
    claim, manifest = render.render(workload, namespace="runs", binding=bindings.for_cloud("aws"), run="r1")
    assert (claim["kind"], claim["metadata"]["name"]) == (kind, name)
    assert (labels.RUN in claim["metadata"]["labels"]) is (scope != "namespace")
    devices = (claim["spec"]["spec"] if scope == "pod" else claim["spec"])["devices"]
    assert devices["requests"][0]["exactly"]["deviceClassName"] == "mig.nvidia.com"
    assert [item["cel"]["expression"] for item in devices["requests"][0]["exactly"]["selectors"]] == [
        "device.driver != ''",
        "device.attributes['gpu.nvidia.com'].profile == '3g.20gb'",
    ]
    worker = pod(manifest, "Worker")["spec"]
    field = "resourceClaimTemplateName" if scope == "pod" else "resourceClaimName"
    assert worker["resourceClaims"] == [{"name": "half", field: name}]
    assert worker["containers"][0]["resources"]["claims"] == [{"name": "half"}]
    assert worker["tolerations"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"roles": {"Master": {"replicas": 1, "claims": ["half"]}}}, "names claim 'half'; the workload has: none"),
        ({"claims": [HALF]}, "no role names claim 'half'"),
        ({"claims": [HALF, HALF]}, "the names must differ"),
        ({"claims": [HALF], "roles": {"Master": {"replicas": 1, "gpus": 1, "claims": ["half"]}}}, "gpus and claims"),
        ({"roles": {"Master": {"replicas": 1, "gpus": 1, "resource": "amd.com/gpu"}}}, "resource"),
        ({"claims": [{"name": "a", "deviceClass": "mig"}]}, "mig needs one"),
    ],
)
def test_claims_and_names_of_shares_that_make_no_sense_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        spec(**{"volumes": [], **change})
