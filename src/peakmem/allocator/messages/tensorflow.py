"""TensorFlow and Keras: ResourceExhaustedError, and the summary of the BFC allocator."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from peakmem.allocator.messages.amounts import SIZE, amount
from peakmem.allocator.messages.log import Log
from peakmem.allocator.messages.model import Explanation, Figures, Verdict
from peakmem.units import format_size

_TENSOR = re.compile(
    r"OOMwhenallocatingtensorwithshape\[(?P<shape>[\d,]*)\](?:andtype(?P<type>float\d*|half|bfloat16|double|u?int\d+|bool|complex\d+|qint8))?"
    r"(?:on(?P<device>/job\S{0,80}?device:\w+:\d+))?(?:byallocator(?P<allocator>\w+?(?:bfc|cpu|async)))?"
)
_RAN_OUT = re.compile(
    rf"Allocator\((?P<name>\w+)\)ranoutofmemorytryingtoallocate(?P<size>{SIZE})(?:\(roundedto(?P<rounded>\d+)\))?"
    r"(?P<harmless>withfreed_by_count=\d+)?"
)
_DEVICE = re.compile(rf"failedtoallocate(?P<size>{SIZE})\((?P<bytes>\d+)bytes\)fromdevice:CUDA_ERROR_OUT_OF_MEMORY")
_TENTH = re.compile(r"Allocationof(?P<bytes>\d+)exceeds10%of(?:free)?systemmemory")
_STATS = re.compile(
    r"Limit:(?P<limit>\d+)\D{0,200}?InUse:(?P<used>\d+)\D{0,200}?MaxInUse:(?P<most>\d+)"
    r"(?:\D{0,200}?NumAllocs:\d+\D{0,200}?MaxAllocSize:\d+)?"
)
_LARGEST = re.compile(r"LargestFreeBlock:(?P<size>\d+)")
_WIDTH = {
    "float": 4, "half": 2, "bfloat16": 2, "double": 8, "int32": 4, "int64": 8, "int16": 2, "int8": 1, "uint8": 1,
    "bool": 1, "complex64": 8, "complex128": 16, "qint8": 1, "float32": 4, "float16": 2, "float64": 8,
}  # fmt: skip
"""Bytes of an element, by TensorFlow's names."""

_FIRST = (
    "Make the batch smaller first (activations shrink with it). The shape is that of the operation's "
    "output, not of what "
    "fills the memory; if the first dimension is your whole data set, feed it in batches (tf.data on the CPU)."
)


def find(log: Log) -> Iterator[Explanation]:
    """All messages of TensorFlow in a log."""
    stats = _STATS.search(log.squeezed)
    for match in _TENSOR.finditer(log.squeezed):
        yield _tensor(match, log, stats)
    for match in _RAN_OUT.finditer(log.squeezed):
        yield _ran_out(match, log, stats)
    for match in _DEVICE.finditer(log.squeezed):
        size = int(match["bytes"])
        yield _explanation(
            match,
            log,
            Verdict.OUTSIDE_POOL,
            f"The driver refused TensorFlow {format_size(size)}: somebody else holds memory on the "
            "card (TensorFlow takes "
            "nearly all of it at once).",
            "Not against this: with TF_FORCE_GPU_ALLOW_GROWTH=true TensorFlow takes only what it needs.",
            "End the other process (nvidia-smi shows it), or set TF_FORCE_GPU_ALLOW_GROWTH=true in "
            "both before they start.",
            Figures(requested=size),
        )
    for match in _TENTH.finditer(log.squeezed):
        size = int(match["bytes"])
        yield _explanation(
            match,
            log,
            Verdict.HARMLESS,
            f"TensorFlow notes a large piece of host memory ({format_size(size)}). It is no error.",
            "Nothing needs help.",
            "Look further down for a real failure; if the host's memory is short, feed the data in parts (tf.data).",
            Figures(requested=size),
        )


def _tensor(match: re.Match[str], log: Log, stats: re.Match[str] | None) -> Explanation:
    shape = [int(part) for part in match["shape"].split(",") if part]
    kind = match["type"]
    width = _WIDTH.get(kind or "float", 4)
    size = math.prod(shape) * width
    assumed = "" if kind in _WIDTH else ", taken as 4 bytes an element"
    where = match["allocator"] or ""
    if "cpu" in where.lower() or "device:CPU" in (match["device"] or ""):
        return _explanation(
            match,
            log,
            Verdict.HOST_SHORTAGE,
            f"A tensor of {_shape(shape)} {kind or ''} ({format_size(size)}{assumed}) did not fit into host memory.",
            "No: this is memory of the host.",
            "Feed the data in parts (tf.data, a generator) instead of one array.",
            Figures(requested=size),
        )
    happened = f"A tensor of {_shape(shape)} {kind or ''} ({format_size(size)}{assumed}) did not fit on the GPU."
    return _with_stats(match, log, size, happened, stats)


