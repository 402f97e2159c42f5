"""JAX and XLA: RESOURCE_EXHAUSTED on GPUs and TPUs, with the statistics of buffer assignment where they follow."""

from __future__ import annotations

import re
from collections.abc import Iterator

from peakmem.allocator.messages.amounts import SIZE, amount
from peakmem.allocator.messages.log import Log
from peakmem.allocator.messages.model import Explanation, Figures, Verdict
from peakmem.units import format_size

_OUT = re.compile(
    rf"(?:RESOURCE_EXHAUSTED|[Rr]esourceexhausted):Outofmemorywhiletryingtoallocate(?:(?P<bytes>\d+)bytes|(?P<size>{SIZE}))"
    rf"|Outofmemorywhiletryingtoallocate(?P<plain>\d+)bytes"
    rf"|Failedtoallocaterequestfor(?P<asked>{SIZE})\((?P<exact>\d+)B\)ondeviceordinal(?P<device>\d+)"
)
_STATISTIC = re.compile(
    rf"(?P<name>parameterallocation|constantallocation|maybe_live_outallocation|preallocatedtempallocation"
    rf"|preallocatedtempfragmentation|totalallocation|totalfragmentation):(?P<size>{SIZE})"
)
_BUFFER = re.compile(
    rf"Buffer1:Size:(?P<size>{SIZE})(?:.{{0,20}}?Operator:op_name=\"(?P<op>[^\"]*)\"(?:source_file=\"(?P<file>[^\"]*)\")?"
    r"(?:source_line=(?P<line>\d+))?)?(?:.{0,400}?Shape:(?P<shape>\w+\[[\d,]*\]))?"
)
_TPU_SIZE = r"\d[\d.]*[KMGT](?:i?B)?"
"""A size as TPU messages print it: a letter follows at once where white space is gone."""
_TPU = (
    re.compile(
        rf"Ranoutofmemoryinmemoryspace(?P<space>hbm|vmem)\.Used(?P<used>{_TPU_SIZE})of(?P<capacity>{_TPU_SIZE})(?:hbm|vmem)?\."
        rf"(?:Exceeded(?:hbm|vmem)capacityby(?P<over>{_TPU_SIZE}))?"
    ),
    re.compile(
        rf"Hbmusage:(?P<used>{_TPU_SIZE}),SparseCoreHbmusage:?(?P<sparse>{_TPU_SIZE}),exceedingavailablebytes:(?P<capacity>{_TPU_SIZE})"
    ),
    re.compile(
        rf"memoryrequiredforHLOtemporaries\((?P<used>{_TPU_SIZE})\)exceedsavailableHBM\((?P<capacity>{_TPU_SIZE})\)"
    ),
    re.compile(rf"Attemptingtoallocate(?P<asked>{_TPU_SIZE})\..{{0,300}}?[Tt]hereare(?P<free>{_TPU_SIZE})free"),
    re.compile(r"Allocation\(size=(?P<bytes>\d+)\)wouldexceedmemory\(size=(?P<limit>\d+)\)"),
)
_ARGUMENTS = re.compile(rf"arguments(?P<size>{_TPU_SIZE})")
_PROGRAM = re.compile(rf"program(?P<size>{_TPU_SIZE})")

_GPU_OPTION = (
    "Rarely: XLA lays a compiled program's buffers out in one piece, so little is fragmented. "
    "XLA_PYTHON_CLIENT_MEM_FRACTION=.95 gives it more of the card than the 75 % it takes by default."
)


def find(log: Log) -> Iterator[Explanation]:
    """All messages of XLA in a log."""
    for match in _OUT.finditer(log.squeezed):
        yield _gpu(match, log)
    for pattern in _TPU:
        for match in pattern.finditer(log.squeezed):
            yield _tpu(match, log)


