"""The timeline of a forecast: at most so many points, its peaks true, its roles closing, its marks where they were."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("trace", "report")]
from training_trace import training_trace
from unit_forecasts import forecast_of

from peakmem.files import to_json
from peakmem.forecast.model import Forecast
from peakmem.forecast.timeline import MOST_POINTS, timeline
from peakmem.trace.model import Trace
from peakmem.trace.replay import Replay


@pytest.mark.parametrize(("steps", "most"), [(3, MOST_POINTS), (3, 16), (12, 60), (40, MOST_POINTS)])
def test_peaks_are_true_and_roles_close(steps: int, most: int) -> None:
    replay = Replay(training_trace(steps=steps), 0)
    line = timeline(replay, most=most)
    assert len(line.event) <= most
    assert (line.event[0], line.event[-1]) == (0, line.events) == (0, len(replay) - 1)
    assert list(line.event) == sorted(set(line.event))
    assert max(line.allocated) == replay.peak("allocated").allocated
    assert max(line.reserved) == replay.peak("reserved").reserved
    assert line.peak == replay.peak_moment()
    assert line.allocated[line.event.index(line.peak)] == max(line.allocated)
    columns = list(line.roles.values())
    assert {len(column) for column in columns} == {len(line.event)}
    assert tuple(map(sum, zip(*columns, strict=True))) == line.allocated
    assert min(map(min, columns)) >= 0


def test_a_short_run_is_kept_whole() -> None:
    replay = Replay(training_trace(), 0)
    line = timeline(replay)
    assert line.event == tuple(range(len(replay)))
    assert line.reserved == tuple(replay.timeline.reserved.tolist())


def test_marks_are_the_steps_and_phases_in_order() -> None:
    line = timeline(Replay(training_trace(), 0))
    assert [(mark.kind, mark.name, mark.step) for mark in line.marks[:5]] == [
        ("step", "step", 0), ("phase", "forward", 0), ("phase", "backward", 0), ("phase", "optimizer", 0),
        ("step", "step", 1),
    ]  # fmt: skip
    step, forward, backward = line.marks[:3]
    assert step.first == forward.first < forward.end == backward.first < backward.end < step.end


def test_of_very_many_steps_those_are_marked_that_can_be_seen_or_hold_the_peak() -> None:
    line = timeline(Replay(training_trace(steps=40), 0), most=20)
    assert 0 < len(line.marks) <= 4
    assert all(mark.first < line.peak <= mark.end for mark in line.marks)


def test_a_run_without_events_has_one_point() -> None:
    line = timeline(Replay(Trace(), 0))
    assert (line.events, line.event, line.allocated, line.roles, line.marks) == (0, (0,), (0,), {}, ())


def test_json_keeps_it_and_takes_one_line_for_a_column() -> None:
    forecast = forecast_of()
    text = to_json(forecast)
    assert msgspec.json.decode(text, type=Forecast) == forecast
    assert json.loads(text)["timeline"]["allocated"] == list(forecast.timeline.allocated)
    assert any(row.strip().startswith(b'"allocated": [0, ') for row in text.splitlines())
    assert len(text.splitlines()) < 1500


def test_json_leaves_texts_alone() -> None:
    note = "[\n  1,\n  2\n]"
    assert json.loads(to_json(replace(forecast_of(), notes=(note,))))["notes"] == [note]


def test_an_older_forecast_has_none() -> None:
    old = json.loads(to_json(forecast_of()))
    del old["timeline"]
    assert msgspec.convert(old, Forecast).timeline is None
