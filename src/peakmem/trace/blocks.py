"""Sizes of blocks that PyTorch's history does not tell, and the blocks that were there before it began.

The history gives the bytes requested. What a block really takes follows from the allocator's rules for rounding and
splitting (PyTorch 2.14.1, c10/cuda/CUDACachingAllocator.cpp: `round_size`, `should_split`, `try_merge_blocks`) and from
the free memory in front of it, which is known at every event. So the sizes found here are exact, not estimates, with
one exception: of a block that was there before the history began and that is gone at its end, up to 1 MiB may stay
unknown (where it was not split, and nothing was allocated behind it while it lived). `Derived.disagreements` counts the
events that contradict what is known: a history with holes.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from peakmem.trace.roles import Action
from peakmem.trace.tables import Array, Blocks, Events, Segments, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

T = TypeVar("T", bound=Table)

_MIN_BLOCK = 512
_SMALL = 1 << 20
_SMALL_SEGMENT = 2 << 20
_CHUNK = 1 << 16
_UNLIMITED = 1 << 62


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitRules:
    """The options that decide how large a block is.

    Attributes:
        max_split_size: bytes; blocks for requests of at least this size are not split.
        expandable: whether `expandable_segments` is on.
        divisions: `roundup_power2_divisions`, one entry for each power of two from 1 MiB to 32 GiB; 0 or 1 is off.
    """

    max_split_size: int = _UNLIMITED
    expandable: bool = False
    divisions: tuple[int, ...] = field(default=(0,) * 16)

    @classmethod
    def from_settings(cls, settings: Mapping[str, object]) -> SplitRules:
        """Read the `allocator_settings` of a snapshot; what is missing or odd takes its default."""
        limit = settings.get("max_split_size")
        table = settings.get("roundup_power2_divisions")
        divisions = [0] * 16
        if isinstance(table, dict):
            for index in range(16):
                value = table.get(str(1 << index), 0)
                divisions[index] = value if isinstance(value, int) else 0
        return cls(
            max_split_size=limit if isinstance(limit, int) and 0 <= limit < _UNLIMITED else _UNLIMITED,
            expandable=bool(settings.get("expandable_segments", False)),
            divisions=tuple(divisions),
        )

    def round_size(self, requested: int) -> int:
        """Bytes that a request takes when the block is cut to measure."""
        if requested < _MIN_BLOCK:
            return _MIN_BLOCK
        division = self.divisions[min(max(requested.bit_length() - 21, 0), 15)]
        if division > 1 and requested > _MIN_BLOCK * division:
            power = 1 << (requested.bit_length() - 1)
            if power == requested:
                return requested
            step = max(power // division, 1)
            return -(-requested // step) * step
        return -(-requested // _MIN_BLOCK) * _MIN_BLOCK

    def taken(self, rounded: int, room: int) -> int:
        """Bytes that a block takes in a free stretch of `room` bytes: `rounded`, or all if the rest is too small."""
        rest = room - rounded
        if rounded <= _SMALL or self.expandable:
            return rounded if rest >= _MIN_BLOCK else room
        return rounded if rounded < self.max_split_size and rest > _SMALL else room


@dataclass(frozen=True, kw_only=True, slots=True)
class Derived:
    """What was found.

    Attributes:
        block_size: for `Events.block_size`.
        initial: blocks alive before the first event.
        initial_segments: segments held before the first event.
        disagreements: events that contradict the memory as it should be then (a history with holes).
    """

    block_size: Array
    initial: Blocks
    initial_segments: Segments
    disagreements: int


def derive(events: Events, final: Blocks, final_segments: Segments, rules: SplitRules) -> Derived:
    """Find block sizes and the state before the first event from the events and the state after the last one."""
    block_size = np.zeros(len(events), dtype="i8")
    blocks, segments, disagreements = [], [], 0
    devices = np.unique(np.concatenate([events.device, final.device, final_segments.device]))
    for device in devices:
        rows = np.flatnonzero(events.device == device)
        mine = events.take(rows)
        held = _segments_before(mine, final_segments.take(final_segments.device == device))
        known, unknown = _blocks_before(mine, final.take(final.device == device))
        initial, guessed = _sized(known, unknown, held, rules)
        heap = _Heap(initial, guessed, held, rules)
        sizes, wrong = heap.run(mine)
        for address, size in heap.corrected.items():
            initial.size[np.searchsorted(initial.address, address)] = size
        block_size[rows] = sizes
        blocks.append(initial)
        segments.append(held)
        disagreements += wrong
    return Derived(
        block_size=block_size,
        initial=_join(Blocks, blocks),
        initial_segments=_join(Segments, segments),
        disagreements=disagreements,
    )


def _join(kind: type[T], tables: list[T]) -> T:
    if not tables:
        return kind.empty()
    return kind.of({name: np.concatenate([getattr(table, name) for table in tables]) for name in kind.DTYPES})


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A segment, or a mapped run of an expandable one; the fields as in `Segments`."""

    size: int
    stream: int = 0
    small: int = 0
    expandable: int = 0
    pool: int = 0
    stack: int = 0


