"""What a kind cluster gets beside kind's own objects: KWOK, which plays simulated nodes, and capped requests. Pure."""

from typing import Any

import yaml

from isthmus.localcluster import kwok, pod_policies
from isthmus.localcluster.kind.image import RECIPES
from isthmus.localcluster.objects import KWOK_RULES, RBAC

Object = dict[str, Any]

NAMESPACE = "kube-system"
NAME = "isthmus-kwok"


def manifests() -> list[Object]:
    """KWOK with the rights it needs, on the node of the control plane; and the cap, since all nodes share one machine."""
    meta = {"name": NAME}
    here = {**meta, "namespace": NAMESPACE}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    image = yaml.safe_load((RECIPES / "kwok" / "image.yaml").read_text(encoding="utf-8"))["image"]
    container = {
        "name": "kwok",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["--config=/etc/kwok/kwok.yaml"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/kwok"}],
    }
    pod = {
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": NAME}}],
    }
    selector = {"app": NAME}
    return [
        *pod_policies.capped_requests(),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here},
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": meta, "rules": KWOK_RULES},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": NAME},
            "subjects": [subject],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": here, "data": {"kwok.yaml": kwok.config()}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": here,
            "spec": {
                "selector": {"matchLabels": selector},
                "template": {"metadata": {"labels": selector}, "spec": pod},
            },
        },
    ]
