"""Compute Engine prices from the Cloud Billing Catalog: pages of SKUs, each a core, a GiB or a card by region.

A machine's price is its cores, its memory and its cards (where the catalog's machine has them in its price) added up.
Which SKU is which part of which machine is data (gcp_skus.csv), by its description; a machine of which a part is not found
keeps the price it had. The API wants a key: variable ISTHMUS_GCP_API_KEY, sent as a header so that no address holds it.
"""

import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from isthmus.catalog.facts import Sku
from isthmus.catalog.upkeep.quotes import Quote, opened, price_of
from isthmus.specs.errors import InvalidSpec
from isthmus.specs.offer import Shape

URL = "https://cloudbilling.googleapis.com"
KEY = "ISTHMUS_GCP_API_KEY"
_COMPUTE = "/v1/services/6F81-5844-456A/skus"
"""Compute Engine's own number in the catalog."""

_USAGES = {"OnDemand": "on-demand", "Preemptible": "spot"}
_SPOT = re.compile(r"^Spot Preemptible | attached to Spot Preemptible VMs$")
SOURCE = "Cloud Billing Catalog, Compute Engine SKUs"


Prices = Mapping[tuple[str, str, str], tuple[Decimal, date]]
"""By description, region and purchase option."""


def quotes(
    regions: Iterable[str],
    machines: Iterable[Shape],
    cards: Iterable[str],
    skus: Iterable[Sku],
    *,
    key: str,
    url: str = URL,
) -> Iterator[Quote]:
    """The prices of these machines, and of these cards that are attached, in these regions.

    Raises:
        NotReady: the server cannot be read, or does not accept the key.
        InvalidSpec: an answer of another shape, or a price that is none.
    """
    by_part = {(sku.machines, sku.part): sku.description for sku in skus}
    prices = read(pages(url, key), set(by_part.values()))
    listed = list(machines)
    for region in regions:
        for purchase in _USAGES.values():
            for machine in listed:
                quote = _machine(machine, by_part, prices, region, purchase)
                if quote is not None:
                    yield quote
            for model in cards:
                found = prices.get((by_part.get((model, "gpu"), ""), region, purchase))
                if found is not None:
                    yield Quote("gcp", region, model, purchase, found[0], SOURCE, found[1])


def pages(url: str, key: str) -> Iterator[Mapping[str, Any]]:
    """Every page of the SKUs of Compute Engine."""
    token = ""
    while True:
        query = urllib.parse.urlencode(
            {"currencyCode": "USD", "pageSize": 5000} | ({"pageToken": token} if token else {})
        )
        address = f"{url.rstrip('/')}{_COMPUTE}?{query}"
        with opened(address, {"X-Goog-Api-Key": key}) as body:
            try:
                page = json.load(body)
            except ValueError as error:
                raise InvalidSpec(f"the answer is no JSON: {error}", subject=address) from error
        yield page
        token = str(page.get("nextPageToken") or "")
        if not token:
            return


def read(answers: Iterable[Mapping[str, Any]], wanted: set[str]) -> Prices:
    """The prices of the wanted descriptions in every region."""
    found: dict[tuple[str, str, str], tuple[Decimal, date]] = {}
    for page in answers:
        for sku in page.get("skus") or ():
            purchase = _USAGES.get((sku.get("category") or {}).get("usageType", ""))
            name = str(sku.get("description", "")).partition(" running in ")[0]
            name = _SPOT.sub("", name)
            if purchase is None or name not in wanted:
                continue
            priced = _price(sku)
            for region in sku.get("serviceRegions") or ():
                found[name, str(region), purchase] = priced
    return found


def _price(sku: Mapping[str, Any]) -> tuple[Decimal, date]:
    where = f"SKU {sku.get('skuId')} ({sku.get('description')})"
    try:
        info = sku["pricingInfo"][-1]
        rate = info["pricingExpression"]["tieredRates"][-1]["unitPrice"]
        amount = Decimal(str(rate.get("units") or 0)) + Decimal(int(rate.get("nanos") or 0)) / 10**9
        day = date.fromisoformat(str(info["effectiveTime"])[:10])
    except (KeyError, IndexError, ValueError, ArithmeticError) as error:
        raise InvalidSpec(f"{where} has another shape: {error!r}", subject=where) from error
    return price_of(str(amount), str(rate.get("currencyCode", "")), where), day


def _machine(
    machine: Shape, by_part: Mapping[tuple[str, str], str], prices: Prices, region: str, purchase: str
) -> Quote | None:
    family = next(
        (name for name, part in by_part if part == "core" and machine.instance_type.startswith(f"{name}-")), None
    )
    wanted = [((family, "core"), Decimal(machine.vcpus)), ((family, "ram"), machine.memory_gib)]
    if machine.gpu_model is not None:
        wanted.append(((machine.gpu_model, "gpu"), Decimal(machine.gpu_count)))
    total, oldest = Decimal(0), date.max
    for part, amount in wanted:
        found = prices.get((by_part.get((part[0] or "", part[1]), ""), region, purchase))
        if found is None:
            return None
        total, oldest = total + amount * found[0], min(oldest, found[1])
    return Quote(
        "gcp", region, machine.instance_type, purchase, total, f"{SOURCE}; derived: its parts added up", oldest
    )
