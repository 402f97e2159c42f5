"""Sizes of blocks that PyTorch's history does not tell, and the blocks that were there before it began.

The history gives the bytes requested. What a block really takes follows from the allocator's rules for rounding and
splitting (PyTorch 2.14.1, c10/cuda/CUDACachingAllocator.cpp: `round_size`, `should_split`, `try_merge_blocks`) and from
the free memory in front of it, which is known at every event. So the sizes found here are exact, not estimates, with
one exception: of a block that was there before the history began and that is gone at its end, up to 1 MiB may stay
unknown (where it was not split, and nothing was allocated behind it while it lived). `Derived.disagreements` counts the
events that contradict what is known: a history with holes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from peakmem.trace.heap import Heap
from peakmem.trace.roles import Action
from peakmem.trace.segment_runs import add_pages, remove_pages, segment_runs, segment_table
from peakmem.trace.split_rules import SplitRules
from peakmem.trace.tables import Array, Blocks, Events, Segments, Table

if TYPE_CHECKING:
    pass

T = TypeVar("T", bound=Table)


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
        heap = Heap(initial, guessed, held, rules)
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
