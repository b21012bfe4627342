"""The report in its four forms: golden files for three of them, and all four agree to the last decimal.

Golden files are written anew by: ISTHMUS_WRITE_GOLDEN=1 pytest tests/unit/costs/test_report.py
"""

import csv
import io
import json
import os
import subprocess
import sys
from datetime import date
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from isthmus.catalog import Catalog
from isthmus.costs import Options, report_for, summary
from isthmus.costs.report import CSV_COLUMNS, grouped, show, to_csv, to_html, to_json, write
from isthmus.specs.errors import InvalidSpec

ABSENT = {"gpu": "included", "managed premium": "none"}
SHOWN = ("machine", "gpu", "managed premium", "control plane", "storage", "object storage", "egress")
GOLDEN = Path(__file__).parent / "golden"
MAKERS = {"report.json": to_json, "report.csv": to_csv, "report.html": to_html}


@pytest.fixture(scope="session")
def report(sample: Catalog, workload) -> dict[str, Any]:
    ddp = workload(
        name="ddp",
        roles={"Master": {"replicas": 1, "gpus": 1}, "Worker": {"replicas": 3, "gpus": 1, "memory": "2Gi"}},
        gpu=None,
        volumes=[{"name": "checkpoints", "size": "10Gi", "mountPath": "/checkpoints", "role": "Master"}],
        cost={"hours": 12, "egressGib": 3, "objectGib": 5},
    )
    a100 = workload(name="one-card", gpu={"model": "A100", "count": 1})
    options = Options(managed=True)
    return report_for([ddp, a100], options, catalog=sample, today=date(2026, 11, 30), max_age_days=180)


@pytest.mark.parametrize("name", MAKERS)
def test_golden(report: dict[str, Any], name: str) -> None:
    made = MAKERS[name](report)
    path = GOLDEN / name
    if os.environ.get("ISTHMUS_WRITE_GOLDEN"):
        path.write_text(made, encoding="utf-8", newline="")
    assert path.read_text(encoding="utf-8") == made, "to write it anew: ISTHMUS_WRITE_GOLDEN=1 pytest tests/unit/costs"


