"""What stands for a cloud's disk driver in a simulated cluster: it serves claims of classes that name the driver.

It is local-path-provisioner under the driver's name, a Deployment in kube-system as the cloud's own controller is, so a
program's StorageClass stays as it wrote it. A disk is a folder of the local node: sizes, types and encryption are kept
and have no effect. The image is made from the program that local clusters run themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isthmus.localcluster import configs, images, objects
from isthmus.specs.labels import LOCAL_NODE
from isthmus.toolchain import home

Object = dict[str, Any]

NAMESPACE = "kube-system"
IMAGE = "isthmus.dev/simulation/disk-driver:1"
PROGRAM = "local-path-provisioner"
RBAC = "rbac.authorization.k8s.io"


def archive() -> Path:
    """The image as an archive under ISTHMUS_HOME/images, made on first use.

    Raises:
        NotFound: local-path-provisioner is not installed.
    """
    path = home.images() / "disk-driver.tar"
    program = home.tool(PROGRAM)
    if not path.exists() or path.stat().st_mtime < program.stat().st_mtime:
        files = {PROGRAM: program.read_bytes()}
        images.write_archive(path, IMAGE, files, {"Entrypoint": [f"/{PROGRAM}"], "User": "65532:65532"})
    return path


def manifests(driver: str, name: str) -> list[Object]:
    """Everything that serves a driver.

    Args:
        driver: the provisioner that storage classes name, for example ebs.csi.aws.com.
        name: of the controller's Deployment, as the cloud calls it: ebs-csi-controller.
    """
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": f"{name}-sa", "namespace": NAMESPACE}},
        *_role(f"isthmus:{name}", f"{name}-sa"),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "data": {"config.json": configs.storage(), "helper.json": configs.storage_helper()},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
            "spec": {
                "replicas": 1,
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": _pod(driver, name)},
            },
        },
    ]


def _pod(driver: str, name: str) -> Object:
    arguments = [
        "start",
        f"--provisioner-name={driver}",
        f"--namespace={NAMESPACE}",
        f"--service-account-name={name}-sa",
        f"--configmap-name={name}",
        "--config=/config/config.json",
        "--helper-pod-file=/config/helper.json",
        "--helper-image=set-in-the-file",
    ]
    container = {
        "name": "driver",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": arguments,
        "volumeMounts": [{"name": "config", "mountPath": "/config", "readOnly": True}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "serviceAccountName": f"{name}-sa",
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {LOCAL_NODE: "true"},
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": name}}],
    }


def _role(role: str, account: str) -> list[Object]:
    subject = {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
    return [
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": role},
            "rules": objects.STORAGE_RULES,
        },
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        },
    ]
