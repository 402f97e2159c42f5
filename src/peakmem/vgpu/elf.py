"""The names that a shared library gives and asks for, read from the file."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_DYNAMIC_SYMBOLS = 11  # SHT_DYNSYM


@dataclass(frozen=True, kw_only=True, slots=True)
class DynamicSymbols:
    """Names in the table of dynamic symbols.

    Attributes:
        defined: given to others.
        undefined: asked of others.
    """

    defined: frozenset[str]
    undefined: frozenset[str]


def dynamic_symbols(path: Path) -> DynamicSymbols:
    """Read the dynamic symbols of a 64-bit little-endian ELF file (ELF-64 Object File Format, version 1.5).

    Raises:
        ValueError: it is no such file.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is no 64-bit little-endian ELF file")
        (table,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + size * i) for i in range(count)]
        for _, kind, _, _, offset, length, link, *_ in sections:
            if kind != _DYNAMIC_SYMBOLS:
                continue
            names_at, names_length = sections[link][4], sections[link][5]
            names = data[names_at : names_at + names_length]
            symbols = np.frombuffer(data[offset : offset + length], dtype=_SYMBOL)

            def text(where: int, names: bytes = names) -> str:
                return names[where : names.index(b"\0", where)].decode(errors="replace")

            missing = symbols["section"] == 0
            return DynamicSymbols(
                defined=frozenset(text(where) for where in symbols["name"][~missing]),
                undefined=frozenset(text(where) for where in symbols["name"][missing]) - {""},
            )
    return DynamicSymbols(defined=frozenset(), undefined=frozenset())
