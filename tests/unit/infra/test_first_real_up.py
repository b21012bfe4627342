"""docs/first-real-up.md says what the catalog and the stack files say."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from infra import checks
from isthmus import catalog
from isthmus.specs.offer import Purchase
from isthmus.specs.stack import StackSettings
from tests.unit.infra.stacks import ROOT, SOLD, settings

PAGE = (ROOT / "docs" / "first-real-up.md").read_text(encoding="utf-8")
HOURS = Decimal(730)
CONTROL_PLANE = {
    "aws": ("eks", "control plane, standard support"),
    "gcp": ("gke", "cluster management fee (all modes and topologies)"),
}
DISK = {"aws": ("ebs", "gp3 storage"), "gcp": ("persistent-disk", "pd-balanced")}


def service(chosen: StackSettings, key: tuple[str, str]) -> Decimal:
    value = catalog.load().service(chosen.cloud, *key, chosen.region).value
    assert value is not None
    return value


def parts(chosen: StackSettings) -> list[Decimal]:
    """USD an hour of everything the page lists, from the catalog."""
    facts = catalog.load()
    found = [service(chosen, CONTROL_PLANE[chosen.cloud])]
    disk_gib = 0
    nodes = 0
    for pool in chosen.cluster.pools:
        shape = checks.machine(facts, chosen.cloud, chosen.region, pool)
        if not pool.size:
            continue
        offers = facts.offers(chosen.cloud, chosen.region, purchase="on-demand")
        (offer,) = [item for item in offers if item.shape == shape]
        assert offer.usd_per_hour is not None
        if offer.gpu_usd_per_hour is not None and offer.machine_usd_per_hour is not None:
            found += [offer.machine_usd_per_hour * pool.size, offer.gpu_usd_per_hour * pool.size]
        else:
            found.append(offer.usd_per_hour * pool.size)
        disk_gib += pool.size * (100 if shape.gpu_count else 50)
        nodes += pool.size
    if chosen.cloud == "aws":
        found.append(service(chosen, ("nat-gateway", "gateway hour")))
    else:
        found.append(service(chosen, ("cloud-nat", "per VM using the gateway, first 32 VMs")) * nodes)
    return [*found, disk_gib * service(chosen, DISK[chosen.cloud]) / HOURS]


@pytest.mark.parametrize("name", SOLD)
def test_prices_are_those_of_the_catalog(name: str) -> None:
    chosen = settings(name)
    section = PAGE.split(f"| {name.upper()}, {chosen.region} |")[1].split("\n\n")[0]
    shown = [Decimal(text) for text in re.findall(r"\| (\d+\.\d{4}) \|", section)]
    assert shown == [part.quantize(Decimal("0.0001")) for part in parts(chosen)]
    total = sum(parts(chosen))
    assert f"**{total:.4f}**" in section
    assert f"{total * HOURS:,.2f} a month" in section


@pytest.mark.parametrize("name", SOLD)
@pytest.mark.parametrize("purchase", ["on-demand", "spot"])
def test_every_quota_that_the_machines_count_against_is_named(name: str, purchase: Purchase) -> None:
    chosen, facts = settings(name), catalog.load()
    for pool in chosen.cluster.pools:
        shape = checks.machine(facts, chosen.cloud, chosen.region, pool)
        if (purchase == "spot") != pool.spot:
            continue
        for quota in facts.quotas_for(shape, purchase):
            assert quota.code in PAGE, quota


def test_it_says_that_it_was_not_run() -> None:
    assert "has not been run against a real account" in PAGE
