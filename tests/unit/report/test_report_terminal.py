"""What `peakmem run` prints, at 80 columns, as golden texts."""

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from peakmem.forecast.model import (
    Assumption,
    Forecast,
    Gpu,
    Holder,
    OutOfMemory,
    Peak,
    Range,
    ScriptError,
    StepPeak,
    Unneeded,
)
from peakmem.report.terminal import print_forecast

GOLDEN = Path(__file__).parent / "golden"
GIB, MIB = 2**30, 2**20


def holder(role: str, name: str, size: int, count: int = 1) -> Holder:
    return Holder(
        role=role,
        name=name,
        module=name.rpartition(".")[0] or None,
        op=None,
        line="train.py:12",
        shape=(256, 1000),
        dtype="float32",
        step=1,
        phase="forward",
        count=count,
        bytes=size,
    )


FITS = Forecast(
    peakmem="0.1.0",
    torch="2.14.1+cu130",
    command=("python", "train.py"),
    verdict="fits",
    gpu=Gpu(name="NVIDIA GeForce RTX 4090", total=24 * GIB, compute_capability="8.9", usable=24 * GIB - 500 * MIB),
    alloc_conf="",
    peak=Peak(
        requested=4_000_000_000,
        allocated=4_000_500_224,
        active=4_000_500_224,
        reserved=4_294_967_296,
        context=500 * MIB,
        context_error=100 * MIB,
        used=4_294_967_296 + 500 * MIB,
        step=1,
        phase="backward",
        op="AddmmBackward0",
        module="encoder.layers.5.linear1",
    ),
    steps=tuple(
        StepPeak(index=i, requested=1, allocated=(i + 1) * GIB, active=1, reserved=4 * GIB, backwards=1, optimizers=1)
        for i in range(8)
    ),
    steady=True,
    stopped="enough",
    floor=None,
    segments=12,
    retries=0,
    ooms=0,
    oom=None,
    error=None,
    convolution_range=Range(least=3 * GIB, likely=4 * GIB, own=5 * GIB),
    roles_at_peak={"activation": 3_000_500_224, "parameter": 1_000_000_000},
    holders_at_peak=(
        holder("activation", "encoder.layers.*.linear1", 2 * GIB, 6),
        holder("parameter", "head.weight", MIB),
    ),
    unneeded_at_peak=(
        Unneeded(
            what="gradients of the step before",
            bytes=MIB,
            count=2,
            examples=(holder("gradient", "head.weight", MIB),),
            remedy="optimizer.zero_grad(set_to_none=True) right after optimizer.step()",
        ),
    ),
    assumptions=(
        Assumption(what="number read on the host", count=1, assumed="0", where="train.py:20"),
        Assumption(what="cuDNN RNN reserve", count=3, assumed="an estimate"),
    ),
    notes=("the script was ended after 8 steps",),
    seconds=4.2,
)
TOO_LARGE = replace(
    FITS,
    verdict="does_not_fit",
    gpu=replace(FITS.gpu, total=4 * GIB),
    floor=4_600_000_512,
    convolution_range=None,
    oom=OutOfMemory(
        requested=200 * MIB,
        missing=77 * MIB,
        step=1,
        phase="forward",
        op="aten::linear",
        module="lm_head",
        line="train.py:21",
        needed=FITS.peak.used,
        caught=False,
    ),
)
FAILED = replace(
    FITS,
    error=ScriptError(type="ValueError", message="no such file: data.csv", line="train.py:4"),
    convolution_range=None,
    roles_at_peak={},
    holders_at_peak=(),
    unneeded_at_peak=(),
    steps=FITS.steps[:1],
)


def printed(forecast: Forecast) -> str:
    out = io.StringIO()
    print_forecast(forecast, Console(file=out, width=80, highlight=False))
    return out.getvalue()


@pytest.mark.parametrize(("name", "forecast"), [("fits", FITS), ("does_not_fit", TOO_LARGE), ("failed", FAILED)])
def test_the_text_is_the_golden_one(name, forecast):
    path = GOLDEN / f"run_{name}.txt"
    text = printed(forecast)
    if os.environ.get("PEAKMEM_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("forecast", [FITS, TOO_LARGE, FAILED])
def test_no_line_is_too_wide_or_ends_in_blanks(forecast):
    for line in printed(forecast).splitlines():
        assert len(line) <= 80 and line == line.rstrip()


def test_names_that_look_like_markup_are_printed_as_they_are():
    odd = replace(FITS, gpu=replace(FITS.gpu, name="[bold]card[/bold]"))
    assert "[bold]card[/bold]" in printed(odd)


def test_one_of_a_thing_is_named_so() -> None:
    stream = io.StringIO()
    print_forecast(replace(FITS, segments=1, retries=1), Console(file=stream, width=80))
    assert " 1 segment, 1 retry, " in stream.getvalue()
