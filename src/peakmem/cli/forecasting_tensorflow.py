"""From a planned run of TensorFlow to its forecast: the script as it is, and what it needs with memory growth."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from peakmem.forecast.build import build_forecast, failed_for_memory, used_cudnn
from peakmem.forecast.card import Card
from peakmem.forecast.tensorflow import with_tensorflow
from peakmem.report.host_wording import host_rows
from peakmem.session.command import as_typed
from peakmem.session.failing import nothing_seen
from peakmem.session.launching import Run, launch
from peakmem.session.running import Ended
from peakmem.trace.load import other_allocator
from peakmem.trace.recorded import Recorded
from peakmem.trace.tensorflow_recording import read_tensorflow_recording

if TYPE_CHECKING:
    from peakmem.cli.forecasting import Made, Progress

GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
NO_LIMIT_TOTAL = 2**40
"""What TensorFlow is told of a card without a limit, bytes: its allocator never takes more than it was told."""


def make_tensorflow_forecast(
    plan: Run,
    card: Card,
    *,
    context_with: Callable[[tuple[str, ...]], tuple[int, int]],
    progress: Progress,
    started: float,
) -> Made:
    """Run a command that trains with TensorFlow.

    By default TensorFlow takes nearly the whole card at its start, whatever it needs. The run as it is tells whether it
    fits; what it needs comes from a run in which memory is taken as it is needed.

    Raises:
        PeakmemError: nothing was seen that could be reported on.
    """
    from peakmem.cli.forecasting import Made, host_of

    if plan.alloc_conf is not None:
        raise other_allocator("--alloc-conf", "this script trains with TensorFlow")

    def run(changed: Run) -> tuple[Ended, Recorded]:
        ended = launch(
            changed, limited=True, on_progress=progress.line, on_line=progress.printed, on_build=progress.say
        )
        recording = ended.outcome.main()
        if recording is None:
            raise nothing_seen(ended, plan)
        return ended, Recorded(recording)

    ended, first = run(plan)
    longest = ended
    if used_cudnn(first.recording):
        context, error = context_with(("cublas", "cudnn"))
        plan, card = replace(plan, context=context), replace(card, context=context, context_error=error)
    failed = failed_for_memory(first.recording)
    need: Recorded | None = None
    if not ended.interrupted and (failed or not _told(first)["growth"]):
        progress.say("running again with memory growth, to say how much is needed")
        growing = replace(plan, variables={**plan.variables, GROWTH: "true"})
        if failed:
            device = replace(plan.device, total_memory=max(NO_LIMIT_TOTAL, 4 * plan.device.total_memory))
            growing = replace(growing, device=device)
        again, need = run(growing)
        longest = again
        ended = replace(ended, interrupted=again.interrupted)
    recording = (need or first).recording
    trace = read_tensorflow_recording(recording, capacity=card.total, context=card.context)
    forecast = build_forecast(
        first,
        card=card,
        command=as_typed(plan.command),
        alloc_conf="",
        seconds=time.monotonic() - started,
        exit_code=0 if ended.interrupted or ended.timed_out else ended.exit_code,
        without_limit=need,
        trace=trace,
    )
    forecast = with_tensorflow(forecast, first=first.recording, need=recording)
    forecast = replace(forecast, host=host_of(longest, recording, plan, forecast))
    if trace is not None and forecast.host is not None:
        trace = replace(trace, meta=replace(trace.meta, host=host_rows(forecast.host)))
    if ended.interrupted or ended.timed_out:
        how = "interrupted" if ended.interrupted else f"stopped after {plan.timeout:g} s"
        forecast = replace(forecast, error=None, notes=(f"{how}: this is what was seen until then", *forecast.notes))
    return Made(forecast=forecast, ended=ended, recording=recording, trace=trace)


def _told(recorded: Recorded) -> dict[str, Any]:
    told: dict[str, Any] = recorded.recording["tensorflow"]
    return told
