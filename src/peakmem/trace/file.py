"""The `.peakmem` file: a zip archive of compressed columns. Described in docs/trace-format.md."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from peakmem.errors import PeakmemError
from peakmem.files import atomic_write
from peakmem.trace.model import Trace, TraceMeta
from peakmem.trace.tables import Array, Stacks, Table

FORMAT = "peakmem/trace"
VERSION = 1
_LEVEL = 6
_MAX_BYTES = 2**36
_MAX_HEADER = 2**26
_STACK_DTYPES = {"offsets": "i8", "frames": "i4"}


class _Column(msgspec.Struct, kw_only=True, frozen=True):
    """Where a column is and how it was packed."""

    dtype: str
    count: int
    encoding: str


class _Header(msgspec.Struct, kw_only=True, frozen=True):
    """`header.json`: what the file is and what is in it."""

    format: str
    version: int
    peakmem: str
    meta: TraceMeta
    columns: dict[str, _Column]


class _Tag(msgspec.Struct, kw_only=True, frozen=True):
    """The part of the header that every version has."""

    format: str = ""
    version: int = 0
    peakmem: str = ""


def _pack(array: Array) -> tuple[str, bytes]:
    """Differences between neighbours, then all first bytes, all second bytes, ...: long runs that deflate well."""
    if array.dtype.itemsize == 1 or len(array) == 0:
        return "raw", array.tobytes()
    # Differences wrap around, and the sum wraps back; so unsigned and negative values need no care.
    unsigned = array.astype(array.dtype.newbyteorder("<")).view(f"<u{array.dtype.itemsize}")
    delta = np.diff(unsigned, prepend=np.zeros(1, dtype=unsigned.dtype))
    return "delta-shuffle", np.ascontiguousarray(delta.view("u1").reshape(-1, unsigned.itemsize).T).tobytes()


def _unpack(data: bytes, column: _Column, dtype: str) -> Array:
    """The array that `_pack` packed."""
    kind = np.dtype(dtype)
    if np.dtype(column.dtype) != kind or len(data) != column.count * kind.itemsize:
        raise ValueError("a column has another length or type than the header says")
    if column.encoding == "raw":
        return np.frombuffer(data, dtype=kind.newbyteorder("<")).astype(kind)
    if column.encoding != "delta-shuffle":
        raise ValueError(f"unknown encoding {column.encoding!r}")
    planes = np.frombuffer(data, dtype="u1").reshape(kind.itemsize, column.count)
    delta = np.ascontiguousarray(planes.T).view(f"<u{kind.itemsize}").reshape(-1)
    return np.cumsum(delta, dtype=delta.dtype).astype(f"u{kind.itemsize}").view(kind)


def _tables(trace: Trace) -> dict[str, Any]:
    return {
        item.name: value for item in fields(trace) if isinstance(value := getattr(trace, item.name), Table | Stacks)
    }


def write_trace(trace: Trace, path: str | Path, *, force: bool = False) -> Path:
    """Write a trace.

    Args:
        trace: what to write.
        path: the file; the usual ending is `.peakmem`.
        force: whether an existing file may be replaced.

    Returns:
        The path.

    Raises:
        PeakmemError: the file exists and `force` is false, or it can't be written.
    """
    from peakmem import __version__

    columns: dict[str, _Column] = {}
    payload: dict[str, bytes] = {}
    for table_name, table in _tables(trace).items():
        for column in _STACK_DTYPES if isinstance(table, Stacks) else table.DTYPES:
            array = getattr(table, column)
            encoding, data = _pack(array)
            name = f"{table_name}/{column}"
            columns[name] = _Column(dtype=array.dtype.str.lstrip("<=|"), count=len(array), encoding=encoding)
            payload[name] = data
    header = _Header(format=FORMAT, version=VERSION, peakmem=__version__, meta=trace.meta, columns=columns)
    path = Path(path)
    with (
        atomic_write(path, force=force) as stream,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive,
    ):
        archive.writestr(_entry("header.json"), msgspec.json.encode(header))
        archive.writestr(_entry("strings.json"), msgspec.json.encode(trace.strings))
        archive.writestr(_entry("shapes.json"), msgspec.json.encode(trace.shapes))
        for name, data in payload.items():
            archive.writestr(_entry(name), data)
    return path


def _entry(name: str) -> zipfile.ZipInfo:
    """An entry with a fixed date, so that equal traces give equal files."""
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def is_trace_file(path: Path) -> bool:
    """Whether a file begins as a `.peakmem` file does."""
    with Path(path).open("rb") as stream:
        start = stream.read(64)
    return start.startswith(b"PK\x03\x04") and b"header.json" in start


def read_trace(path: str | Path) -> Trace:
    """Read a `.peakmem` file.

    Raises:
        PeakmemError: the file is missing, cut off, damaged, foreign, or from a newer version.
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive, path)
    except FileNotFoundError as error:
        raise PeakmemError(f"{path} does not exist", hint="check the name") from error
    except IsADirectoryError as error:
        raise PeakmemError(f"{path} is a folder, not a trace", hint="name a .peakmem file in it") from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise PeakmemError(*_not_readable(path), hint="record or import it again") from error
    except (ValueError, KeyError, msgspec.MsgspecError, TypeError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, PeakmemError):
            raise
        raise PeakmemError(f"{path} is damaged: {error}", hint="record or import it again") from error
    except MemoryError as error:
        raise PeakmemError(
            f"{path} needs more memory to read than there is", hint="read it on a larger machine"
        ) from error
    except OSError as error:
        raise PeakmemError(f"{path} can't be read: {error.strerror}", hint="check that you may read it") from error