def _shape(shape: list[int]) -> str:
    return "x".join(str(part) for part in shape) or "one element"


def _ran_out(match: re.Match[str], log: Log, stats: re.Match[str] | None) -> Explanation:
    size = int(match["rounded"]) if match["rounded"] else amount(match["size"]).size
    if match["harmless"]:
        return _explanation(
            match,
            log,
            Verdict.HARMLESS,
            f"TensorFlow would have used {format_size(size)} more for speed (a convolution workspace) "
            "and went on without.",
            "Nothing needs help: the message says itself that this is no failure.",
            "Nothing, unless it is slow; a smaller batch leaves more room.",
            Figures(requested=size),
        )
    name = match["name"]
    if "cpu" in name.lower():
        return _explanation(
            match,
            log,
            Verdict.HOST_SHORTAGE,
            f"{name} could not get {format_size(size)} of host memory.",
            "No: this is memory of the host.",
            "Feed the data in parts (tf.data, a generator) instead of one array.",
            Figures(requested=size),
        )
    return _with_stats(match, log, size, f"TensorFlow's allocator {name} found no {format_size(size)}.", stats)


def _with_stats(match: re.Match[str], log: Log, size: int, happened: str, stats: re.Match[str] | None) -> Explanation:
    if stats is None:
        return _explanation(
            match,
            log,
            Verdict.SHORTAGE,
            happened,
            "It can't be told without the allocator's statistics (Limit, InUse). "
            "TF_GPU_ALLOCATOR=cuda_malloc_async helps "
            "only against fragmentation.",
            _FIRST,
            Figures(requested=size),
            helps=None,
        )
    limit, used = int(stats["limit"]), int(stats["used"])
    largest = _LARGEST.search(log.squeezed)
    free = limit - used
    figures = Figures(
        requested=size, capacity=limit, allocated=used, free=free, missing=max(size - free, 0), stranded=max(free, 0)
    )
    room = f"{format_size(used)} of {format_size(limit)} is in use"
    if size > limit:
        return _explanation(
            match, log, Verdict.IMPOSSIBLE,
            f"{happened} It is larger than all that TensorFlow has ({format_size(limit)}).",
            "No: it could not be served from an empty pool either.", _FIRST, figures,
        )  # fmt: skip
    if used > limit:
        return _explanation(
            match, log, Verdict.INCONSISTENT, f"{happened} The statistics contradict themselves: {room}.",
            "Nothing can be concluded.", "Take the summary from the log itself, unedited.", figures, helps=None,
        )  # fmt: skip
    if free >= size and free >= limit // 20:
        piece = f", the largest piece has {format_size(int(largest['size']))}" if largest else ""
        return _explanation(
            match,
            log,
            Verdict.FRAGMENTATION,
            f"{happened} {room}, so {format_size(free)} is free, but in pieces{piece}.",
            "Yes: TF_GPU_ALLOCATOR=cuda_malloc_async gives the memory in pages that can be put together.",
            "Set TF_GPU_ALLOCATOR=cuda_malloc_async in the environment before Python starts; then a smaller batch.",
            figures,
            helps=True,
        )
    missing = (
        f"{format_size(size - free)} is missing" if size > free else f"it would just fit ({format_size(free)} free)"
    )
    return _explanation(
        match,
        log,
        Verdict.SHORTAGE,
        f"{happened} {room}.",
        f"No: this is not fragmentation; {missing}.",
        _FIRST,
        figures,
    )


def _explanation(
    match: re.Match[str],
    log: Log,
    verdict: Verdict,
    happened: str,
    option: str,
    first: str,
    figures: Figures,
    *,
    helps: bool | None = False,
) -> Explanation:
    return Explanation(
        wording="TensorFlow",
        verdict=verdict,
        happened=happened,
        option=option,
        first=first,
        option_helps=helps,
        figures=figures,
        position=match.start(),
        rank=log.rank_at(match.start()),
    )
