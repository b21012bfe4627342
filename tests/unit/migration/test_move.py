"""The steps of a move: a kill at every moment, then resume, ends as the unbroken move does; and the way back."""

import sqlite3
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from isthmus import catalog
from isthmus.costs.parts import money
from isthmus.migration.move import bill, identity, report, steps
from isthmus.migration.move.record import Record, RunStage, Stage
from isthmus.migration.plan import make
from isthmus.runs.model import State
from isthmus.specs import stack
from isthmus.specs.errors import Refused
from tests.unit.migration import kill_points
from tests.unit.migration.fake_world import FakeWorld, Killed, world

ROOT = Path(__file__).resolve().parents[3]
FIRST_FORMAT = """
CREATE TABLE move (one INTEGER PRIMARY KEY CHECK (one = 1), mode TEXT NOT NULL, state TEXT NOT NULL, began TEXT NOT NULL,
  ended TEXT NOT NULL DEFAULT '');
CREATE TABLE runs (id TEXT PRIMARY KEY, state TEXT NOT NULL, stopped TEXT NOT NULL DEFAULT '', started TEXT NOT NULL DEFAULT '');
INSERT INTO runs (id, state) VALUES ('aaaaaa', 'chosen');
PRAGMA user_version = 1;
"""


def told(text: str) -> None:
    """Nobody listens."""


def begun(path: Path, mode: str = "checkpoint") -> Record:
    record = Record(path / "move.db")
    record.begin(mode)  # type: ignore[arg-type]
    return record


def moved(path: Path, **changes: object) -> tuple[FakeWorld, Record]:
    there, record = world(**changes), begun(path)
    steps.move(there, record, told)
    return there, record


def test_a_move_takes_everything_and_keeps_the_source(tmp_path: Path) -> None:
    there, record = moved(tmp_path)
    assert record.stage is Stage.CUT_OVER
    assert there.jobs == {"here": set(), "there": {"aaaaaa", "bbbbbb"}}
    assert there.objects["there"] == there.objects["here"] == {"a": "1", "b": "2"}
    assert there.volumes["there"] == {
        name: text for name, text in there.volumes["here"].items() if "cccccc" not in name
    }
    assert there.held, "the source takes no runs until the move is finished or rolled back"
    assert [row.state for row in record.runs()] == [RunStage.MOVED, RunStage.MOVED]
    assert all(row.stopped and row.started for row in record.runs())


def test_drain_waits_for_what_has_started_and_moves_what_waits(tmp_path: Path) -> None:
    there, record = world(), begun(tmp_path, "drain")
    steps.move(there, record, told)
    assert there.runs["aaaaaa"].state is State.SUCCEEDED
    assert there.jobs == {"here": set(), "there": {"bbbbbb"}}
    assert {row.id: row.state for row in record.runs()} == {"aaaaaa": RunStage.ENDED, "bbbbbb": RunStage.MOVED}


def test_the_page_has_the_table_of_kill_points() -> None:
    page = kill_points.PAGE.read_text(encoding="utf-8")
    assert kill_points.table() in page, "python -m tests.unit.migration.kill_points writes it anew"


def moments(mode: str, *, back: bool = False) -> int:
    """How many moments an unbroken move has, or its way back."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        there, record = world(), begun(Path(folder), mode)
        steps.move(there, record, told)
        before = there.moments
        if back:
            steps.roll_back(there, record, told)
        return there.moments - before if back else before


MOMENTS = [(mode, moment) for mode in ("checkpoint", "drain") for moment in range(moments(mode))]


@pytest.mark.parametrize(("mode", "moment"), MOMENTS)
def test_a_kill_at_every_moment_then_resume_ends_as_the_unbroken_move(mode: str, moment: int, tmp_path: Path) -> None:
    """The table: which act of the move was killed before or after what it does, and the state after `resume`."""
    unbroken, record = (
        world(),
        begun(tmp_path / "unbroken" if (tmp_path / "unbroken").mkdir() is None else tmp_path, mode),
    )
    steps.move(unbroken, record, told)
    there, broken = world(kill_at=moment), begun(tmp_path, mode)
    with pytest.raises(Killed):
        steps.move(there, broken, told)
    again = Record(tmp_path / "move.db")
    steps.move(there, again, told)
    assert there.seen() == unbroken.seen()
    assert [(row.id, row.state) for row in again.runs()] == [(row.id, row.state) for row in record.runs()]
    assert again.volumes() == record.volumes()


@pytest.mark.parametrize("moment", range(moments("checkpoint", back=True)))
def test_a_kill_at_every_moment_of_the_way_back(moment: int, tmp_path: Path) -> None:
    """What was done at the destination meanwhile comes back: a new object, the volume's new content."""
    there, record = moved(tmp_path)
    there.objects["there"]["new"] = "made there"
    there.volumes["there"]["ddp-digits-aaaaaa-checkpoints"] = "epoch 20"
    there.kill_at = there.moments + moment
    with pytest.raises(Killed):
        steps.roll_back(there, record, told)
    again = Record(tmp_path / "move.db")
    assert again.stage is Stage.ROLLING_BACK
    steps.roll_back(there, again, told)
    assert again.stage is Stage.ROLLED_BACK
    assert there.jobs == {"here": {"aaaaaa", "bbbbbb"}, "there": set()}
    assert there.objects["here"]["new"] == "made there"
    assert there.volumes["here"]["ddp-digits-aaaaaa-checkpoints"] == "epoch 20"
    assert not there.held


