"""The plan of a move: a golden file of a rich stack, and everything that must be decided first."""

import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from isthmus import catalog
from isthmus.migration.plan import make, report
from isthmus.migration.plan.model import Choices, Data, End, Limit, Line, Plan, Rate
from isthmus.runs.model import Run, State
from isthmus.specs import labels, stack
from isthmus.specs.cluster import GpuCards, NodePool
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.sharing import GpuSharing
from workloads import render

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = Path(__file__).parent / "golden"
FACTS = catalog.load()


def item(kind: str, name: str, namespace: str | None = labels.RUNS_NAMESPACE, **rest: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **rest.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **rest}


def claim(name: str, class_name: str, *, of_run: bool = True) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": class_name,
    }
    marks = {labels.MANAGED_BY: labels.OWNER, labels.RUN: "abc123"} if of_run else {}
    return item("PersistentVolumeClaim", name, spec=spec, metadata={"labels": marks})


def storage_class(name: str, *, policy: str = "Delete", encrypted: bool = False) -> dict[str, Any]:
    parameters = {"encrypted": "true"} if encrypted else {}
    return item("StorageClass", name, None, reclaimPolicy=policy, parameters=parameters)


def run_of(name: str = "ddp-digits", **changes: Any) -> Run:
    values: dict[str, Any] = {
        "id": "abc123", "spec": render.load(name), "stack": "aws-sim", "namespace": labels.RUNS_NAMESPACE,
        "job": f"{name}-abc123", "state": State.RUNNING, "created": datetime(2026, 11, 30, tzinfo=UTC),
        "started": datetime(2026, 11, 30, tzinfo=UTC),
    }  # fmt: skip
    return Run(**{**values, **changes})


def limits_of(cloud: str, **changed: float) -> dict[str, Limit]:
    return {quota.code: Limit(changed.get(quota.code.replace("-", "_"), 1000), 0) for quota in FACTS.quotas(cloud)}


@pytest.fixture
def source() -> End:
    """aws-sim with two claims, an identity, an internal load balancer and its own objects."""
    objects = [
        storage_class("gp3", encrypted=True),
        claim("ckpt", "gp3"),
        item("ServiceAccount", labels.RUNS_ACCOUNT),
        item("ConfigMap", "ours", metadata={"labels": {labels.MANAGED_BY: labels.OWNER}}),
        item("ConfigMap", "kube-root-ca.crt"),
        item(
            "Service", "board", "team", spec={"type": "LoadBalancer"},
            metadata={"annotations": {"service.beta.kubernetes.io/aws-load-balancer-scheme": "internal"}},
        ),
    ]  # fmt: skip
    return End("aws-sim", stack.load(ROOT, "aws-sim"), objects, up=True, data=Data(2000, 1 << 30))


@pytest.fixture
def destination() -> End:
    return End("gcp-sim", stack.load(ROOT, "gcp-sim"), limits=limits_of("gcp"))


def plan(source: End, destination: End, *runs: Run, **options: Any) -> Plan:
    return make.make(source, destination, runs, catalog=FACTS, **options)


def undecided(made: Plan) -> dict[str, str]:
    return {line.id: line.undecided for line in made.undecided}


def line(made: Plan, identity: str) -> Line:
    return next(one for one in made.lines if one.id == identity)


def with_objects(end: End, *more: dict[str, Any]) -> End:
    return replace(end, objects=[*end.objects, *more])


def with_settings(end: End, **changes: Any) -> End:
    return replace(end, settings=end.settings.model_copy(update=changes))


