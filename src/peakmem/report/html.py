"""The HTML report: one file that needs no network."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from peakmem.files import atomic_write
from peakmem.report.html_data import report_data
from peakmem.report.html_model import ReportData
from peakmem.report.role_colors import css_variables
from peakmem.units import format_size

if TYPE_CHECKING:
    from peakmem.trace.model import Trace

_SCRIPTS = ("core.js", "summary.js", "timeline.js", "flame.js", "segments.js")


def write_html(trace: Trace, path: str | Path, *, title: str, device: int | None = None, force: bool = False) -> Path:
    """Write the report of a trace.

    Args:
        trace: the trace.
        path: the file to make.
        title: of the page, usually the trace's file name.
        device: which device; by default the one that held most.
        force: whether an existing file may be replaced.

    Raises:
        PeakmemError: the file exists and `force` is false, or it can't be written.
    """
    path = Path(path)
    page = render_html(report_data(trace, title=title, device=device)).encode("utf-8", "replace")
    with atomic_write(path, force=force) as stream:
        stream.write(page)
    return path


def render_html(data: ReportData) -> str:
    """The page."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    template = environment.from_string(_asset("report.html"))
    return template.render(
        version=data.peakmem,
        title=data.title,
        style=Markup(_role_colors() + _asset("report.css")),
        script=Markup('"use strict";\n(() => {\n' + "\n".join(map(_asset, _SCRIPTS)) + "\n})();"),
        data=Markup(embed(data)),
        host=data.host,
        size=format_size,
    )


def embed(data: ReportData) -> str:
    """JSON that can stand inside a `script` element: nothing in it can end the element."""
    text = msgspec.json.encode(data).decode("utf-8", "replace")
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _role_colors() -> str:
    return f':root {{ {css_variables()} }}\n:root[data-theme="dark"] {{ {css_variables(dark=True)} }}\n'


def _asset(name: str) -> str:
    return (files("peakmem.report") / "assets" / name).read_text(encoding="utf-8")
