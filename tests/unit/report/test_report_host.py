"""The host's side in print, and what is measured of it: golden texts at 80 columns."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from host_samples import GIB, JOB, MEASURED, MIB
from rich.console import Console, Group
from unit_forecasts import forecast_of

from peakmem.errors import PeakmemError
from peakmem.files import to_json
from peakmem.host.measurement import Measurement
from peakmem.report.area import area_chart
from peakmem.report.beside import beside_of, load_forecast, load_measurement, put_beside
from peakmem.report.host_side import host_section
from peakmem.report.host_wording import host_rows, host_warnings
from peakmem.report.measuring import print_beside, print_measurement
from peakmem.report.notebook import forecast_html

GOLDEN = Path(__file__).parent / "golden"


def printed(show: Callable[[Console], None]) -> str:
    out = io.StringIO()
    show(Console(file=out, width=80, highlight=False))
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


def check_golden(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("PEAKMEM_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_the_section_of_a_forecast() -> None:
    check_golden("host_section", printed(lambda console: console.print(Group(*host_section(JOB)))))


def test_parts_add_up_to_the_line_above_them() -> None:
    rows = host_rows(JOB)
    end = next(index for index, row in enumerate(rows[1:], 1) if row.is_sum)
    assert sum(row.bytes for row in rows[1:end]) == rows[0].bytes == JOB.peak_rss


def test_nothing_is_warned_of_without_a_reason() -> None:
    pinning = replace(JOB.pinning, requested=JOB.pinned) if JOB.pinning else None
    assert host_warnings(replace(JOB, loaders=(), graph_growth=0, pinning=pinning)) == ()


def test_a_notebook_shows_the_host() -> None:
    html = forecast_html(replace(forecast_of(), host=JOB))
    assert f'data-host="{JOB.node_peak}"' in html
    assert "data-host" not in forecast_html(forecast_of())


@pytest.mark.parametrize(
    ("name", "measured"),
    [
        ("measured", MEASURED),
        (
            "measured_killed",
            replace(
                MEASURED,
                ending="out_of_memory",
                exit_code=-9,
                notes=("the kernel killed a process for want of host memory; the largest had 3.00 GiB",),
                processes=MEASURED.processes[:1],
                gpus=(),
                torch=(),
            ),
        ),
    ],
)
def test_a_measurement(name: str, measured: Measurement) -> None:
    check_golden(name, printed(lambda console: print_measurement(measured, console)))


def forecast_json() -> dict[str, object]:
    content: dict[str, object] = json.loads(to_json(replace(forecast_of(), host=JOB)))
    return content


def test_a_forecast_beside_what_was_measured() -> None:
    beside = put_beside(forecast_json(), MEASURED, name="forecast.json", measurement="this run")
    check_golden("beside", printed(lambda console: print_beside(beside, console)))
    rows = {row.name: row for row in beside.rows}
    assert rows["pinned host memory"].difference == 0
    assert rows["host memory, largest process"].predicted == JOB.peak_rss
    assert rows["host memory, all processes"].measured == MEASURED.peak.pss


def test_files_are_told_by_their_schema(tmp_path: Path) -> None:
    forecast, measured, other = (str(tmp_path / name) for name in ("f.json", "m.json", "o.json"))
    Path(forecast).write_bytes(to_json(forecast_json()))
    Path(measured).write_bytes(to_json(MEASURED))
    Path(other).write_text('{"schema": "other"}')
    assert load_measurement(measured) == MEASURED
    assert load_measurement(forecast) is None
    for pair in ((forecast, measured), (measured, forecast)):
        beside = beside_of(*pair)
        assert beside is not None
        assert (beside.forecast, beside.measurement) == (forecast, measured)
    two = beside_of(measured, measured)
    assert two is not None
    assert {row.difference for row in two.rows} == {0}
    assert two.columns == ("a", "b")
    assert beside_of(forecast, forecast) is None
    with pytest.raises(PeakmemError, match="is no forecast: its schema is 'other'"):
        beside_of(other, measured)
    with pytest.raises(PeakmemError, match="can't be read"):
        load_forecast(str(tmp_path / "none.json"))


def test_a_damaged_measurement_is_told(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    content = msgspec.to_builtins(MEASURED)
    content["peak"]["rss"] = "much"
    path.write_bytes(msgspec.json.encode(content))
    with pytest.raises(PeakmemError, match="is a damaged measurement"):
        load_measurement(str(path))


def test_the_chart_keeps_the_highest_value_of_each_column() -> None:
    lines = area_chart([0.0, 1.0, 1.1, 9.0, 10.0], [1, 8, 2, 4, 8], width=10, height=2)
    assert [len(line) for line in lines] == [10, 10]
    # Nothing was seen from 1.1 to 9: it stayed as high as it was.
    assert lines[0] == " ████████▄".replace("▄", "█")
    assert area_chart([], [], width=10, height=2) == ()
    assert area_chart([0.0], [0], width=10, height=2) == ()
    assert area_chart([5.0], [MIB], width=4, height=1) == ("████",)
    assert GIB > MIB
