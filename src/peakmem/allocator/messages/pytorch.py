"""PyTorch's own out-of-memory message, in the wordings of all its ages (1.0 to 2.14), for CUDA, ROCm and XPU.

Sources: PyTorch 1.13.0, 2.0.0, 2.1.0, 2.4.0, 2.6.0, 2.9.1 and 2.14.1, texts of c10/cuda/CUDACachingAllocator.cpp; older
ones as seen in public logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from peakmem.allocator.messages.amounts import SIZE, Amount, amount
from peakmem.allocator.messages.log import Log
from peakmem.allocator.messages.model import Process
from peakmem.units import TIB

OVERFLOWED = TIB
"""No device has so much memory: a size above it is an unsigned number that wrapped around."""

_START = re.compile(rf"(?P<backend>CUDA|HIP|XPU)outofmemory\.(?:Triedtoallocate(?P<size>{SIZE}))?")
_OLD = re.compile(
    rf"^\(GPU(?P<device>\d+);(?:(?P<capacity>{SIZE})totalcapacity)?(?:;(?P<allocated>{SIZE})alreadyallocated)?"
    rf"(?:;(?P<free>{SIZE})free)?(?:;(?P<allowed>{SIZE})allowed)?(?:;(?P<reserved>{SIZE})(?P<word>cached|reserved))?"
)
_NEW = re.compile(rf"^\.GPU(?P<device>\d+)hasatotalcapaci?tyof(?P<capacity>{SIZE})ofwhich(?P<free>{SIZE})isfree\.?")
_PROCESS = re.compile(rf"Process(?P<pid>\d+)has(?P<used>{SIZE})memoryinuse")
_THIS = re.compile(rf"[Ii]ncludingnon-PyTorchmemory,thisprocesshas(?P<used>{SIZE})memoryinuse")
_ALLOWED = re.compile(rf"(?P<allowed>{SIZE})allowed;")
_ALLOCATED = re.compile(rf"Oftheallocatedmemory(?P<allocated>{SIZE})isallocatedbyPyTorch")
_PRIVATE = re.compile(rf"with(?P<size>{SIZE})allocatedinprivatepools")
_STRANDED = re.compile(rf"and(?P<size>{SIZE})isreservedbyPyTorchbutunallocated")
_REACH = 1500
"""A message is shorter than this, in characters without white space."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PyTorchMessage:
    """A message as it stands; amounts with their rounding, None where it doesn't say.

    Attributes:
        position: where it begins in the squeezed log.
        backend: CUDA, HIP or XPU.
        era: the PyTorch versions that use this wording.
        newest: the newest minor release of that era, to judge which options exist; None for "current".
        complete: whether the message goes to its last figure.
        hint: whether it recommends expandable_segments or max_split_size_mb.
        unknown: figures that are there but meaningless (overflowed).
    """

    position: int
    backend: str
    era: str
    newest: str | None
    complete: bool
    hint: bool
    requested: Amount | None
    capacity: Amount | None = None
    free: Amount | None = None
    allocated: Amount | None = None
    reserved: Amount | None = None
    stranded: Amount | None = None
    private_pools: Amount | None = None
    allowed: Amount | None = None
    this_process: Amount | None = None
    processes: tuple[Process, ...] = ()
    device: int | None = None
    more_than_an_exbibyte: bool = False
    preemptive: bool = False
    unknown: tuple[str, ...] = ()


def find(log: Log) -> Iterator[PyTorchMessage]:
    """All such messages of a log."""
    starts = list(_START.finditer(log.squeezed))
    for index, start in enumerate(starts):
        limit = starts[index + 1].start() if index + 1 < len(starts) else len(log.squeezed)
        rest = log.squeezed[start.end() : min(start.end() + _REACH, limit)]
        message = _read(start, rest)
        if message is not None:
            yield message


def _read(start: re.Match[str], rest: str) -> PyTorchMessage | None:
    requested = amount(start["size"]) if start["size"] else None
    old, new = _OLD.match(rest), _NEW.match(rest)
    if requested is None:
        return _without_size(start, rest)
    if old is not None:
        return _old(start, rest, old, requested)
    if new is not None:
        return _new(start, rest, new, requested)
    return PyTorchMessage(
        position=start.start(),
        backend=start["backend"],
        era="cut after the size",
        newest=None,
        complete=False,
        hint=False,
        requested=requested,
    )


