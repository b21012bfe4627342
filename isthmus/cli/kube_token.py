"""isthmus kube-token: the credential plugin that kubeconfigs name (client.authentication.k8s.io/v1).

A simulated account's cluster gets a client certificate of 15 (AWS) or 60 (Google Cloud) minutes from the local
cluster's own CA, and is started if it is stopped. For a real account the cloud's own program is asked. kubectl and the
Kubernetes provider call this all the time, so it imports little (under 0.3 s) and keeps a certificate, in a file of
mode 0600 in the cluster's folder, until it is nearly over.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from isthmus.simulation.access import Access, access
from isthmus.simulation.account import Account
from isthmus.specs.errors import NotFound, NotReady
from isthmus.toolchain import home

if TYPE_CHECKING:
    from isthmus.localcluster.runtime import LocalCluster

API_VERSION = "client.authentication.k8s.io/v1"
SPARE = timedelta(minutes=2)
"""A kept certificate is not given out in its last minutes: the call it is for takes time, and clocks differ."""
KIND_ADMIN = ("isthmus:admin", ("system:masters",), 60)
"""User, groups and minutes: on a cluster of this machine's own, who may start it may do everything."""
CONNECT_SECONDS = 1.0
NATIVE_SECONDS = 60.0


def kube_token(*, cloud: Literal["aws", "gcp", "kind"], account: str, region: str, cluster: str) -> None:
    """Print a credential for kubectl (called by kubeconfigs).

    Parameters
    ----------
    cloud
        aws, gcp or kind.
    account
        AWS: the profile. Google Cloud: the project. kind: default.
    region
        Where the cluster is.
    cluster
        The cluster's name.
    """
    path = home.account_file(account)
    if cloud == "kind":
        print(json.dumps(_local(Access(cluster, *KIND_ADMIN))))
    elif path.exists():
        print(json.dumps(_local(access(Account(account, path), cloud, region, cluster))))
    else:
        print(json.dumps(_native(cloud, account, region, cluster)))


def _local(allowed: Access) -> dict[str, Any]:
    folder = home.clusters() / allowed.local_cluster
    kept = folder / "credentials" / f"{_digest(allowed)}.json"
    credential = _kept(kept)
    if credential is not None and _answers(credential["server"]):
        return _exec_credential(credential)
    credential = _fresh(allowed)
    _keep(kept, credential)
    return _exec_credential(credential)


def _fresh(allowed: Access) -> dict[str, Any]:
    """A new certificate from the cluster's CA; a stopped cluster is started first."""
    from isthmus.simulation import local  # here: imports what runs local clusters

    found: LocalCluster = local.backend().runtime().get(allowed.local_cluster)
    if not _answers(found.endpoint):
        found.start()
    certificate, key = found.client_certificate(allowed.user, allowed.groups, allowed.minutes)
    expires = datetime.now(UTC) + timedelta(minutes=allowed.minutes)
    return {"server": found.endpoint, "expires": expires.isoformat(), "certificate": certificate, "key": key}


def _exec_credential(credential: dict[str, Any]) -> dict[str, Any]:
    moment = datetime.fromisoformat(credential["expires"]).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": API_VERSION,
        "kind": "ExecCredential",
        "status": {
            "expirationTimestamp": moment,
            "clientCertificateData": credential["certificate"],
            "clientKeyData": credential["key"],
        },
    }


def _digest(allowed: Access) -> str:
    text = json.dumps([allowed.user, allowed.groups, allowed.minutes])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _kept(path: Path) -> dict[str, Any] | None:
    """The kept credential, if it is whole and lives long enough."""
    try:
        credential = json.loads(path.read_text(encoding="utf-8"))
        alive = datetime.fromisoformat(credential["expires"]) - SPARE > datetime.now(UTC)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return dict(credential) if alive else None


def _keep(path: Path, credential: dict[str, Any]) -> None:
    """Replace the kept credential in one step, mode 0600. A cluster whose folder is gone keeps none."""
    if not path.parent.parent.is_dir():
        return
    path.parent.mkdir(mode=0o700, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(credential, file)
    os.replace(temporary, path)


def _answers(server: str) -> bool:
    """Whether something listens at the API server's address."""
    parts = urlsplit(server)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 443), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def _native(cloud: str, account: str, region: str, cluster: str) -> dict[str, Any]:
    """What the cloud's own program says, in the version that our kubeconfigs ask for."""
    aws = [
        "aws",
        "--profile",
        account,
        "--region",
        region,
        "eks",
        "get-token",
        "--cluster-name",
        cluster,
        "--output",
        "json",
    ]
    command, hint = (
        (aws, "install the AWS CLI, version 2")
        if cloud == "aws"
        else (["gke-gcloud-auth-plugin"], "gcloud components install gke-gcloud-auth-plugin")
    )
    subject = f"cluster {cluster} in {region} of account {account}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=NATIVE_SECONDS, check=False)
    except FileNotFoundError as error:
        raise NotFound(f"{command[0]} is not installed", subject=subject, remedy=hint) from error
    except subprocess.TimeoutExpired as error:
        raise NotReady(f"{command[0]} gave no answer in {NATIVE_SECONDS:.0f} s", subject=subject) from error
    if done.returncode != 0:
        raise NotReady(f"{command[0]}: {done.stderr.strip()}", subject=subject)
    return {**json.loads(done.stdout), "apiVersion": API_VERSION}
