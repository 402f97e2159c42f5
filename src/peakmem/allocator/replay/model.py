"""What a replay gives."""

from __future__ import annotations

from dataclasses import dataclass

from peakmem.trace.tables import Array


@dataclass(frozen=True, kw_only=True, slots=True)
class RanOut:
    """Where a replay ran out of memory.

    Attributes:
        event: index in `Trace.events`; -1: what was there before the first event does not fit.
        requested: bytes of the request that failed.
        reserved: bytes that the allocator held then, after it had given back all it could.
        active: bytes in blocks that were in use then.
        step: number of the training step, -1 if unknown.
        module: path of the module, empty if unknown.
        op: the operation or backward node, empty if unknown.
        where: the line of code, such as `model.py:147 attention`; empty if unknown.
        text: the allocator's own message.
    """

    event: int
    requested: int
    reserved: int
    active: int
    step: int = -1
    module: str = ""
    op: str = ""
    where: str = ""
    text: str = ""


POINTS = 240
"""Points of the curve of a whole trace."""

STATIONARY = 1.1
"""How far the peaks of active memory in the first quarter and in the rest may differ for a trace to be repetitive."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Curve:
    """A replay over time, in `POINTS` equal stretches of the trace: the highest value of each stretch, bytes.

    The curve of a replay that ran out of memory ends there.

    Attributes:
        reserved: held from the driver.
        active: in blocks in use, or waiting for another stream.
    """

    reserved: Array
    active: Array

    @property
    def grew(self) -> int:
        """By how much reserved rose above its peak in the first quarter, beyond what active rose by, bytes.

        0 where the rest asks for clearly more than the first quarter, as in the trace of a single step: what is
        reserved for that says nothing about longer runs.
        """
        first = len(self.reserved) // 4
        if not first:
            return 0
        before, after = int(self.active[:first].max()), int(self.active[first:].max())
        if after > before * STATIONARY:
            return 0
        return max(int(self.reserved[first:].max() - self.reserved[:first].max()) - max(after - before, 0), 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    """One replay.

    Attributes:
        alloc_conf: the settings.
        torch: version of the PyTorch that replayed.
        capacity: bytes that the allocator could get; None: no limit.
        exact_start: whether the memory at the start was as recorded (see `machine.Start`).
        reserved: peak bytes reserved.
        active: peak bytes in blocks in use.
        stranded: bytes reserved and not active at the first moment at which reserved is highest.
        at: index in `Trace.events` of that moment.
        most_stranded: the most that was reserved and not active at any time.
        end_reserved: bytes reserved after the last event.
        segments: segments held at most at a time (0 for expandable ones, which PyTorch doesn't count).
        device_allocs: successful requests to the driver for memory, pages of expandable segments included.
        retries: requests that needed all of the cache to be given back first.
        ran_out: where it did not fit; None if it did.
        curve: over time.
        requests: rows replayed.
        seconds: processor time that the allocator took for them, the loop around it included.
    """

    alloc_conf: str
    torch: str
    capacity: int | None
    exact_start: bool
    reserved: int
    active: int
    stranded: int
    at: int
    most_stranded: int
    end_reserved: int
    segments: int
    device_allocs: int
    retries: int
    ran_out: RanOut | None
    curve: Curve
    requests: int
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    """The smallest capacity at which a trace ends without an out-of-memory error.

    Attributes:
        alloc_conf: the settings.
        size: bytes that the allocator must be able to get; the CUDA context comes on top. None: no capacity is enough.
        reserved: peak bytes reserved without a limit.
        active: peak bytes active without a limit; no capacity below this can work under these settings.
        runs: replays that it took.
        seconds: time that it took.
    """

    alloc_conf: str
    size: int | None
    reserved: int
    active: int
    runs: int
    seconds: float
