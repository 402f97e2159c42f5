"""Options, figures and the device below a BFC allocator. All sizes are bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from peakmem.units import MIB

UNIT = 256
"""Every chunk is a multiple of this (TensorFlow 2.21, xla/tsl/framework/bfc_allocator.h: kMinAllocationSize)."""

BINS = 21
"""Free chunks lie in so many bins; the first holds those from 256 bytes, each further one those from twice as much."""

FIRST_REGION = 2 * MIB
"""The first region with growth (bfc_allocator.cc: the constructor)."""

MOST_UNSPLIT = 128 * MIB
"""A chunk that leaves so much or more is split in any case (bfc_allocator.cc: kMaxInternalFragmentation)."""

BACKPEDAL = 0.9
"""What is asked for next when the device refuses (bfc_allocator.cc: kBackpedalFactor)."""


class BfcError(MemoryError):
    """No chunk is free, and no region can be had: TensorFlow's ResourceExhaustedError.

    Attributes:
        requested: bytes that were asked for.
    """

    def __init__(self, requested: int) -> None:
        super().__init__(f"{requested:,} bytes can't be allocated")
        self.requested = requested


@dataclass(frozen=True, kw_only=True, slots=True)
class BfcOptions:
    """How the allocator behaves.

    Attributes:
        limit: bytes of regions that it takes at most.
        growth: whether regions are taken as they are needed (`TF_FORCE_GPU_ALLOW_GROWTH`, `set_memory_growth`); else
            one of the size of the limit is taken at the first request.
        fragmentation_fraction: share of the limit above which what a chunk leaves is split off; 0: 128 MiB.
        garbage_collection: whether regions without anything in use are given back when no other can be had
            (`TF_ENABLE_GPU_GARBAGE_COLLECTION`, on by default in TensorFlow).
    """

    limit: int
    growth: bool = False
    fragmentation_fraction: float = 0.0
    garbage_collection: bool = True

    def __post_init__(self) -> None:
        if self.limit < UNIT:
            raise ValueError(f"a limit of {self.limit} bytes holds nothing")
        if not 0 <= self.fragmentation_fraction <= 1:
            raise ValueError(f"fragmentation_fraction is {self.fragmentation_fraction}, not between 0 and 1")

    @property
    def most_unsplit(self) -> int:
        """Bytes that a chunk may leave without being split, at least twice as large ones aside."""
        return int(self.fragmentation_fraction * self.limit) if self.fragmentation_fraction else MOST_UNSPLIT


@dataclass(frozen=True, kw_only=True, slots=True)
class BfcStatistics:
    """The figures that the allocator keeps (`AllocatorStats`).

    Attributes:
        in_use: bytes in chunks handed out, their unused ends included.
        peak_in_use: the most of it so far.
        pool: bytes in regions: what is reserved.
        peak_pool: the most of it so far.
        largest: the largest chunk handed out.
        allocations: how many were handed out.
        requested: bytes asked for that are in use; TensorFlow does not report this.
    """

    in_use: int
    peak_in_use: int
    pool: int
    peak_pool: int
    largest: int
    allocations: int
    requested: int


@dataclass(kw_only=True, slots=True)
class Device:
    """A device with so many bytes, which hands out regions at rising addresses.

    Attributes:
        capacity: bytes.
        used: bytes handed out.
    """

    capacity: int
    used: int = 0
    _next: int = field(default=1 << 40, repr=False)

    def take(self, size: int) -> int | None:
        """The address of a region, None where there is no room."""
        if self.used + size > self.capacity:
            return None
        self.used += size
        address = self._next
        self._next += (size + 2 * MIB - 1) // (2 * MIB) * (2 * MIB)
        return address

    def give_back(self, size: int) -> None:
        """A region is not needed any more."""
        self.used -= size
