"""Replays as text for a terminal: a table of settings, what happened under each, and a timeline for each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from rich.console import Console
from rich.text import Text

from peakmem.allocator.replay.model import POINTS, Floor, RanOut, Replayed
from peakmem.trace.tables import Array
from peakmem.units import format_size

WORTH_SAYING = 0.01
"""Growth below this share of the peak is not mentioned."""

_BARS = " ▁▂▃▄▅▆▇█"
_DEFAULT = "default settings"
_NAME = 25
WIDTHS = (11, 11, 11, 11, 11)


def name_of(alloc_conf: str) -> str:
    """Settings as they are printed."""
    return alloc_conf or _DEFAULT


def floor_text(floor: Floor | None) -> str:
    """A floor as it is printed: `-` if it was not looked for, `none` if no capacity is enough."""
    if floor is None:
        return "-"
    return format_size(floor.size) if floor.size is not None else "none"


def sparkline(values: Array, *, highest: int, width: int) -> str:
    """Values over time as a row of bars; each column shows the highest of its stretch.

    Args:
        values: bytes, equally spaced.
        highest: what a full bar means.
        width: columns for a whole trace.
    """
    if not len(values) or highest <= 0:
        return ""
    edges = np.linspace(0, len(values), min(width, len(values)) + 1).astype(int)
    columns = [int(values[a:b].max()) for a, b in pairwise(edges)]
    steps = len(_BARS) - 1
    return "".join(_BARS[max(-(-value * steps // highest), 1) if value else 0] for value in columns)


def row_text(name: str, cells: Sequence[str], *, widths: Sequence[int] = WIDTHS) -> str:
    """Settings and figures in columns."""
    return f"{name:{_NAME}}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def print_row(
    console: Console,
    name: str,
    cells: Sequence[str],
    *,
    widths: Sequence[int] = WIDTHS,
    style: str = "",
    mark: str = "",
) -> None:
    """Print settings with their figures below the header's columns; a long name gets a line of its own."""
    if len(name) >= _NAME:
        console.print(Text(name), soft_wrap=True)
        name = ""
    console.print(Text(row_text(name, cells, widths=widths) + mark, style=style), soft_wrap=True)


def print_replays(
    replays: Sequence[Replayed], console: Console, *, floors: Sequence[Floor] = (), capacity: int | None = None
) -> None:
    """Print replays of one trace: table, out-of-memory errors, timelines.

    Args:
        replays: one for each setting.
        console: where to.
        floors: the floors, in the same order; may be left out.
        capacity: bytes that the allocator could get, if there was a limit.
    """
    columns = ["reserved", "active", "stranded", "floor" if floors else "segments", "retries"]
    console.print(Text(row_text("settings", columns), style="dim"))
    for index, replayed in enumerate(replays):
        segments = f"{replayed.segments:,}" if replayed.segments else "-"
        cells = [
            "no room" if replayed.ran_out else format_size(replayed.reserved),
            format_size(replayed.active),
            format_size(replayed.stranded),
            floor_text(floors[index]) if floors else segments,
            f"{replayed.retries:,}",
        ]
        print_row(console, name_of(replayed.alloc_conf), cells, style="red" if replayed.ran_out else "")
    for replayed in replays:
        if replayed.ran_out is not None:
            console.print()
            console.print(ran_out_text(replayed.alloc_conf, replayed.ran_out))
    console.print()
    print_timelines(replays, console, capacity=capacity)


def ran_out_text(alloc_conf: str, found: RanOut) -> Text:
    """Where a replay ran out of memory, in words."""
    text = Text()
    text.append("out of memory", style="red")
    text.append(f" under {name_of(alloc_conf)}: ")
    if found.event < 0:
        text.append(f"the {format_size(found.active)} that were there at the start do not fit")
        return text
    place = [f"event {found.event:,}"]
    if found.step >= 0:
        place.append(f"step {found.step + 1}")
    place += [part for part in (found.module, found.op, found.where) if part]
    text.append(", ".join(dict.fromkeys(place)) + "\n")
    text.append(
        f"  {format_size(found.requested)} asked for, {format_size(found.active)} in use, "
        f"{format_size(found.reserved - found.active)} stranded",
        style="dim",
    )
    return text


def print_timelines(replays: Sequence[Replayed], console: Console, *, capacity: int | None = None) -> None:
    """Print reserved memory over time, one row of bars for each setting, all to one scale."""
    highest = max((int(r.curve.reserved.max()) for r in replays if len(r.curve.reserved)), default=0)
    if not highest:
        return
    width = max(console.width - 2, 20)
    scale = f"reserved over time; a full bar is {format_size(highest)}"
    if capacity is not None:
        scale += f", the allocator can get {format_size(capacity)}"
    console.print(Text(scale, style="dim"))
    for replayed in replays:
        curve = replayed.curve
        share = len(curve.reserved) / POINTS if replayed.ran_out else 1.0
        bars = sparkline(curve.reserved, highest=highest, width=max(int(width * share), 1))
        line = Text(name_of(replayed.alloc_conf))
        if replayed.ran_out is None and curve.grew > WORTH_SAYING * replayed.reserved:
            line.append(f"  stranded memory grew by {format_size(curve.grew)}", style="yellow")
        console.print(line)
        console.print(Text("  ") + Text(bars, style="cyan") + Text("✗" if replayed.ran_out else "", style="red"))
