"""Kubeflow's training operator v1.9.3 with its webhooks, from upstream's own manifests (the standalone overlay).

Four changes. Workers wait until the master's port is open and not just until its name resolves (case A16: the name
resolves seconds earlier, and the worker fails), in an image that has what this takes; the wait has an end, and says host
and port. MPIJob is left out: its v1 type would stand in the way of the MPI operator's v2beta1, one name for both. Its
readiness is looked at from the first second and not after ten, which is most of what its start takes. And replicas and
resources are parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from operators import manifests as helpers
from operators.manifests import Object

if TYPE_CHECKING:
    import pulumi

TOOL = "training-operator"
NAME = "training-operator"
NAMESPACE = "kubeflow"
IMAGE = "ghcr.io/kubeflow/training-v1/training-operator:v1-d6eb98e"
"""As the manifests of v1.9.3 name it."""

INIT_IMAGE = "docker.io/library/busybox:1.35.0"
"""Of the container that waits for the master: a shell, and an nc whose exit status says whether the port is open."""

KINDS = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
"""Job types the operator serves."""

MASTER_PORT = 23456
"""The operator's default port of a PyTorchJob's master (pkg/apis/kubeflow.org/v1/pytorch_types.go); ours keep it."""

WAIT_SECONDS = 1800
"""How long workers wait for their master: half an hour, since its node may have to start first."""

_INIT_CONFIG = "training-operator-init-container"
_INIT_FOLDER = "/etc/config"


def deploy(
    provider: pulumi.ProviderResource,
    *,
    replicas: int = 1,
    resources: Mapping[str, Any] | None = None,
    depends_on: Sequence[pulumi.Resource] = (),
) -> pulumi.ComponentResource:
    """Deploy the operator. What depends on the answer finds its types served and its webhooks answering.

    Raises:
        NotFound: upstream's manifests are not installed; the remedy says how.
    """
    from operators import deploy as deployment

    items = manifests(replicas=replicas, resources=resources)
    return deployment.objects(NAME, items, provider, depends_on=depends_on)


def installed() -> list[Object]:
    """Upstream's standalone overlay, rendered when the tool was installed.

    Raises:
        NotFound: it is not installed.
    """
    from isthmus.toolchain import home

    return helpers.read(home.share(TOOL) / "training-operator.yaml")


def images() -> list[str]:
    """Images the operator and the jobs' waiting containers need."""
    return [INIT_IMAGE, IMAGE]


def manifests(
    *,
    upstream: Sequence[Mapping[str, Any]] | None = None,
    replicas: int = 1,
    resources: Mapping[str, Any] | None = None,
    kinds: Sequence[str] = KINDS,
) -> list[Object]:
    """The operator's objects. Pure when `upstream` is given.

    Args:
        upstream: the documents of upstream's standalone overlay; default `installed()`.
        replicas: pods of the operator; more than one elect a leader.
        resources: of the operator's container; default 50m and 128Mi requested, 512Mi at most.
        kinds: job types to serve.
    """
    plurals = {f"{kind.lower()}s" for kind in kinds}
    result: list[Object] = []
    for item in helpers.marked(installed() if upstream is None else upstream):
        if item["kind"] == "CustomResourceDefinition" and item["spec"]["names"]["plural"] not in plurals:
            continue
        if item["kind"] == "ValidatingWebhookConfiguration":
            item["webhooks"] = [hook for hook in item["webhooks"] if hook["rules"][0]["resources"][0] in plurals]
        if item["kind"] == "Secret":
            item.pop("data", None)  # the operator writes it; an empty one would be ours to keep empty
        if item["kind"] == "Deployment":
            _adapt(item, replicas, resources, kinds)
        result.append(item)
    return [*result, _init_template()]


def init_container() -> str:
    """The template of the container in which workers wait, in the operator's own template language."""
    tried = f"nc -w 2 {{{{.MasterAddr}}}} {MASTER_PORT} -e /bin/true"
    script = (
        f"n=0; until {tried} 2>/dev/null; do n=$((n+1)); "
        f"if [ $n -ge {{{{.MaxTries}}}} ]; then "
        f'echo "{{{{.MasterAddr}}}} port {MASTER_PORT} did not open in {{{{.MaxTries}}}} tries"; exit 1; fi; '
        "sleep 1; done"
    )
    return f"""\
- name: init-pytorch
  image: {{{{.InitContainerImage}}}}
  imagePullPolicy: IfNotPresent
  terminationMessagePolicy: FallbackToLogsOnError
  securityContext:
    allowPrivilegeEscalation: false
    capabilities:
      drop: [ALL]
  resources:
    requests: {{cpu: 10m, memory: 10Mi}}
    limits: {{cpu: 100m, memory: 20Mi}}
  command:
    - sh
    - -c
    - >-
      {script}
"""


def _adapt(deployment: Object, replicas: int, resources: Mapping[str, Any] | None, kinds: Sequence[str]) -> None:
    spec = deployment["spec"]
    spec["replicas"] = replicas
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    flags = [
        *(f"--enable-scheme={kind.lower()}" for kind in kinds),
        f"--pytorch-init-container-image={INIT_IMAGE}",
        f"--pytorch-init-container-template-file={_INIT_FOLDER}/initContainer.yaml",
        f"--pytorch-init-container-max-tries={WAIT_SECONDS}",
        *(["--leader-elect"] if replicas > 1 else []),
    ]
    container["args"] = [*(container.get("args") or []), *flags]
    container["resources"] = dict(
        resources or {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    )
    container["readinessProbe"] = {**container["readinessProbe"], "initialDelaySeconds": 1, "periodSeconds": 2}
    container["volumeMounts"] = [
        *container["volumeMounts"],
        {"name": "init-container", "mountPath": _INIT_FOLDER, "readOnly": True},
    ]
    pod["volumes"] = [*pod["volumes"], {"name": "init-container", "configMap": {"name": _INIT_CONFIG}}]


def _init_template() -> Object:
    metadata = {"name": _INIT_CONFIG, "namespace": NAMESPACE}
    data = {"initContainer.yaml": init_container()}
    (item,) = helpers.marked([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}])
    return item
