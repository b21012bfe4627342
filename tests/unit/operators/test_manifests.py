"""What the operators deploy, from a small copy of what upstream's files look like."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from isthmus.specs.cluster import GpuCards, NodePool
from isthmus.specs.sharing import GpuSharing
from operators import deploy, device_plugin, manifests, training_operator

PLUGIN_UPSTREAM = yaml.safe_load("""
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nvidia-device-plugin-daemonset, namespace: kube-system}
spec:
  selector: {matchLabels: {name: nvidia-device-plugin-ds}}
  template:
    metadata: {labels: {name: nvidia-device-plugin-ds}}
    spec:
      tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
      containers:
      - image: nvcr.io/nvidia/k8s-device-plugin:v0.18.0
        name: nvidia-device-plugin-ctr
        env: []
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        volumeMounts: [{name: kubelet-device-plugins-dir, mountPath: /var/lib/kubelet/device-plugins}]
      volumes:
      - {name: kubelet-device-plugins-dir, hostPath: {path: /var/lib/kubelet/device-plugins, type: Directory}}
""")

OPERATOR_UPSTREAM = list(
    yaml.safe_load_all("""
apiVersion: v1
kind: Namespace
metadata: {name: kubeflow}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pytorchjobs.kubeflow.org}
spec: {names: {plural: pytorchjobs}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: mpijobs.kubeflow.org}
spec: {names: {plural: mpijobs}}
---
apiVersion: v1
kind: Secret
data: {}
metadata: {name: training-operator-webhook-cert, namespace: kubeflow}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: training-operator, namespace: kubeflow}
spec:
  replicas: 1
  template:
    spec:
      containers:
      - command: [/manager]
        image: ghcr.io/kubeflow/training-v1/training-operator:v1-d6eb98e
        name: training-operator
        readinessProbe: {httpGet: {path: /readyz, port: 8081}, initialDelaySeconds: 10, periodSeconds: 15}
        volumeMounts: [{mountPath: /tmp/k8s-webhook-server/serving-certs, name: cert}]
      volumes: [{name: cert, secret: {secretName: training-operator-webhook-cert}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: validator.training-operator.kubeflow.org}
webhooks:
- {name: a, rules: [{resources: [pytorchjobs]}]}
- {name: b, rules: [{resources: [mpijobs]}]}
""")
)


def pool(sharing: GpuSharing | None = None, name: str = "gpu") -> NodePool:
    return NodePool(name=name, gpu=GpuCards(model="T4", count=4), sharing=sharing or GpuSharing())


def sliced(**settings: Any) -> GpuSharing:
    return GpuSharing(mode="time-slicing", **settings)


def plugin(*pools: NodePool) -> list[dict[str, Any]]:
    return device_plugin.manifests(pools, upstream=[PLUGIN_UPSTREAM])


def operator(**settings: Any) -> dict[str, dict[str, Any]]:
    items = training_operator.manifests(upstream=OPERATOR_UPSTREAM, **settings)
    return {f"{item['kind']}/{item['metadata']['name']}": item for item in items}


def test_without_sharing_the_plugin_is_upstreams_own_on_gpu_nodes_only() -> None:
    (daemon_set,) = plugin(pool())
    pod = daemon_set["spec"]["template"]["spec"]
    affinity = pod.pop("affinity")
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    [alone] = affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert alone["labelSelector"]["matchLabels"] == daemon_set["spec"]["selector"]["matchLabels"]
    assert terms == [{"matchExpressions": [{"key": "isthmus.dev/gpu-model", "operator": "Exists"}]}]
    assert daemon_set["spec"] == PLUGIN_UPSTREAM["spec"]


def test_sharing_pools_get_a_configuration_each_and_the_manager() -> None:
    items = plugin(
        pool(), pool(sliced(replicas=4), "a"), pool(sliced(replicas=4), "b"), pool(sliced(replicas=2, rename=True), "c")
    )
    config = next(item for item in items if item["kind"] == "ConfigMap")
    assert sorted(config["data"]) == ["default", "time-slicing-2-renamed", "time-slicing-4"]
    pod = items[-1]["spec"]["template"]["spec"]
    assert [container["name"] for container in pod["containers"]] == [
        "nvidia-device-plugin-ctr",
        "nvidia-device-plugin-sidecar",
    ]
    assert pod["shareProcessNamespace"] is True
    once = {item["name"]: item.get("value") for item in pod["initContainers"][0]["env"]}
    always = {item["name"]: item.get("value") for item in pod["containers"][1]["env"]}
    assert (once["ONESHOT"], once["SEND_SIGNAL"]) == ("true", "false")
    assert (always["ONESHOT"], always["SEND_SIGNAL"]) == ("false", "true")


def test_a08_shared_names_are_set_where_the_plugin_reads_them() -> None:
    """NVIDIA/k8s-device-plugin#1433: the fields are silently ignored under `flags`; they belong to sharing.timeSlicing."""
    configs = device_plugin.configurations([sliced(replicas=4, rename=True, failGreaterThanOne=False)])
    config = yaml.safe_load(configs["time-slicing-4-renamed-lenient"])
    assert config["flags"] == {"migStrategy": "none"}
    assert config["sharing"]["timeSlicing"] == {
        "renameByDefault": True,
        "failRequestsGreaterThanOne": False,
        "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
    }


@pytest.mark.parametrize(
    ("sharing", "expected"),
    [
        (GpuSharing(), {"nvidia.com/gpu": 4}),
        (sliced(replicas=4), {"nvidia.com/gpu": 16}),
        (sliced(replicas=4, rename=True), {"nvidia.com/gpu.shared": 16}),
    ],
)
def test_advertised(sharing: GpuSharing, expected: dict[str, int]) -> None:
    assert device_plugin.advertised(GpuCards(model="T4", count=4), sharing) == expected
    assert device_plugin.advertised(None, sharing) == {}


@given(replicas=st.integers(2, 48), rename=st.booleans(), lenient=st.booleans())
def test_every_sharing_finds_its_configuration_by_the_nodes_label(replicas: int, rename: bool, lenient: bool) -> None:
    sharing = sliced(replicas=replicas, rename=rename, failGreaterThanOne=not lenient)
    assert sharing.config_name in device_plugin.configurations([sharing])


def test_upstream_is_not_changed_by_reading_it() -> None:
    before = yaml.safe_dump_all(OPERATOR_UPSTREAM), yaml.safe_dump(PLUGIN_UPSTREAM)
    operator()
    plugin(pool(sliced(replicas=2)))
    assert (yaml.safe_dump_all(OPERATOR_UPSTREAM), yaml.safe_dump(PLUGIN_UPSTREAM)) == before


def test_everything_is_marked_as_ours() -> None:
    for item in [*operator().values(), *plugin(pool(sliced(replicas=2)))]:
        assert item["metadata"]["labels"]["isthmus.dev/managed-by"] == "isthmus", item["metadata"]["name"]


def test_mpijob_is_left_to_the_mpi_operator() -> None:
    items = operator()
    assert "CustomResourceDefinition/pytorchjobs.kubeflow.org" in items
    assert "CustomResourceDefinition/mpijobs.kubeflow.org" not in items
    hooks = items["ValidatingWebhookConfiguration/validator.training-operator.kubeflow.org"]["webhooks"]
    assert [hook["name"] for hook in hooks] == ["a"]
    arguments = items["Deployment/training-operator"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--enable-scheme=pytorchjob" in arguments
    assert not any("mpijob" in argument for argument in arguments)


def test_the_operators_secret_is_its_own_to_fill() -> None:
    assert "data" not in operator()["Secret/training-operator-webhook-cert"]


def test_replicas_elect_a_leader() -> None:
    one = operator()["Deployment/training-operator"]["spec"]
    two = operator(replicas=2, resources={"requests": {"cpu": "1"}})["Deployment/training-operator"]["spec"]
    container = two["template"]["spec"]["containers"][0]
    assert (one["replicas"], two["replicas"]) == (1, 2)
    assert "--leader-elect" in container["args"]
    assert "--leader-elect" not in one["template"]["spec"]["containers"][0]["args"]
    assert container["resources"] == {"requests": {"cpu": "1"}}


def test_a16_workers_wait_for_the_port_and_not_for_the_name() -> None:
    """kubeflow/pytorch-operator#333: the name resolves seconds before the port is open."""
    text = operator()["ConfigMap/training-operator-init-container"]["data"]["initContainer.yaml"]
    text = text.replace("{{.InitContainerImage}}", "image:1").replace("{{.MaxTries}}", "9")
    (container,) = yaml.safe_load(text.replace("{{.MasterAddr}}", "job-master-0"))
    assert container["imagePullPolicy"] == "IfNotPresent"
    script = container["command"][-1]
    assert "nc -w 2 job-master-0 23456" in script
    assert 'echo "job-master-0 port 23456 did not open' in script
    assert "nslookup" not in script
    deployment = operator()["Deployment/training-operator"]["spec"]["template"]["spec"]
    flags = dict(flag.split("=", 1) for flag in deployment["containers"][0]["args"] if "=" in flag)
    mount = next(item for item in deployment["containers"][0]["volumeMounts"] if item["name"] == "init-container")
    assert flags["--pytorch-init-container-template-file"] == f"{mount['mountPath']}/initContainer.yaml"
    assert 600 <= int(flags["--pytorch-init-container-max-tries"]) <= 3600  # bounded, and longer than a node takes


def test_images_are_those_the_manifests_name() -> None:
    assert manifests.images(operator().values()) == [training_operator.IMAGE]
    assert manifests.images(plugin(pool(sliced(replicas=2)))) == [device_plugin.IMAGE]


def test_types_come_before_what_uses_them() -> None:
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "x", "namespace": "y"}}
    items = operator()
    stages = {name: manifests.stage(item) for name, item in items.items()}
    assert stages["CustomResourceDefinition/pytorchjobs.kubeflow.org"] == stages["Namespace/kubeflow"] == 0
    assert stages["Secret/training-operator-webhook-cert"] < stages["Deployment/training-operator"]
    assert manifests.stage(job) > max(stages.values())
    # Pulumi waits for a Service's endpoints: a Deployment that waits for its Service would never start.
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "training-operator"}}
    assert manifests.stage(service) > stages["Deployment/training-operator"]


