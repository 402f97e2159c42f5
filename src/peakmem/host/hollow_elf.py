"""Writes shared libraries that have all the names of another one, and nothing behind them.

ELF-64 Object File Format, version 1.5; symbol versions: Linux Standard Base Core 5.0, "Symbol Versioning".
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

import numpy as np

from peakmem.vgpu.elf import SYMBOL, Exports

_MACHINES = {"x86_64": 62, "aarch64": 183}  # EM_X86_64, EM_AARCH64
_RETURN_1 = {
    "x86_64": bytes.fromhex("b801000000c3"),  # mov $1, %eax; ret
    "aarch64": bytes.fromhex("20008052c0035fd6"),  # mov w0, #1; ret
}
"""What functions do. Of none of these libraries is 1 the status of a success."""
_RETURN_TEXT = {
    "x86_64": bytes.fromhex("488d0501000000c3"),  # lea 1(%rip), %rax; ret
    "aarch64": bytes.fromhex("40000010c0035fd6"),  # adr x0, .+8; ret
}
"""What those do that say what a status means: they give the address of what follows them."""
_TEXT = b"peakmem stands in for this library: there is no GPU\0"
_GIVES_TEXT = re.compile(r"Get(Error|Status)(Name|String)$")
_PAGE = 0x10000  # the largest of Linux on these machines
_HEADER, _SEGMENT, _SEGMENTS = 64, 56, 4
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_FUNCTION = 1 << 4 | 2  # global
_ENTRIES = {
    "hash": 4, "strtab": 5, "symtab": 6, "strsz": 10, "syment": 11, "soname": 14,
    "versym": 0x6FFFFFF0, "verdef": 0x6FFFFFFC, "verdefnum": 0x6FFFFFFD,
}  # fmt: skip


@dataclass(slots=True)
class _Names:
    text: bytearray = field(default_factory=lambda: bytearray(b"\0"))

    def add(self, name: str) -> int:
        at = len(self.text)
        self.text += name.encode() + b"\0"
        return at


def hollow_library(soname: str, exports: Exports, *, machine: str) -> bytes:
    """The file of a library that gives the same names in the same versions.

    All are functions that return 1, but for those that tell the name of a status or what it means: a text.

    Args:
        soname: the name by which others ask for it.
        exports: what it is to give.
        machine: `x86_64` or `aarch64`.

    Raises:
        KeyError: another machine.
    """
    names = _Names()
    own_name = names.add(soname)
    start = _HEADER + _SEGMENT * _SEGMENTS
    symbols = np.zeros(1 + len(exports.symbols), dtype=SYMBOL)
    symbols["name"][1:] = [names.add(name) for name, _ in exports.symbols]
    symbols["info"][1:] = _FUNCTION
    symbols["section"][1:] = 1
    code = _padded(_RETURN_1[machine])  # comes first
    says = start + len(code)
    symbols["value"][1:] = [says if _GIVES_TEXT.search(name) else start for name, _ in exports.symbols]
    definitions = _definitions((soname, *exports.versions), names) if exports.versions else b""

    body, places = b"", {}
    for name, part in {
        "code": code + _RETURN_TEXT[machine] + _TEXT,
        "hash": _hash_table([name for name, _ in exports.symbols]),
        "symtab": symbols.tobytes(),
        "strtab": bytes(names.text),
        "versym": np.array([0, *(version for _, version in exports.symbols)], dtype="<u2").tobytes(),
        "verdef": definitions,
    }.items():
        places[name] = start + len(body)
        body += _padded(part)

    tags = {name: places[name] for name in ("hash", "strtab", "symtab")}
    tags |= {"strsz": len(names.text), "syment": symbols.itemsize, "soname": own_name}
    if definitions:
        tags |= {"versym": places["versym"], "verdef": places["verdef"], "verdefnum": 1 + len(exports.versions)}
    dynamic = b"".join(struct.pack("<QQ", _ENTRIES[name], value) for name, value in tags.items()) + bytes(16)
    end = start + len(body)
    # A page of its own, at the place in it that its offset asks for.
    writable = (end + _PAGE - 1) // _PAGE * _PAGE + end % _PAGE
    return (
        _header(machine)
        + _segment(_LOAD, 5, 0, 0, end)
        + _segment(_LOAD, 6, end, writable, len(dynamic))
        + _segment(_DYNAMIC, 6, end, writable, len(dynamic))
        + _segment(_STACK, 6, 0, 0, 0)
        + body
        + dynamic
    )


def _padded(part: bytes) -> bytes:
    return part + bytes(-len(part) % 16)


def _header(machine: str) -> bytes:
    return b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack(
        "<HHIQQQIHHHHHH", 3, _MACHINES[machine], 1, 0, _HEADER, 0, 0, _HEADER, _SEGMENT, _SEGMENTS, 64, 0, 0
    )  # fmt: skip


def _segment(kind: int, flags: int, offset: int, address: int, size: int) -> bytes:
    align = _PAGE if kind == _LOAD else 8
    return struct.pack("<IIQQQQQQ", kind, flags, offset, address, address, size, size, align)


def _hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value


def _hash_table(names: list[str]) -> bytes:
    """The table of DT_HASH: buckets, and chains of symbols with the same remainder."""
    n = max(len(names), 1)
    buckets, chains = [0] * n, [0] * (len(names) + 1)
    for index, name in enumerate(names, start=1):
        bucket = _hash(name) % n
        chains[index], buckets[bucket] = buckets[bucket], index
    return np.array([n, len(chains), *buckets, *chains], dtype="<u4").tobytes()


def _definitions(versions: tuple[str, ...], names: _Names) -> bytes:
    """The table of DT_VERDEF: the library itself as number 1, then its versions."""
    rows = []
    for number, name in enumerate(versions, start=1):
        further = 28 if number < len(versions) else 0
        rows.append(struct.pack("<HHHHIII", 1, number == 1, number, 1, _hash(name), 20, further))
        rows.append(struct.pack("<II", names.add(name), 0))
    return b"".join(rows)
