"""The memory over time in a few hundred points, enough to draw it: the exact history is in the trace."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from peakmem.forecast.model import Mark, Timeline
from peakmem.trace.roles import ContextKind, Role

if TYPE_CHECKING:
    from peakmem.trace.replay import Replay
    from peakmem.trace.tables import Array

MOST_POINTS = 400


def timeline(replay: Replay, *, most: int = MOST_POINTS) -> Timeline:
    """Thin out the history of a device.

    Args:
        replay: the device.
        most: how many points there may be, at least 16.
    """
    moments = _moments(replay, most)
    roles = replay.by_role()[:, moments]
    peak = replay.peak_moment("allocated")
    return Timeline(
        events=len(replay) - 1,
        peak=peak,
        event=tuple(moments.tolist()),
        allocated=tuple(replay.timeline.allocated[moments].tolist()),
        reserved=tuple(replay.timeline.reserved[moments].tolist()),
        roles={role.word: tuple(roles[role].tolist()) for role in Role if roles[role].any()},
        marks=tuple(_marks(replay, peak, most)),
    )


def _moments(replay: Replay, most: int) -> Array:
    """Moments to keep: the least and the most allocated of each stretch, both ends, and every peak."""
    count = len(replay)
    if count <= most:
        return np.arange(count)
    ends = [0, count - 1]
    peaks = [replay.peak_moment(of) for of in ("allocated", "reserved", "active", "requested")]
    stretches = (most - len(ends) - len(peaks)) // 2
    allocated = replay.timeline.allocated
    picked = ends + peaks
    edges = np.linspace(0, count, stretches + 1).astype("i8").tolist()
    for start, end in pairwise(edges):
        stretch = allocated[start:end]
        picked += [start + int(np.argmax(stretch)), start + int(np.argmin(stretch))]
    return np.unique(picked)


def _marks(replay: Replay, peak: int, most: int) -> list[Mark]:
    """Steps and phases. One that is narrower than a point could not be seen, unless it holds the peak."""
    trace = replay.trace
    spans = trace.spans
    narrowest = len(replay) / most
    marks = []
    for row in np.flatnonzero((spans.kind == ContextKind.STEP) | (spans.kind == ContextKind.PHASE)).tolist():
        first, end, number = int(spans.first[row]), int(spans.end[row]), int(spans.number[row])
        if end - first < narrowest and not first < peak <= end:
            continue
        is_step = spans.kind[row] == ContextKind.STEP
        marks.append(
            Mark(
                kind="step" if is_step else "phase",
                name="step" if is_step else trace.strings[int(spans.name[row])],
                step=number if number >= 0 else None,
                first=first,
                end=end,
            )
        )
    marks.sort(key=lambda mark: (mark.first, -mark.end, mark.kind == "phase"))
    return marks
