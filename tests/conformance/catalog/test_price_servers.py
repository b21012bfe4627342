"""`isthmus catalog update` against servers on loopback that answer as the clouds' price lists do: the AWS price list (one CSV
file per region) and the Cloud Billing Catalog (pages of SKUs, a key in a header)."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from isthmus.catalog import read_catalog
from isthmus.cli.main import run as isthmus

SAMPLE = Path(__file__).parents[2] / "unit" / "costs" / "sample"
KEY = "a-key"

HEADER = [
    "SKU",
    "OfferTermCode",
    "RateCode",
    "TermType",
    "PriceDescription",
    "EffectiveDate",
    "StartingRange",
    "EndingRange",
    "Unit",
    "PricePerUnit",
    "Currency",
    "LeaseContractLength",
    "PurchaseOption",
    "OfferingClass",
    "Product Family",
    "serviceCode",
    "Location",
    "Instance Type",
    "Tenancy",
    "Operating System",
    "CapacityStatus",
    "Pre Installed S/W",
]


def aws_row(machine: str, price: str, **change: str) -> str:
    cells = dict.fromkeys(HEADER, "") | {
        "SKU": "ABC", "TermType": "OnDemand", "Unit": "Hrs", "PricePerUnit": price, "Currency": "USD",
        "Instance Type": machine, "Tenancy": "Shared", "Operating System": "Linux", "CapacityStatus": "Used",
        "Pre Installed S/W": "NA",
    }  # fmt: skip
    cells |= {name.replace("_", " "): value for name, value in change.items()}
    return ",".join(f'"{cells[name]}"' for name in HEADER)


RESERVED = {"TermType": "Reserved", "PurchaseOption": "No Upfront", "OfferingClass": "standard"}

AWS = "\r\n".join(
    [
        '"FormatVersion","v1.0"',
        '"Disclaimer","This pricing list is for informational purposes only."',
        '"Publication Date","2026-11-28T01:02:03Z"',
        '"Version","20261128010203"',
        '"OfferCode","AmazonEC2"',
        ",".join(f'"{name}"' for name in HEADER),
        aws_row("p3.2xlarge", "3.0000000000"),
        aws_row("p3.2xlarge", "9.9900000000", Operating_System="Windows"),
        aws_row("p3.2xlarge", "9.9900000000", Tenancy="Dedicated"),
        aws_row("p3.2xlarge", "0.0000000000", CapacityStatus="AllocatedCapacityReservation"),
        aws_row("p3.2xlarge", "1.9000000000", LeaseContractLength="1yr", **RESERVED),
        aws_row("p3.2xlarge", "1.3000000000", LeaseContractLength="3yr", **RESERVED),
        aws_row("p3.2xlarge", "9.9900000000", LeaseContractLength="3yr", **RESERVED | {"OfferingClass": "convertible"}),
        aws_row("x99.huge", "1.0000000000"),
        aws_row("m5.xlarge", "0.1920000000"),
    ]
)


def sku(
    description: str, usage: str, nanos: int, units: str = "0", regions: tuple[str, ...] = ("us-central1",), **more: str
) -> Any:
    price = {"currencyCode": more.get("currency", "USD"), "units": units, "nanos": nanos}
    return {
        "name": "services/6F81-5844-456A/skus/0001",
        "skuId": "0001",
        "description": description,
        "category": {"resourceFamily": "Compute", "resourceGroup": "CPU", "usageType": usage},
        "serviceRegions": list(regions),
        "pricingInfo": [
            {
                "effectiveTime": "2026-11-27T10:00:00.000Z",
                "pricingExpression": {"usageUnit": "h", "tieredRates": [{"startUsageAmount": 0, "unitPrice": price}]},
            }
        ],
    }


PAGES = {
    "": {
        "skus": [
            sku("N1 Predefined Instance Core running in Americas", "OnDemand", 31_611_000),
            sku("N1 Predefined Instance Ram running in Americas", "OnDemand", 4_237_000),
            sku("N1 Predefined Instance Core running in Paris", "OnDemand", 99_000_000, regions=("europe-west9",)),
            sku("Commitment v1: Cpu in Americas", "Commit1Yr", 1_000_000),
        ],
        "nextPageToken": "more",
    },
    "more": {
        "skus": [
            sku("Nvidia Tesla V100 GPU running in Americas", "OnDemand", 480_000_000, "2"),
            sku(
                "Nvidia Tesla V100 GPU attached to Spot Preemptible VMs running in Americas", "Preemptible", 740_000_000
            ),
            sku("Spot Preemptible N1 Predefined Instance Core running in Americas", "Preemptible", 6_543_000),
            sku("Spot Preemptible N1 Predefined Instance Ram running in Americas", "Preemptible", 877_000),
            sku("A3 Instance Core running in Americas", "OnDemand", 29_000_000),
        ],
        "nextPageToken": "",
    },
}


class Server:
    """Answers by path; keeps what was asked."""

    def __init__(self) -> None:
        self.aws, self.pages, self.asked = AWS, PAGES, list[str]()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                code, body = outer.answer(self.path, self.headers.get("X-Goog-Api-Key", ""))
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def answer(self, path: str, key: str) -> tuple[int, bytes]:
        where = urlparse(path)
        if where.path == "/offers/v1.0/aws/AmazonEC2/current/us-east-1/index.csv":
            return 200, self.aws.encode()
        if where.path == "/v1/services/6F81-5844-456A/skus":
            if key != KEY:
                return 403, b'{"error": {"code": 403}}'
            return 200, json.dumps(self.pages[parse_qs(where.query).get("pageToken", [""])[0]]).encode()
        return 404, b""

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    shutil.copytree(SAMPLE, tmp_path / "facts")
    return tmp_path / "facts"


@pytest.fixture
def update(server: Server, facts: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.setenv("ISTHMUS_GCP_API_KEY", KEY)

    def run(*more: str) -> int:
        urls = ["--aws-url", server.url, "--gcp-url", server.url]
        return isthmus(["catalog", "update", "--folder", str(facts), *urls, "--yes", *more])

    return run


def price(facts: Path, region: str, machine: str, purchase: str) -> Any:
    catalog = read_catalog(facts, today=date(2026, 11, 30))
    offers = catalog.offers(region=region, purchase=purchase)  # type: ignore[arg-type]
    found = [offer for offer in offers if offer.shape.name == machine]
    return found[0] if found else None


def test_prices_are_read_written_and_told(
    update: Callable[..., int], facts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert update("--regions", "us-east-1,us-central1", "--json") == 0
    said = {(row["file"], row["row"]): (row["before"], row["after"]) for row in json.loads(capsys.readouterr().out)}
    assert said == {
        ("prices.csv", "aws us-east-1 p3.2xlarge on-demand"): ("3.06", "3"),
        ("commitments.csv", "aws us-east-1 p3.2xlarge 1-year"): ("2", "1.9"),
        ("commitments.csv", "aws us-east-1 p3.2xlarge 3-year"): (None, "1.3"),
        ("prices.csv", "gcp us-central1 n1-highmem-8 on-demand"): ("0.473", "0.473212"),
        ("prices.csv", "gcp us-central1 n1-highmem-8 spot"): ("0.1", "0.097948"),
        ("card_prices.csv", "gcp us-central1 V100 spot"): ("unknown", "0.74"),
    }
    offer = price(facts, "us-east-1", "p3.2xlarge", "on-demand")
    assert (offer.usd_per_hour, offer.as_of) == (Decimal(3), date(2026, 11, 28))
    assert offer.source == "AWS price list, AmazonEC2 in us-east-1"
    machine = price(facts, "us-central1", "n1-highmem-8", "on-demand")
    assert machine.usd_per_hour == 8 * Decimal("0.031611") + 52 * Decimal("0.004237")
    assert price(facts, "us-central1", "n1-highmem-8 + 1 x V100", "spot").usd_per_hour == Decimal("0.097948") + Decimal(
        "0.74"
    )


def test_what_is_not_quoted_stays_as_it_was(update: Callable[..., int], facts: Path) -> None:
    """Spot is not in AWS's list; of a3-highgpu only the core was found, so its price is not made of parts."""
    spot = price(facts, "us-east-1", "p3.2xlarge", "spot")
    a3 = price(facts, "us-central1", "a3-highgpu-1g", "on-demand")
    assert update("--regions", "us-east-1", "us-central1") == 0
    assert price(facts, "us-east-1", "p3.2xlarge", "spot") == spot
    assert price(facts, "us-central1", "a3-highgpu-1g", "on-demand") == a3


