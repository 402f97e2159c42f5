"""The fragment for a notebook: well-formed, its numbers those of the forecast, nothing from outside, nothing let in."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit_forecasts import NASTY, forecast_of, on_a_smaller_card, with_hostile_names

from peakmem.forecast.model import Forecast
from peakmem.report.chart import layers, scale
from peakmem.report.notebook import HOLDERS_SHOWN, forecast_html
from peakmem.report.notebook_chart import HEIGHT, WIDTH, staircase
from peakmem.report.wording import statement_rows

VOID = {"br"}
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# What a notebook does to tables inside of an output, and what a page may do to them.
AROUND = """
.jp-RenderedHTMLCommon { color: #000d; line-height: 1.6; }
.jp-RenderedHTMLCommon table { table-layout: fixed; margin: 0 auto 1em; font-size: 12px; }
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon tr { vertical-align: middle; padding: 0.5em; }
:not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon td { text-align: right; }
.jp-RenderedHTMLCommon tbody tr:nth-child(odd) { background: rgb(1, 2, 3); }
"""
PROBE = """
const seen = [...document.querySelectorAll(".peakmem-forecast")].map((one) => {
  const style = (where) => getComputedStyle(one.querySelector(where));
  const plot = one.querySelector(".plot").getBoundingClientRect();
  const outside = [...one.querySelectorAll("*")].filter((part) => part.getClientRects().length
    && part.getBoundingClientRect().right > one.getBoundingClientRect().right + 0.5);
  return {
    card: getComputedStyle(one).backgroundColor, row: style(".statement tr").backgroundColor,
    first: style(".statement td").textAlign, parameter: style("path[data-area=parameter]").fill,
    overflow: one.scrollWidth - one.clientWidth, outside: outside.map((part) => part.className),
    height: plot.height, drawn: one.querySelector("svg").getBoundingClientRect().width - plot.width,
  };
});
document.body.dataset.probe = JSON.stringify(seen);
"""


@dataclass(frozen=True)
class Element:
    tag: str
    attributes: dict[str, str]


@dataclass
class Page(HTMLParser):
    """Reads a fragment; fails where an element isn't closed by its own end."""

    fragment: str
    elements: list[Element] = field(default_factory=list)
    text: str = ""
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.fragment)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data

    def with_attribute(self, name: str) -> Iterator[dict[str, str]]:
        return (element.attributes for element in self.elements if name in element.attributes)

    def sizes(self, name: str, value: str = "data-bytes") -> dict[str, int]:
        return {found[name]: int(found[value]) for found in self.with_attribute(name)}


@pytest.fixture(scope="module")
def forecast() -> Forecast:
    return forecast_of()


def test_the_numbers_are_those_of_the_forecast(forecast: Forecast) -> None:
    page = Page(forecast_html(forecast))
    peak = forecast.peak
    assert page.sizes("data-row") == {row.name: row.bytes for row in statement_rows(peak)}
    assert {"requested", "allocated", "reserved", "used"} <= page.sizes("data-row").keys()
    assert f"{peak.used:,}" in page.text
    assert page.sizes("data-role") == {word: size for word, size in forecast.roles_at_peak.items() if size}
    assert page.sizes("data-area") == {role: forecast.roles_at_peak[role] for role in forecast.timeline.roles}
    assert [int(found["data-holder"]) for found in page.with_attribute("data-holder")] == [
        holder.bytes for holder in forecast.holders_at_peak
    ]
    assert [int(found["data-peak"]) for found in page.with_attribute("data-peak")] == [peak.allocated]
    assert [found["data-verdict"] for found in page.with_attribute("data-verdict")] == ["fits"]
    gauge = page.sizes("data-gauge")
    assert sum(gauge.values()) == forecast.gpu.total
    assert gauge["allocated"] == peak.allocated and gauge["context"] == peak.context
    widths = [float(found["style"][6:-1]) for found in page.with_attribute("data-gauge")]
    assert sum(widths) == pytest.approx(100, abs=0.01)


