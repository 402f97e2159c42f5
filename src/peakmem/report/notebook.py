"""A forecast in a cell of a notebook: a fragment of HTML with its own style, no script, and nothing from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from peakmem.report.host_wording import host_rows
from peakmem.report.notebook_chart import HEIGHT, WIDTH, chart_of
from peakmem.report.role_colors import css_variables
from peakmem.report.wording import (
    card_text,
    example_text,
    holder_text,
    place_of_failure,
    place_of_peak,
    role_title,
    short_line,
    statement_rows,
    times,
    usage_text,
    verdict_text,
)
from peakmem.units import format_size

if TYPE_CHECKING:
    from jinja2 import Template

    from peakmem.forecast.model import Forecast

HOLDERS_SHOWN = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """A part of a bar: `percent` is of the whole bar."""

    key: str
    title: str
    bytes: int
    percent: float


def forecast_html(forecast: Forecast) -> str:
    """The fragment. Everything that came from the script is escaped."""
    timeline = forecast.timeline
    return _template().render(
        forecast=forecast,
        style=_style(),
        verdict=verdict_text(forecast),
        card=card_text(forecast.gpu),
        usage=usage_text(forecast),
        gauge=_gauge(forecast),
        chart=chart_of(timeline, forecast.gpu.usable) if timeline is not None and timeline.events else None,
        view=(WIDTH, HEIGHT),
        rows=statement_rows(forecast.peak, forecast.framework),
        host=host_rows(forecast.host) if forecast.host is not None and forecast.host.node_peak is not None else (),
        roles=_roles(forecast),
        holders=forecast.holders_at_peak[:HOLDERS_SHOWN],
        more_holders=forecast.holders_at_peak[HOLDERS_SHOWN:],
        place=place_of_peak(forecast.peak),
        failure=place_of_failure(forecast.oom) if forecast.oom is not None else "",
    )


def _gauge(forecast: Forecast) -> tuple[Share, ...]:
    """How the card is filled at the peaks; of what would not fit, how it would be filled."""
    peak, total = forecast.peak, forecast.gpu.total
    parts = [
        ("allocated", "allocated", peak.allocated),
        ("waiting", "waiting", peak.active - peak.allocated),
        ("stranded", "stranded", peak.reserved - peak.active),
        ("context", "context", peak.context),
        ("spare", "spare", max(total - peak.used, 0)),
    ]
    whole = max(total, peak.used, 1)
    return tuple(
        Share(key=key, title=title, bytes=size, percent=round(100 * size / whole, 3)) for key, title, size in parts
    )


def _roles(forecast: Forecast) -> tuple[Share, ...]:
    """The roles at the peak, the largest first."""
    held = sorted(((word, size) for word, size in forecast.roles_at_peak.items() if size), key=lambda row: -row[1])
    whole = max(sum(size for _, size in held), 1)
    return tuple(
        Share(key=word, title=role_title(word), bytes=size, percent=round(100 * size / whole, 1)) for word, size in held
    )


@cache
def _style() -> str:
    light, dark = css_variables(), css_variables(dark=True)
    # Line ends would make a paragraph of it where a notebook is exported through Markdown.
    return " ".join(_asset("notebook.css").replace("/*light*/", light).replace("/*dark*/", dark).split())


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(
        size=format_size, grouped=lambda number: f"{number:,}", short_line=short_line, role_title=role_title,
        holder_text=holder_text, example_text=example_text, times=times,
    )  # fmt: skip
    return environment.from_string(_asset("notebook.html"))


def _asset(name: str) -> str:
    return (files("peakmem.report") / "assets" / name).read_text(encoding="utf-8")
