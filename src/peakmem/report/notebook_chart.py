"""The timeline in a notebook: paths of an SVG that may be stretched, and labels that are placed in percent of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peakmem.forecast.model import Timeline
from peakmem.report.chart import layers, phases, scale, steps
from peakmem.units import format_size

WIDTH, HEIGHT = 1000, 400
"""The units of the SVG; it is stretched to the width of the cell."""
_NARROW = 7.0
"""A step narrower than this many percent of the chart has no label."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Area:
    """A filled part of the chart, from the bottom to its upper edge.

    Attributes:
        key: word of the role, decides the colour.
        title: name of the role in print.
        at_peak: bytes at the peak.
        path: of the SVG.
    """

    key: str
    title: str
    at_peak: int
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Tick:
    """A label of the axis of memory; `up` is in percent of the height, from the bottom."""

    up: float
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """A step or phase; `left` and `width` are in percent of the chart."""

    left: float
    width: float
    name: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The peak; `left` and `up` are in percent of the chart. `side` is where its label goes."""

    left: float
    up: float
    bytes: int
    side: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """Everything to draw.

    Attributes:
        areas: the highest first: each covers the lower part of those before it.
        reserved: path of the reserved memory.
        capacity: height of the capacity line in percent, None if it lies above the chart.
        usable: bytes that the allocator may reserve.
        events: how many events there were.
    """

    areas: tuple[Area, ...]
    reserved: str
    capacity: float | None
    usable: int
    ticks: tuple[Tick, ...]
    steps: tuple[Stretch, ...]
    phases: tuple[Stretch, ...]
    peak: Point
    events: int


def chart_of(timeline: Timeline, usable: int) -> Chart:
    """Lay a timeline out.

    Args:
        timeline: what to draw.
        usable: bytes that the allocator may reserve.
    """
    axis = scale(timeline, usable)
    count = max(timeline.events, 1)
    across = [WIDTH * event / count for event in timeline.event]

    def up(size: int) -> float:
        return round(100 * size / axis.top, 2)

    def path(sizes: Sequence[int]) -> str:
        return staircase(across, [HEIGHT * (1 - size / axis.top) for size in sizes])

    def stretch(name: str, first: int, end: int, text: str) -> Stretch:
        left, width = 100 * first / count, 100 * (end - first) / count
        return Stretch(left=round(left, 2), width=round(width, 2), name=name, text=text)

    at_peak = timeline.event.index(timeline.peak)
    left = round(100 * timeline.peak / count, 2)
    peak = timeline.allocated[at_peak]
    return Chart(
        areas=tuple(
            Area(key=layer.role.word, title=layer.role.title, at_peak=layer.at_peak, path=path(layer.upper))
            for layer in reversed(layers(timeline))
        ),
        reserved=path(timeline.reserved),
        capacity=up(axis.capacity) if axis.capacity is not None else None,
        usable=usable,
        ticks=tuple(
            Tick(up=up(tick), text=format_size(tick, digits=0 if tick % axis.unit == 0 else 1) if tick else "0")
            for tick in axis.ticks
        ),
        steps=tuple(
            stretch("step", mark.first, mark.end, f"step {mark.step + 1}")
            for mark in steps(timeline)
            if mark.step is not None and 100 * (mark.end - mark.first) / count >= _NARROW
        ),
        phases=tuple(
            stretch(
                mark.name,
                mark.first,
                mark.end,
                mark.name if mark.step is None else f"{mark.name} of step {mark.step + 1}",
            )
            for mark in phases(timeline)
        ),
        peak=Point(left=left, up=up(peak), bytes=peak, side="right" if left < 50 else "left"),
        events=timeline.events,
    )


def staircase(across: Sequence[float], down: Sequence[float]) -> str:
    """The path of an area under a staircase: each height holds until the next point.

    Args:
        across: where each point is, rising.
        down: how far below the top of the drawing it is.
    """
    parts = [f"M0 {HEIGHT}"]
    last = ""
    for x, y in zip(across, down, strict=True):
        height = f"{y:.1f}".removesuffix(".0")
        if height != last:
            parts.append(f"H{_short(x)}V{height}")
            last = height
    return "".join([*parts, f"H{WIDTH}V{HEIGHT}Z"])


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
