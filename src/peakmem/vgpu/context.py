"""What a process holds on the device outside PyTorch's allocator: CUDA context, loaded kernels, library handles.

This is an estimate from published figures (`data/context.toml`), with its error, and is kept apart from every other
figure: the virtual GPU can't measure it, since no driver runs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import linear_regression

from peakmem.errors import PeakmemError
from peakmem.units import MIB
from peakmem.vgpu.catalogue import Device, find_device

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LAZY_LOADING_SINCE = (11, 7)
"""CUDA loads kernels when they are first used since this version (CUDA 11.7 release notes)."""

_DATA = Path(__file__).parent / "data" / "context.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEstimate:
    """Memory outside the allocator. All sizes are bytes.

    Attributes:
        size: the estimate: context and libraries.
        error: how far it may be off, either way.
        idle: the part that the bare context takes.
        libraries: what each library adds, by name.
        sources: where the figures come from, one text for each.
    """

    size: int
    error: int
    idle: int
    libraries: tuple[tuple[str, int], ...]
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    """A context that somebody measured.

    Attributes:
        device: the card it was measured on.
        cuda: major version of CUDA.
        lazy_loading: whether kernels were loaded when first used.
        mib: its size, MiB, with the libraries named in `includes`.
        plus_minus: how far the same card was seen to differ, MiB.
        source: who measured it and how.
        includes: libraries that had been used.
    """

    device: Device
    cuda: int
    lazy_loading: bool
    mib: int
    plus_minus: int
    source: str
    includes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Library:
    """What the first use of a library adds.

    Attributes:
        name: of the library.
        bytes_per_thread: bytes for each thread that the card keeps resident.
        plus_minus: the error of `bytes_per_thread`.
        source: where both come from.
    """

    name: str
    bytes_per_thread: int
    plus_minus: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    contexts: tuple[_Published, ...]
    libraries: tuple[_Library, ...]
    eager_plus_minus: int


@cache
def _table() -> _Table:
    data = tomllib.loads(_DATA.read_text(encoding="utf-8"))
    contexts = tuple(
        _Published(**{**row, "device": find_device(row["device"]), "includes": tuple(row.get("includes", ()))})
        for row in data["context"]
    )
    return _Table(contexts=contexts, libraries=tuple(_Library(**row) for row in data["library"]), **data["rule"])


def estimate_context(
    device: Device,
    cuda_version: str,
    *,
    lazy_loading: bool = True,
    libraries_used: Collection[str] = ("cublas",),
) -> ContextEstimate:
    """Estimate what a training process holds on `device` outside PyTorch's allocator.

    Args:
        device: the card.
        cuda_version: of the CUDA build of PyTorch, such as `13.0` (`torch.version.cuda`).
        lazy_loading: whether CUDA loads kernels when they are first used, as PyTorch asks it to; before CUDA 11.7 it
            never does.
        libraries_used: libraries the process calls: `cublas` (any matrix product), `cudnn` (convolutions, recurrent
            layers).

    Raises:
        PeakmemError: the CUDA version can't be read.
        ValueError: a library that the table does not know.
    """
    table = _table()
    version = _version(cuda_version)
    if not lazy_loading or version < LAZY_LOADING_SINCE:
        return _eager(table, device, version[0])
    libraries = [_library(table, name) for name in sorted(set(libraries_used))]
    lazy = [row for row in table.contexts if row.lazy_loading]
    own = next((row for row in lazy if row.device.name == device.name), None)
    own = own or next((row for row in lazy if _same_chip(row.device, device)), None)
    if own is not None:
        idle, error, source = _idle(table, own), own.plus_minus * MIB, own.source
    else:
        idle = round(_line(table, lazy)(_threads(device)))
        error = min(_largest_miss(table, lazy), idle)  # a small card's context is not less than nothing
        source = "a straight line over the resident threads through: " + "; ".join(row.source for row in lazy)
    added = tuple((library.name, library.bytes_per_thread * _threads(device)) for library in libraries)
    error += sum(library.plus_minus * _threads(device) for library in libraries)
    return ContextEstimate(
        size=idle + sum(size for _, size in added),
        error=error,
        idle=idle,
        libraries=added,
        sources=(source, *(f"{library.name}: {library.source}" for library in libraries)),
    )


def _eager(table: _Table, device: Device, cuda: int) -> ContextEstimate:
    """All kernels loaded at the start: code is most of it, and libraries add nothing when they are first used."""

    def distance(row: _Published) -> tuple[bool, int, int]:
        major, minor = device.compute_capability
        other_major, other_minor = row.device.compute_capability
        return row.device.name != device.name, abs(10 * (major - other_major) + minor - other_minor), -row.cuda

    nearest = min((row for row in table.contexts if not row.lazy_loading), key=distance)
    known = nearest.device.name == device.name and nearest.cuda == cuda
    size = nearest.mib * MIB
    error = (nearest.plus_minus if known else table.eager_plus_minus) * MIB
    return ContextEstimate(size=size, error=error, idle=size, libraries=(), sources=(nearest.source,))


def _same_chip(one: Device, other: Device) -> bool:
    """Whether two cards differ in memory or socket alone, as the A100 of 40 and of 80 GB do."""
    return (one.compute_capability, one.multiprocessors) == (other.compute_capability, other.multiprocessors)


def _threads(device: Device) -> int:
    """The most threads that the card keeps resident."""
    return device.multiprocessors * device.threads_per_multiprocessor


def _idle(table: _Table, row: _Published) -> int:
    """Bytes of a published context without the libraries that had been used."""
    libraries = sum(_library(table, name).bytes_per_thread for name in row.includes)
    return row.mib * MIB - libraries * _threads(row.device)


def _line(table: _Table, rows: Sequence[_Published]) -> Callable[[int], float]:
    """The straight line (least squares) through published contexts: bytes over resident threads."""
    slope, intercept = linear_regression([_threads(row.device) for row in rows], [_idle(table, row) for row in rows])
    return lambda threads: intercept + slope * threads


def _largest_miss(table: _Table, rows: Sequence[_Published]) -> int:
    """Bytes by which the line misses a card at most when it is drawn through the other cards alone."""
    misses = []
    for row in rows:
        others = [other for other in rows if other.device.name != row.device.name]
        misses.append(abs(_line(table, others)(_threads(row.device)) - _idle(table, row)))
    return round(max(misses))


def _library(table: _Table, name: str) -> _Library:
    for library in table.libraries:
        if library.name == name:
            return library
    known = ", ".join(library.name for library in table.libraries)
    raise ValueError(f"no figure for the library {name!r}; known are {known}")


def _version(text: str) -> tuple[int, int]:
    match = re.match(r"(\d+)(?:\.(\d+))?", text)
    if match is None:
        raise PeakmemError(f"{text!r} is not a CUDA version", hint="write it like 13.0")
    return int(match.group(1)), int(match.group(2) or 0)
