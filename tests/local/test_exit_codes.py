"""What becomes of a program's exit code, on the real operators: one table, made here.

Every job's program notes that it was started, ends with the code the first time and with 0 after that. So a policy that
tries again is seen as two attempts and success, one that does not as one attempt and failure, and Always, which starts even
a good program again, ends by the backoff limit. The wide matrix is docs/exit-codes.md; the thin one is in every test run.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from isthmus.kube import Cluster, wait
from isthmus.runs.submit import ensure_namespace
from isthmus.specs.errors import NotFound
from isthmus.toolchain import home
from operators import mpi_operator, trainer, training_operator
from tests.local.jobs import IMAGE, Job, install, workload

pytestmark = pytest.mark.local

CODES = (0, 1, 127, 128, 137, 255)
POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
BACKOFF = 2
PAGE = Path(__file__).parents[2] / "docs" / "exit-codes.md"
SECONDS = 900

STATE = "attempts"
PROGRAM = """
echo x >> /state/{name}
[ "$(grep -c x /state/{name})" -gt 1 ] && exit 0
exit {code}
"""


@dataclass(frozen=True)
class Cell:
    """One job of the matrix."""

    kind: str
    policy: str
    code: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.policy}-{self.code}".lower()


def expected(cell: Cell) -> tuple[str, int]:
    """Outcome and attempts: the rules of the operators' documentation (training-operator v1.9.3, common_types.go)."""
    retried = {
        "Always": True,
        "OnFailure": cell.code != 0,
        # A batch Job makes a new pod itself, up to its backoff limit, when the one before failed.
        "Never": cell.kind == "Job" and cell.code != 0,
        "ExitCode": cell.code >= 128,
    }[cell.policy]
    if cell.policy == "Always":
        return "Failed", BACKOFF + 1
    if not retried:
        return ("Succeeded" if cell.code == 0 else "Failed"), 1
    return "Succeeded", 2


WIDE = [Cell(kind, policy, code) for kind in ("PyTorchJob", "TFJob") for policy in POLICIES for code in CODES]
OTHERS = [
    Cell("XGBoostJob", "ExitCode", 137),
    Cell("JAXJob", "ExitCode", 137),
    Cell("MPIJob", "OnFailure", 1),
    Cell("TrainJob", "ExitCode", 137),
    Cell("Job", "Never", 1),
]
THIN = [
    Cell("PyTorchJob", "ExitCode", 1),
    Cell("PyTorchJob", "ExitCode", 137),
    Cell("PyTorchJob", "Never", 255),
    Cell("TFJob", "OnFailure", 127),
    Cell("TFJob", "ExitCode", 0),
    Cell("Job", "Never", 1),
]


@pytest.fixture(scope="module")
def operators(kube: Cluster) -> Cluster:
    """The training operator, and the others where their programs are installed."""
    install(kube, training_operator.manifests())
    for operator in (mpi_operator, trainer) if has_all() else ():
        install(kube, operator.manifests())
    return kube


def has_all() -> bool:
    try:
        home.share(mpi_operator.TOOL), home.share(trainer.TOOL)
    except NotFound:
        return False
    return True


def measure(kube: Cluster, namespace: str, cells: list[Cell]) -> dict[Cell, tuple[str, int]]:
    """Run all jobs of a matrix at once; how each ended, and how often its program was started."""
    ensure_namespace(kube, namespace)
    kube.apply(claim(namespace))
    jobs = {cell: Job(kube, namespace, spec(cell)).submit(mount) for cell in cells}
    wait.until(
        lambda: all(job.state().final for job in jobs.values()), seconds=SECONDS, what="all jobs to end",
        why=lambda: ", ".join(f"{job.name} {job.state()}" for job in jobs.values() if not job.state().final),
    )  # fmt: skip
    attempts = count(kube, namespace)
    return {cell: (job.state().value, attempts[cell.name]) for cell, job in jobs.items()}


def spec(cell: Cell) -> Any:
    roles: dict[str, Any] | None = None
    if cell.kind == "MPIJob":
        # sshd's part is played by a port that is open: what is tried here is the launcher's end.
        waits = ["sh", "-c", "nc -ll -p 2222 -e /bin/true"]
        roles = {"Launcher": 1, "Worker": {"replicas": 1, "command": waits}}
    return workload(
        cell.name, PROGRAM.format(name=cell.name, code=cell.code), cell.kind, roles,
        restartPolicy=cell.policy, backoffLimit=BACKOFF,
    )  # fmt: skip


