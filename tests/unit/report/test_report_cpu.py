"""What is printed of a forecast of training on the CPU."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from peakmem.forecast.cpu import CpuForecast
from peakmem.forecast.explain import OPTIMIZER_STATE, WEIGHT_GRADIENTS, HandCount
from peakmem.forecast.explain_cpu import BATCH, HELD, IMPORTED, LATER, WEIGHTS, CpuExplanation, CpuLine
from peakmem.forecast.host import Host, HostCourse, HostPart, HostStep
from peakmem.forecast.model import Assumption, ScriptError
from peakmem.report.cpu import print_cpu_forecast
from peakmem.report.explain_cpu import print_cpu_explanation

MIB = 2**20
GOLDEN = Path(__file__).parent / "golden"


def forecast(**changes: object) -> CpuForecast:
    host = Host(
        peak_rss=600 * MIB,
        threads=2,
        limit=8 * 1024 * MIB,
        limit_name="--memory",
        parts=(
            HostPart(name="libraries", bytes=220 * MIB, source="measured", note="Python and torch, as imported"),
            HostPart(name="loaded later", bytes=90 * MIB, source="measured", note="modules, kernels' code"),
            HostPart(name="tensors", bytes=250 * MIB, source="counted", note="in use"),
            HostPart(name="heap held", bytes=40 * MIB, source="counted", note="free, but kept by malloc"),
        ),
        roles=(
            HostPart(name="parameter", bytes=50 * MIB, source="counted"),
            HostPart(name="activation or temporary", bytes=200 * MIB, source="counted"),
        ),
        by_hand=50 * MIB,
        steps=(
            HostStep(
                index=0,
                peak_rss=600 * MIB,
                end_rss=450 * MIB,
                phases={"forward": 400 * MIB, "backward": 600 * MIB, "optimizer": 500 * MIB},
            ),
        ),
        course=HostCourse(
            event=tuple(range(10)),
            rss=tuple((300 + 30 * (i if i < 6 else 10 - i)) * MIB for i in range(10)),
            tensors=(0,) * 10,
            step=(0,) * 10,
        ),
        step=0,
        phase="backward",
    )
    values: dict[str, object] = {
        "peakmem": "1.0",
        "torch": "2.13.0+cpu",
        "libc": "glibc 2.36",
        "command": ("train.py",),
        "verdict": "fits",
        "host": host,
        "steady": True,
        "stopped": "enough",
        "assumptions": (Assumption(what="workspace of oneDNN", count=2, assumed="grows evenly"),),
        "seconds": 3.2,
    }
    return CpuForecast(**(values | changes))  # type: ignore[arg-type]


def printed(found: CpuForecast) -> str:
    out = io.StringIO()
    print_cpu_forecast(found, Console(file=out, width=80, highlight=False))
    return out.getvalue()


def test_a_forecast_that_fits() -> None:
    text = printed(forecast())
    assert text == (GOLDEN / "cpu_fits.txt").read_text()
    assert max(map(len, text.splitlines())) <= 80


def test_a_script_that_failed_says_what_it_took_until_then() -> None:
    text = printed(forecast(error=ScriptError(type="ValueError", message="boom", line="train.py:5")))
    assert "the script failed at train.py:5\n ValueError: boom\n until then: 600.00 MiB resident" in text


def test_steps_without_phases_have_a_peak_each() -> None:
    step = HostStep(index=0, peak_rss=600 * MIB, end_rss=450 * MIB, phases={"other": 600 * MIB})
    host = replace(forecast().host, steps=(step,), phase="other")
    text = printed(forecast(host=host, torch="", framework="TensorFlow 2.21.0"))
    assert "step                peak    left at its end" in text
    assert "1 (steady)    600.00 MiB         450.00 MiB" in text
    assert "the peak is reached in step 1\n" in text
    assert "TensorFlow 2.21.0, glibc 2.36" in text
    assert "a count by hand" not in text


def test_a_peak_at_the_end_of_the_process_is_told_of_beside_that_of_the_training() -> None:
    found = forecast()
    at_exit = replace(found.host, peak_rss=700 * MIB, phase="exit", step=None)
    text = printed(replace(found, host=at_exit))
    assert "the peak is reached when the process ends; in training it was 600.00 MiB" in text
    assert "a count by hand of parameters, gradients and optimizer states: 50.00 MiB" in text
    assert "  parameter" not in text
    assert "the peak is reached when the process ends\n" in printed(replace(found, host=replace(at_exit, steps=())))


def test_the_calculation_by_hand_stands_beside_what_is_resident() -> None:
    count = HandCount(
        batch=256,
        layers=5,
        input_elements=256_000,
        input_bytes=1_024_000,
        output_elements=104_960,
        output_bytes=419_840,
        parameters=131_410,
        parameter_bytes=525_640,
    )
    lines = (
        CpuLine(what=BATCH, by_hand=count.bytes, at_peak=3 * MIB),
        CpuLine(what=WEIGHTS, by_hand=count.parameter_bytes, at_peak=525_640),
        CpuLine(what=WEIGHT_GRADIENTS, by_hand=None, at_peak=525_640),
        CpuLine(what=OPTIMIZER_STATE, by_hand=None, at_peak=1_051_280),
        CpuLine(what=HELD, by_hand=None, at_peak=5 * MIB),
        CpuLine(what=LATER, by_hand=None, at_peak=90 * MIB),
        CpuLine(what=IMPORTED, by_hand=None, at_peak=220 * MIB),
    )
    explained = CpuExplanation(count=count, lines=lines, resident=sum(line.at_peak for line in lines))
    out = io.StringIO()
    print_cpu_explanation(explained, forecast(), Console(file=out, width=80, highlight=False))
    assert out.getvalue() == (GOLDEN / "explanation_cpu.txt").read_text()
