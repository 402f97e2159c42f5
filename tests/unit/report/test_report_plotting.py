"""`Forecast.plot`: lines, layers, limits and legend are those of the forecast; matplotlib may be missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from unit_forecasts import NASTY, forecast_of, on_a_smaller_card, with_hostile_names

from peakmem.errors import PeakmemError
from peakmem.forecast.model import Forecast
from peakmem.report.chart import layers, scale


@pytest.fixture(scope="module")
def forecast() -> Forecast:
    return forecast_of()


@pytest.fixture
def pyplot() -> Iterator[Any]:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def test_lines_limits_and_legend(forecast: Forecast, pyplot: Any) -> None:
    small = on_a_smaller_card(forecast)
    line = small.timeline
    assert line is not None
    axes = small.plot()
    assert axes.get_ylim() == (0, scale(line, small.gpu.usable).top)
    assert axes.get_xlim() == (0, line.events)
    lines = {drawn.get_label(): drawn for drawn in axes.get_lines()}
    reserved = lines["reserved"]
    assert tuple(reserved.get_xdata()) == line.event and tuple(reserved.get_ydata()) == line.reserved
    assert reserved.get_drawstyle() == "steps-post"
    [usable] = [drawn for label, drawn in lines.items() if label.startswith("usable")]
    assert set(usable.get_ydata()) == {small.gpu.usable}
    assert [(drawn.get_xdata()[0], drawn.get_ydata()[0]) for drawn in lines.values() if drawn.get_marker() == "o"] == [
        (line.peak, small.peak.allocated)
    ]
    words = [text.get_text() for text in axes.get_legend().get_texts()]
    assert words[:2] == [usable.get_label(), "reserved"]
    assert words[2:] == [layer.role.title for layer in reversed(layers(line))]
    assert "does not fit on Some GPU" in axes.get_title(loc="left")
    texts = {text.get_text() for text in axes.texts}
    assert {"step 1", "step 2", "step 3"} <= texts


def test_layers_reach_as_high_as_what_they_stand_for(forecast: Forecast, pyplot: Any) -> None:
    axes = forecast.plot()
    drawn = {found.get_label(): found for found in axes.collections}
    for layer in layers(forecast.timeline):
        [path] = drawn[layer.role.title].get_paths()
        assert path.vertices[:, 1].max() == max(layer.upper)
    axes.figure.canvas.draw()
    assert axes.get_yticklabels()[-1].get_text().endswith("MiB")


def test_it_draws_where_it_is_told_in_the_colours_of_the_background(forecast: Forecast, pyplot: Any) -> None:
    _, (left, right) = pyplot.subplots(1, 2)
    right.set_facecolor("#101418")
    assert forecast.plot(right) is right and forecast.plot(ax=left) is left
    assert len(pyplot.get_fignums()) == 1
    parameter = [axes.collections[0].get_facecolor()[0].tolist() for axes in (left, right)]
    assert parameter[0] != parameter[1]


def test_a_far_capacity_is_told_not_drawn(forecast: Forecast, pyplot: Any) -> None:
    axes = replace(forecast, gpu=replace(forecast.gpu, usable=2**40)).plot()
    assert axes.get_ylim()[1] < 2**30
    assert any("usable 1.00 TiB, above this plot" in text.get_text() for text in axes.texts)


def test_names_are_no_formulas(forecast: Forecast, pyplot: Any) -> None:
    axes = with_hostile_names(forecast).plot()
    assert NASTY in axes.get_title(loc="left")
    axes.figure.canvas.draw()  # raises if it takes that for a formula


def test_without_a_timeline_it_says_so(forecast: Forecast, pyplot: Any) -> None:
    with pytest.raises(PeakmemError, match="no timeline"):
        replace(forecast, timeline=None).plot()


def test_without_matplotlib_it_says_what_to_install(forecast: Forecast, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PeakmemError, match=r"pip install 'peakmem\[plot\]'"):
        forecast.plot()
