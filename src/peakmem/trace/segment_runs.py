"""Segments of a device that come and go, page by page where they are expandable."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from peakmem.trace.tables import Segments

if TYPE_CHECKING:
    pass

_SMALL_SEGMENT = 2 << 20


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
