"""A small chart of one quantity over time, in characters."""

from __future__ import annotations

from collections.abc import Sequence

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def area_chart(moments: Sequence[float], values: Sequence[int], *, width: int, height: int) -> tuple[str, ...]:
    """The lines of a chart, the upper one first; each column shows the highest value of its span of time.

    Args:
        moments: when, rising.
        values: how much; the highest fills the chart.
        width: columns.
        height: lines.
    """
    top = max(values, default=0)
    if not top or not moments:
        return ()
    first, last = moments[0], moments[-1]
    columns: list[int | None] = [None] * width
    for moment, value in zip(moments, values, strict=True):
        place = min(int((moment - first) / (last - first) * width), width - 1) if last > first else 0
        before = columns[place]
        columns[place] = value if before is None else max(before, value)
    filled: list[int] = []
    for seen in columns:
        if seen is None:  # nothing was looked at in this span: it stayed as it was
            filled.append(filled[-1] if filled else 0)
        else:
            filled.append(seen)
    lines = []
    for row in range(height - 1, -1, -1):
        eighths = (min(max(round((value / top * height - row) * 8), 0), 8) for value in filled)
        lines.append("".join(_EIGHTHS[n] for n in eighths).rstrip())
    return tuple(lines)
