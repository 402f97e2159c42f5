"""From a trace to what its program asked of the allocator: the requests alone, without the answers.

The answers (addresses, segments) are left out, since under other settings there are others. What must be told apart is
which segments went back because the program called `empty_cache()` and which because the allocator was short: the
former is a request, the latter an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from peakmem.errors import PeakmemError
from peakmem.trace.allocations import allocations
from peakmem.trace.replay import Replay
from peakmem.trace.roles import Action
from peakmem.trace.tables import Array, Segments

if TYPE_CHECKING:
    from peakmem.trace.allocations import Allocations
    from peakmem.trace.model import Trace

FREE, EMPTY_CACHE, WAIT = 0, -1, -2
"""What a row does where its size is no request: give a block back, `empty_cache()`, or give a block back as soon as
another stream is done with it (a later `FREE` is that moment)."""

_SMALL = 1 << 20
_SMALL_SEGMENT = 2 << 20
_MOST_SIZE = 1 << 62
"""Beyond any device; a request of this size or more is cut to it, so that it stays a number of 64 bits."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Requests:
    """What a program asked of the allocator of one device.

    Attributes:
        slot: for each row the number of its block, counted from 0.
        size: bytes requested, or `FREE`, `EMPTY_CACHE`, `WAIT`.
        stream: number of the stream, 0 for the default one, counted in the order of their handles.
        event: index in `Trace.events` of the event that the row stands for, -1 where there is none.
        prologue: rows that make the blocks which were there before the first event.
        layout: rows that make the segments of that time as well, with the free stretches as they were; they take the
            place of the first `prologue` rows where the memory at the start is to be as it was recorded. Sizes are
            those of the blocks.
        slots: how many blocks there are, those of `layout` included.
        streams: how many streams.
        device: index of the device in the trace.
        starts_with: bytes in blocks that were there before the first event.
        starts_reserved: bytes in segments that were held then.
        notes: what a reader should know, one sentence each.
    """

    slot: Array
    size: Array
    stream: Array
    event: Array
    prologue: int
    layout: Array
    slots: int
    streams: int
    device: int = 0
    starts_with: int = 0
    starts_reserved: int = 0
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Rows after the prologue."""
        return len(self.slot) - self.prologue

    @property
    def requested(self) -> Array:
        """The bytes of every request, those of the prologue included."""
        sizes: Array = self.size[self.size > 0]
        return sizes


def requests_of(trace: Trace, *, device: int | None = None) -> Requests:
    """What the program of a trace asked of the allocator.

    Args:
        trace: the trace.
        device: index of the device; by default the one that held most.

    Raises:
        PeakmemError: nothing happened on that device.
    """
    if device is None:
        device = Replay(trace).device
    events = trace.events
    if not np.any((events.device == device) & (events.action == Action.ALLOC)):
        seen = ", ".join(str(index) for index in trace.device_indices)
        raise PeakmemError(
            f"the trace has no allocation on device {device}, so there is nothing to replay",
            hint=f"its devices: {seen}; a snapshot has a history only after torch.cuda.memory._record_memory_history()",
        )
    blocks = allocations(trace)
    blocks = blocks.take(np.flatnonzero(blocks.device == device))
    handles = np.unique(np.concatenate([[0], blocks.stream, trace.initial_segments.stream]))
    stream = np.searchsorted(handles, blocks.stream)
    numbers = np.arange(len(blocks))
    count = len(events)

    born = np.flatnonzero(blocks.born >= 0)
    freed = np.flatnonzero(blocks.released < count)
    waits = _waiting(blocks, events.device == device, events.action == Action.ALLOC)
    emptied = _empty_cache_calls(trace, device)
    refused, caught = _refused(trace, device, handles, slot=len(blocks))
    parts = [
        refused,
        _rows(numbers[born], np.minimum(blocks.requested[born], _MOST_SIZE), stream[born], blocks.born[born]),
        _rows(numbers[waits], WAIT, stream[waits], blocks.freed[waits]),
        _rows(numbers[freed], FREE, stream[freed], blocks.released[freed]),
        _rows(np.zeros(len(emptied), dtype="i8"), EMPTY_CACHE, 0, emptied),
    ]
    rows = np.concatenate(parts)
    rows = rows[np.argsort(rows[:, 3], kind="stable")]
    first = _first_rows(blocks, stream)
    held = trace.initial_segments.take(np.flatnonzero(trace.initial_segments.device == device))
    layout, slots = _layout(blocks, held, stream, np.searchsorted(handles, held.stream), len(blocks) + len(refused))
    # A request of no bytes never reaches the allocator; rows of such blocks would free what is not there.
    rows = np.concatenate([first, rows])
    empty = np.zeros(slots + 1, dtype=bool)
    empty[numbers[blocks.requested <= 0]] = True
    keep = (rows[:, 1] == EMPTY_CACHE) | ~empty[rows[:, 0]]
    prologue = int(keep[: len(first)].sum())
    rows = rows[keep]
    return Requests(
        slot=rows[:, 0].copy(),
        size=rows[:, 1].copy(),
        stream=rows[:, 2].copy(),
        event=rows[:, 3].copy(),
        prologue=prologue,
        layout=layout,
        slots=slots,
        streams=len(handles),
        device=device,
        starts_with=int(blocks.size[blocks.born < 0].sum()),
        starts_reserved=int(held.size.sum()),
        notes=tuple(_notes(trace, caught)),
    )


def _rows(slot: Array, size: Array | int, stream: Array | int, event: Array) -> Array:
    rows = np.empty((len(slot), 4), dtype="i8")
    rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3] = slot, size, stream, event
    return rows


def _waiting(blocks: Allocations, here: Array, is_alloc: Array) -> Array:
    """The blocks that another request passed by between their giving back and their being free again."""
    requests = np.concatenate([[0], np.cumsum(here & is_alloc)])
    last = len(requests) - 1
    freed, released = blocks.freed, np.minimum(blocks.released, last)
    waits = (freed >= 0) & (freed < last) & (requests[released] > requests[np.maximum(freed, 0)])
    return np.flatnonzero(waits)


def _empty_cache_calls(trace: Trace, device: int) -> Array:
    """The events before which the program called `empty_cache()`.

    The allocator gives segments back on `empty_cache()`, and when a request would not fit otherwise (a retry, or
    garbage collection). In the latter case the segment that was wanted follows at once, and there was no room for it.
    A recorded stack says it outright.
    """
    events = trace.events
    rows = np.flatnonzero((events.device == device) & (events.action != Action.SNAPSHOT))
    action = events.action[rows]
    gives = (action == Action.SEGMENT_FREE) | (action == Action.SEGMENT_UNMAP)
    if not np.any(gives):
        return np.zeros(0, dtype="i8")
    begins = np.flatnonzero(gives & ~np.concatenate([[False], gives[:-1]]))
    ends = np.flatnonzero(gives & ~np.concatenate([gives[1:], [False]])) + 1
    reserved = Replay(trace, device).timeline.reserved
    limit = trace.device_info(device).capacity - trace.device_info(device).context
    limit = limit if limit > 0 else int(reserved.max())
    collects = float(str(trace.meta.settings.get("garbage_collection_threshold", 0) or 0)) > 0
    calls = []
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        first = int(rows[begin])
        if _names_empty_cache(trace, int(events.stack[first])):
            calls.append(first)
            continue
        following = int(action[end]) if end < len(action) else -1
        if following == Action.OOM:
            continue
        if following in (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP):
            wanted = int(events.size[rows[end]])
            if collects or int(reserved[first]) + wanted > limit:
                continue
        calls.append(first)
    return np.asarray(calls, dtype="i8")


def _names_empty_cache(trace: Trace, stack: int) -> bool:
    return any(frame.function in ("empty_cache", "emptyCache") for frame in trace.stack(stack))


def _refused(trace: Trace, device: int, handles: Array, *, slot: int) -> tuple[Array, int]:
    """The request that ended the program for want of memory, as a row; and how many others the program outlived."""
    events = trace.events
    refused = np.flatnonzero((events.device == device) & (events.action == Action.OOM))
    if not len(refused):
        return np.zeros((0, 4), dtype="i8"), 0
    last = int(refused[-1])
    later = (events.device[last:] == device) & (events.action[last:] == Action.ALLOC)
    if np.any(later):
        return np.zeros((0, 4), dtype="i8"), len(refused)
    stream = int(np.searchsorted(handles, events.stream[last]))
    stream = stream if stream < len(handles) and handles[stream] == events.stream[last] else 0
    # What the program freed on its way out is in the trace as well: the request comes before that.
    row = _rows(np.asarray([slot]), int(events.size[last]), stream, np.asarray([last]))
    return row, len(refused) - 1


def _first_rows(blocks: Allocations, stream: Array) -> Array:
    """Requests for the blocks that were there before the first event, by address."""
    before = np.flatnonzero(blocks.born < 0)
    order = before[np.argsort(blocks.address[before], kind="stable")]
    return _rows(order, np.minimum(blocks.requested[order], _MOST_SIZE), stream[order], np.full(len(order), -1))


def _layout(blocks: Allocations, held: Segments, stream: Array, segment_stream: Array, spare: int) -> tuple[Array, int]:
    """Rows that build the segments before the first event with all blocks where they were; and the number of slots.

    Args:
        blocks: of the device.
        held: the device's segments.
        stream: the number of each block's stream.
        segment_stream: the number of each segment's stream.
        spare: the first slot that no block has.

    Each segment is requested whole and given back, then filled from its start: as everything else is handed out at that
    time, its pieces come from it alone. Free stretches are filled too, and given back at the end.
    """
    rows: list[tuple[int, int, int, int]] = []
    gaps: list[tuple[int, int, int, int]] = []
    free_slot = spare
    before = np.flatnonzero(blocks.born < 0)
    before = before[np.argsort(blocks.address[before], kind="stable")]
    places = blocks.address[before].astype("i8")
    address, size, streams = places.tolist(), blocks.size[before].tolist(), stream[before].tolist()
    # The driver hands out falling addresses, in this library as on cards: the highest comes first.
    order = np.argsort(held.address, kind="stable")[::-1]
    placed = np.zeros(len(before), dtype=bool)

    def gap(start: int, end: int, where: int, *, small: bool) -> None:
        nonlocal free_slot
        while start < end:
            piece = min(end - start, _SMALL) if small else end - start
            if not small and piece <= _SMALL:  # would go to the other pool; only expandable segments have such
                return
            rows.append((free_slot, piece, where, -1))
            gaps.append((free_slot, FREE, where, -1))
            free_slot += 1
            start += piece

    for row in order.tolist():
        start, length = int(held.address[row]), int(held.size[row])
        where = int(segment_stream[row])
        small = bool(held.small[row])
        if not held.expandable[row]:
            rows.append((free_slot, _SMALL if small else length, where, -1))
            rows.append((free_slot, FREE, where, -1))
            free_slot += 1
        at = start
        for index in range(*np.searchsorted(places, [start, start + length]).tolist()):
            if address[index] > at:
                gap(at, address[index], where, small=small)
            rows.append((int(before[index]), size[index], streams[index], -1))
            placed[index] = True
            at = address[index] + size[index]
        gap(at, start + length, where, small=small)
    for index in np.flatnonzero(~placed).tolist():
        rows.append((int(before[index]), size[index], streams[index], -1))
    table = np.asarray(rows + gaps, dtype="i8").reshape(-1, 4)
    return table, free_slot


def _notes(trace: Trace, caught: int) -> list[str]:
    notes = []
    if len(trace.meta.pools) > 1:
        notes.append("blocks of private pools (CUDA graphs, MemPool) are replayed in the default pool")
    if caught:
        notes.append(f"{caught} out-of-memory errors that the program outlived are left out")
    return [*notes, *trace.meta.notes]
