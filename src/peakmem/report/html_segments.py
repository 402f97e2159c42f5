"""The segment map: which blocks lie in which segment at the peak, what is stranded, and who holds it there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from peakmem.trace.holders import Describer
    from peakmem.trace.replay import Replay
    from peakmem.trace.tables import Array

_PINNERS = 30
_MAX_BLOCKS = 30_000


class _Texts(Protocol):
    def number(self, text: str) -> int: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class SegmentData:
    """One segment.

    Attributes:
        address: of the segment.
        size: bytes.
        small: whether it belongs to the pool of blocks up to 1 MiB.
        expandable: whether it is a run of an expandable segment.
        stream: handle of the stream.
        stranded: bytes in it that no block uses.
        blocks: one list for each block: offset, size, requested, group, index of a text, 1 if it waits for a stream.
    """

    address: int
    size: int
    small: bool
    expandable: bool
    stream: int
    stranded: int
    blocks: list[list[int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pinner:
    """Who keeps stranded memory from going back to the driver.

    A segment goes back only when all of it is free. So what is stranded in one is shared among its blocks by size.

    Attributes:
        text: index of a text: what the blocks are.
        group: index of a group.
        stranded: bytes stranded in the segments of these blocks, their share.
        size: bytes of the blocks themselves.
        segments: in how many segments they lie.
    """

    text: int
    group: int
    stranded: int
    size: int
    segments: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SegmentMap:
    """All segments at the peak.

    Attributes:
        moment: number of events that have happened.
        total: bytes of all segments: reserved.
        stranded: bytes that no block uses.
        free_segments: bytes of segments that hold no block at all (they would go back on `empty_cache`).
        segments: by address.
        pinners: who holds stranded memory in place, most first.
        merged: whether neighbouring blocks were drawn as one because there are too many.
    """

    moment: int
    total: int
    stranded: int
    free_segments: int
    segments: list[SegmentData]
    pinners: list[Pinner]
    merged: bool


def segment_map(replay: Replay, moment: int, member: Array, describe: Describer, texts: _Texts) -> SegmentMap:
    """Lay out the segments of a moment."""
    blocks = replay.allocations
    alive = replay.alive(moment, include_pending=True)
    alive = alive[np.argsort(blocks.address[alive])]
    start = blocks.address[alive].astype("i8")
    held = replay.segments(moment)
    merge = len(alive) > _MAX_BLOCKS
    made: list[SegmentData] = []
    pins: dict[tuple[int, int], list[float]] = {}
    for row in range(len(held)):
        address, size = int(held.address[row]), int(held.size[row])
        first, last = np.searchsorted(start, [address, address + size]).tolist()
        mine = alive[first:last].tolist()
        active = int(blocks.size[alive[first:last]].sum())
        laid = _lay(replay, mine, address, moment, member, describe, texts)
        for _, length, _, group, text, _ in laid:
            pin = pins.setdefault((text, group), [0.0, 0, 0, -1])
            pin[0] += (size - active) * length / active
            pin[1] += length
            pin[2] += pin[3] != row
            pin[3] = row
        made.append(
            SegmentData(
                address=address,
                size=size,
                small=bool(held.small[row]),
                expandable=bool(held.expandable[row]),
                stream=int(held.stream[row]),
                stranded=size - active,
                blocks=_merged(laid) if merge else laid,
            )
        )
    pinners = [
        Pinner(text=text, group=group, stranded=round(stranded), size=int(size), segments=int(segments))
        for (text, group), (stranded, size, segments, _) in pins.items()
    ]
    pinners.sort(key=lambda pinner: -pinner.stranded)
    return SegmentMap(
        moment=moment,
        total=sum(segment.size for segment in made),
        stranded=sum(segment.stranded for segment in made),
        free_segments=sum(segment.size for segment in made if not segment.blocks),
        segments=made,
        pinners=[pinner for pinner in pinners[:_PINNERS] if pinner.stranded],
        merged=merge,
    )


def _lay(
    replay: Replay, rows: list[int], address: int, moment: int, member: Array, describe: Describer, texts: _Texts
) -> list[list[int]]:
    blocks = replay.allocations
    return [
        [
            int(blocks.address[row]) - address, int(blocks.size[row]), int(blocks.requested[row]), int(member[row]),
            texts.number(describe.text(row)), int(blocks.freed[row] < moment),
        ]
        for row in rows
    ]  # fmt: skip


def _merged(laid: list[list[int]]) -> list[list[int]]:
    """Draw neighbours of one group as one."""
    made: list[list[int]] = []
    for block in laid:
        before = made[-1] if made else None
        if before is not None and before[0] + before[1] == block[0] and before[3] == block[3]:
            before[1] += block[1]
            before[2] += block[2]
        else:
            made.append(list(block))
    return made
