"""Tables of torch.cuda.memory_summary() and figures of torch.cuda.memory_stats()."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from peakmem.allocator.messages.amounts import amount
from peakmem.allocator.messages.log import Log
from peakmem.allocator.messages.model import Explanation, Figures, Verdict
from peakmem.units import format_size

_HEAD = re.compile(r"PyTorchCUDAmemorysummary,deviceID(?P<device>\d+)")
_COUNTS = re.compile(r"CUDAOOMs:(?P<ooms>\d+)\|+cudaMallocretries:(?P<retries>\d+)")
_CELL = r"(-?\d+)([KMGTP]?i?B)"
_ROW = re.compile(
    rf"\|(?P<name>Allocatedmemory|Activememory|Requestedmemory|GPUreservedmemory|Non-releasablememory)"
    rf"\|{_CELL}\|{_CELL}\|{_CELL}\|{_CELL}\|"
)
_STAT = re.compile(r"['\"]?(?P<name>[a-z_]+)\.all\.(?P<what>current|peak)['\"]?[:,=](?P<value>\d+)")
_COUNTER = re.compile(r"['\"]?(?P<name>num_ooms|num_alloc_retries)['\"]?[:,=](?P<value>\d+)")
NOTEWORTHY = 0.1
"""A share of the peak reserved above which what is stranded is worth an option."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Usage:
    """Bytes now and at the peak, with the coarseness of what is printed."""

    now: int
    peak: int
    error: int = 0


def find(log: Log) -> Iterator[Explanation]:
    """All tables of this kind in a log."""
    heads = list(_HEAD.finditer(log.squeezed))
    for index, head in enumerate(heads):
        end = heads[index + 1].start() if index + 1 < len(heads) else len(log.squeezed)
        rows = {match["name"]: _usage(match) for match in _ROW.finditer(log.squeezed, head.end(), end)}
        counts = _COUNTS.search(log.squeezed, head.end(), end)
        if "Allocatedmemory" in rows and "GPUreservedmemory" in rows:
            yield _explain(
                log,
                head.start(),
                "torch.cuda.memory_summary()",
                allocated=rows["Allocatedmemory"],
                active=rows.get("Activememory", rows["Allocatedmemory"]),
                reserved=rows["GPUreservedmemory"],
                stuck=rows.get("Non-releasablememory"),
                retries=int(counts["retries"]) if counts else 0,
                ooms=int(counts["ooms"]) if counts else 0,
                device=int(head["device"]),
            )
    values = {(match["name"], match["what"]): match for match in _STAT.finditer(log.squeezed)}
    if ("reserved_bytes", "peak") in values and ("active_bytes", "peak") in values:

        def usage(name: str) -> _Usage:
            peak = int(values[name, "peak"]["value"])
            now = values.get((name, "current"))
            return _Usage(now=int(now["value"]) if now else peak, peak=peak)

        counters = {match["name"]: int(match["value"]) for match in _COUNTER.finditer(log.squeezed)}
        allocated = "allocated_bytes" if ("allocated_bytes", "peak") in values else "active_bytes"
        yield _explain(
            log,
            values["reserved_bytes", "peak"].start(),
            "torch.cuda.memory_stats()",
            allocated=usage(allocated),
            active=usage("active_bytes"),
            reserved=usage("reserved_bytes"),
            stuck=usage("inactive_split_bytes") if ("inactive_split_bytes", "peak") in values else None,
            retries=counters.get("num_alloc_retries", 0),
            ooms=counters.get("num_ooms", 0),
            device=None,
        )


def _usage(match: re.Match[str]) -> _Usage:
    # The table prints whole numbers of a unit, scaled so that they stay below about 10 x 1024.
    cells = match.groups()[1:]
    now, peak = (amount(cells[index] + cells[index + 1]) for index in (0, 2))
    return _Usage(now=now.size, peak=peak.size, error=max(now.error, peak.error) * 2)


def _explain(
    log: Log,
    position: int,
    wording: str,
    *,
    allocated: _Usage,
    active: _Usage,
    reserved: _Usage,
    stuck: _Usage | None,
    retries: int,
    ooms: int,
    device: int | None,
) -> Explanation:
    stranded = reserved.peak - active.peak
    error = reserved.error + active.error
    figures = Figures(
        allocated=allocated.peak, reserved=reserved.peak, stranded=max(stranded, 0), device=device, precision=error
    )
    told = f"At the peak {format_size(active.peak)} was in use and {format_size(reserved.peak)} reserved"
    if retries or ooms:
        told += f"; {retries} time{'s' if retries != 1 else ''} the cache had to be given back, {ooms} out of memory"
    if stranded < -error or active.now > reserved.now + error:
        verdict, helps, conf = Verdict.INCONSISTENT, None, ""
        option = "Nothing can be concluded: more in use than reserved is impossible."
        first = "Take the table from the program itself, unedited."
    elif stranded > NOTEWORTHY * reserved.peak:
        verdict, helps, conf = Verdict.FRAGMENTATION, True, "expandable_segments:True"
        option = (
            f"Yes: {format_size(stranded)} ({stranded / reserved.peak:.0%} of what was reserved) was stranded. "
            "expandable_segments:True can give most of it back."
        )
        first = (
            "Start the run with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (PyTorch 2.1 or later, Linux): memory "
            "freed in one size then serves another. Allocating the largest tensors first has the same effect."
        )
    else:
        verdict, helps, conf = (Verdict.SHORTAGE if ooms or retries else Verdict.HARMLESS), False, ""
        option = f"No: only {format_size(max(stranded, 0))} was stranded; this is not fragmentation."
        first = (
            "Make the job smaller: a smaller batch first, then activation checkpointing, then 16-bit weights."
            if ooms or retries
            else "Nothing: it fits as it is."
        )
    notes: tuple[str, ...] = ()
    if stuck is not None and stuck.now:
        notes = (f"{format_size(stuck.now)} of it is in segments that are partly in use now and can't be given back.",)
    return Explanation(
        wording=wording,
        verdict=verdict,
        happened=f"{told}.",
        option=option,
        first=first,
        option_helps=helps,
        alloc_conf=conf,
        figures=figures,
        position=position,
        rank=log.rank_at(position),
        notes=notes,
    )
