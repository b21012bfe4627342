"""The content of a volume from one cluster to another: a helper pod at each end, tar through `kubectl exec`, then both lists of
digests compared. The new volume is made by the destination's own provisioner (case A28).

The helpers run the workload's own image, which both clusters have, as the workload's user, so that owners and rights stay.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from isthmus.kube import wait
from isthmus.kube.client import Cluster, Object
from isthmus.specs import labels
from isthmus.specs.errors import IsthmusError, NotFound
from isthmus.toolchain import home
from workloads.pods import USER

READY_SECONDS = 180
COPY_SECONDS = 6 * 3600.0
GONE_SECONDS = 60
PLACE = "/volume"
_LIST = f"cd {PLACE} && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum -z"
_SIZE = f"cd {PLACE} && find . -type f -printf '%s\\n'"
_PACK = f"cd {PLACE} && find . -mindepth 1 -maxdepth 1 -not -name lost+found -print0 | tar --null -T - -cf -"
"""Without the folder itself: its owner and rights are the provisioner's, and not ours to set."""
_EMPTY = f"find {PLACE} -mindepth 1 -not -name lost+found -delete"


@dataclass(frozen=True)
class End:
    """One cluster, and what kubectl needs to reach it."""

    name: str
    cluster: Cluster
    kubeconfig: dict[str, Any]


@dataclass(frozen=True)
class Content:
    """What is in a volume."""

    files: int
    bytes: int
    digest: str


def copy(source: End, destination: End, claim: Object, image: str) -> Content | None:
    """Copy a claim's content into the claim of the same name, which must be there, and compare it.

    Returns:
        What it holds; None when the source's claim was never bound: nothing was ever written.

    Raises:
        IsthmusError: a helper does not start, the copy fails, or the contents differ.
    """
    name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
    if (source.cluster.get("v1", "PersistentVolumeClaim", name, namespace).get("status") or {}).get("phase") != "Bound":
        return None
    with _helper(source, name, namespace, image) as reading, _helper(destination, name, namespace, image) as writing:
        destination_command = writing("sh", "-c", f"{_EMPTY} && tar -C {PLACE} -xpf -", stdin=True)
        _pipe(reading("sh", "-c", _PACK), destination_command, f"volume {namespace}/{name}")
        contents = [_content(command) for command in (reading, writing)]
    if contents[0] != contents[1]:
        raise IsthmusError(
            f"the copy of volume {namespace}/{name} differs: {contents[0].files} files, digest {contents[0].digest[:16]} at"
            f" {source.name}, {contents[1].files} files, digest {contents[1].digest[:16]} at {destination.name}",
            subject=f"volume {namespace}/{name}",
        )
    return contents[0]


class _Kubectl:
    """Commands in a helper pod."""

    def __init__(self, kubeconfig: Path, pod: str, namespace: str) -> None:
        self._kubeconfig, self._pod, self._namespace = kubeconfig, pod, namespace

    def __call__(self, *command: str, stdin: bool = False) -> list[str]:
        options = ["-i"] if stdin else []
        start = [
            str(home.tool("kubectl")),
            "--kubeconfig",
            str(self._kubeconfig),
            "-n",
            self._namespace,
            "exec",
            *options,
        ]
        return [*start, self._pod, "--", *command]


@contextmanager
def _helper(end: End, claim: str, namespace: str, image: str) -> Iterator[_Kubectl]:
    """A pod that mounts the claim and waits; taken away at the end. One that a killed move left is used again."""
    pod = f"move-{claim}"[:63].rstrip("-")
    end.cluster.apply(_pod(pod, claim, namespace, image))
    try:
        wait.until(
            lambda: _running(end.cluster, pod, namespace),
            seconds=READY_SECONDS,
            what=f"the helper of volume {claim} to start",
            subject=f"pod {namespace}/{pod} of {end.name}",
        )
        with tempfile.TemporaryDirectory() as folder:
            kubeconfig = Path(folder) / "kubeconfig"
            descriptor = os.open(kubeconfig, os.O_CREAT | os.O_WRONLY, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(end.kubeconfig, file)
            yield _Kubectl(kubeconfig, pod, namespace)
    finally:
        remove_helper(end.cluster, pod, namespace)


def remove_helper(cluster: Cluster, pod: str, namespace: str) -> None:
    """Take a helper away; the volume must be free for the job's own pod."""
    cluster.delete("v1", "Pod", pod, namespace)
    wait.gone(cluster, "v1", "Pod", pod, namespace, seconds=GONE_SECONDS)


def _running(cluster: Cluster, pod: str, namespace: str) -> bool:
    try:
        return bool(cluster.get("v1", "Pod", pod, namespace)["status"].get("phase") == "Running")
    except NotFound:
        return False


def _pod(name: str, claim: str, namespace: str, image: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {labels.MANAGED_BY: labels.OWNER}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "helper",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", "86400"],
                    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": [{"name": "volume", "mountPath": PLACE}],
                }
            ],
            "volumes": [{"name": "volume", "persistentVolumeClaim": {"claimName": claim}}],
        },
    }


def _pipe(reading: list[str], writing: list[str], subject: str) -> None:
    environment = {**os.environ, **home.environment()}
    with tempfile.TemporaryFile() as errors:
        source = subprocess.Popen(reading, stdout=subprocess.PIPE, stderr=errors, env=environment)
        try:
            done = subprocess.run(
                writing, stdin=source.stdout, stderr=errors, env=environment, timeout=COPY_SECONDS, check=False
            )
        finally:
            if source.stdout is not None:
                source.stdout.close()
            code = source.wait()
        if code or done.returncode:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()
            raise IsthmusError(f"copying failed: {'; '.join(said[-3:]) or 'no reason given'}", subject=subject)


def _content(command: _Kubectl) -> Content:
    sums, sizes = (_said(command("sh", "-c", text)) for text in (_LIST, _SIZE))
    return Content(sums.count(b"\0"), sum(map(int, sizes.split())), sha256(sums).hexdigest())


def _said(command: list[str]) -> bytes:
    done = subprocess.run(command, capture_output=True, env={**os.environ, **home.environment()}, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise IsthmusError(
            f"a volume cannot be read: {said[-1] if said else 'no reason given'}", subject=" ".join(command[-1:])
        )
    return done.stdout
