"""From the rows of prices to offers: machines with attached cards, and commitments, get their price made here. Pure.

A price that is not known makes the offer's unknown; nothing is filled in.
"""

from collections.abc import Iterable
from datetime import date
from decimal import Decimal

from isthmus.catalog.facts import Commitment
from isthmus.specs.offer import Offer, Purchase, Shape

Prices = dict[tuple[str, str, str, Purchase], tuple[Decimal | None, str, date | None]]
"""By cloud, region, machine or card, and purchase option: price, source and date."""


def plain_offers(prices: Prices, shapes: dict[tuple[str, str], Shape]) -> list[Offer]:
    """An offer for each price of a machine."""
    return [
        Offer(
            shape=shapes[cloud, instance_type],
            region=region,
            purchase=purchase,
            usd_per_hour=price,
            source=source,
            as_of=as_of,
        )
        for (cloud, region, instance_type, purchase), (price, source, as_of) in prices.items()
    ]


def attached_offers(shapes: Iterable[Shape], prices: Prices, cards: Prices) -> list[Offer]:
    """Offers for machines with attached cards: host price plus card price times count (case A23)."""
    by_model: dict[tuple[str, str], list[Shape]] = {}
    for shape in shapes:
        by_model.setdefault((shape.cloud, shape.gpu_model or ""), []).append(shape)
    offers = []
    for (cloud, region, model, purchase), (card, card_source, card_as_of) in cards.items():
        for shape in by_model.get((cloud, model), ()):
            host = prices.get((cloud, region, shape.instance_type, purchase))
            if host is None:
                continue
            machine, source, as_of = host
            all_cards = None if card is None else card * shape.gpu_count
            whole = None if machine is None or all_cards is None else machine + all_cards
            offers.append(
                Offer(
                    shape=shape,
                    region=region,
                    purchase=purchase,
                    usd_per_hour=whole,
                    machine_usd_per_hour=machine,
                    gpu_usd_per_hour=all_cards,
                    source=source,
                    as_of=as_of,
                    gpu_source=f"{card_source}; derived: {shape.gpu_count} x the price of one card",
                    gpu_as_of=card_as_of,
                )
            )
    return offers


def is_of(instance_type: str, machines: str) -> bool:
    """Whether a machine is the one, or of the family, that a commitment names."""
    return instance_type == machines or instance_type.startswith(f"{machines}-")


def committed_offers(offers: Iterable[Offer], commitments: Iterable[Commitment]) -> list[Offer]:
    """For each commitment the offers of its machines. It covers a machine, not cards that are priced apart: their price
    under it is unknown."""
    by_place: dict[tuple[str, str], list[Commitment]] = {}
    for commitment in commitments:
        by_place.setdefault((commitment.cloud, commitment.region), []).append(commitment)
    made = []
    for offer in offers:
        if offer.purchase != "on-demand":
            continue
        for commitment in by_place.get((offer.shape.cloud, offer.region), ()):
            if is_of(offer.shape.instance_type, commitment.machines):
                made.append(_committed(offer, commitment))
    return made


def _committed(offer: Offer, commitment: Commitment) -> Offer:
    listed = offer.machine_usd_per_hour if offer.shape.cards_apart else offer.usd_per_hour
    price, source = commitment.usd_per_hour, commitment.source
    dates = [commitment.as_of]
    if commitment.discount is not None:
        price = None if listed is None else listed * (1 - commitment.discount)
        source = f"{source}; derived: {commitment.discount * 100:f} % off the price on demand ({offer.source})"
        dates.append(offer.as_of)
    apart = offer.shape.cards_apart
    return Offer(
        shape=offer.shape,
        region=offer.region,
        purchase=commitment.term,
        usd_per_hour=None if apart else price,
        machine_usd_per_hour=price if apart else None,
        gpu_usd_per_hour=None,
        source=source,
        as_of=min((day for day in dates if day), default=None) if all(dates) else None,
        gpu_source="no price of the cards under a commitment is in the catalog" if apart else None,
    )
