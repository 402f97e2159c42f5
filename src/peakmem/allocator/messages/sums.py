"""The figures of PyTorch's message, put in relation, and what in them contradicts itself."""

from __future__ import annotations

from dataclasses import dataclass

from peakmem.allocator.messages.amounts import Amount
from peakmem.allocator.messages.model import Process
from peakmem.allocator.messages.pytorch import PyTorchMessage
from peakmem.units import GIB, MIB, format_size

ORDINARY_OUTSIDE = GIB + GIB // 2
"""What a context, kernels, library handles and the driver take at most on common cards; above it somebody else is
likely (see the published figures in docs: 0.3 to 1.0 GiB with lazy loading, up to 1.6 GiB without)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sums:
    """The figures of a message, put in relation (bytes).

    Attributes:
        room: what the request could have had with perfect packing: free + stranded, or the limit's rest.
        margin: room - requested; negative if it is too little.
        error: how far off margin may be, from rounding.
    """

    message: PyTorchMessage
    requested: int
    capacity: int
    free: int
    allocated: int
    stranded: int
    reserved: int
    others: tuple[Process, ...]
    this_process: int | None
    outside: int
    limited: bool
    room: int
    margin: int
    error: int


def sums_of(message: PyTorchMessage) -> Sums:
    """Put the figures of a message in relation."""
    requested, capacity, free = size_of(message.requested), size_of(message.capacity), size_of(message.free)
    allocated, stranded, reserved = size_of(message.allocated), size_of(message.stranded), size_of(message.reserved)
    this, others = _processes(message)
    error = error_of(message.requested, message.free, message.stranded)
    room = free + stranded
    # The limit is tested against everything the allocator holds, with the size of the segment.
    limited = message.allowed is not None and reserved + requested > message.allowed.size - error_of(message.allowed)
    if limited and message.allowed is not None:
        room = message.allowed.size - allocated
        error = error_of(message.requested, message.allocated, message.allowed)
    others_sum = sum(process.used for process in others)
    return Sums(
        message=message,
        requested=requested,
        capacity=capacity,
        free=free,
        allocated=allocated,
        stranded=stranded,
        reserved=reserved,
        others=others,
        this_process=this,
        outside=max(capacity - free - reserved - others_sum, 0),
        limited=limited,
        room=room,
        margin=room - requested,
        error=error,
    )


def size_of(amount: Amount | None) -> int:
    """An amount, bytes; 0 where the message does not tell it."""
    return amount.size if amount is not None else 0


def error_of(*amounts: Amount | None) -> int:
    """How far off the sum of some amounts may be, bytes, since they are printed rounded."""
    return sum(amount.error for amount in amounts if amount is not None)


def _processes(message: PyTorchMessage) -> tuple[int | None, tuple[Process, ...]]:
    """Which of the processes named is this one; inside a container its own id may be the host's, so by size."""
    if message.this_process is not None or "this process" in message.unknown:
        return (message.this_process.size if message.this_process else None), message.processes
    reserved = size_of(message.reserved)
    likely = [process for process in message.processes if 0 <= process.used - reserved + 16 * MIB <= ORDINARY_OUTSIDE]
    if not likely:
        return None, message.processes
    own = min(likely, key=lambda process: process.used)
    return own.used, tuple(process for process in message.processes if process is not own)


def contradictions(sums: Sums) -> list[str]:
    """What in the figures can't be, in words."""
    message = sums.message
    slack = 32 * MIB + error_of(message.capacity, message.free, message.allocated, message.reserved)
    found = []
    if sums.free > sums.capacity + slack:
        found.append(f"{format_size(sums.free)} free of {format_size(sums.capacity)}")
    if sums.stranded < -slack:
        found.append(f"{format_size(sums.allocated)} allocated but only {format_size(sums.reserved)} reserved")
    private = size_of(message.private_pools)
    if private > sums.allocated + slack:
        found.append(f"{format_size(private)} in private pools but {format_size(sums.allocated)} allocated")
    if sums.this_process is not None and sums.this_process + slack < sums.reserved <= sums.capacity:
        found.append(
            f"this process has {format_size(sums.this_process)} in use but PyTorch alone reserved "
            f"{format_size(sums.reserved)}"
        )
    # Above the capacity with room still left is no spill: a spill begins when the card is full.
    held = sums.reserved + sums.free
    if sums.reserved <= sums.capacity and held > sums.capacity + slack:
        found.append(
            f"{format_size(sums.reserved)} reserved and {format_size(sums.free)} free are more than "
            f"{format_size(sums.capacity)}"
        )
    named = sum(process.used for process in sums.others) + (sums.this_process or 0)
    if named and named + sums.free > sums.capacity + slack + sums.capacity // 50 and sums.reserved <= sums.capacity:
        found.append(
            f"the processes hold {format_size(named)}, with {format_size(sums.free)} free, of "
            f"{format_size(sums.capacity)}"
        )
    return found
