"""A forecast's timeline with matplotlib, which is imported only here and only when something is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakmem.errors import PeakmemError
from peakmem.report.chart import Scale, layers, phases, scale, steps
from peakmem.report.role_colors import PHASE_COLORS, ROLE_COLORS
from peakmem.report.wording import card_text, usage_text, verdict_text
from peakmem.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from peakmem.forecast.model import Forecast, Timeline

_INCHES = (9.0, 4.2)
_NARROW = 0.07
"""A step narrower than this share of the plot has no label."""


def plot_forecast(forecast: Forecast, ax: Axes | None = None) -> Axes:
    """Draw the memory over time: stacked by role, with reserved memory, the capacity, steps, phases and the peak.

    Everything is drawn in bytes over the number of events. Colours follow the background of the axes.

    Args:
        forecast: what is drawn.
        ax: where to draw; by default a new figure.

    Returns:
        The axes that were drawn on.

    Raises:
        PeakmemError: matplotlib is missing, or the forecast has no timeline.
    """
    try:
        from matplotlib.ticker import FixedLocator, FuncFormatter, StrMethodFormatter
    except ImportError as error:
        raise PeakmemError("a plot needs matplotlib, which is missing here: pip install 'peakmem[plot]'") from error
    timeline = forecast.timeline
    if timeline is None:
        raise PeakmemError("this forecast has no timeline to plot: nothing was recorded, or an older peakmem wrote it")
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=_INCHES, layout="constrained")
    axis = scale(timeline, forecast.gpu.usable)
    dark = _is_dark(ax)
    _memory(ax, timeline, dark=dark)
    _capacity(ax, axis, forecast.gpu.usable, dark=dark)
    _marks(ax, timeline, dark=dark)
    _peak(ax, timeline)
    ax.set_xlim(0, max(timeline.events, 1))
    ax.set_ylim(0, axis.top)
    ax.yaxis.set_major_locator(FixedLocator(axis.ticks))
    ax.yaxis.set_major_formatter(
        FuncFormatter(lambda size, _: f"{size / axis.unit:g} {axis.unit_name}" if size else "0")
    )
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.set_xlabel("allocator events")
    ax.set_title(
        f"{verdict_text(forecast)} on {card_text(forecast.gpu)}\n{usage_text(forecast)}",
        loc="left", fontsize="medium", parse_math=False, pad=22,
    )  # fmt: skip
    ax.spines[["top", "right"]].set_visible(False)
    # The highest layer first, as they lie in the chart.
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize="small")
    return ax


def _memory(ax: Axes, timeline: Timeline, *, dark: bool) -> None:
    events = timeline.event
    lower = (0,) * len(events)
    for layer in layers(timeline):
        color = ROLE_COLORS[layer.role]
        ax.fill_between(
            events, lower, layer.upper, step="post", linewidth=0, label=layer.role.title,
            color=color.dark if dark else color.light,
        )  # fmt: skip
        lower = layer.upper
    gray = "#8a95a3"
    ax.fill_between(events, lower, timeline.reserved, step="post", linewidth=0, color=gray, alpha=0.18)
    ax.plot(events, timeline.reserved, drawstyle="steps-post", color=gray, linewidth=1, label="reserved")


def _capacity(ax: Axes, axis: Scale, usable: int, *, dark: bool) -> None:
    if axis.capacity is not None:
        red = "#ff7a70" if dark else "#c8372d"
        ax.axhline(axis.capacity, color=red, linewidth=1.5, label=f"usable {format_size(usable)}")
        return
    ax.text(
        0.995, 0.99, f"↑ usable {format_size(usable)}, above this plot", transform=ax.transAxes, ha="right", va="top",
        fontsize="small", alpha=0.7,
    )  # fmt: skip


def _marks(ax: Axes, timeline: Timeline, *, dark: bool) -> None:
    above = ax.get_xaxis_transform()
    for mark in phases(timeline):
        color = PHASE_COLORS.get(mark.name, PHASE_COLORS["other"])
        ax.fill_between(
            (mark.first, mark.end), 1.005, 1.02, transform=above, clip_on=False, linewidth=0,
            color=color.dark if dark else color.light,
        )  # fmt: skip
    for mark in steps(timeline):
        if mark.first:
            ax.axvline(mark.first, color="#8a95a3", linewidth=0.8, linestyle=(0, (4, 3)))
        if mark.step is not None and mark.end - mark.first >= _NARROW * timeline.events:
            middle = (mark.first + mark.end) / 2
            ax.text(
                middle, 1.03, f"step {mark.step + 1}", transform=above, ha="center", va="bottom", fontsize="small",
                alpha=0.7,
            )  # fmt: skip


def _peak(ax: Axes, timeline: Timeline) -> None:
    height = timeline.allocated[timeline.event.index(timeline.peak)]
    left = timeline.peak > timeline.events / 2
    ax.plot([timeline.peak], [height], marker="o", markersize=4, linestyle="none", color=ax.xaxis.label.get_color())
    ax.annotate(
        f"peak {format_size(height)}", (timeline.peak, height), xytext=(-7 if left else 7, 2),
        textcoords="offset points", ha="right" if left else "left", fontsize="small", fontweight="bold",
    )  # fmt: skip


def _is_dark(ax: Axes) -> bool:
    """Whether the background is dark: by its relative luminance (ITU-R BT.709); transparent counts as light."""
    from matplotlib.colors import to_rgba

    red, green, blue, alpha = to_rgba(ax.get_facecolor())
    return bool(alpha > 0 and 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5)