def test_a_price_that_is_the_same_is_dated_anew_and_is_no_change(update: Callable[..., int], facts: Path) -> None:
    assert update("--cloud", "aws", "--regions", "us-east-1") == 0
    assert price(facts, "us-east-1", "m5.xlarge", "on-demand").as_of == date(2026, 11, 28)


def test_a_new_region_is_data_alone(update: Callable[..., int], facts: Path) -> None:
    assert update("--cloud", "gcp", "--regions", "europe-west9") == 0
    assert price(facts, "us-central1", "n1-highmem-8", "on-demand").usd_per_hour == Decimal("0.473"), "not asked for"


def test_doing_it_again_changes_nothing(
    update: Callable[..., int], facts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert update("--regions", "us-east-1", "us-central1") == 0
    before = {path.name: path.read_bytes() for path in facts.iterdir()}
    capsys.readouterr()
    assert update("--regions", "us-east-1", "us-central1") == 0
    assert "no price differs" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in facts.iterdir()} == before


def test_diff_shows_what_an_update_changed(
    update: Callable[..., int], facts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert update("--cloud", "aws", "--regions", "us-east-1") == 0
    capsys.readouterr()
    assert isthmus(["catalog", "diff", str(SAMPLE), str(facts), "--json"]) == 0
    rows = {row["row"]: row["change"] for row in json.loads(capsys.readouterr().out)}
    assert rows["aws us-east-1 p3.2xlarge on-demand"] == "-2.0 %"
    assert isthmus(["catalog", "diff", str(facts), str(facts)]) == 0
    assert "no fact differs" in capsys.readouterr().out


def test_without_a_key_gcp_is_left_alone_and_says_so(
    update: Callable[..., int],
    facts: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("ISTHMUS_GCP_API_KEY")
    assert update("--regions", "us-east-1") == 0
    assert "gcp is left as it is: ISTHMUS_GCP_API_KEY is not set" in capsys.readouterr().err
    assert not any("skus" in path for path in server.asked)
    assert update("--cloud", "gcp") == 2


def test_no_address_holds_the_key(update: Callable[..., int], server: Server) -> None:
    assert update("--cloud", "gcp", "--regions", "us-central1") == 0
    assert len(server.asked) == 2 and not any(KEY in path for path in server.asked)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: setattr(s, "aws", AWS.replace("USD", "CNY")), "the price is in CNY, only USD is read"),
        (lambda s: setattr(s, "aws", AWS.replace("3.0000000000", "dear")), "'dear' is no price"),
        (lambda s: setattr(s, "aws", AWS.replace("3.0000000000", "-3")), "'-3' is no price"),
        (lambda s: setattr(s, "aws", AWS.replace('"Tenancy"', '"Tenure"')), "it lacks columns Tenancy"),
        (lambda s: setattr(s, "aws", AWS.replace("Publication", "Other")), "it lacks a publication date"),
        (lambda s: setattr(s, "aws", ""), "the price list has another shape"),
        (lambda s: setattr(s, "pages", {"": {"skus": [sku("A3 Instance Core running in X", "OnDemand", 1, currency="EUR")]}}),
         "the price is in EUR"),
        (lambda s: setattr(s, "pages", {"": {"skus": [sku("A3 Instance Core running in X", "OnDemand", 1) | {"pricingInfo": []}]}}),
         "has another shape"),
    ],
)  # fmt: skip
def test_an_answer_of_another_shape_or_currency_changes_nothing(
    update: Callable[..., int], facts: Path, server: Server, change: Callable[[Server], None], says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    before = {path.name: path.read_bytes() for path in facts.iterdir()}
    change(server)
    assert update("--regions", "us-east-1", "us-central1") == 2
    assert says in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in facts.iterdir()} == before


def test_a_server_that_fails_changes_nothing(
    update: Callable[..., int],
    facts: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = {path.name: path.read_bytes() for path in facts.iterdir()}
    assert update("--cloud", "aws", "--regions", "us-east-9") == 1
    assert "the price server answered 404" in capsys.readouterr().err
    monkeypatch.setenv("ISTHMUS_GCP_API_KEY", "another")
    assert update("--cloud", "gcp") == 1
    assert "the price server answered 403" in capsys.readouterr().err
    server.close()
    assert update("--cloud", "aws", "--regions", "us-east-1") == 1
    assert "cannot be read" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in facts.iterdir()} == before


def test_a_future_price_is_not_written(update: Callable[..., int], facts: Path, server: Server) -> None:
    before = (facts / "prices.csv").read_bytes()
    server.aws = AWS.replace("2026-11-28", "2999-01-01")
    assert update("--cloud", "aws", "--regions", "us-east-1") == 2
    assert (facts / "prices.csv").read_bytes() == before


def test_diff_wants_folders_of_facts(tmp_path: Path) -> None:
    assert isthmus(["catalog", "diff", str(tmp_path / "none")]) == 2
    assert isthmus(["catalog", "diff", str(tmp_path)]) == 2