@pytest.mark.parametrize("moment", range(moments("checkpoint")))
def test_a_move_that_was_killed_anywhere_can_be_rolled_back(moment: int, tmp_path: Path) -> None:
    there, record = world(kill_at=moment), begun(tmp_path)
    with pytest.raises(Killed):
        steps.move(there, record, told)
    steps.roll_back(there, Record(tmp_path / "move.db"), told)
    assert there.jobs == {"here": {"aaaaaa", "bbbbbb"}, "there": set()}
    assert there.objects["here"] == {"a": "1", "b": "2"}
    assert not there.held
    assert there.volumes["here"]["ddp-digits-aaaaaa-checkpoints"] == "aaaaaa"


def test_a_suspended_job_stays_suspended_and_what_was_decided_there_counts(tmp_path: Path) -> None:
    there, record = moved(tmp_path)
    assert there.suspended_jobs == {"bbbbbb"}
    there.suspended_jobs = {"aaaaaa"}
    steps.roll_back(there, record, told)
    assert there.jobs["here"] == {"aaaaaa", "bbbbbb"}
    assert there.suspended_jobs == {"aaaaaa"}


def test_a_record_of_an_older_isthmus_is_read(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "move.db") as database:
        database.executescript(FIRST_FORMAT)
    [row] = Record(tmp_path / "move.db").runs()
    assert (row.id, row.suspended) == ("aaaaaa", False)


def test_a_run_that_ended_at_the_destination_is_not_started_again_at_the_source(tmp_path: Path) -> None:
    from dataclasses import replace

    there, record = moved(tmp_path)
    there.runs["aaaaaa"] = replace(there.runs["aaaaaa"], state=State.SUCCEEDED)
    there.jobs["there"].discard("aaaaaa")
    steps.roll_back(there, record, told)
    assert there.jobs == {"here": {"bbbbbb"}, "there": set()}


def test_runs_submitted_to_the_destination_meanwhile_are_listed(tmp_path: Path) -> None:
    from dataclasses import replace

    there, record = moved(tmp_path)
    there.runs["dddddd"] = replace(there.runs["aaaaaa"], id="dddddd", stack="there", state=State.PENDING)
    steps.roll_back(there, record, told)
    assert record.steps()["back: release"].detail == {"submittedThereMeanwhile": ["dddddd"]}


def test_a_missing_identity_stops_the_move_before_runs_are_touched(tmp_path: Path) -> None:
    there, record = world(missing=("the cluster has no workload pool",)), begun(tmp_path)
    with pytest.raises(Refused, match="no workload pool"):
        steps.move(there, record, told)
    assert there.jobs["here"] == {"aaaaaa", "bbbbbb"}
    assert not there.held
    there.missing = ()
    steps.move(there, record, told)
    assert record.stage is Stage.CUT_OVER


def test_a_corrupted_object_stops_the_move(tmp_path: Path) -> None:
    there, record = world(corrupt=True), begun(tmp_path)
    with pytest.raises(Refused, match="1 objects are not at the destination"):
        steps.move(there, record, told)
    assert there.jobs["here"] == {"aaaaaa", "bbbbbb"}


def test_finish_gives_up_the_way_back(tmp_path: Path) -> None:
    there, record = moved(tmp_path)
    steps.finish(there, record)
    assert record.stage is Stage.FINISHED
    assert not there.held
    with pytest.raises(Refused, match="finished: nothing can be rolled back"):
        steps.roll_back(there, record, told)
    with pytest.raises(Refused, match="this move is finished"):
        steps.move(there, record, told)


def test_only_a_move_that_is_cut_over_can_be_finished(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="this move is moving"):
        steps.finish(world(), begun(tmp_path))
    with pytest.raises(Refused, match="not begun"):
        steps.roll_back(world(), Record(tmp_path / "other.db"), told)


def test_the_report_names_every_step_and_its_evidence(tmp_path: Path) -> None:
    there, record = moved(tmp_path)
    made = report.document(record, {"aaaaaa": 12.5, "bbbbbb": None}, [], source="aws-sim", destination="gcp-sim")
    assert [step["step"] for step in made["steps"]] == [step.name for step in steps.MOVE]
    assert all(step["state"] == "done" for step in made["steps"])
    assert made["runs"][0]["downtime"] == 12.5
    assert made["volumes"][0]["digest"]
    steps.roll_back(there, record, told)
    after = report.document(record, {}, [], source="aws-sim", destination="gcp-sim")
    assert len(after["steps"]) == len(steps.MOVE) + len(steps.BACK)