def test_the_capacity_line_is_where_the_memory_ends(forecast: Forecast) -> None:
    small = on_a_smaller_card(forecast)
    assert small.timeline is not None
    [line] = Page(forecast_html(small)).with_attribute("data-capacity")
    assert line["class"] == "limit" and int(line["data-capacity"]) == small.gpu.usable
    percent = float(line["style"].removeprefix("bottom:").removesuffix("%"))
    top = scale(small.timeline, small.gpu.usable).top
    assert percent == pytest.approx(100 * small.gpu.usable / top, abs=0.01)
    large = replace(forecast, gpu=replace(forecast.gpu, usable=2**40, total=2**40 + forecast.peak.context))
    page = Page(forecast_html(large))
    assert "limit-text above" in [found["class"] for found in page.with_attribute("data-capacity")]
    assert "usable 1.00 TiB, above this chart" in page.text


def test_what_does_not_fit_says_where_and_how_much(forecast: Forecast) -> None:
    page = Page(forecast_html(on_a_smaller_card(forecast)))
    assert "does not fit" in page.text and "1.00 MiB more than there is" in page.text
    assert "out of memory in step 2, backward, AddmmBackward0, encoder, /home/me/train.py:31" in page.text
    assert "the smallest memory that works" in page.text
    assert sum(page.sizes("data-gauge").values()) == forecast.peak.used


def test_areas_are_drawn_from_the_top_so_that_lower_ones_cover_them(forecast: Forecast) -> None:
    page = Page(forecast_html(forecast))
    drawn = [found["data-area"] for found in page.with_attribute("data-area")]
    assert drawn == [layer.role.word for layer in reversed(layers(forecast.timeline))]
    paths = [found["d"] for found in page.with_attribute("d")]
    heights = [min(float(y) for y in re.findall(r"V([\d.]+)", path)) for path in paths]
    assert heights == sorted(heights)
    top = scale(forecast.timeline, forecast.gpu.usable).top
    assert heights[0] == pytest.approx(HEIGHT * (1 - forecast.peak.reserved / top), abs=0.05)
    assert heights[1] == pytest.approx(HEIGHT * (1 - forecast.peak.allocated / top), abs=0.05)


def test_steps_and_phases_are_named(forecast: Forecast) -> None:
    page = Page(forecast_html(forecast))
    assert all(f"step {number}" in page.text for number in (1, 2, 3))
    titles = {found["title"] for found in page.with_attribute("title")}
    assert {"forward of step 1", "backward of step 2", "optimizer of step 3"} <= titles


def test_hostile_names_stay_text(forecast: Forecast) -> None:
    fragment = forecast_html(with_hostile_names(forecast))
    page = Page(fragment)
    tags = {element.tag for element in page.elements}
    assert tags <= {
        "div", "style", "span", "b", "i", "u", "br", "svg", "path", "title", "table", "tbody", "tr", "td", "details",
        "summary",
    }  # fmt: skip
    assert not any(name.startswith("on") for element in page.elements for name in element.attributes)
    assert fragment.count("</style>") == 1
    assert page.text.count(NASTY) >= 9 + 9
    assert NASTY in {found["title"] for found in page.with_attribute("title")}


def test_nothing_comes_from_elsewhere_and_no_style_reaches_others(forecast: Forecast) -> None:
    fragment = forecast_html(forecast)
    page = Page(fragment)
    assert not {"script", "link", "img", "iframe", "a"} & {element.tag for element in page.elements}
    assert not re.search(r"url\(|@import|https?:|\bid=", fragment)
    [style] = re.findall(r"<style>(.*?)</style>", fragment, re.DOTALL)
    rules = re.sub(r"@media [^{]*\{(.*?\})\s*\}", r"\1", style)
    selectors = [selector for rule in re.findall(r"([^{}]+)\{", rules) for selector in rule.split(",")]
    assert len(selectors) > 40
    assert [selector for selector in selectors if ".peakmem-forecast" not in selector] == []


