"""What a move costs beside the runs themselves, at list prices: what leaves each cloud, and two platforms at a time. Pure."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from isthmus.catalog import Catalog
from isthmus.costs.parts import HOURS_PER_MONTH, Part, egress, money, plain
from isthmus.migration.move.record import Record
from isthmus.migration.plan.make import GIB, monthly
from isthmus.specs.stack import StackSettings


def bill(
    record: Record, source: StackSettings, destination: StackSettings, catalog: Catalog, *, now: datetime
) -> list[Part]:
    """The parts of the bill.

    What was read twice since a copy was killed is not counted. Reading back costs no egress where the move is run at the
    destination's side, which is assumed.
    """
    parts = [_egress("egress of objects and volumes there", there(record), source, catalog)]
    if any(name.startswith("back:") for name in record.steps()):
        parts.append(_egress("egress of what was copied back", back(record), destination, catalog))
    began, ended = record.times()
    last = datetime.fromisoformat(ended) if ended else now
    hours = Decimal(round((last - datetime.fromisoformat(began)).total_seconds())) / 3600
    price = monthly(destination, catalog)
    how = f"{plain(hours.quantize(Decimal('0.001')))} h of the destination's machines beside the source's"
    usd = None if price is None else money(price / HOURS_PER_MONTH * hours)
    return [*parts, Part("two platforms", usd, how, "list prices of its pools at their size", None)]


def there(record: Record) -> int:
    """Bytes of objects and volumes that were brought to the destination."""
    steps = record.steps()
    details = [steps[name].detail for name in ("last", "copy") if name in steps and steps[name].done]
    objects = int(details[0]["verified"]["bytes"]) if details else 0
    return objects + sum(volume.bytes for volume in record.volumes())


def back(record: Record) -> int:
    """Bytes of objects that were copied back, and of volumes, which go whole."""
    steps = record.steps()
    found = steps.get("back: objects")
    objects = int(found.detail["copied"]["bytes"]) if found and "copied" in found.detail else 0
    known = steps.get("back: volumes")
    returned = set(known.detail.get("volumes", ())) if known else set()
    return objects + sum(volume.bytes for volume in record.volumes() if volume.claim in returned)


def _egress(name: str, size: int, stack: StackSettings, catalog: Catalog) -> Part:
    found = egress(catalog, stack.cloud, stack.region, (Decimal(size) / GIB).quantize(Decimal("0.0001")))
    return Part(name, found.usd, found.how, found.source, found.as_of)
