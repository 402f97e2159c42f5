"""The header of a safetensors file: 8 bytes with its length, then JSON (the format's own documentation)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from peakmem.errors import PeakmemError
from peakmem.workload.checkpoints.model import StoredTensor

_LONGEST_HEADER = 100_000_000  # the limit of the format
_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "I64": "int64", "I32": "int32", "I16": "int16",
    "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool", "C64": "complex64",
}  # fmt: skip


def read_safetensors(path: Path) -> list[StoredTensor]:
    """The tensors of a file.

    Raises:
        PeakmemError: it is damaged, or no such file.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_LONGEST_HEADER, path.stat().st_size - 8):
            raise PeakmemError(f"{path} is no safetensors file, or is cut short")
        raw = file.read(length)
    try:
        header = json.loads(raw)
        return [_tensor(name, entry) for name, entry in header.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PeakmemError(f"the header of {path} is damaged: {error}") from error


def _tensor(name: str, entry: dict[str, Any]) -> StoredTensor:
    first, last = map(int, entry["data_offsets"])
    dtype = str(entry["dtype"])
    return StoredTensor(
        name=name, dtype=_DTYPES.get(dtype, dtype), shape=tuple(map(int, entry["shape"])), size=last - first
    )