def test_a_forecast_without_a_recording_has_a_statement_only(forecast: Forecast) -> None:
    bare = replace(forecast, timeline=None, roles_at_peak={}, holders_at_peak=())
    page = Page(forecast_html(bare))
    assert page.sizes("data-row")["used"] == forecast.peak.used
    assert "svg" not in {element.tag for element in page.elements}
    assert "holders" not in page.text


def test_more_holders_are_folded_away(forecast: Forecast) -> None:
    many = replace(forecast, holders_at_peak=(forecast.holders_at_peak[0],) * 10)
    page = Page(forecast_html(many))
    assert len(list(page.with_attribute("data-holder"))) == 10
    assert f"{10 - HOLDERS_SHOWN} more" in page.text


def test_a_notebook_gets_the_fragment_and_a_short_text(forecast: Forecast) -> None:
    assert forecast._repr_html_() == forecast_html(forecast)
    assert "timeline" not in repr(forecast)


def test_a_forecast_does_not_need_the_reports() -> None:
    code = "import sys, peakmem.forecast.build; print([m for m in sys.modules if m.startswith('peakmem.report')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@given(st.lists(st.tuples(st.floats(0, WIDTH), st.floats(0, HEIGHT)), min_size=1, max_size=30))
def test_a_staircase_holds_each_height_until_the_next_point(points: list[tuple[float, float]]) -> None:
    across = sorted(x for x, _ in points)
    down = [y for _, y in points]
    path = staircase(across, down)
    assert path.startswith(f"M0 {HEIGHT}") and path.endswith(f"H{WIDTH}V{HEIGHT}Z")
    moves = re.findall(r"H([\d.]+)V([\d.]+)", path)
    assert all(float(a[0]) <= float(b[0]) for a, b in pairwise(moves))

    def height(x: float) -> float:
        return [float(y) for at, y in moves[:-1] if float(at) <= x + 0.06][-1]

    last = {round(x, 1): y for x, y in zip(across, down, strict=True)}
    for x, y in last.items():
        if all(abs(other - x) > 0.2 for other in last if other != x):
            assert height(x) == pytest.approx(y, abs=0.051)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.chromium
def test_a_browser_shows_it_in_the_colours_of_the_notebook_at_any_width(tmp_path: Path, forecast: Forecast) -> None:
    assert BROWSER is not None
    hosts = ['data-jp-theme-light="true"', 'data-jp-theme-light="false"', 'class="vscode-dark"', ""]
    shown = [on_a_smaller_card(forecast), with_hostile_names(forecast)]
    cells = [(host, width, one) for host in hosts for width in (700, 330) for one in shown]
    body = "".join(
        f'<div {host}><div class="jp-RenderedHTMLCommon" style="width:{width}px">{forecast_html(one)}</div></div>'
        for host, width, one in cells
    )
    page = f"<!doctype html><meta charset=utf-8><style>{AROUND}</style><body>{body}<script>{PROBE}</script></body>"
    (tmp_path / "page.html").write_text(page)
    arguments = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=900,1000", "--dump-dom",
        (tmp_path / "page.html").as_uri(),
    ]  # fmt: skip
    done = subprocess.run([BROWSER, *arguments], capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'data-probe="([^"]*)"', done.stdout)
    assert found, done.stderr[-2000:]
    seen = json.loads(html.unescape(found.group(1)))
    light, dark = "rgb(255, 255, 255)", "rgb(23, 30, 38)"
    assert [one["card"] for one in seen] == [light] * 4 + [dark] * 8 + [light] * 4
    assert {one["card"]: one["parameter"] for one in seen} == {light: "rgb(59, 111, 212)", dark: "rgb(108, 152, 240)"}
    assert {one["row"] for one in seen} == {"rgba(0, 0, 0, 0)"}
    assert {one["first"] for one in seen} == {"left"}
    assert {(one["overflow"], one["height"], one["drawn"]) for one in seen} == {(0, 210, 0)}
    assert [one["outside"] for one in seen] == [[]] * len(seen)
