"""Sizes as people write them, and as people read them. Inside peakmem a size is an integer number of bytes."""

from __future__ import annotations

import re

from peakmem.errors import PeakmemError

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40

_FACTORS = {
    "": 1, "b": 1,
    "k": KIB, "kb": 1000, "kib": KIB,
    "m": MIB, "mb": 1000**2, "mib": MIB,
    "g": GIB, "gb": 1000**3, "gib": GIB,
    "t": TIB, "tb": 1000**4, "tib": TIB,
}  # fmt: skip
_SIZE = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)\s*([a-zA-Z]*)\s*")


def parse_size(text: str) -> int:
    """Read a size such as `24GiB`, `24g`, `512 MiB`, `8.5GB` or `1000000` (bytes).

    `K`, `M`, `G`, `T` alone and `KiB`, `MiB`, `GiB`, `TiB` are powers of 1024; `kB`, `MB`, `GB`, `TB` are powers
    of 1000.

    Returns:
        The size in bytes, rounded down.

    Raises:
        PeakmemError: the text is no size.
    """
    match = _SIZE.fullmatch(text)
    factor = _FACTORS.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise PeakmemError(f"{text!r} is not a size", hint="write a size like 24GiB, 512MiB, 8GB or a number of bytes")
    number = match.group(1).replace("_", "").replace(",", "")
    if "." not in number:
        return int(number) * factor
    return int(float(number) * factor)


def format_size(size: int, *, digits: int = 2) -> str:
    """Print a size in the largest binary unit that it fills: `8.13 MiB`; below 1 KiB as `512 B`.

    Args:
        size: bytes; may be negative.
        digits: digits after the point.
    """
    magnitude = abs(size)
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if magnitude >= unit:
            return f"{size / unit:,.{digits}f} {name}"
    return f"{size} B"
