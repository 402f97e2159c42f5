"""From a planned run to its forecast: run, second run if it did not fit, floor, range. Every command uses this."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from peakmem.cli.meanwhile import load_meanwhile
from peakmem.forecast.card import Card
from peakmem.session.command import as_typed
from peakmem.session.launching import Run, alloc_conf_in_force, launch
from peakmem.session.running import Ended
from peakmem.vgpu.tensorflow import TensorflowFacts

if TYPE_CHECKING:
    from peakmem.forecast.host import Host
    from peakmem.forecast.model import Forecast, Range
    from peakmem.host.cuda_libraries import LoadedLibraries
    from peakmem.trace.model import Trace
    from peakmem.trace.recorded import Recorded

_READERS = ("peakmem.forecast.build", "peakmem.session.failing", "peakmem.trace.recording", "peakmem.report.terminal")
"""What reads a recording: loaded while the command runs, which keeps one core busy for seconds."""


class Progress(Protocol):
    """Whoever shows what is being done."""

    def say(self, text: str, /) -> None:
        """Show what is being done."""

    def line(self, line: dict[str, Any], /) -> None:
        """Show a progress line of a watched process."""

    def printed(self, line: str, /) -> None:
        """Take a line that the command printed."""


class Silent:
    """Shows nothing of what is being done."""

    def say(self, text: str) -> None:
        """Show nothing."""

    def line(self, line: dict[str, Any]) -> None:
        """Show nothing."""

    def printed(self, line: str) -> None:
        """Show nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """A forecast and what it was made of.

    Attributes:
        forecast: the forecast.
        ended: how the first run ended, or that of them which was interrupted.
        recording: of the run without a limit if there was one, else of the first (`session/inside/recording.py`).
        trace: of the same run; None without a history.
    """

    forecast: Forecast
    ended: Ended
    recording: dict[str, Any]
    trace: Trace | None


def make_forecast(
    plan: Run,
    card: Card,
    *,
    context_with: Callable[[tuple[str, ...]], tuple[int, int]],
    with_range: bool,
    progress: Progress,
    started: float | None = None,
) -> Made:
    """Run a command as often as its forecast needs.

    Args:
        plan: the run.
        card: the card that it is made for.
        context_with: what the context takes with these libraries loaded, and how far that may be off, bytes.
        with_range: whether convolutional results get a range, by further runs.
        progress: who shows what is being done.
        started: `time.monotonic()` when the command began; None: now.

    Raises:
        PeakmemError: nothing was seen that could be reported on.
    """
    started = time.monotonic() if started is None else started
    if isinstance(plan.facts, TensorflowFacts):
        from peakmem.cli.forecasting_tensorflow import make_tensorflow_forecast

        return make_tensorflow_forecast(plan, card, context_with=context_with, progress=progress, started=started)
    loading = load_meanwhile(_READERS)
    ended = launch(
        plan,
        limited=True,
        on_progress=progress.line,
        on_line=progress.printed,
        on_build=progress.say,
    )
    loading.join()
    from peakmem.forecast.build import build_forecast, failed_for_memory, has_convolutions, used_cudnn
    from peakmem.report.host_wording import host_rows
    from peakmem.trace.recording import read_recording

    recorded = _recorded(ended, plan)
    if used_cudnn(recorded.recording):
        context, error = context_with(("cublas", "cudnn"))
        plan, card = replace(plan, context=context), replace(card, context=context, context_error=error)
        if _reserved(recorded) > card.usable and not ended.interrupted:
            progress.say("cuDNN takes memory of its own; running again with what it leaves")
            ended = launch(plan, limited=True, on_progress=progress.line)
            recorded = _recorded(ended, plan)
    without_limit = None
    longest = ended
    if failed_for_memory(recorded.recording) and not ended.interrupted:
        progress.say("it does not fit; running again without a limit, to say how much it needs")
        again = launch(plan, limited=False, on_progress=progress.line)
        if not again.interrupted or again.outcome.recordings:
            without_limit = _recorded(again, plan)
            longest = again
        ended = replace(ended, interrupted=again.interrupted)
    alloc_conf = alloc_conf_in_force(plan)
    recording = (without_limit or recorded).recording
    trace = read_recording(recording, capacity=card.total, context=card.context, alloc_conf=alloc_conf)
    floor = None
    if without_limit is not None and trace is not None and not ended.interrupted:
        progress.say("looking for the smallest memory that works")
        try:
            floor = _floor(plan, card, trace, reserved=_reserved(without_limit))
        except KeyboardInterrupt:
            ended = replace(ended, interrupted=True)
    forecast = build_forecast(
        recorded,
        card=card,
        command=as_typed(plan.command),
        alloc_conf=alloc_conf,
        seconds=time.monotonic() - started,
        exit_code=0 if ended.interrupted or ended.timed_out else ended.exit_code,
        without_limit=without_limit,
        floor=floor,
        trace=trace,
    )
    forecast = replace(forecast, host=host_of(longest, recording, plan, forecast))
    if trace is not None and forecast.host is not None:
        trace = replace(trace, meta=replace(trace.meta, host=host_rows(forecast.host)))
    if ended.interrupted or ended.timed_out:
        how = "interrupted" if ended.interrupted else f"stopped after {plan.timeout:g} s"
        forecast = replace(forecast, error=None, notes=(f"{how}: this is what was seen until then", *forecast.notes))
    if has_convolutions(recorded.recording) and with_range and not (ended.interrupted or forecast.error):
        progress.say("convolutions: running with the other plans, for the range")
        try:
            forecast = replace(forecast, convolution_range=_range(plan, forecast))
        except KeyboardInterrupt:
            ended = replace(ended, interrupted=True)
            note = "interrupted before the runs with other convolution plans ended: the result has no range"
            forecast = replace(forecast, notes=(note, *forecast.notes))
    forecast = replace(forecast, seconds=round(time.monotonic() - started, 2))
    return Made(forecast=forecast, ended=ended, recording=recording, trace=trace)