def _gpu(match: re.Match[str], log: Log) -> Explanation:
    exact = match["bytes"] or match["plain"] or match["exact"]
    requested = int(exact) if exact else amount(match["size"]).size
    statistics = {
        found["name"]: amount(found["size"]).size
        for found in _STATISTIC.finditer(log.squeezed, match.end(), match.end() + 4000)
    }
    buffer = _BUFFER.search(log.squeezed, match.end(), match.end() + 8000)
    total, wasted = statistics.get("totalallocation"), statistics.get("preallocatedtempfragmentation")
    happened = f"XLA asked for {format_size(requested)} in one piece and the card did not have it."
    option = _GPU_OPTION
    if total is not None:
        parts = (
            ("arguments", "parameterallocation"),
            ("temporaries", "preallocatedtempallocation"),
            ("outputs", "maybe_live_outallocation"),
            ("constants", "constantallocation"),
        )
        listed = ", ".join(f"{name} {format_size(statistics[key])}" for name, key in parts if statistics.get(key))
        happened += f" The program needs {format_size(total)}: {listed}."
        if wasted is not None:
            option = f"No: only {format_size(wasted)} of it is lost between buffers. {option.partition('. ')[2]}"
    first = (
        "Make the batch smaller, donate what is overwritten (donate_argnums), and rematerialise (jax.checkpoint). "
        "nvidia-smi tells nothing here, since JAX takes 75 % of the card at the start."
    )
    if buffer is not None:
        where = ""
        if buffer["file"]:
            where = f" ({buffer['file']}, line {buffer['line']})" if buffer["line"] else f" ({buffer['file']})"
        shape = f" {buffer['shape']}" if buffer["shape"] else ""
        operation = f" of {buffer['op']}" if buffer["op"] else ""
        first = (
            f"The largest buffer is {format_size(amount(buffer['size']).size)}{shape}{operation}{where}: start there. "
            + first
        )
    return Explanation(
        wording="JAX / XLA",
        verdict=Verdict.SHORTAGE,
        happened=happened,
        option=option,
        first=first,
        option_helps=False if total is not None else None,
        figures=Figures(
            requested=requested,
            allocated=total,
            stranded=wasted,
            device=int(match["device"]) if match["device"] else None,
        ),
        position=match.start(),
        rank=log.rank_at(match.start()),
    )


def _tpu(match: re.Match[str], log: Log) -> Explanation:
    groups = match.groupdict()

    def size(name: str) -> int | None:
        text = groups.get(name)
        return None if text is None else int(text) if text.isdigit() else amount(text).size

    used = size("used") if size("used") is not None else size("bytes")
    capacity = size("capacity") if size("capacity") is not None else size("limit")
    if groups.get("space") == "vmem":
        return Explanation(
            wording="XLA on TPU",
            verdict=Verdict.NOT_MEMORY,
            happened=f"A kernel wants {format_size(used or 0)} of the TPU's on-chip memory (vmem), which has "
            f"{format_size(capacity or 0)}. This is not HBM, and the batch size changes little.",
            option="No: no allocator has a say in it.",
            first="Use smaller block shapes in the Pallas kernel, or a newer compiler.",
            figures=Figures(requested=used, capacity=capacity),
            position=match.start(),
            rank=log.rank_at(match.start()),
        )
    free, asked = size("free"), size("asked")
    if used is not None and capacity is not None:
        over = size("over") or max(used + (size("sparse") or 0) - capacity, 0)
        happened = f"The program needs {format_size(used)} of HBM and the TPU has {format_size(capacity)}: "
        happened += f"{format_size(over)} too much. This is found at compile time."
    else:
        over = max((asked or 0) - (free or 0), 0)
        happened = f"{format_size(asked or 0)} was asked for with {format_size(free or 0)} free on the TPU."
    after = log.squeezed[match.end() : match.end() + 1500]
    program, arguments = _PROGRAM.search(after), _ARGUMENTS.search(after)
    if program is not None and arguments is not None:
        happened += (
            f" The program takes {format_size(amount(program['size']).size)}, its arguments "
            f"{format_size(amount(arguments['size']).size)}."
        )
    return Explanation(
        wording="XLA on TPU",
        verdict=Verdict.SHORTAGE,
        happened=happened,
        option=f"No: the compiler lays the memory out; {format_size(over)} has to go.",
        first="Shard over more chips, make the batch smaller, rematerialise (jax.checkpoint), or keep parameters in "
        "bfloat16; donate arguments that are overwritten.",
        figures=Figures(requested=asked or used, capacity=capacity, free=free, missing=over),
        position=match.start(),
        rank=log.rank_at(match.start()),
    )
