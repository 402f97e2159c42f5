"""What an out-of-memory message says, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Verdict(Enum):
    """What went wrong."""

    FRAGMENTATION = "fragmentation"
    SHORTAGE = "shortage"
    OTHER_PROCESS = "another process"
    CAP = "memory limit"
    IMPOSSIBLE = "impossible request"
    OVERFLOW = "overflowed size"
    SPILL = "spill to shared memory"
    RACE = "free memory refused"
    OUTSIDE_POOL = "outside the allocator"
    INCONSISTENT = "inconsistent message"
    INCOMPLETE = "incomplete message"
    SETTINGS = "allocator settings"
    HOST_SHORTAGE = "host memory"
    HOST_KILLED = "killed by the system"
    SHARED_MEMORY = "shared memory of the host"
    NOT_MEMORY = "not device memory"
    HARMLESS = "no error"


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """Memory that a process holds on the device: its id (None for "this process") and bytes."""

    pid: int | None
    used: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """The figures of a message, in bytes as far as printed (two decimals of a unit); None where it doesn't say.

    Attributes:
        requested: what was asked for. In PyTorch's own message the size of the segment, not of the tensor.
        capacity: the device's memory.
        free: what the driver had left.
        allocated: in blocks handed out.
        reserved: held by the allocator.
        stranded: reserved but unallocated.
        private_pools: part of allocated that is in private pools (CUDA graphs).
        allowed: the limit set on this process.
        this_process: what the driver says that this process holds.
        other_processes: what others hold.
        outside: capacity - free - reserved - other processes: context, libraries, and what is not named.
        missing: what would have to go before the request fits, with perfect packing; 0 if it would fit.
        device: index of the device after CUDA_VISIBLE_DEVICES.
        precision: how far off `missing` may be, from the rounding of what is printed.
    """

    requested: int | None = None
    capacity: int | None = None
    free: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    stranded: int | None = None
    private_pools: int | None = None
    allowed: int | None = None
    this_process: int | None = None
    other_processes: tuple[Process, ...] = ()
    outside: int | None = None
    missing: int | None = None
    device: int | None = None
    precision: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """The three lines of an answer, and what they rest on.

    Attributes:
        wording: which program wrote the message, and about which versions.
        verdict: what went wrong.
        happened: what happened, with figures.
        option: whether an allocator option can help at all, with figures.
        first: what to try first, and why.
        option_helps: True, False, or None where the message doesn't tell.
        alloc_conf: the settings string to try; empty if none helps.
        figures: what the message says.
        position: where in the log (characters without white space), to sort by.
        rank: the rank that printed it, where the line says so.
        notes: further remarks (inconsistencies, unknown figures).
    """

    wording: str
    verdict: Verdict
    happened: str
    option: str
    first: str
    option_helps: bool | None = False
    alloc_conf: str = ""
    figures: Figures = field(default_factory=Figures)
    position: int = 0
    rank: int | None = None
    notes: tuple[str, ...] = ()