def test_the_whole_plan_is_as_its_golden_file(source: End, destination: End) -> None:
    rate = Rate(20e6, "measured 2026-11-30 on 100.0 MB, with reading back")
    made = plan(
        source, destination, run_of(), run_of("sendrecv", id="def456", job="sendrecv-def456", started=None), rate=rate
    )
    text = json.dumps(report.document(made), indent=1) + "\n"
    golden = GOLDEN / "plan.json"
    if os.environ.get("ISTHMUS_REWRITE"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text(), "run this test with ISTHMUS_REWRITE=1 and look at the difference"
    assert not made.undecided


def test_the_egress_bill_and_the_time_are_of_the_bytes(source: End, destination: End) -> None:
    made = plan(source, destination, rate=Rate(float(1 << 20), "measured"))
    assert made.egress is not None
    assert made.egress.usd is not None
    assert str(made.egress.usd) == "0.0900"
    assert made.seconds == 1024
    assert plan(replace(source, data=None), destination).egress is None
    assert plan(source, destination).seconds is None


def test_case_a28_a_class_that_the_map_lacks_is_named(source: End, destination: End) -> None:
    """velero-io/velero#1246: stopped before anything is copied; a full map gives what is kept and what is lost."""
    mine = with_objects(
        source, storage_class("gp3-retain", policy="Retain", encrypted=True), claim("kept", "gp3-retain")
    )
    assert undecided(plan(mine, destination)) == {
        "volume/isthmus-runs/kept": "class gp3-retain has no counterpart: --class gp3-retain=CLASS"
    }
    there = replace(with_objects(destination, storage_class("standard-rwo"), storage_class("premium-rwo")), up=True)
    mapped = plan(mine, there, choices=Choices({"gp3-retain": "premium-rwo"}))
    assert not mapped.undecided
    found = line(mapped, "volume/isthmus-runs/kept")
    assert found.destination.startswith("class premium-rwo")
    assert "LOST: reclaim policy Retain, there Delete" in found.detail
    assert "every disk is encrypted there" in found.detail
    wrong = plan(mine, there, choices=Choices({"gp3-retain": "fast"}))
    assert "has no class fast (it has: premium-rwo, standard-rwo)" in undecided(wrong)["volume/isthmus-runs/kept"]


def test_a_claim_of_no_run_is_named_and_that_of_a_sample_is_the_program_s(source: End, destination: End) -> None:
    sample = claim("ddp-digits-checkpoints", "gp3")
    sample["metadata"]["labels"].pop(labels.RUN)
    made = plan(with_objects(source, claim("mine", "gp3", of_run=False), sample), destination)
    assert list(undecided(made)) == ["volume/isthmus-runs/mine"]
    assert "the program makes it anew" in line(made, "volume/isthmus-runs/ddp-digits-checkpoints").destination


def test_encryption_that_is_lost_on_the_way_back(source: End, destination: End) -> None:
    back = replace(
        destination, objects=[storage_class("standard-rwo", encrypted=True), claim("a", "standard-rwo")], up=True
    )
    there = replace(source, objects=[storage_class("gp3")], limits=limits_of("aws"))
    assert "LOST: encryption" in line(plan(back, there), "volume/isthmus-runs/a").detail


def test_a_quota_of_zero_at_the_destination(source: End, destination: End) -> None:
    known = {**destination.limits}  # type: ignore[dict-item]
    code = next(
        code for code in known if "gpus" == FACTS.quota("gcp", code).unit and FACTS.quota("gcp", code).scope == "global"
    )
    made = plan(source, replace(destination, limits={**known, code: Limit(0, 0)}))
    assert undecided(made) == {f"quota/{code}": "4 are needed and 0 left: ask for more first"}


def test_a_new_real_account_has_no_gpus(source: End, destination: End) -> None:
    made = plan(source, replace(destination, limits=None))
    assert any("a new account has 0: ask for" in text for text in undecided(made).values())


def test_a_stock_out_at_the_destination(source: End, destination: End) -> None:
    machine = FACTS.machine_for("gcp", "us-central1", GpuCards(model="T4", count=4))
    left = {(zone, machine.instance_type): 0 for zone in destination.settings.zones}
    assert "stock-out" in undecided(plan(source, replace(destination, machines_left=left)))["capacity/gpu-t4"]


def test_data_that_must_stay(source: End, destination: End) -> None:
    made = plan(with_settings(source, data_stays="cloud"), destination)
    assert "its data stay in aws" in undecided(made)["place"]


def test_a_destination_that_is_not_empty(source: End, destination: End) -> None:
    made = plan(source, replace(destination, data=Data(3, 100)))
    assert "would be in the way" in undecided(made)["data/not-empty"]


def test_a_bucket_without_permission(source: End, destination: End) -> None:
    made = plan(
        replace(source, data=None, data_problem="not allowed to list"),
        replace(destination, data_problem="not allowed to write"),
    )
    assert undecided(made) == {"data/read": "not allowed to list", "data/write": "not allowed to write"}


def pools(*changed: NodePool) -> dict[str, Any]:
    return {"gpu_pools": changed}


A100 = NodePool(
    name="mig",
    gpu=GpuCards(model="A100-40GB", count=8),
    sharing=GpuSharing(mode="mig", layout={"1g.5gb": 7}, strategy="single"),
)


def test_cards_that_the_destination_has_no_pool_for_come_with_what_is_sold(source: End, destination: End) -> None:
    made = plan(with_settings(source, **pools(A100)), destination)
    assert "has no pool with {model: A100-40GB, count: 8}: add one (a2-highgpu-8g, " in undecided(made)["pool/mig"]


def test_sharing_that_differs_must_be_made_the_same(source: End, destination: End) -> None:
    other = A100.model_copy(update={"sharing": GpuSharing()})
    made = plan(with_settings(source, **pools(A100)), with_settings(destination, **pools(other)))
    assert undecided(made)["pool/mig"] == "cards are shared by mig here and by none there: make them the same"


def test_sharing_that_the_destination_does_not_take_is_refused(source: End, destination: End) -> None:
    sliced = NodePool(
        name="t4", gpu=GpuCards(model="T4", count=4), sharing=GpuSharing(mode="time-slicing", replicas=4, rename=True)
    )
    made = plan(with_settings(source, **pools(sliced)), destination)
    assert "which gcp does not take" in undecided(made)["pool/t4"]


def test_an_older_kubernetes_at_the_destination(source: End, destination: End) -> None:
    assert "older" in undecided(plan(source, with_settings(destination, kubernetes_version="1.35")))["kubernetes"]


def test_a_public_load_balancer_stays_public_and_unknown_annotations_are_named(source: End, destination: End) -> None:
    marks = {"service.beta.kubernetes.io/aws-load-balancer-ssl-cert": "arn:..."}
    public = item("Service", "web", "team", spec={"type": "LoadBalancer"}, metadata={"annotations": marks})
    made = plan(with_objects(source, public), destination)
    assert line(made, "service/team/board").destination == "internal (networking.gke.io/load-balancer-type: Internal)"
    assert line(made, "service/team/web").destination == "public"
    assert "ssl-cert" in undecided(made)["service/team/web"]


def test_identities_of_others_images_and_labels_of_the_cloud_are_named(source: End, destination: End) -> None:
    account = item(
        "ServiceAccount", "loader", "team", metadata={"annotations": {"eks.amazonaws.com/role-arn": "arn:x"}}
    )
    image = "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/trainer:7"
    pod = {"nodeSelector": {"eks.amazonaws.com/nodegroup": "a"}, "containers": [{"image": image}]}
    job = item("Job", "mine", spec={"template": {"spec": pod}})
    made = plan(with_objects(source, account, job), destination)
    assert set(undecided(made)) == {
        "identity/team/loader", "image/trainer:7", "node-label/Job/mine", "object/Job/mine",
    }  # fmt: skip
    accepted = Choices(accepted=frozenset(undecided(made)))
    assert not plan(with_objects(source, account, job), destination, choices=accepted).undecided


def test_a_started_run_without_a_volume_would_lose_its_work(source: End, destination: End) -> None:
    made = plan(source, destination, run_of("sendrecv"))
    assert "lost" in undecided(made)["job/abc123"]


def test_accepting_what_is_not_in_the_plan_is_refused(source: End, destination: End) -> None:
    choices = Choices(accepted=frozenset({"volume/none"}))
    with pytest.raises(InvalidSpec, match="no such line"):
        make.check_accepted(plan(source, destination, choices=choices), choices)


def test_the_page_and_the_table_have_every_line(
    source: End, destination: End, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = plan(with_objects(source, claim("x<b>", "gp2")), destination)
    report.write(made, tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text()
    assert "x&lt;b&gt;" in page
    assert page.count("<tr") == len(made.lines) + 1
    report.show(made)
    printed = capsys.readouterr().out
    assert "1 undecided:" in printed
    assert "volume/isthmus-runs/x<b>" in printed
    assert "time to copy: unknown until a rate was measured" in printed
