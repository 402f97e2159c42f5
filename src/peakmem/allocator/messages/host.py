"""Failures of host memory: PyTorch's CPU allocator, NumPy, data loader workers, and processes that were killed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from peakmem.allocator.messages.amounts import amount
from peakmem.allocator.messages.log import Log
from peakmem.allocator.messages.model import Explanation, Figures, Verdict
from peakmem.units import GIB, KIB, format_size

_NO = "No: PYTORCH_CUDA_ALLOC_CONF concerns GPU memory; this is memory of the host."
_CPU = re.compile(
    r"DefaultCPUAllocator:(?:can'tallocatememory|notenoughmemory):youtriedtoallocate(?P<bytes>-?\d+)bytes"
    r"|Torch:notenoughmemory:youtriedtoallocate(?P<gibibytes>\d+)GB"
    r"|unabletommap(?P<mmap>\d+)bytesfromfile<(?P<file>[^>]*)>:Cannotallocatememory"
    r"|alloc_cpu\(\)seemstohavebeencalledwithnegativenumber:(?P<negative>\d+)"
    r"|Unabletoallocate(?P<numpy>[\d.]+[KMGTP]iB)foranarraywithshape(?P<shape>\([\d,]*\))anddatatype(?P<type>\w+?\d+)"
)
_KERNEL = re.compile(
    r"(?:Outofmemory|Memorycgroupoutofmemory):Kill(?:ed)?process(?P<pid>\d+)\((?P<name>[^)]*)\).{0,30}?total-vm:(?P<vm>\d+)kB,"
    r"anon-rss:(?P<rss>\d+)kB(?:,file-rss:\d+kB)?(?:,shmem-rss:(?P<shmem>\d+)kB)?"
)
_KILLED = re.compile(
    r"DataLoaderworker\(pid(?P<worker>\d+)\)iskilledbysignal:Killed"
    r"|DataLoaderworker\(pid\(s\)(?P<workers>[\d,]+)\)exitedunexpectedly"
    r"|exitswithreturncode=-9|exitcode:-9(?!\d)|Signal9\(SIGKILL\)receivedbyPID(?P<pid>\d+)"
    r"|exit(?:ed)?(?:withcode|code|status|withstatus):?137(?!\d)|ray\.exceptions\.OutOfMemoryError"
    r"|slurmstepd:error:Detected(?P<events>\d+)oom[_-]?kill|task\d+:OutOfMemory|OOMKilled"
)
_SHM = re.compile(r"[Dd]ataloader'sworkersareoutofsharedmemory|Buserror\.Itispossiblethatdataloader")
_RESIDENT = re.compile(r"Maximumresidentsetsize\(kbytes\):(?P<size>\d+)")


def find(log: Log) -> Iterator[Explanation]:
    """All failures of host memory in a log."""
    for match in _CPU.finditer(log.squeezed):
        yield _refused(match, log)
    for match in _KERNEL.finditer(log.squeezed):
        yield _kernel(match, log)
    for match in _KILLED.finditer(log.squeezed):
        yield _killed(match, log)
    for match in _SHM.finditer(log.squeezed):
        yield _explanation(
            match,
            log,
            "PyTorch, DataLoader",
            Verdict.SHARED_MEMORY,
            "A data loader worker found no room in the shared memory of the host (/dev/shm), through which batches are "
            "handed over. In containers it has 64 MiB by default.",
            "Start the container with more (docker run --shm-size=8g, or --ipc=host; an emptyDir of medium Memory on "
            "/dev/shm in Kubernetes), or use fewer workers and a smaller prefetch_factor.",
        )
    for match in _RESIDENT.finditer(log.squeezed):
        size = int(match["size"]) * KIB
        yield _explanation(
            match,
            log,
            "/usr/bin/time -v",
            Verdict.HARMLESS,
            f"The process held at most {format_size(size)} of host memory (resident).",
            "Request a little more than that for the job; data loader workers come on top of it.",
            Figures(allocated=size),
        )


def _explanation(
    match: re.Match[str],
    log: Log,
    wording: str,
    verdict: Verdict,
    happened: str,
    first: str,
    figures: Figures | None = None,
) -> Explanation:
    return Explanation(
        wording=wording,
        verdict=verdict,
        happened=happened,
        option=_NO,
        first=first,
        figures=figures or Figures(),
        position=match.start(),
        rank=log.rank_at(match.start()),
    )


def _refused(match: re.Match[str], log: Log) -> Explanation:
    if match["negative"] or (match["bytes"] or "").startswith("-"):
        return _explanation(
            match,
            log,
            "PyTorch, CPU allocator",
            Verdict.OVERFLOW,
            "The size asked for overflowed: a negative number of bytes was computed.",
            "Look at the shapes in the line that fails: a product of dimensions beyond 2^63, or a wrong dimension.",
        )
    if match["numpy"]:
        size, what = amount(match["numpy"]).size, f"NumPy, array {match['shape']} of {match['type']}"
        wording = "NumPy"
    elif match["mmap"]:
        size, what = int(match["mmap"]), f"mapping {match['file']}"
        wording = "PyTorch, shared memory file"
    elif match["gibibytes"]:
        size, what = int(match["gibibytes"]) * GIB, "PyTorch's CPU allocator"
        wording = "PyTorch before 1.0, CPU allocator"
    else:
        size, what = int(match["bytes"]), "PyTorch's CPU allocator"
        wording = "PyTorch, CPU allocator"
    large = size >= GIB
    first = (
        "Keep this array out of memory: load it in parts or memory-map it (numpy.memmap, "
        "torch.load(mmap=True)), or use "
        "a smaller type (float32 for float64 halves it)."
        if large
        else "The request is small, so the host was full before it: look for what holds the memory (lists of losses "
        "that keep their graph, data sets of Python objects in each worker), use fewer workers, or request more memory."
    )
    return _explanation(
        match,
        log,
        wording,
        Verdict.HOST_SHORTAGE,
        f"The host refused {format_size(size)} ({what}): its memory, or the limit of the container or job, is used up.",
        first,
        Figures(requested=size),
    )


def _kernel(match: re.Match[str], log: Log) -> Explanation:
    resident = (int(match["rss"]) + int(match["shmem"] or 0)) * KIB
    before = log.squeezed[max(match.start() - 800, 0) : match.end()]
    group = "CONSTRAINT_MEMCG" in before or match[0].startswith("Memorycgroup")
    limit = "the memory limit of its container or job (cgroup) was reached" if group else "the whole machine ran out"
    first = (
        "Request more memory for the job or container, or make it hold less"
        if group
        else "Use a machine with more memory, end other programs, or make it hold less"
    )
    return _explanation(
        match,
        log,
        "Linux kernel log",
        Verdict.HOST_KILLED,
        f"The kernel killed {match['name']} (process {match['pid']}) holding {format_size(resident)} of host memory: "
        f"{limit}.",
        f"{first}: fewer data loader workers, arrays instead of Python objects in the data set, memory-mapped files.",
        Figures(allocated=resident),
    )


def _killed(match: re.Match[str], log: Log) -> Explanation:
    if match["worker"] or match["workers"]:
        which = match["worker"] or match["workers"]
        return _explanation(
            match,
            log,
            "PyTorch, DataLoader",
            Verdict.HOST_KILLED,
            f"Data loader worker {which} was killed, nearly always by the kernel for want of host memory.",
            "Use fewer workers. A data set of Python objects (lists, dicts, data frames of strings) "
            "is copied into each "
            "worker little by little: keep it in arrays or in one serialized buffer.",
        )
    return _explanation(
        match,
        log,
        "a launcher or the system",
        Verdict.HOST_KILLED,
        "A process was killed (signal 9), nearly always by the kernel or the scheduler for want of "
        "host memory; GPU memory "
        "that runs out raises an exception instead.",
        "Look at the kernel log (dmesg) for who was killed and under which limit, then request more "
        "memory, use fewer workers, or keep the data set in arrays or one serialized buffer instead of Python objects; "
        "load checkpoints on one rank at a time or with mmap=True.",
    )
