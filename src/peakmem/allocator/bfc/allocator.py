"""Best fit with coalescing, as TensorFlow and XLA do it (TensorFlow 2.21, xla/tsl/framework/bfc_allocator.cc).

A region is a chain of chunks. Free chunks lie in bins by their size; a request takes the smallest chunk that is large
enough, of those the one at the lowest address. There are no pools for small and large blocks, and regions are not given
back but for garbage collection.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

from peakmem.allocator.bfc.model import BACKPEDAL, BINS, FIRST_REGION, UNIT, BfcError, BfcOptions, BfcStatistics, Device


@dataclass(slots=True, eq=False)
class Chunk:
    """A part of a region; neighbours are of the same region.

    Attributes:
        address, size: where it lies, bytes.
        requested: bytes that were asked for; 0: it is free.
        region: address of its region.
        before, after: its neighbours.
    """

    address: int
    size: int
    region: int
    requested: int = 0
    in_use: bool = False
    before: Chunk | None = None
    after: Chunk | None = None


def rounded(size: int) -> int:
    """What a request takes before anything is added by a chunk that is not split, bytes."""
    return max(UNIT, (size + UNIT - 1) // UNIT * UNIT)


def bin_of(size: int) -> int:
    """The bin of a size."""
    return min(BINS - 1, (max(size, UNIT) // UNIT).bit_length() - 1)


class BfcAllocator:
    """One allocator of one device."""

    def __init__(self, options: BfcOptions, device: Device | None = None) -> None:
        """
        Args:
            options: how it behaves.
            device: what gives the regions; one that has as much as the limit by default.
        """
        self._options = options
        self._device = device or Device(capacity=options.limit)
        self._next_region = rounded(min(options.limit, FIRST_REGION) if options.growth else options.limit)
        self._has_backpedalled = False
        self._bins: list[list[tuple[int, int]]] = [[] for _ in range(BINS)]  # (size, address), sorted
        self._chunks: dict[int, Chunk] = {}
        self._regions: dict[int, int] = {}
        self._in_use = self._peak_in_use = self._peak_pool = self._largest = self._allocations = self._requested = 0

    # ------------------------------------------------------------- requests

    def allocate(self, size: int) -> int | None:
        """The address of a chunk; None for a request of nothing.

        Raises:
            BfcError: there is no room.
        """
        if size == 0:
            return None
        wanted = rounded(size)
        chunk = self._find(wanted)
        if chunk is None and self._extend(wanted):
            chunk = self._find(wanted)
        if chunk is None and self._collect_regions(wanted) and self._extend(wanted):
            chunk = self._find(wanted)
        if chunk is None:
            raise BfcError(size)
        chunk.in_use, chunk.requested = True, size
        self._requested += size
        self._allocations += 1
        self._in_use += chunk.size
        self._peak_in_use = max(self._peak_in_use, self._in_use)
        self._largest = max(self._largest, chunk.size)
        return chunk.address

    def free(self, address: int | None) -> None:
        """Take a chunk back; it is joined with free neighbours at once.

        Raises:
            ValueError: nothing in use begins there.
        """
        if address is None:
            return
        chunk = self._chunks.get(address)
        if chunk is None or not chunk.in_use:
            raise ValueError(f"no chunk in use begins at {address:#x}")
        self._in_use -= chunk.size
        self._requested -= chunk.requested
        chunk.in_use, chunk.requested = False, 0
        if chunk.after is not None and not chunk.after.in_use:
            self._take_from_bin(chunk.after)
            self._join(chunk, chunk.after)
        if chunk.before is not None and not chunk.before.in_use:
            chunk = chunk.before
            self._take_from_bin(chunk)
            assert chunk.after is not None
            self._join(chunk, chunk.after)
        self._put_into_bin(chunk)

    # -------------------------------------------------------------- figures

    @property
    def statistics(self) -> BfcStatistics:
        """The figures now."""
        return BfcStatistics(
            in_use=self._in_use,
            peak_in_use=self._peak_in_use,
            pool=self.pool,
            peak_pool=self._peak_pool,
            largest=self._largest,
            allocations=self._allocations,
            requested=self._requested,
        )

    @property
    def pool(self) -> int:
        """Bytes in regions."""
        return sum(self._regions.values())

    @property
    def fragmentation(self) -> float:
        """The share of the free bytes that is not in the largest free chunk."""
        free = self.pool - self._in_use
        largest = max((row[-1][0] for row in self._bins if row), default=0)
        return (free - largest) / free if free else 0.0

    def chunks(self) -> Iterator[Chunk]:
        """All chunks by address."""
        yield from (self._chunks[address] for address in sorted(self._chunks))

    def regions(self) -> dict[int, int]:
        """The size of each region by its address, bytes."""
        return dict(self._regions)

    # ------------------------------------------------------------- insides

    def _find(self, wanted: int) -> Chunk | None:
        for number in range(bin_of(wanted), BINS):
            row = self._bins[number]
            place = bisect_left(row, (wanted, 0))
            if place < len(row):
                chunk = self._chunks[row[place][1]]
                del row[place]
                rest = chunk.size - wanted
                if chunk.size >= 2 * wanted or rest >= self._options.most_unsplit:
                    self._split(chunk, wanted)
                return chunk
        return None

    def _split(self, chunk: Chunk, size: int) -> None:
        rest = Chunk(chunk.address + size, chunk.size - size, chunk.region, before=chunk, after=chunk.after)
        if chunk.after is not None:
            chunk.after.before = rest
        chunk.after = rest
        chunk.size = size
        self._chunks[rest.address] = rest
        self._put_into_bin(rest)

    def _join(self, chunk: Chunk, gone: Chunk) -> None:
        chunk.size += gone.size
        chunk.after = gone.after
        if gone.after is not None:
            gone.after.before = chunk
        del self._chunks[gone.address]

    def _put_into_bin(self, chunk: Chunk) -> None:
        insort(self._bins[bin_of(chunk.size)], (chunk.size, chunk.address))

    def _take_from_bin(self, chunk: Chunk) -> None:
        row = self._bins[bin_of(chunk.size)]
        del row[bisect_left(row, (chunk.size, chunk.address))]

    def _extend(self, wanted: int) -> bool:
        available = (self._options.limit - self.pool) // UNIT * UNIT
        if wanted > available:
            return False
        doubled = False
        while wanted > self._next_region:
            self._next_region *= 2
            doubled = True
        size = min(self._next_region, available)
        address = self._device.take(size)
        if address is None and not self._has_backpedalled:
            self._has_backpedalled = True
            while address is None:
                size = rounded(int(size * BACKPEDAL))
                if size < wanted:
                    break
                address = self._device.take(size)
        if address is None:
            return False
        if not doubled:
            self._next_region *= 2
        self._regions[address] = size
        self._peak_pool = max(self._peak_pool, self.pool)
        chunk = self._chunks[address] = Chunk(address, size, address)
        self._put_into_bin(chunk)
        return True

    def _collect_regions(self, wanted: int) -> bool:
        if not self._options.garbage_collection:
            return False
        free = [
            address
            for address, size in self._regions.items()
            if not self._chunks[address].in_use and self._chunks[address].size == size
        ]
        sizes = sum(self._regions[address] for address in free)
        if not free or wanted > self._options.limit - self.pool + sizes:
            return False
        for address in free:
            self._take_from_bin(self._chunks[address])
            del self._chunks[address]
            self._device.give_back(self._regions.pop(address))
        return True
