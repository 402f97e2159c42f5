"""Sizes as programs print them. Every unit in these messages is a power of 1024, whatever it is called."""

from __future__ import annotations

import re
from dataclasses import dataclass

from peakmem.units import GIB, KIB, MIB, TIB

SIZE = r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?:bytes|[KMGTP]i?B|[KMGTP](?![a-zA-Z])|B(?![a-zA-Z]))"
"""A size, in text without white space."""

_SIZE = re.compile(r"(-?[\d,]+(?:\.(\d+))?(?:e[+-]?\d+)?)\s*([A-Za-z]+)")
_UNITS = {"b": 1, "k": KIB, "m": MIB, "g": GIB, "t": TIB, "p": 1024 * TIB}


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes, and how far off they may be from rounding (half the last digit printed)."""

    size: int
    error: int


def amount(text: str) -> Amount:
    """Read a size such as `2.00GiB`, `512bytes`, `7168MB` or `15.75G`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    unit = _UNITS[match[3][0].lower()]
    value = float(match[1].replace(",", ""))
    digits = len(match[2] or "")
    error = 0 if unit == 1 else int(unit / 10**digits / 2)
    return Amount(int(value * unit), error)
