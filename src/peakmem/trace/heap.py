"""Free and handed-out memory of one device, followed from event to event."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from peakmem.trace.roles import Action
from peakmem.trace.split_rules import SMALL, SplitRules
from peakmem.trace.tables import Array, Blocks, Events, Segments

if TYPE_CHECKING:
    from collections.abc import Iterable

_CHUNK = 1 << 16


class Heap:
    """Free and handed-out memory of one device, followed from event to event."""

    def __init__(self, blocks: Blocks, guessed: Array, segments: Segments, rules: SplitRules) -> None:
        """Lay out the start; `guessed` marks the blocks whose size follows from no later snapshot."""
        self._rules = rules
        ends = (blocks.address.astype("i8") + blocks.size)[guessed]
        self._guessed = dict(zip(ends.tolist(), blocks.address[guessed].tolist(), strict=True))  # end -> start
        self.corrected: dict[int, int] = {}  # start -> size, of initial blocks whose end showed later
        self._live = dict(zip(blocks.address.tolist(), blocks.size.tolist(), strict=True))
        self._free: dict[int, int] = {}  # start -> end
        self._free_ends: dict[int, int] = {}  # end -> start
        # Where driver allocations begin and end: free memory never merges across.
        self._begins: set[int] = set()
        self._finishes: set[int] = set()
        taken = sorted(self._live.items())
        position = 0
        for start, size, expandable in sorted(
            zip(segments.address.tolist(), segments.size.tolist(), segments.expandable.tolist(), strict=True)
        ):
            if not expandable:
                self._begins.add(start)
                self._finishes.add(start + size)
            at = start
            while position < len(taken) and taken[position][0] < start + size:
                address, length = taken[position]
                if address >= start:
                    if address > at:
                        self._put(at, address)
                    at = max(at, address + length)
                position += 1
            if at < start + size:
                self._put(at, start + size)

    def _put(self, start: int, end: int) -> None:
        self._free[start] = end
        self._free_ends[end] = start

    def _is_wall(self, address: int) -> bool:
        return address in self._begins or address in self._finishes

    def _release(self, start: int, end: int) -> None:
        """Make a stretch free and merge it with its free neighbours."""
        if end in self._free and not self._is_wall(end):
            after = self._free.pop(end)
            del self._free_ends[after]
            end = after
        if start in self._free_ends and not self._is_wall(start):
            start = self._free_ends.pop(start)
        self._put(start, end)

    def _inside(self, address: int, rounded: int) -> tuple[int, bool]:
        """Take a block that does not begin where free memory is thought to begin.

        This happens behind a block that was there before the history: it may have been handed out whole although it was
        up to 1 MiB larger than its rounding, while what lay behind it was free already. Only now does its end show.

        Returns:
            The size of the block, and whether that explains it.
        """
        for begin, end in self._free.items():
            if begin < address < end:
                before = self._guessed.pop(begin, None)
                if before is None or address - begin > SMALL or end - address < rounded:
                    return rounded, not self._carve(address, address + rounded)
                del self._free[begin], self._free_ends[end]
                self._live[before] += address - begin
                self.corrected[before] = self._live[before]
                taken = self._rules.taken(rounded, end - address)
                if address + taken < end:
                    self._put(address + taken, end)
                return taken, True
        return rounded, False

    def _carve(self, start: int, end: int) -> bool:
        """Take a stretch out of the free stretch around it."""
        for begin, finish in self._free.items():
            if begin <= start and end <= finish:
                del self._free[begin], self._free_ends[finish]
                if begin < start:
                    self._put(begin, start)
                if end < finish:
                    self._put(end, finish)
                return True
        return False

    def run(self, events: Events) -> tuple[Array, int]:
        """Sizes of the blocks of all events, and how many events contradict the state they meet."""
        sizes = array("q")
        wrong = 0
        for start in range(0, len(events), _CHUNK):  # Python's integers take ten times the room of the columns
            rows = slice(start, start + _CHUNK)
            columns = (events.action[rows].tolist(), events.address[rows].tolist(), events.size[rows].tolist())
            wrong += self._run(zip(*columns, strict=True), sizes)
        return np.frombuffer(sizes, dtype="i8") if len(sizes) else np.zeros(0, dtype="i8"), wrong

    def _run(self, rows: Iterable[tuple[int, int, int]], sizes: array[int]) -> int:
        wrong = 0
        live, free, free_ends, rules = self._live, self._free, self._free_ends, self._rules
        alloc, requested, completed = int(Action.ALLOC), int(Action.FREE_REQUESTED), int(Action.FREE_COMPLETED)
        for action, address, size in rows:
            taken = 0
            if action == alloc:
                taken = rounded = rules.round_size(size)
                end = free.pop(address, None)
                if end is not None:
                    del free_ends[end]
                    room = end - address
                    if room < rounded:
                        wrong += 1
                    else:
                        taken = rules.taken(rounded, room)
                        if taken < room:
                            free[address + taken] = end
                            free_ends[end] = address + taken
                else:
                    taken, agrees = self._inside(address, rounded)
                    wrong += not agrees
                live[address] = taken
            elif action == requested:
                taken = live.get(address, 0)
                if not taken:
                    wrong += 1
                    taken = rules.round_size(size)
            elif action == completed:
                taken = live.pop(address, 0)
                if taken:
                    self._release(address, address + taken)
                else:
                    wrong += 1
                    taken = rules.round_size(size)
            elif action == Action.SEGMENT_ALLOC:
                self._begins.add(address)
                self._finishes.add(address + size)
                self._put(address, address + size)
            elif action == Action.SEGMENT_FREE:
                end = free.pop(address, None)
                if end is None or end - address != size:
                    wrong += 1
                if end is not None:
                    del free_ends[end]
                self._begins.discard(address)
                self._finishes.discard(address + size)
            elif action == Action.SEGMENT_MAP:
                self._release(address, address + size)
            elif action == Action.SEGMENT_UNMAP:
                wrong += not self._carve(address, address + size)
            sizes.append(taken)
        return wrong
