"""What every drawing of a forecast's timeline agrees on: the layers, the top of the chart, its ticks."""

from __future__ import annotations

from dataclasses import dataclass

from peakmem.forecast.model import Mark, Timeline
from peakmem.report.role_colors import STACKING
from peakmem.trace.roles import Role
from peakmem.units import GIB, KIB, MIB, TIB

_ROOM = 1.12
"""How much higher than what it shows a chart is, for labels."""
_FAR = 2.2
"""A capacity that is this many times what was reserved would flatten the chart: it is told, not drawn."""
_MOST_TICKS = 6
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """A role of a stacked chart.

    Attributes:
        role: the role.
        upper: bytes of this role and all roles below it, for each point of the timeline.
        at_peak: bytes of this role at the peak.
    """

    role: Role
    upper: tuple[int, ...]
    at_peak: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """The axis of memory.

    Attributes:
        top: bytes at the upper end.
        unit: bytes of the unit of the ticks.
        unit_name: its name, for instance "GiB".
        ticks: bytes, from 0.
        capacity: bytes that the allocator may reserve, if that lies on the chart; None if it lies far above.
    """

    top: int
    unit: int
    unit_name: str
    ticks: tuple[int, ...]
    capacity: int | None


def layers(timeline: Timeline) -> tuple[Layer, ...]:
    """The roles that occur, from the lowest layer to the highest."""
    at_peak = timeline.event.index(timeline.peak)
    below = (0,) * len(timeline.event)
    made = []
    for role in STACKING:
        if role.word in timeline.roles:
            own = timeline.roles[role.word]
            below = tuple(lower + size for lower, size in zip(below, own, strict=True))
            made.append(Layer(role=role, upper=below, at_peak=own[at_peak]))
    return tuple(made)


def scale(timeline: Timeline, usable: int) -> Scale:
    """The axis for a timeline.

    Args:
        timeline: what is drawn.
        usable: bytes that the allocator may reserve.
    """
    highest = max(*timeline.reserved, *timeline.allocated, KIB)
    drawn = usable < _FAR * highest
    top = int(max(highest, usable if drawn else 0) * _ROOM)
    unit, name = next((unit, name) for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")) if
                      top >= unit)  # fmt: skip
    step = next((step for step in _STEPS if top / (step * unit) <= _MOST_TICKS), _STEPS[-1]) * unit
    if top < 3 * unit:
        step = unit // 2
    return Scale(
        top=top,
        unit=unit,
        unit_name=name,
        ticks=tuple(range(0, top + 1, step)),
        capacity=usable if drawn else None,
    )


def phases(timeline: Timeline) -> tuple[Mark, ...]:
    """The marks that are phases."""
    return tuple(mark for mark in timeline.marks if mark.kind == "phase")


def steps(timeline: Timeline) -> tuple[Mark, ...]:
    """The marks that are steps."""
    return tuple(mark for mark in timeline.marks if mark.kind == "step")