def host_of(ended: Ended, main: dict[str, Any], plan: Run, forecast: Forecast) -> Host | None:
    """The host's side of the run that went furthest."""
    from peakmem.forecast.host_side import host_side
    from peakmem.host.cuda_driver import driver_memory
    from peakmem.session.spared import remember_sizes

    remember_sizes(main)
    if ended.taped is None:
        return None
    lazy = os.environ.get("CUDA_MODULE_LOADING", "LAZY") != "EAGER"
    return host_side(
        ended.outcome.recordings,
        main,
        ended.taped,
        driver=driver_memory(lazy=lazy),
        roles=forecast.roles_at_peak,
        ranks=plan.ranks_per_node,
        libraries=_libraries_absent(plan),
    )


def _libraries_absent(plan: Run) -> LoadedLibraries | None:
    """CUDA's libraries, where they were not in the process."""
    from peakmem.host.cuda_libraries import loaded_libraries

    if not isinstance(plan.facts, TensorflowFacts):
        return None
    return loaded_libraries(plan.facts.python, plan.facts.cudnn_folder.parents[1])


def _recorded(ended: Ended, plan: Run) -> Recorded:
    from peakmem.session.failing import no_gpu_used, nothing_seen, tell_untold_error, trained_elsewhere
    from peakmem.trace.recorded import Recorded

    recording = ended.outcome.main()
    if recording is None:
        raise nothing_seen(ended, plan)
    if not (ended.interrupted or ended.timed_out):
        tell_untold_error(recording, ended.exit_code)
    if trained_elsewhere(recording):
        raise no_gpu_used()
    return Recorded(recording)


def _reserved(recorded: Recorded) -> int:
    return int(recorded.recording["devices"][0]["peak"]["reserved"])


def _floor(plan: Run, card: Card, trace: Trace, *, reserved: int) -> int | None:
    """The smallest total memory with which the recorded requests end without an out-of-memory error, bytes.

    Args:
        plan: the run.
        card: its card.
        trace: of the run without a limit.
        reserved: what that one reserved at most, bytes.
    """
    # With expandable segments the allocator reserves addresses for 1.125 times the card's memory; on the card that we
    # look for they suffice, so the one that is replayed on must not be too small for them.
    from peakmem.allocator.replay import Replayer

    total = max(plan.device.total_memory, 2 * reserved)
    with Replayer(trace, facts=plan.facts, card=replace(plan.device, total_memory=total)) as replayer:
        found = replayer.floor(trace.meta.alloc_conf)
    return None if found.size is None else found.size + card.context


def _range(plan: Run, forecast: Forecast) -> Range:
    """The peak reserved under the other two choices of convolution plans."""
    from peakmem.forecast.model import Range

    others = [kind for kind in ("least", "likely", "own") if kind != plan.cudnn]
    question = replace(
        plan.question, record=False, late_libraries=True, late_sizes=None, steps=str(max(len(forecast.steps), 1))
    )
    if plan.question.steps == "all" or not forecast.steps:
        question = replace(question, steps="all")

    stop = threading.Event()

    def reserved(kind: str) -> int:
        other = launch(replace(plan, cudnn=kind, question=question), limited=False, stop=stop)
        return _reserved(_recorded(other, plan))

    with ThreadPoolExecutor(2) as pool:
        try:
            values = dict(zip(others, pool.map(reserved, others), strict=True))
        except BaseException:
            stop.set()
            raise
    values[plan.cudnn] = forecast.peak.reserved
    return Range(least=values["least"], likely=values["likely"], own=values["own"])