def segment_runs(segments: Segments) -> dict[int, Run]:
    """Segments by address, to be changed by `add_pages` and `remove_pages`."""
    names = [item.name for item in fields(Run)]
    rows = zip(*(getattr(segments, name).tolist() for name in names), strict=True)
    return {
        address: Run(**dict(zip(names, row, strict=True)))
        for address, row in zip(segments.address.tolist(), rows, strict=True)
    }


def segment_table(runs: dict[int, Run], device: int) -> Segments:
    """The table of segments, by address."""
    order = sorted(runs)
    columns = {item.name: [getattr(runs[address], item.name) for address in order] for item in fields(Run)}
    return Segments.of({"address": order, "device": [device] * len(order), **columns})


def add_pages(runs: dict[int, Run], address: int, size: int, *, stream: int, stack: int, expandable: int) -> None:
    """Add a segment, or pages of an expandable one: runs of these that touch become one, as PyTorch shows them."""
    made = Run(size=size, stream=stream, small=int(size <= _SMALL_SEGMENT), expandable=expandable, stack=stack)
    if expandable:
        after = runs.get(address + size)
        if after is not None and after.expandable:
            del runs[address + size]
            made = replace(after, size=size + after.size)
        for start, run in runs.items():
            if start + run.size == address and run.expandable:
                runs[start] = replace(run, size=run.size + made.size)
                return
    runs[address] = made


def remove_pages(runs: dict[int, Run], address: int, size: int) -> None:
    """Take pages away; what is left on either side stays."""
    for start, run in list(runs.items()):
        end = start + run.size
        if start <= address and address + size <= end:
            del runs[start]
            if start < address:
                runs[start] = replace(run, size=address - start)
            if address + size < end:
                runs[address + size] = replace(run, size=end - address - size)
            return


def _segments_before(events: Events, final: Segments) -> Segments:
    """Undo the segment events, last one first."""
    runs = segment_runs(final)
    kinds = (Action.SEGMENT_ALLOC, Action.SEGMENT_FREE, Action.SEGMENT_MAP, Action.SEGMENT_UNMAP)
    mine = events.take(np.flatnonzero(np.isin(events.action, kinds))[::-1])
    for action, address, size, stream in zip(
        mine.action.tolist(), mine.address.tolist(), mine.size.tolist(), mine.stream.tolist(), strict=True
    ):
        if action == Action.SEGMENT_ALLOC:
            runs.pop(address, None)
        elif action == Action.SEGMENT_FREE:
            add_pages(runs, address, size, stream=stream, stack=0, expandable=0)
        elif action == Action.SEGMENT_UNMAP:
            add_pages(runs, address, size, stream=stream, stack=0, expandable=1)
        else:
            remove_pages(runs, address, size)
    return segment_table(runs, int(final.device[0]) if len(final) else int(events.device[0]) if len(events) else 0)


def _blocks_before(events: Events, final: Blocks) -> tuple[Blocks, Blocks]:
    """Blocks alive at the start: those whose true size the end of the trace tells, and those that were freed later."""
    actions = (Action.ALLOC, Action.FREE_REQUESTED, Action.FREE_COMPLETED)
    rows = np.flatnonzero(np.isin(events.action, actions))
    touched, first = np.unique(events.address[rows], return_index=True)
    first = rows[first]
    freed = events.take(first[events.action[first] != Action.ALLOC])
    unknown = Blocks.of(
        {
            "address": freed.address, "requested": freed.size, "stream": freed.stream, "device": freed.device,
            "pending": freed.action == Action.FREE_COMPLETED,
        }
    )  # fmt: skip
    return final.take(np.flatnonzero(~np.isin(final.address, touched))), unknown


def _sized(known: Blocks, unknown: Blocks, segments: Segments, rules: SplitRules) -> tuple[Blocks, Array]:
    """All blocks in the order of their addresses, with the sizes of the unknown ones, and which these are."""
    blocks = _join(Blocks, [known, unknown])
    order = np.argsort(blocks.address, kind="stable")
    blocks = blocks.take(order)
    address = blocks.address.astype("i8")
    by_address = np.argsort(segments.address)
    starts = segments.address.astype("i8")[by_address]
    ends = starts + segments.size[by_address]
    inside = np.searchsorted(starts, address, side="right") - 1
    limit = np.where(inside >= 0, ends[inside] if len(ends) else 0, 0)
    following = np.append(address[1:], np.iinfo("i8").max) if len(address) else address
    room = np.minimum(limit, following) - address
    size = blocks.size.copy()
    guessed = size == 0
    for row in np.flatnonzero(guessed).tolist():
        rounded = rules.round_size(int(blocks.requested[row]))
        size[row] = rules.taken(rounded, int(room[row])) if room[row] >= rounded else rounded
    return Blocks.of({name: getattr(blocks, name) for name in Blocks.DTYPES} | {"size": size}), guessed


class _Heap:
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
                if before is None or address - begin > _SMALL or end - address < rounded:
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
