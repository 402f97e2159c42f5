"""Failures below PyTorch's allocator: the CUDA runtime, libraries, NCCL, Intel's runtime, Apple's allocator, Triton.

They name no sizes, or one that says little. Wordings as seen in public logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from peakmem.allocator.messages.amounts import SIZE, amount
from peakmem.allocator.messages.log import Log
from peakmem.allocator.messages.model import Explanation, Figures, Verdict
from peakmem.units import format_size

_NO_OPTION = (
    "Hardly: this memory is not the caching allocator's. Only making PyTorch hold less helps, such as "
    "torch.cuda.set_per_process_memory_fraction(0.9), which leaves room beside it."
)
_FIRST = (
    "See with nvidia-smi who fills the card. If it is this process, make the job smaller by about 1 "
    "GiB (a smaller batch "
    "first); if another, end or move that one."
)


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    wording: str
    verdict: Verdict
    happened: str
    option: str = _NO_OPTION
    first: str = _FIRST


def _rule(pattern: str, *rest: object) -> _Rule:
    return _Rule(re.compile(pattern), *rest)  # type: ignore[arg-type]


_RULES = (
    _rule(
        r"cudaruntimeerror\(2\):outofmemory|error=2:outofmemory",
        "PyTorch before 1.0",
        Verdict.INCOMPLETE,
        "The card was full. PyTorch before 1.0 does not say how much was asked for or held.",
        "It can't be told; versions that old have no allocator options.",
        "Use nvidia-smi to see what is held; a smaller batch is the first thing to try, a newer PyTorch the second: it "
        "says how much was asked for.",
    ),
    _rule(
        r"(?:CUDA|HIP)error:outofmemory",
        "PyTorch, CUDA runtime",
        Verdict.OUTSIDE_POOL,
        "The driver refused memory outside PyTorch's pool: the CUDA context, a kernel being loaded, "
        "a library's handle, "
        "or pinned host memory. The call that is named may be a later one.",
        _NO_OPTION,
        "See with nvidia-smi who fills the card: this comes mostly at start-up on a card that others "
        "use, or when PyTorch "
        "already holds nearly all of it. If the card is empty, it is host memory: pin less (pin_memory, num_workers).",
    ),
    _rule(
        r"CUBLAS_STATUS_ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED",
        "cuBLAS",
        Verdict.OUTSIDE_POOL,
        "cuBLAS could not get its handle or workspace: the card is full, outside PyTorch's pool.",
    ),
    _rule(
        r"CUDNN_STATUS_ALLOC_FAILED|CUDNN_STATUS_NOT_INITIALIZED|CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
        "cuDNN",
        Verdict.OUTSIDE_POOL,
        "cuDNN could not get memory for its handle or workspace: nearly always the card is full.",
    ),
    _rule(
        r"UnabletofindavalidcuDNNalgorithmtorunconvolution",
        "cuDNN",
        Verdict.OUTSIDE_POOL,
        "No convolution plan of cuDNN could run, mostly since no workspace fits into what is left on the card.",
        "Hardly: the workspace comes from the allocator, but what is missing is room on the card.",
        "Make the batch or the image smaller once; if it then runs, it was memory. If not, set "
        "torch.backends.cudnn.benchmark=False and check the shapes and data types.",
    ),
    _rule(
        r"FailedtoCUDA(?:HOST)?[cm]allocasync\d+bytes|FailedtoCUDAcalloc\d*|Cudafailure(?:2)?'outofmemory'"
        r"|NCCLerrorin.{0,200}?unhandledcudaerror.{0,600}?outofmemory",
        "NCCL",
        Verdict.OUTSIDE_POOL,
        "NCCL could not get a few bytes for a communicator: the card is full to the brim, mostly "
        "with PyTorch's own pool, "
        "since NCCL's memory (0.3 to 4 GiB) comes on top of it.",
        "Only by making PyTorch hold less: torch.cuda.set_per_process_memory_fraction(0.9) leaves NCCL its room.",
        "Run one collective before the model is built, so that NCCL takes its memory first; else "
        "make the job about 1 GiB "
        "smaller on each card, or use fewer communicators and channels (NCCL_MAX_NCHANNELS, NCCL_BUFFSIZE).",
    ),
    _rule(
        r"UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY|PI_ERROR_OUT_OF_RESOURCES",
        "Intel runtime",
        Verdict.OUTSIDE_POOL,
        "Intel's runtime refused device memory below PyTorch's allocator.",
        "No: it is not the caching allocator's memory.",
        "Make the job smaller, and see with xpu-smi who fills the card.",
    ),
    _rule(
        r"[Oo]utofresource:sharedmemory,Required:(?P<required>\d+),Hardwarelimit:(?P<limit>\d+)",
        "Triton",
        Verdict.NOT_MEMORY,
        "A Triton kernel wants {required} of a multiprocessor's on-chip shared memory; the card has "
        "{limit}. This is not "
        "device memory, and no batch size changes it.",
        "No: the allocator has nothing to do with it.",
        "Use smaller block sizes or fewer pipeline stages (num_stages) for this kernel, or a library "
        "version that knows "
        "this card.",
    ),
)

_MPS = re.compile(
    rf"MPSbackendoutofmemory\(MPSallocated:(?P<allocated>{SIZE})(?:,otherallocations:(?P<other>{SIZE}))?"
    rf",maxallowed:(?P<allowed>{SIZE})\)\.(?:Triedtoallocate(?P<size>{SIZE})on(?P<pool>private|shared)pool)?"
)
_ASYNC = re.compile(
    rf"wouldexceedallowedmemory\.\(outofmemory\)"
    rf"(?:.{{0,20}}?Currentlyallocated:(?P<allocated>{SIZE}))?(?:.{{0,20}}?Requested:(?P<size>{SIZE}))?"
    rf"(?:.{{0,20}}?Devicelimit:(?P<capacity>{SIZE}))?(?:.{{0,20}}?Free\(accordingtoCUDA\):(?P<free>{SIZE}))?"
    rf"(?:.{{0,20}}?PyTorchlimit\(setbyuser-suppliedmemoryfraction\):(?P<allowed>{SIZE}))?"
)


def find(log: Log) -> Iterator[Explanation]:
    """All failures of this kind in a log."""
    for rule in _RULES:
        for match in rule.pattern.finditer(log.squeezed):
            groups = {name: format_size(int(text), digits=1) for name, text in match.groupdict().items() if text}
            yield Explanation(
                wording=rule.wording,
                verdict=rule.verdict,
                happened=rule.happened.format(**groups) if groups else rule.happened,
                option=rule.option,
                first=rule.first,
                option_helps=None if rule.verdict is Verdict.INCOMPLETE else False,
                position=match.start(),
                rank=log.rank_at(match.start()),
            )
    for match in _MPS.finditer(log.squeezed):
        yield _mps(match, log)
    for match in _ASYNC.finditer(log.squeezed):
        yield _malloc_async(match, log)


def _mps(match: re.Match[str], log: Log) -> Explanation:
    allocated, allowed = amount(match["allocated"]).size, amount(match["allowed"]).size
    other = amount(match["other"]).size if match["other"] else None
    requested = amount(match["size"]).size if match["size"] else None
    held = allocated + (other or 0)
    missing = max(held + (requested or 0) - allowed, 0)
    impossible = requested is not None and requested > allowed
    beside = f" and {format_size(other)} is used beside it" if other else ""
    asked = f"{format_size(requested)} more was asked for; " if requested is not None else ""
    consistent = missing > 0 or requested is None
    verdict = Verdict.IMPOSSIBLE if impossible else Verdict.CAP if consistent else Verdict.RACE
    return Explanation(
        wording="PyTorch, MPS (Apple)",
        verdict=verdict,
        happened=f"{asked}PyTorch holds {format_size(allocated)}{beside}, of {format_size(allowed)} that it may take "
        "(a share of the machine's memory).",
        option="No: PyTorch's allocator options do not exist for MPS. "
        + (f"{format_size(missing)} is missing." if missing else "What is printed would have fitted."),
        first="Make the job smaller (a smaller batch first) and close other programs. "
        "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 only lifts the limit: the machine then swaps, and may freeze.",
        figures=Figures(requested=requested, allocated=allocated, allowed=allowed, outside=other, missing=missing),
        position=match.start(),
        rank=log.rank_at(match.start()),
    )


def _malloc_async(match: re.Match[str], log: Log) -> Explanation:
    sizes = {name: amount(text).size for name, text in match.groupdict().items() if text}
    requested, allocated, capacity = sizes.get("size"), sizes.get("allocated"), sizes.get("capacity")
    told = [f"{format_size(requested)} more was asked for" if requested is not None else "A request was refused"]
    if allocated is not None:
        told.append(f"{format_size(allocated)} is allocated")
    if capacity is not None:
        told.append(f"the card has {format_size(capacity)}")
    if "free" in sizes:
        told.append(f"{format_size(sizes['free'])} free")
    limit = sizes.get("allowed")
    capped = limit is not None and capacity is not None and limit < capacity
    impossible = requested is not None and capacity is not None and requested > capacity
    missing = requested + allocated - min(limit or capacity, capacity) if requested and allocated and capacity else None
    fits = missing is not None and missing <= 0
    return Explanation(
        wording="PyTorch, backend cudaMallocAsync",
        verdict=Verdict.IMPOSSIBLE
        if impossible
        else Verdict.CAP
        if capped
        else Verdict.OUTSIDE_POOL
        if fits
        else Verdict.SHORTAGE,
        happened=f"The driver's pool (backend:cudaMallocAsync) could not serve it: {', '.join(told)}.",
        option="No: the native allocator's options do nothing with this backend."
        + (f" {format_size(missing)} is missing." if missing is not None and missing > 0 else ""),
        first=(
            "Raise the memory fraction that the program sets, or make the job smaller."
            if capped
            else "Something beside the tensors fills the card: see nvidia-smi; or try the native backend with "
            "expandable_segments:True, which says more when it fails."
            if fits
            else "Make the job smaller: a smaller batch first, then activation checkpointing."
        ),
        figures=Figures(
            requested=requested,
            allocated=allocated,
            capacity=capacity,
            free=sizes.get("free"),
            allowed=limit,
            missing=None if missing is None else max(missing, 0),
        ),
        position=match.start(),
        rank=log.rank_at(match.start()),
    )