def test_the_report_has_bytes_rate_differences_and_the_bill(tmp_path: Path) -> None:
    """1 GiB there; back it, and the volumes of those that went on: at the sources' list prices of egress."""
    there, record = moved(tmp_path)
    steps.roll_back(there, record, told)
    settings = [stack.load(ROOT, name) for name in ("aws-sim", "gcp-sim")]
    began = datetime.fromisoformat(record.times()[0])
    paid = bill.bill(record, *settings, catalog.load(), now=began + timedelta(hours=1))
    assert [part.name for part in paid] == [
        "egress of objects and volumes there", "egress of what was copied back", "two platforms"
    ]  # fmt: skip
    assert [part.how.partition(" GiB")[0] for part in paid[:2]] == ["1", "1"]
    assert all(part.usd is not None and part.usd > 0 for part in paid[:2])
    made = report.document(record, {}, paid, source="aws-sim", destination="gcp-sim")
    assert made["objects"]["bytesPerSecond"] == (3 << 30) / 192
    said = "\n".join(report.lines(made))
    assert "16.8 MB/s measured" in said
    assert "differences: strangersAtDestination 3" in said
    assert f"egress of what was copied back: {paid[1].usd} USD at list price" in said


def test_a_move_that_has_copied_nothing_yet_has_a_bill_of_its_machines(tmp_path: Path) -> None:
    record = begun(tmp_path)
    settings = [stack.load(ROOT, name) for name in ("aws-sim", "gcp-sim")]
    began = datetime.fromisoformat(record.times()[0])
    paid = bill.bill(record, *settings, catalog.load(), now=began + timedelta(hours=2))
    price = make.monthly(settings[1], catalog.load())
    assert price is not None
    assert [part.usd for part in paid] == [0, money(price / 365)]
    assert report.document(record, {}, paid, source="a", destination="b")["objects"] is None


def resource(kind: str, name: str = "x", **inputs: object) -> dict[str, object]:
    return {"type": kind, "urn": f"urn:pulumi:s::p::{kind}::{name}", "inputs": inputs, "outputs": {}}


GCP = [
    resource("gcp:container/cluster:Cluster", workloadIdentityConfig={"workloadPool": "p.svc.id.goog"}),
    resource("gcp:container/nodePool:NodePool", "gpu", nodeConfig={"workloadMetadataConfig": {"mode": "GKE_METADATA"}}),
    resource(
        "gcp:serviceaccount/iAMMember:IAMMember", role="roles/iam.workloadIdentityUser",
        member="serviceAccount:p.svc.id.goog[isthmus-runs/trainer]",
    ),
    resource("gcp:storage/bucketIAMMember:BucketIAMMember", member="serviceAccount:data@p.iam.gserviceaccount.com"),
]  # fmt: skip
AWS = [
    resource("aws:eks/addon:Addon", addonName="eks-pod-identity-agent"),
    resource(
        "aws:eks/podIdentityAssociation:PodIdentityAssociation", namespace="isthmus-runs", serviceAccount="trainer",
        roleArn="arn:aws:iam::123456789012:role/data",
    ),
    resource("aws:iam/rolePolicy:RolePolicy", role="data", policy='{"Action": ["s3:GetObject"]}'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("cloud", "without", "named"),
    [
        ("gcp", "cluster:Cluster", "no workload pool"),
        ("gcp", "nodePool", ""),
        ("gcp", "serviceaccount", "no IAM binding lets isthmus-runs/trainer"),
        ("gcp", "bucketIAMMember", "the bucket gives no service account a role"),
        ("aws", "addon", "no add-on eks-pod-identity-agent"),
        ("aws", "podIdentity", "no pod identity association is for isthmus-runs/trainer"),
        ("aws", "rolePolicy", "may not read the bucket"),
    ],
)
def test_case_a27_each_missing_condition_is_named(cloud: str, without: str, named: str) -> None:
    """gitpod-io/gitpod#12406: the annotation alone does nothing."""
    resources = GCP if cloud == "gcp" else AWS
    assert identity.missing(cloud, resources, "isthmus-runs", "trainer") == []
    left = [one for one in resources if without not in str(one["type"])]
    if named:
        assert named in "; ".join(identity.missing(cloud, left, "isthmus-runs", "trainer"))


def test_case_a27_metadata_mode_and_annotation() -> None:
    plain = resource("gcp:container/nodePool:NodePool", "cpu", nodeConfig={})
    assert identity.missing("gcp", [*GCP, plain], "isthmus-runs", "trainer") == [
        "node pool cpu does not run the metadata server (mode GKE_METADATA)"
    ]
    bare = {"metadata": {"name": "trainer"}}
    assert "iam.gke.io/gcp-service-account" in identity.missing_annotation("gcp", bare)[0]
    assert identity.missing_annotation("aws", bare) == []


def test_another_account_s_binding_does_not_count() -> None:
    assert identity.missing("gcp", GCP, "isthmus-runs", "other") == [
        "no IAM binding lets isthmus-runs/other act as a service account"
    ]
