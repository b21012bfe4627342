"""Kubeconfigs that hold no secret.

Credentials come from a command when they are used, so a kubeconfig may lie in the state of a stack for months without
going stale or leaking a token (case A07), and its text does not change between runs, so the Kubernetes provider made
from it is never planned for replacement. The command is named without a path: the text is the same on every machine.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from infra.cloud import Cluster

EXEC_API = "client.authentication.k8s.io/v1"
"""v1 is served since Kubernetes 1.22 and, unlike v1beta1, is not deprecated."""


@dataclass(frozen=True)
class Exec:
    """The command that prints an ExecCredential."""

    command: str
    args: Sequence[str]
    install_hint: str
    cluster_info: bool = False
    """Whether the command needs the cluster's address and CA in its environment (gke-gcloud-auth-plugin does)."""


def isthmus_token(cloud: str, account: str, region: str, cluster: str) -> Exec:
    """`isthmus kube-token`: the same on every cloud, so that manifests of parity and tools need not care which."""
    args = ("kube-token", "--cloud", cloud, "--account", account, "--region", region, "--cluster", cluster)
    return Exec("isthmus", args, "run: isthmus install, in the checkout's environment")


def render(cluster: Cluster, context: str, credentials: Exec) -> pulumi.Output[str]:
    """The kubeconfig of a cluster as JSON, known as soon as the cluster's endpoint is.

    Args:
        context: the name of the context, the cluster and the user in it.
    """
    return pulumi.Output.all(cluster.endpoint, cluster.ca_certificate).apply(
        lambda known: document(str(known[0]), str(known[1]), context, credentials)
    )


def document(endpoint: str, ca_certificate: str, context: str, credentials: Exec) -> str:
    """The text of a kubeconfig. Same arguments, same text.

    Args:
        endpoint: https URL of the API server.
        ca_certificate: PEM in base64.
    """
    exec_section = {
        "apiVersion": EXEC_API,
        "command": credentials.command,
        "args": list(credentials.args),
        "installHint": credentials.install_hint,
        "interactiveMode": "Never",
        "provideClusterInfo": credentials.cluster_info,
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": {"server": endpoint, "certificate-authority-data": ca_certificate}}],
        "users": [{"name": context, "user": {"exec": exec_section}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "current-context": context,
    }
    return json.dumps(config, indent=2)
