"""Data that must stay where they are (stack setting dataStays)."""

from isthmus.specs.errors import Refused
from isthmus.specs.stack import CONFIG_DIR, StackSettings


def problem(source: StackSettings, destination: StackSettings) -> str:
    """Why the data of one stack may not be taken to another, or ""."""
    if source.data_stays == "cloud" and destination.cloud != source.cloud:
        return f"its data stay in {source.cloud} (dataStays: cloud), the destination is in {destination.cloud}"
    places = [(stack.cloud, stack.region) for stack in (source, destination)]
    if source.data_stays == "region" and places[0] != places[1]:
        return (
            f"its data stay in {source.region} of {source.cloud} (dataStays: region), the destination is in"
            f" {destination.region} of {destination.cloud}"
        )
    return ""


def check(stack: str, source: StackSettings, destination: StackSettings) -> None:
    """Refuse a move that the settings forbid.

    Raises:
        Refused: the data of `stack` would leave the place where they must stay.
    """
    found = problem(source, destination)
    if found:
        raise Refused(
            f"stack {stack} may not be moved there: {found}",
            subject=f"stack {stack}",
            remedy=f"whoever answers for the data changes dataStays in {CONFIG_DIR}/Pulumi.{stack}.yaml",
        )
