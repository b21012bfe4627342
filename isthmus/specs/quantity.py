"""Kubernetes quantities of a workload as whole numbers: millicores and MiB. Light, so that prices can be compared
without the Kubernetes client."""

import re
from decimal import ROUND_CEILING, Decimal

from isthmus.specs.errors import InvalidSpec

_FORM = re.compile(r"^(\d+(?:\.\d*)?|\.\d+)(m|k|[KMGTP]i?)?$")
_BYTES = {
    None: 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip


def millicores(cpu: str) -> int:
    """A CPU amount ("500m", "2", "0.5") in thousandths of a core, rounded up. InvalidSpec if it is none."""
    number, suffix = _split(cpu, "a CPU amount (examples: 500m, 2)")
    if suffix not in (None, "m"):
        raise InvalidSpec(f"{cpu!r} is not a CPU amount (examples: 500m, 2)", subject=cpu)
    return _up(number if suffix == "m" else number * 1000)


def mebibytes(memory: str) -> int:
    """An amount of memory or disk ("512Mi", "1Gi", "2G") in MiB, rounded up. InvalidSpec if it is none."""
    number, suffix = _split(memory, "an amount of memory (examples: 512Mi, 1Gi)")
    if suffix == "m":
        raise InvalidSpec(f"{memory!r} is not an amount of memory (examples: 512Mi, 1Gi)", subject=memory)
    return _up(number * _BYTES[suffix] / 2**20)


def _split(text: str, kind: str) -> tuple[Decimal, str | None]:
    match = _FORM.match(text.strip())
    if match is None:
        raise InvalidSpec(f"{text!r} is not {kind}", subject=text)
    return Decimal(match[1]), match[2]


def _up(number: Decimal) -> int:
    return int(number.to_integral_value(rounding=ROUND_CEILING))