class Cells(HTMLParser):
    """The rows of every offers table in the page: cell name to its text."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, str]] = []
        self._cell: str | None = None
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if tag == "table":
            self._inside = "offers" in (known.get("class") or "")
        if self._inside and tag == "tr":
            self.rows.append({})
        if self._inside and tag == "td":
            self._cell = known["data-name"]
            self.rows[-1][str(self._cell)] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._inside and self._cell is not None:
            self.rows[-1][self._cell] += data


def figures(offer: dict[str, Any]) -> list[str]:
    """What a reader of any form must see of an offer: each part and the total."""
    by_name = {part["name"]: part["usd"] or "unknown" for part in offer["parts"]}
    names = SHOWN
    return [*(by_name.get(name, ABSENT.get(name)) for name in names), offer["total"] or "unknown"]


def test_table_json_csv_and_page_agree(report: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    expected = [figures(offer) for workload in report["workloads"] for offer in workload["offers"]]
    assert len(expected) == 12

    from_json = json.loads(to_json(report))
    assert [figures(offer) for workload in from_json["workloads"] for offer in workload["offers"]] == expected

    columns = [f"{name.replace(' ', '_')}_usd" for name in (*SHOWN, "total")]
    assert set(columns) <= set(CSV_COLUMNS)
    rows = [row for row in csv.DictReader(io.StringIO(to_csv(report))) if row["status"] != "refused"]
    assert [[row[c] or ABSENT.get(c[:-4].replace("_", " ")) for c in columns] for row in rows] == expected

    cells = Cells()
    cells.feed(to_html(report))
    assert [[row[name] for name in (*SHOWN, "total")] for row in cells.rows if row] == expected

    show(report)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    printed = [
        [word for word in words if word[-1:].isdigit() and "." in word or word in ("unknown", "included", "none")]
        for words in lines
    ]
    assert [row[-len(expected[0]) :] for row in printed if len(row) >= len(expected[0])] == expected


def test_parts_add_up_in_every_offer(report: dict[str, Any]) -> None:
    from decimal import Decimal

    for workload in report["workloads"]:
        for offer in workload["offers"]:
            if offer["total"] is not None:
                assert sum(Decimal(part["usd"]) for part in offer["parts"]) == Decimal(offer["total"])


def test_the_first_sentence_is_the_answer(report: dict[str, Any]) -> None:
    assert report["answer"].startswith("Cheapest: ddp on AWS us-east-1 on spot (44.6851 USD)")
    assert "one-card on GCP us-central1 on demand (3.9740 USD)" in report["answer"]
    ddp = report["workloads"][0]
    assert ddp["answer"].startswith("AWS us-east-1 on spot is the cheapest for ddp: ")
    assert any("back in >20% of cases (Spot Advisor's band); expected work lost: at least" in n for n in ddp["notes"])
    assert "3 offers have a part without a known price: shown last and not ranked." in ddp["notes"]


def test_the_page_needs_nothing_but_itself(report: dict[str, Any]) -> None:
    page = to_html(report)
    for needs in ("<script", "http:", "https:", "<link", "<img", "@import", "url("):
        assert needs not in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert page.index("<h1>") < page.index("<table")


def test_names_cannot_break_the_page(sample: Catalog, workload) -> None:
    report = report_for([workload()], catalog=sample)
    report["workloads"][0]["refused"] = [
        {"cloud": "aws", "region": "us-east-1", "purchase": "spot", "gpuModel": None, "reason": "<b>no</b>"}
    ]
    assert "&lt;b&gt;no&lt;/b&gt;" in to_html(report)


def test_every_price_has_its_source_and_date(report: dict[str, Any]) -> None:
    listed = {source["id"]: source for source in report["sources"]}
    assert list(listed) == list(range(1, len(listed) + 1))
    for workload in report["workloads"]:
        for offer in workload["offers"]:
            for part in offer["parts"]:
                if part["source"] is None:
                    assert part["usd"] == "0.0000", "only what costs nothing needs no source"
                    continue
                assert listed[part["source"]]["asOf"] == part["asOf"]
                assert listed[part["source"]]["source"]


def test_refusals_of_the_same_reason_are_one_line(sample: Catalog, workload) -> None:
    report = report_for([workload(gpu=None)], Options(purchases=("on-demand", "spot")), catalog=sample)
    lines = {
        (line["region"], tuple(line["purchases"]), tuple(line["gpuModels"]), line["reason"])
        for line in grouped(report["workloads"][0]["refused"])
    }
    unsold = "not sold there under this option, or its price is not in the catalog"
    assert lines == {
        ("us-east-1", ("on-demand", "spot"), ("A100", "H100"), "not sold there"),
        ("us-west-2", ("on-demand", "spot"), ("A100", "H100"), "not sold there"),
        ("us-west-2", ("spot",), ("V100",), unsold),
        ("us-east-1", ("spot",), ("V100",), "price unknown: 1 x p3.8xlarge"),
        ("us-central1", ("spot",), ("A100", "H100"), unsold),
    }


def test_the_summary_names_the_cheapest_of_each_place(report: dict[str, Any]) -> None:
    assert summary(report)["workloads"] == {
        "ddp": [
            "44.6851: aws us-east-1 spot, 4 x p3.2xlarge",
            "143.3220: gcp us-central1 on-demand, 4 x n1-highmem-8 + 1 x V100",
            "148.3651: aws us-east-1 on-demand, 1 x p3.8xlarge",
            "70081.4851: aws us-east-1 1-year, 4 x p3.2xlarge",
            "581315.1780: gcp us-central1 3-year, 4 x a3-highgpu-1g",
            "unknown (no price of: storage, object storage, egress): aws us-west-2 on-demand, 4 x p3.2xlarge",
            "unknown (no price of: gpu): gcp us-central1 1-year, 4 x n1-highmem-8 + 1 x V100",
            "unknown (no price of: gpu): gcp us-central1 spot, 4 x n1-highmem-8 + 1 x V100",
        ],
        "one-card": ["3.9740: gcp us-central1 on-demand, 1 x a2-highgpu-1g + 1 x A100"],
    }


def test_what_would_change_the_answer_is_told(report: dict[str, Any]) -> None:
    told = {change["kind"]: change for change in report["workloads"][0]["changes"]}
    assert told["spot-price"]["text"].startswith("Spot in us-east-1 stays the cheapest until its price rises by 228 %")
    assert told["commitment"]["text"].startswith("A 1-year commitment to 4 x p3.2xlarge in us-east-1 does not pay even")
    assert told["managed"]["text"] == (
        "SageMaker asks 18 USD/h for p3.8xlarge against 15: a premium of 20.00 %, or a saving of 16.7 % by running it "
        "yourself. With the control plane's 0.1 USD/h one machine already wins (15.1 against 18 USD/h); break-even 0.03 "
        "machines."
    )


def test_old_prices_are_warned_of_and_only_when_the_day_is_known(sample: Catalog, workload) -> None:
    options = Options(purchases=("on-demand",))
    assert report_for([workload()], options, catalog=sample)["warnings"] == []
    old = report_for([workload()], options, catalog=sample, today=date(2026, 11, 30), max_age_days=200)["warnings"]
    assert [text.split(" (source")[0] for text in old] == [
        "Older than 200 days: AWS control plane, GCP control plane, of 2026-03-01",
        "Older than 200 days: GCP gpu, of 2026-04-01",
        "Older than 200 days: GCP machine, of 2026-05-01",
    ]


def test_a_long_list_is_cut_and_says_so(workload, capsys: pytest.CaptureFixture[str]) -> None:
    report = report_for([workload(gpu=None)])
    count = len(report["workloads"][0]["offers"])
    assert count > 40
    show(report)
    assert f"and {count - 20} more offers: --all shows them" in capsys.readouterr().out
    show(report, everything=True)
    assert "more offers" not in capsys.readouterr().out


def test_the_report_is_the_same_wherever_it_is_made(sample: Catalog, workload, tmp_path: Path) -> None:
    """No clock, no path, no order of a set: two processes with different hash seeds give the same bytes."""
    code = (
        "import json, sys; from isthmus.costs import Options, report_for, summary; from isthmus.specs.workload import WorkloadSpec;"
        "w = WorkloadSpec.model_validate_json(sys.argv[1]); sys.stdout.write(json.dumps(report_for([w])))"
    )
    spec = workload(gpu=None).model_dump_json(by_alias=True)
    made = [
        subprocess.run(
            [sys.executable, "-c", code, spec], capture_output=True, check=True, cwd=where, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed, where in (("1", tmp_path), ("2", "/"))
    ]
    assert made[0] == made[1]
    assert str(tmp_path).encode() not in made[0]
    assert len(made[0]) < 1_000_000, "it must fit a ConfigMap"


def test_importing_costs_is_light() -> None:
    code = (
        "import sys, isthmus.costs; "
        "print(*[m for m in ('rich', 'jinja2', 'kubernetes', 'pulumi', 'grpc', 'yaml', 'cyclopts', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("name", ["a.html", "b.JSON", "c.csv", "deep/er/d.html"])
def test_write_takes_the_format_from_the_name(report: dict[str, Any], tmp_path: Path, name: str) -> None:
    write(report, tmp_path / name)
    assert (tmp_path / name).stat().st_size > 1000


@pytest.mark.parametrize("name", ["a.txt", "report"])
def test_write_refuses_a_name_it_does_not_know(report: dict[str, Any], tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidSpec, match="must end in .html, .json or .csv"):
        write(report, tmp_path / name)
    assert not (tmp_path / name).exists()


def test_write_says_what_is_in_the_way(report: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "x.html").mkdir()
    with pytest.raises(InvalidSpec, match="cannot write .*x.html: Is a directory"):
        write(report, tmp_path / "x.html")
