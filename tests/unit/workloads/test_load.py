"""Workload files: what is read, and file and line of every mistake."""

from pathlib import Path

import pytest

from isthmus.specs.errors import InvalidSpec
from workloads import load as loading
from workloads.load import load, parse

GOOD = """\
apiVersion: isthmus.dev/v1
kind: PyTorchJob
name: train
image: docker.io/isthmus/torch:1
command: [python3, /opt/isthmus/train.py]
env: {EPOCHS: "10"}
roles:
  Master: {replicas: 1, gpus: 1}
  Worker:
    replicas: 3
    gpus: 1
volumes:
  - {name: ckpt, size: 1Gi, mountPath: /checkpoints, role: Master}
metrics: {accuracy: 0.95}
"""


def refused(text: str, **more: dict[str, str]) -> str:
    with pytest.raises(InvalidSpec) as caught:
        parse(text, origin="train.yaml", changes=more.get("changes"))
    return caught.value.message


def test_a_file_a_folder_and_a_sample_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "workload.yaml").write_text(GOOD)
    monkeypatch.setattr(loading, "SAMPLES", tmp_path)
    assert load(tmp_path / "mine" / "workload.yaml") == load(tmp_path / "mine") == load("mine")
    assert loading.samples() == ["mine"]


def test_an_unknown_sample_suggests_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ddp-digits", "sendrecv"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "workload.yaml").write_text(GOOD)
    monkeypatch.setattr(loading, "SAMPLES", tmp_path)
    with pytest.raises(InvalidSpec, match=r"no workload 'ddp-digit'; did you mean ddp-digits\?"):
        load("ddp-digit")
    with pytest.raises(InvalidSpec, match="known: ddp-digits, sendrecv"):
        load("zzz")
    with pytest.raises(InvalidSpec, match="there is no file"):
        load("./zzz.yaml")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("name: train", "name: [train"), "train.yaml, line 4: "),
        (
            ("kind: PyTorchJob", "kind: TFJobs"),
            "line 2: kind: unknown kind 'TFJobs' (did you mean TFJob?); known: PyTorchJob",
        ),
        (("image: docker", "imge: docker"), "line 4: there is no field 'imge' (did you mean image?)"),
        (("    replicas: 3", "    replicas: three"), "train.yaml, line 10: roles.Worker.replicas"),
        (
            ("    replicas: 3", "    replica: 3"),
            "line 10: there is no field 'roles.Worker.replica' (did you mean replicas?)",
        ),
        (("size: 1Gi, ", ""), "train.yaml, line 13: volumes.0.size is missing"),
        (("  Master:", "  Chief:"), "PyTorchJob has no role 'Chief'"),
        (("role: Master", "role: Worker2"), "volume ckpt names role 'Worker2'"),
        (("metrics:", "name: again\nmetrics:"), "train.yaml, line 14: name is given twice"),
        (("isthmus.dev/v1", "isthmus.dev/v2"), "train.yaml, line 1: apiVersion"),
    ],
)
def test_a_mistake_is_told_with_file_and_line(change: tuple[str, str], words: str) -> None:
    assert change[0] in GOOD
    assert words in refused(GOOD.replace(*change))


@pytest.mark.parametrize("text", ["", "- a\n", "just text\n"])
def test_what_is_no_mapping_is_refused(text: str) -> None:
    assert "a workload is a mapping of fields" in refused(text)


def test_a_control_character_is_refused() -> None:
    assert "train.yaml" in refused("name: \x01\n")


@pytest.mark.parametrize("name", ["Bert", "3d-unet", "bert.v2", "a" * 41, "-bert", "bert_v2"])
def test_a17_names_that_cannot_be_services_are_refused_before_anything_is_created(name: str) -> None:
    """kubeflow/trainer#1745: the operator makes a Service of the name, so it must be a DNS-1035 label."""
    assert "line 3: name" in refused(GOOD.replace("name: train", f"name: {name}", 1))
    assert parse(GOOD.replace("name: train", "name: bert-v2", 1), origin="f").name == "bert-v2"


def test_fields_can_be_changed_for_one_run() -> None:
    changes = {
        "roles.Worker.replicas": "1",
        "env.EPOCHS": "5",
        "metrics.accuracy": "0.5",
        "gpu": "{model: T4, count: 1}",
    }
    spec = parse(GOOD, origin="f", changes=changes)
    assert spec.roles["Worker"].replicas == 1
    assert spec.env == {"EPOCHS": "5"}, "a number in the environment stays text"
    assert spec.metrics == {"accuracy": 0.5}
    assert spec.gpu is not None
    assert spec.gpu.model == "T4"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("roles.Worker.replica", "1", "no field 'roles.Worker.replica' (did you mean replicas?)"),
        ("name.x", "1", "name has no fields"),
        ("image", "[", "is not a YAML value"),
        ("epochs", "1", "no field 'epochs'"),
    ],
)
def test_a_wrong_change_is_refused(key: str, value: str, words: str) -> None:
    assert words in refused(GOOD, changes={key: value})
