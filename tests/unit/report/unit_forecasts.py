"""Forecasts to render, made of the hand-written training run."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "trace"))
from training_trace import CAPACITY, CONTEXT, training_trace

from peakmem.forecast.holders import at_peak
from peakmem.forecast.model import Assumption, Forecast, Gpu, OutOfMemory, Peak, ScriptError, Unneeded
from peakmem.forecast.timeline import timeline
from peakmem.trace.model import Trace
from peakmem.trace.replay import Replay


def forecast_of(trace: Trace | None = None) -> Forecast:
    """What a run with this history would have been told."""
    trace = training_trace() if trace is None else trace
    replay = Replay(trace, 0)
    held = at_peak(trace)
    line = replay.timeline
    reserved = int(line.reserved.max())
    return Forecast(
        peakmem="1.2.3",
        torch="2.14.1+cu130",
        command=("python", "train.py"),
        verdict="fits",
        gpu=Gpu(name="Some GPU", total=CAPACITY + CONTEXT, compute_capability="8.0", usable=CAPACITY),
        alloc_conf="",
        peak=Peak(
            requested=int(line.requested.max()),
            allocated=int(line.allocated.max()),
            active=int(line.active.max()),
            reserved=reserved,
            context=CONTEXT,
            context_error=2**20,
            used=reserved + CONTEXT,
            step=held.step,
            phase=held.phase,
            op=held.op,
            module=held.module,
            line=held.line,
        ),
        steps=(),
        steady=True,
        stopped="end",
        floor=None,
        segments=3,
        retries=0,
        ooms=0,
        oom=None,
        error=None,
        convolution_range=None,
        roles_at_peak=held.roles,
        holders_at_peak=held.holders,
        timeline=timeline(replay),
    )


def on_a_smaller_card(forecast: Forecast) -> Forecast:
    """The same run on a card that is a little too small."""
    usable = forecast.peak.reserved - 2**20
    card = replace(forecast.gpu, total=usable + CONTEXT, usable=usable)
    oom = OutOfMemory(
        requested=20 << 20,
        missing=2**20,
        step=1,
        phase="backward",
        op="AddmmBackward0",
        module="encoder",
        line="/home/me/train.py:31",
        needed=forecast.peak.used,
        caught=False,
    )
    return replace(forecast, verdict="does_not_fit", gpu=card, oom=oom, floor=forecast.peak.used - 512)


NASTY = "</style></svg><script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;$\\frac{$"


def with_hostile_names(forecast: Forecast) -> Forecast:
    """The same, where every text that a script can choose tries to be markup."""
    holder = replace(forecast.holders_at_peak[0], name=NASTY, module=NASTY, op=NASTY, line=NASTY, role="temporary")
    assert forecast.timeline is not None
    marks = tuple(replace(mark, name=NASTY) if mark.kind == "phase" else mark for mark in forecast.timeline.marks)
    return replace(
        on_a_smaller_card(forecast),
        peakmem=NASTY,
        torch=NASTY,
        gpu=replace(forecast.gpu, name=NASTY),
        peak=replace(forecast.peak, op=NASTY, module=NASTY, line=NASTY, phase=NASTY),
        error=ScriptError(type=NASTY, message=NASTY, line=NASTY),
        holders_at_peak=(holder,) * 9,
        unneeded_at_peak=(Unneeded(what=NASTY, bytes=1, count=1, examples=(holder,), remedy=NASTY),),
        assumptions=(Assumption(what=NASTY, count=1, assumed=NASTY, where=NASTY),),
        notes=(NASTY,),
        timeline=replace(forecast.timeline, marks=marks),
    )
