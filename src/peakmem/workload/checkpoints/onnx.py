"""The weights of an ONNX file: its protobuf is walked, the data skipped (onnx.proto: field numbers)."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from pathlib import Path

from peakmem.errors import PeakmemError
from peakmem.workload.checkpoints.model import WIDTHS, StoredTensor

_GRAPH, _INITIALIZER = 7, 5
_DIMS, _TYPE, _NAME = 1, 2, 8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16",
    17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz",
}  # fmt: skip


def read_onnx(path: Path) -> list[StoredTensor]:
    """The initializers of a file.

    Raises:
        PeakmemError: it is damaged, or no such file.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            tensors = [
                _tensor(data, *part)
                for number, *graph in _fields(data, 0, len(data))
                if number == _GRAPH
                for inner, *part in _fields(data, *graph)
                if inner == _INITIALIZER
            ]
    except (ValueError, IndexError, KeyError) as error:
        raise PeakmemError(f"{path} can't be read as ONNX: {error}") from error
    if not tensors:
        raise PeakmemError(f"{path} has no weights, or is no ONNX file")
    return tensors


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _fields(data: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of each field; of a number, start is its value and end is -1."""
    while at < end:
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value, -1
            continue
        if wire == _BYTES:
            length, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {wire}")
        if at + length > end:
            raise ValueError("it is cut short")
        yield number, at, at + length
        at += length


def _tensor(data: mmap.mmap, start: int, end: int) -> StoredTensor:
    shape: list[int] = []
    name, dtype = "", "float32"
    for number, first, last in _fields(data, start, end):
        if number == _DIMS and last < 0:
            shape.append(first)
        elif number == _DIMS:
            while first < last:
                value, first = _varint(data, first)
                shape.append(value)
        elif number == _TYPE:
            dtype = _DTYPES.get(first, f"ONNX type {first}")
        elif number == _NAME:
            name = data[first:last].decode("utf-8", "replace")
    return StoredTensor(name=name, dtype=dtype, shape=tuple(shape), size=math.prod(shape) * WIDTHS.get(dtype, 1))
