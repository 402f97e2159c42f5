"""The `Measurement`: what a command really took, read by the tape while it ran. Sizes are bytes, times seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from peakmem.host.limits import Limit

SCHEMA = "peakmem/measurement/1"

Ending = Literal["ended", "failed", "killed", "out_of_memory", "interrupted"]


@dataclass(frozen=True, kw_only=True, slots=True)
class HostPeak:
    """The highest host memory of the process tree. Each is the highest of its own kind, at its own moment.

    Attributes:
        process: of the largest single process, as the kernel keeps it: exact, however short it was.
        rss: sum of the resident memory of all processes; shared pages count in each.
        pss: the same, with shared pages divided among those that share them: what the tree takes of the machine.
        uss: sum of what each process has for itself.
        shm: growth of what lies in /dev/shm (of all processes of the machine).
        swap: moved out to swap, sum over the processes.
    """

    process: int
    rss: int
    pss: int
    uss: int
    shm: int
    swap: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessPeak:
    """The highest values of one process; those of pages are 0 where it ended before it was looked at.

    Attributes:
        pid: its number.
        parent: number of its parent when it was first seen.
        command: the words it was started with; a forked process has those of its parent.
        rss: highest resident memory (VmHWM).
        pss, uss: highest of what was sampled.
        anonymous, file, shared: of resident memory when it was highest: no file's, files', shared memory's.
        growth: by how much `anonymous` grew since it was first seen: a forked process begins with its parent's.
        first, last: when it was first and last seen, seconds from the start.
    """

    pid: int
    parent: int
    command: tuple[str, ...]
    rss: int
    pss: int
    uss: int
    anonymous: int
    file: int
    shared: int
    growth: int
    first: float
    last: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Points:
    """Memory over time, thinned out; the highest points are kept. Columns: one entry for each point.

    Attributes:
        seconds: from the start of the command.
        rss: sum over the tree.
        pss: sum over the tree when it was last looked at (more rarely than `rss`).
        shm: growth of what lies in /dev/shm.
        processes: how many lived.
        gpu: memory of all GPUs that the tree used (NVML); empty without a GPU.
    """

    seconds: tuple[float, ...] = ()
    rss: tuple[int, ...] = ()
    pss: tuple[int, ...] = ()
    shm: tuple[int, ...] = ()
    processes: tuple[int, ...] = ()
    gpu: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupUse:
    """What the control group of the command was charged, page cache and kernel memory included.

    Attributes:
        path: folder of the innermost group.
        highest: highest sampled charge.
        before: charge when the command began.
        peak: the kernel's own peak, if it was reached during the command; None if an earlier one was higher.
        kills: processes that the kernel killed in it meanwhile; None if that is not counted.
    """

    path: str
    highest: int
    before: int
    peak: int | None
    kills: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitUse:
    """A limit beside what counts against it.

    Attributes:
        limit: the limit.
        used: the highest of what counts against it; None where that was not measured.
    """

    limit: Limit
    used: int | None

    @property
    def share(self) -> float:
        """`used` as a share of the limit; 0 where it was not measured."""
        return (self.used or 0) / self.limit.bytes if self.limit.bytes else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuUse:
    """What the tree took of one GPU.

    Attributes:
        index: its number.
        name: of the card.
        total: its memory.
        used: highest sum over the tree's processes, or growth of the card's whole use where processes aren't told.
        whole_card: whether `used` is the growth of the whole card (in containers NVML tells no process numbers).
    """

    index: int
    name: str
    total: int
    used: int
    whole_card: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchPeak:
    """PyTorch's own counters of one process and device, over its whole life."""

    pid: int
    device: int
    name: str
    requested: int
    allocated: int
    active: int
    reserved: int
    pinned: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What measuring cost.

    Attributes:
        samples: how often the tree was looked at.
        page_samples: how often the pages of all its processes were counted (PSS, USS).
        cpu_seconds: processor time of the measuring thread.
        share: `cpu_seconds` by the command's wall time.
    """

    samples: int
    page_samples: int
    cpu_seconds: float
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """What a command really took.

    Attributes:
        schema: of the JSON form.
        peakmem: version.
        command: as it was started.
        started: date and time, ISO 8601, UTC.
        seconds: wall time.
        exit_code: of the command; negative: the signal that ended it.
        ending: how it ended.
        peak: highest host memory.
        processes: one by one, those that took most first.
        points: over time.
        group: of its control group; None where there is none.
        limits: those that held for it, the one that is used most first.
        gpus: by NVML; empty without a GPU.
        torch: by PyTorch itself; empty if no process used CUDA, or none came to its end.
        cost: of measuring.
        notes: what else was seen, in words.
    """

    schema: str = SCHEMA
    peakmem: str
    command: tuple[str, ...]
    started: str
    seconds: float
    exit_code: int
    ending: Ending
    peak: HostPeak
    processes: tuple[ProcessPeak, ...]
    points: Points
    group: GroupUse | None
    limits: tuple[LimitUse, ...]
    gpus: tuple[GpuUse, ...] = ()
    torch: tuple[TorchPeak, ...] = ()
    cost: Cost
    notes: tuple[str, ...] = ()