@pytest.mark.parametrize(
    ("version", "kind", "expected"),
    [
        ("v1", "Secret", "kubernetes:core/v1:Secret"),
        ("apps/v1", "Deployment", "kubernetes:apps/v1:Deployment"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole"),
        ("kubeflow.org/v1", "PyTorchJob", "kubernetes:kubeflow.org/v1:PyTorchJob"),
    ],
)
def test_pulumi_types(version: str, kind: str, expected: str) -> None:
    assert deploy.token({"apiVersion": version, "kind": kind}) == expected


def test_a03_a_definition_is_waited_for_by_its_condition() -> None:
    """pulumi/pulumi-kubernetes#3188: custom resources right after their CRD fail; waiting is the provider's, not a sleep."""
    crd = OPERATOR_UPSTREAM[1]
    sent = deploy.properties(crd)
    assert sent["metadata"]["annotations"]["pulumi.com/waitFor"] == "condition=Established"
    assert "annotations" not in crd["metadata"]
    assert deploy.properties(OPERATOR_UPSTREAM[0]) == OPERATOR_UPSTREAM[0]


def test_resource_names_are_unique() -> None:
    items = [*operator().values(), *plugin(pool(sliced(replicas=2)))]
    names = [deploy.resource_name("x", item) for item in items]
    assert len(set(names)) == len(names)