def _without_size(start: re.Match[str], rest: str) -> PyTorchMessage | None:
    common = {"position": start.start(), "backend": start["backend"], "newest": None, "complete": True, "hint": False}
    if rest.startswith("Triedtoallocatemorethan1EBmemory"):
        return PyTorchMessage(era="1.6 and later", requested=None, more_than_an_exbibyte=True, **common)  # type: ignore[arg-type]
    preemptive = re.match(r"Allocationwaspreemptivelyrejected.*?Requestedsize:(\d[\d.]*(?:[KMGT]iB)?)", rest)
    if preemptive is not None:
        text = preemptive[1]
        size = amount(text if text[-1].isalpha() else f"{text}bytes")
        return PyTorchMessage(era="2.12 and later", requested=size, preemptive=True, **common)  # type: ignore[arg-type]
    return None


def _old(start: re.Match[str], rest: str, match: re.Match[str], requested: Amount) -> PyTorchMessage:
    allocated = _amount(match["allocated"])
    reserved = _amount(match["reserved"])
    hint = "trysettingmax_split_size_mb" in rest
    if match["word"] == "cached":
        era, newest = "1.0 to 1.3", "1.10"
        # `cached` there is what the allocator holds and does not use.
        stranded = reserved
        reserved = (
            Amount(allocated.size + stranded.size, allocated.error + stranded.error) if allocated and stranded else None
        )
    else:
        era, newest = ("1.10 to 2.0", "2.0") if hint else ("1.4 to 1.9", "1.10")
        stranded = (
            Amount(reserved.size - allocated.size, reserved.error + allocated.error) if allocated and reserved else None
        )
    return PyTorchMessage(
        position=start.start(),
        backend=start["backend"],
        era=era,
        newest=newest,
        complete=reserved is not None,
        hint=hint,
        requested=requested,
        capacity=_amount(match["capacity"]),
        free=_amount(match["free"]),
        allocated=allocated,
        reserved=reserved,
        stranded=stranded,
        allowed=_amount(match["allowed"]),
        device=int(match["device"]),
    )


def _new(start: re.Match[str], rest: str, match: re.Match[str], requested: Amount) -> PyTorchMessage:
    unknown: list[str] = []

    def known(name: str, found: re.Match[str] | None, group: str) -> Amount | None:
        value = amount(found[group]) if found is not None else None
        if value is not None and value.size > OVERFLOWED:
            unknown.append(name)
            return None
        return value

    allocated = known("allocated", _ALLOCATED.search(rest), "allocated")
    stranded = known("unallocated", _STRANDED.search(rest), "size")
    reserved = (
        Amount(allocated.size + stranded.size, allocated.error + stranded.error) if allocated and stranded else None
    )
    processes = []
    for process in _PROCESS.finditer(rest):
        used = amount(process["used"])
        if used.size > OVERFLOWED:
            unknown.append(f"process {process['pid']}")
        else:
            processes.append(Process(pid=int(process["pid"]), used=used.size))
    hint = "trysetting" in rest
    if "capacty" in match[0] or "trysettingmax_split_size_mb" in rest:
        era, newest = "2.1", "2.1"
    elif "docs.pytorch.org" in rest:
        era, newest = "2.10 and later", None
    elif "notes/cuda.html#environment-variables" in rest:
        era, newest = "2.2 to 2.9", "2.9"
    else:
        era, newest = "2.2 and later", None
    return PyTorchMessage(
        position=start.start(),
        backend=start["backend"],
        era=era,
        newest=newest,
        complete=reserved is not None,
        hint=hint,
        requested=requested,
        capacity=_amount(match["capacity"]),
        free=_amount(match["free"]),
        allocated=allocated,
        reserved=reserved,
        stranded=stranded,
        private_pools=known("private pools", _PRIVATE.search(rest), "size"),
        allowed=_amount(_group(_ALLOWED.search(rest), "allowed")),
        this_process=known("this process", _THIS.search(rest), "used"),
        processes=tuple(processes),
        device=int(match["device"]),
        unknown=tuple(unknown),
    )


def _group(match: re.Match[str] | None, name: str) -> str | None:
    return match[name] if match is not None else None


def _amount(text: str | None) -> Amount | None:
    return amount(text) if text is not None else None