def claim(namespace: str) -> dict[str, Any]:
    """Where attempts are counted: one folder for all jobs of the test, on the one node there is."""
    amount = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    metadata = {"name": STATE, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": amount}


def mount(job: dict[str, Any]) -> None:
    for template in templates(job):
        pod = template["spec"]
        pod["terminationGracePeriodSeconds"] = 1
        pod["volumes"] = [{"name": STATE, "persistentVolumeClaim": {"claimName": STATE}}]
        for container in pod["containers"]:
            container["volumeMounts"] = [{"name": STATE, "mountPath": "/state"}]


def templates(item: dict[str, Any]) -> list[dict[str, Any]]:
    """The templates of the pods that an object makes by itself."""
    spec = item["spec"]
    if item["kind"] == "TrainJob":
        return []
    if item["kind"] == "TrainingRuntime":
        return [job["template"]["spec"]["template"] for job in spec["template"]["spec"]["replicatedJobs"]]
    roles = [value for key, value in spec.items() if key.endswith("ReplicaSpecs")]
    return [entry["template"] for role in roles for entry in role.values()] or [spec["template"]]


def count(kube: Cluster, namespace: str) -> dict[str, int]:
    """Attempts by job, read by a pod of its own."""
    container = {
        "name": "count",
        "image": IMAGE,
        "command": ["sh", "-c", "grep -cH x /state/*"],
        "volumeMounts": [{"name": STATE, "mountPath": "/state"}],
    }
    volume = {"name": STATE, "persistentVolumeClaim": {"claimName": STATE}}
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    metadata = {"name": "count", "namespace": namespace}
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod})
    wait.until(
        lambda: kube.get("v1", "Pod", "count", namespace).get("status", {}).get("phase") == "Succeeded",
        seconds=120, what="attempts to be counted",
    )  # fmt: skip
    found = re.findall(r"/state/([a-z0-9-]+):(\d+)", "\n".join(kube.logs("count", namespace)) + "\n")
    return {name: int(number) for name, number in found}


def table(measured: dict[Cell, tuple[str, int]]) -> str:
    """The matrix as a page."""
    lines = [
        "# Exit codes",
        "",
        "Made by tests/local/test_exit_codes.py on the real operators (training-operator v1.9.3, mpi-operator v0.8.0,",
        "trainer v2.2.0, Kubernetes 1.36): a program ends with the code the first time and with 0 when it is started again; backoffLimit 2.",
        "`1` is one attempt, `2` two; Always starts even a good program again, until the backoff limit.",
        "",
    ]
    for kind in ("PyTorchJob", "TFJob"):
        lines += [f"| {kind} | " + " | ".join(map(str, CODES)) + " |", "| --- |" + " --- |" * len(CODES)]
        for policy in POLICIES:
            cells = [measured[Cell(kind, policy, code)] for code in CODES]
            lines.append(f"| {policy} | " + " | ".join(f"{outcome}, {number}" for outcome, number in cells) + " |")
        lines.append("")
    lines += ["| other kinds | policy | code | outcome, attempts |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {cell.kind} | {cell.policy} | {cell.code} | {measured[cell][0]}, {measured[cell][1]} |" for cell in OTHERS
    ]
    return "\n".join(lines) + "\n"


def test_exit_codes_thin(operators: Cluster, namespace: str) -> None:
    measured = measure(operators, namespace, THIN)
    assert measured == {cell: expected(cell) for cell in THIN}


@pytest.mark.slow
def test_exit_codes_wide(operators: Cluster, namespace: str) -> None:
    """Six codes under four policies for two kinds, one code for each of the others; rewrite the page with ISTHMUS_REWRITE=1."""
    if not has_all():
        pytest.skip("not all operators are installed: isthmus install mpi trainjob")
    measured = measure(operators, namespace, [*WIDE, *OTHERS])
    text = table(measured)
    print(text)
    assert measured == {cell: expected(cell) for cell in measured}
    if os.environ.get("ISTHMUS_REWRITE"):
        PAGE.write_text(text, encoding="utf-8")
    assert text == PAGE.read_text(encoding="utf-8"), "run this test with ISTHMUS_REWRITE=1 and look at the difference"