def _not_readable(path: Path) -> tuple[str]:
    """Tell a trace that was cut off from a file that never was one."""
    if is_trace_file(path):
        return (f"{path} is cut off or damaged",)
    return (f"{path} is not a peakmem trace",)


def _read(archive: zipfile.ZipFile, path: Path) -> Trace:
    names = set(archive.namelist())
    if "header.json" not in names:
        raise PeakmemError(f"{path} is a zip archive, but not a peakmem trace", hint="name a .peakmem file")
    if archive.getinfo("header.json").file_size > _MAX_HEADER:
        raise ValueError("its header is too large to be one")
    raw = archive.read("header.json")
    tag = msgspec.json.decode(raw, type=_Tag)
    if tag.format != FORMAT:
        raise PeakmemError(f"{path} is not a peakmem trace: its format is {tag.format!r}", hint="name a .peakmem file")
    if tag.version > VERSION:
        raise PeakmemError(
            f"{path} was written by peakmem {tag.peakmem} in version {tag.version} of the format; this one reads "
            f"up to version {VERSION}",
            hint="pip install --upgrade peakmem",
        )
    header = msgspec.json.decode(raw, type=_Header)
    if sum(info.file_size for info in archive.infolist()) > _MAX_BYTES:
        raise ValueError("it claims to hold more than 64 GiB")
    parts: dict[str, Any] = {}
    for item in fields(Trace):
        kind = _TABLE_TYPES.get(item.name)
        if kind is None:
            continue
        dtypes = _STACK_DTYPES if kind is Stacks else kind.DTYPES
        parts[item.name] = kind(**{c: _column(archive, header, f"{item.name}/{c}", d) for c, d in dtypes.items()})
    trace = Trace(
        meta=header.meta,
        strings=msgspec.json.decode(archive.read("strings.json"), type=tuple[str, ...]),
        shapes=msgspec.json.decode(archive.read("shapes.json"), type=tuple[tuple[int, ...], ...]),
        **parts,
    )
    _check_references(trace)
    return trace


def _column(archive: zipfile.ZipFile, header: _Header, name: str, dtype: str) -> Array:
    column = header.columns[name]
    if archive.getinfo(name).file_size != column.count * np.dtype(dtype).itemsize:
        raise ValueError(f"column {name} has another length than the header says")
    return _unpack(archive.read(name), column, dtype)


def _check_references(trace: Trace) -> None:
    """Every index points into its table: a damaged file fails here, not in some report."""

    def within(array: Array, limit: int, what: str) -> None:
        if len(array) and (int(array.min()) < 0 or int(array.max()) >= limit):
            raise ValueError(f"{what} points outside of its table")

    offsets = trace.stacks.offsets
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(trace.stacks.frames) or np.any(np.diff(offsets) < 0):
        raise ValueError("the stacks are inconsistent")
    if not trace.strings or not trace.shapes or not len(trace.contexts):
        raise ValueError("a table without its entry 0")
    within(trace.stacks.frames, len(trace.frames), "stacks.frames")
    for table, name in ((trace.events, "events"), (trace.initial, "initial"), (trace.initial_segments, "segments")):
        within(table.stack, len(trace.stacks), f"{name}.stack")
    within(trace.events.context, len(trace.contexts), "events.context")
    if np.any(trace.contexts.parent[1:] >= np.arange(1, len(trace.contexts))) or trace.contexts.parent[0] != 0:
        raise ValueError("the contexts are no tree")
    within(trace.contexts.parent, len(trace.contexts), "contexts.parent")
    within(trace.initial_segments.pool, len(trace.meta.pools), "segments.pool")
    within(trace.owners.shape, len(trace.shapes), "owners.shape")
    for names, what in (
        (trace.frames.filename, "frames.filename"), (trace.frames.function, "frames.function"),
        (trace.contexts.name, "contexts.name"), (trace.owners.name, "owners.name"),
        (trace.owners.dtype, "owners.dtype"), (trace.spans.name, "spans.name"),
    ):  # fmt: skip
        within(names, len(trace.strings), what)


_TABLE_TYPES: dict[str, Any] = {
    item.name: type(value) for item in fields(Trace) if isinstance(value := getattr(Trace(), item.name), Table | Stacks)
}
