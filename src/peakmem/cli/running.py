"""What `peakmem run` does, step by step: run, second run if it did not fit, range, report."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peakmem.allocator.replay import Replayer
from peakmem.cli.planning import RunOptions, estimate, plan_run
from peakmem.cli.progress import RunProgress
from peakmem.cli.run import console
from peakmem.errors import ExitCode
from peakmem.forecast.build import Card, build_forecast, failed_for_memory, has_convolutions, used_cudnn
from peakmem.forecast.explain import explain
from peakmem.forecast.model import Forecast, Range
from peakmem.report.explain import print_explanation
from peakmem.report.json import check_writable, write_json
from peakmem.report.terminal import print_forecast
from peakmem.session.failing import nothing_seen
from peakmem.session.launching import Run, alloc_conf_in_force, launch
from peakmem.session.running import Ended
from peakmem.trace.file import write_trace
from peakmem.trace.model import Trace
from peakmem.trace.recorded import Recorded
from peakmem.trace.recording import read_recording

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130


def run(options: RunOptions) -> int:
    """Run, report, and give the exit code.

    Raises:
        PeakmemError: bad input, or nothing to report on.
    """
    started = time.monotonic()
    for target in (options.json_target, options.save_target):
        if target is not None:
            check_writable(target, force=options.force)
    plan, card = plan_run(options)
    with RunProgress(options.output, plan.command) as progress:
        ended = launch(
            plan,
            limited=True,
            on_progress=progress.line,
            on_line=progress.printed,
            on_build=progress.say,
        )
        recorded = _recorded(ended, plan)
        if used_cudnn(recorded.recording):
            context, error = estimate(options, plan.device, plan.facts, ("cublas", "cudnn"))
            plan, card = replace(plan, context=context), replace(card, context=context, context_error=error)
            if _too_large(recorded, card):
                progress.say("cuDNN takes memory of its own; running again with what it leaves")
                ended = launch(plan, limited=True, on_progress=progress.line)
                recorded = _recorded(ended, plan)
        without_limit = None
        if failed_for_memory(recorded.recording) and not ended.interrupted:
            progress.say("it does not fit; running again without a limit, to say how much it needs")
            again = launch(plan, limited=False, on_progress=progress.line)
            without_limit = _recorded(again, plan)
            ended = replace(ended, interrupted=again.interrupted)
        alloc_conf = alloc_conf_in_force(plan)
        trace = read_recording(
            (without_limit or recorded).recording, capacity=card.usable, context=card.context, alloc_conf=alloc_conf
        )
        floor = None
        if without_limit is not None and trace is not None:
            progress.say("looking for the smallest memory that works")
            floor = _floor(plan, card, trace)
        forecast = build_forecast(
            recorded,
            card=card,
            command=plan.command,
            alloc_conf=alloc_conf,
            seconds=time.monotonic() - started,
            exit_code=0 if ended.interrupted or ended.timed_out else ended.exit_code,
            without_limit=without_limit,
            floor=floor,
            trace=trace,
        )
        if ended.interrupted or ended.timed_out:
            how = "interrupted" if ended.interrupted else f"stopped after {plan.timeout:g} s"
            forecast = replace(
                forecast, error=None, notes=(f"{how}: this is what was seen until then", *forecast.notes)
            )
        if has_convolutions(recorded.recording) and not (options.no_range or ended.interrupted or forecast.error):
            progress.say("convolutions: running with the other plans, for the range")
            forecast = replace(forecast, convolution_range=_range(plan, forecast))
    forecast = replace(forecast, seconds=round(time.monotonic() - started, 2))
    if options.save_target is not None and trace is not None:
        write_trace(trace, options.save_target, force=options.force)
    _report(forecast, ended, options)
    if options.explain:
        _explain(forecast, (without_limit or recorded).recording, trace, console(to_stderr=options.json_target == "-"))
    return _exit_code(forecast, ended)


def _recorded(ended: Ended, plan: Run) -> Recorded:
    recording = ended.outcome.main()
    if recording is not None:
        return Recorded(recording)
    raise nothing_seen(ended, plan)


def _too_large(recorded: Recorded, card: Card) -> bool:
    return int(recorded.recording["devices"][0]["peak"]["reserved"]) > card.usable


def _floor(plan: Run, card: Card, trace: Trace) -> int | None:
    """The smallest total memory with which the recorded requests end without an out-of-memory error, bytes."""
    with Replayer(trace, facts=plan.facts, card=plan.device) as replayer:
        found = replayer.floor(trace.meta.alloc_conf)
    return None if found.size is None else found.size + card.context


def _range(plan: Run, forecast: Forecast) -> Range:
    """The peak reserved under the other two choices of convolution plans."""
    others = [kind for kind in ("least", "likely", "own") if kind != plan.cudnn]
    question = replace(plan.question, record=False, steps=str(max(len(forecast.steps), 1)))
    if plan.question.steps == "all" or not forecast.steps:
        question = replace(question, steps="all")

    def reserved(kind: str) -> int:
        other = launch(replace(plan, cudnn=kind, question=question), limited=False)
        return int(_recorded(other, plan).recording["devices"][0]["peak"]["reserved"])

    with ThreadPoolExecutor(2) as pool:
        values = dict(zip(others, pool.map(reserved, others), strict=True))
    values[plan.cudnn] = forecast.peak.reserved
    return Range(least=values["least"], likely=values["likely"], own=values["own"])


def _report(forecast: Forecast, ended: Ended, options: RunOptions) -> None:
    if options.json_target is not None:
        write_json(forecast, options.json_target, force=options.force)
    screen = console(to_stderr=options.json_target == "-")
    print_forecast(forecast, screen)
    if options.output not in ("hide", "show"):
        screen.print(f" the script's output ({ended.lines} lines) is in {Path(options.output)}", style="dim")
    if forecast.error is not None:
        screen.print("\n ".join(["", *ended.last_lines[-12:]]), markup=False, style="dim")


def _explain(forecast: Forecast, recording: dict[str, Any], trace: Trace | None, screen: Console) -> None:
    explained = explain(recording, trace) if trace is not None else None
    if explained is None:
        screen.print(" --explain: no layer with weights ran on the GPU: there is nothing to count", style="dim")
    else:
        print_explanation(explained, forecast, screen)


def _exit_code(forecast: Forecast, ended: Ended) -> int:
    if ended.interrupted:
        return INTERRUPTED
    if forecast.error is not None:
        return ExitCode.SCRIPT_FAILED
    return ExitCode.DOES_NOT_FIT if forecast.verdict == "does_not_fit" else ExitCode.FITS
