"""The names that a shared library gives and asks for, read from the file.

ELF-64 Object File Format, version 1.5; symbol versions: Linux Standard Base Core 5.0, "Symbol Versioning".
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

SYMBOL = [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
"""The fields of a symbol, as NumPy has them."""
_SYMBOL_BYTES = 24
_DYNAMIC_SYMBOLS = 11  # SHT_DYNSYM
_VERSION_DEFINITIONS = 0x6FFFFFFD  # SHT_GNU_verdef
_VERSIONS_OF_SYMBOLS = 0x6FFFFFFF  # SHT_GNU_versym
_HIDDEN = 0x8000


@dataclass(frozen=True, kw_only=True, slots=True)
class DynamicSymbols:
    """Names in the table of dynamic symbols.

    Attributes:
        defined: given to others.
        undefined: asked of others.
    """

    defined: frozenset[str]
    undefined: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Exports:
    """What a library gives to others, with the versions of it.

    Attributes:
        symbols: name and number of its version (1: none).
        versions: names of the versions, from number 2 on.
    """

    symbols: tuple[tuple[str, int], ...]
    versions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Table:
    data: mmap.mmap
    sections: list[tuple[int, ...]]

    def of_kind(self, kind: int) -> tuple[bytes, bytes, int] | None:
        """A section, the section of names that it is linked to, and its number of entries, if it says so."""
        for _, found, _, _, offset, length, link, info, *_ in self.sections:
            if found == kind:
                names_at, names_length = self.sections[link][4], self.sections[link][5]
                return self.data[offset : offset + length], self.data[names_at : names_at + names_length], info
        return None


@contextmanager
def _opened(path: Path) -> Iterator[_Table]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is no 64-bit little-endian ELF file")
        try:
            (table,) = struct.unpack_from("<Q", data, 40)
            size, count = struct.unpack_from("<HH", data, 58)
            yield _Table(
                data=data, sections=[struct.unpack_from("<IIQQQQIIQQ", data, table + size * i) for i in range(count)]
            )
        except (struct.error, IndexError) as error:
            raise ValueError(f"{path} is damaged, or not all of it is there") from error


def _symbols(table: _Table) -> tuple[np.ndarray[Any, Any], list[str]]:
    import numpy as np

    found = table.of_kind(_DYNAMIC_SYMBOLS)
    if found is None:
        return np.zeros(0, dtype=SYMBOL), []
    symbols = np.frombuffer(found[0], dtype=SYMBOL)
    return symbols, [_text(found[1], int(where)) for where in symbols["name"]]


def _text(names: bytes, where: int) -> str:
    return names[where : names.index(b"\0", where)].decode(errors="replace")


def dynamic_symbols(path: Path) -> DynamicSymbols:
    """Read the dynamic symbols of a 64-bit little-endian ELF file.

    Raises:
        ValueError: it is no such file.
    """
    with _opened(path) as table:
        symbols, names = _symbols(table)
    missing = symbols["section"] == 0
    return DynamicSymbols(
        defined=frozenset(name for name, gone in zip(names, missing, strict=True) if not gone),
        undefined=frozenset(name for name, gone in zip(names, missing, strict=True) if gone) - {""},
    )


def asks_for(path: Path, name: str) -> bool:
    """Whether a 64-bit little-endian ELF file asks others for a name: of a large library quicker than all its names.

    Raises:
        ValueError: it is no such file.
    """
    with _opened(path) as table:
        found = table.of_kind(_DYNAMIC_SYMBOLS)
    if found is None:
        return False
    symbols, names, _ = found
    where = names.find(b"\0" + name.encode() + b"\0") + 1
    at = -1
    while where and (at := symbols.find(struct.pack("<I", where), at + 1)) >= 0:
        if at % _SYMBOL_BYTES == 0:  # where a symbol begins, and so its name
            return struct.unpack_from("<H", symbols, at + 6) == (0,)
    return False


def exports(path: Path) -> Exports:
    """Read what a 64-bit little-endian ELF file gives to others.

    Raises:
        ValueError: it is no such file.
    """
    import numpy as np

    with _opened(path) as table:
        symbols, names = _symbols(table)
        numbers = table.of_kind(_VERSIONS_OF_SYMBOLS)
        defined = table.of_kind(_VERSION_DEFINITIONS)
        names_of_versions = _versions(*defined) if defined else ()
    versions = np.frombuffer(numbers[0], dtype="<u2") if numbers else np.ones(len(symbols), dtype="<u2")
    given = (symbols["section"] != 0) & (symbols["info"] >> 4 != 0)
    return Exports(
        symbols=tuple(
            (name, max(int(version) & ~_HIDDEN, 1))
            for name, version, is_given in zip(names, versions, given, strict=True)
            if is_given
        ),
        versions=names_of_versions,
    )


def _versions(section: bytes, names: bytes, count: int) -> tuple[str, ...]:
    found: dict[int, str] = {}
    at = 0
    for _ in range(count):
        _, _, number, _, _, first_name, further = struct.unpack_from("<HHHHIII", section, at)
        found[number] = _text(names, struct.unpack_from("<I", section, at + first_name)[0])
        at += further
    return tuple(found[number] for number in sorted(found) if number > 1)
