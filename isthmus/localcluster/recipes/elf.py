"""Which shared libraries the programs of a file system need: read from the files themselves, nothing is run.

Just enough of the ELF format (System V ABI, chapter 5) for 64-bit little-endian files: the DT_NEEDED names of the
dynamic section.
"""

import struct
from collections.abc import Iterable
from pathlib import Path

_DYNAMIC, _LOAD = 2, 1
_NEEDED, _STRTAB, _NULL = 1, 5, 0


def needed(path: Path) -> set[str]:
    """Names of the libraries a file is linked to; empty for what is not a dynamic ELF file."""
    try:
        with path.open("rb") as file:
            if file.read(6) != b"\x7fELF\x02\x01":
                return set()
            file.seek(0)
            return _needed(file.read())
    except (OSError, struct.error, IndexError, ValueError):
        return set()


def closure(roots: Iterable[Path], libraries: dict[str, Path]) -> set[str]:
    """Names out of `libraries` that the roots need, directly or through others.

    Args:
        roots: files to start from.
        libraries: library name to its file.
    """
    found: set[str] = set()
    pending = [name for root in roots for name in needed(root)]
    while pending:
        name = pending.pop()
        if name in found or name not in libraries:
            continue
        found.add(name)
        pending.extend(needed(libraries[name]))
    return found


def _needed(data: bytes) -> set[str]:
    offset, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    segments = [struct.unpack_from("<IIQQQQQ", data, offset + size * index) for index in range(count)]
    entries: list[tuple[int, int]] = []
    for kind, _, start, _, _, length, _ in segments:
        if kind == _DYNAMIC:
            entries = [struct.unpack_from("<QQ", data, at) for at in range(start, start + length, 16)]
    tags = entries[: next((at for at, (tag, _) in enumerate(entries) if tag == _NULL), len(entries))]
    table = next((value for tag, value in tags if tag == _STRTAB), None)
    if table is None:
        return set()
    begin = next(
        table - address + start
        for kind, _, start, address, _, length, _ in segments
        if kind == _LOAD and address <= table < address + length
    )
    names = (begin + value for tag, value in tags if tag == _NEEDED)
    return {data[at : data.index(b"\0", at)].decode() for at in names}
