"""What `peakmem run` does, step by step: card, command, run, second run if it did not fit, range, report."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from peakmem.cli.progress import RunProgress
from peakmem.cli.run import DEFAULT_GPU, console
from peakmem.errors import ExitCode, PeakmemError
from peakmem.forecast.build import Card, build_forecast, failed_for_memory, has_convolutions, used_cudnn
from peakmem.forecast.model import Forecast, Range
from peakmem.report.json import check_writable, write_json
from peakmem.report.terminal import print_forecast
from peakmem.session.command import interpreter, resolve
from peakmem.session.launching import Run, alloc_conf_in_force, check_assumptions, launch
from peakmem.session.running import Ended, Question
from peakmem.trace.recorded import Recorded
from peakmem.units import parse_size
from peakmem.vgpu.catalogue import Device, custom_device, find_device
from peakmem.vgpu.context import estimate_context
from peakmem.vgpu.probe import TorchFacts, probe

INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """The options of `peakmem run`, as they were typed."""

    gpu: str | None
    memory: str | None
    steps: str
    alloc_conf: str | None
    context: str | None
    cudnn: str
    no_range: bool
    assume: str
    build_on_device: bool
    no_weights: bool
    output: str
    json_target: str | None
    save_target: str | None
    force: bool
    timeout: float | None
    module: bool
    command: tuple[str, ...]


def run(options: RunOptions) -> int:
    """Run, report, and give the exit code.

    Raises:
        PeakmemError: bad input, or nothing to report on.
    """
    started = time.monotonic()
    for target in (options.json_target, options.save_target):
        if target is not None:
            check_writable(target, force=options.force)
    plan, card = _plan(options)
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
            context, error = _context(options, plan.device, plan.facts, ("cublas", "cudnn"))
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
        forecast = build_forecast(
            recorded,
            card=card,
            command=plan.command,
            alloc_conf=alloc_conf_in_force(plan),
            seconds=time.monotonic() - started,
            exit_code=0 if ended.interrupted or ended.timed_out else ended.exit_code,
            without_limit=without_limit,
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
    _report(forecast, ended, options)
    return _exit_code(forecast, ended)


def _plan(options: RunOptions) -> tuple[Run, Card]:
    command = resolve(options.command, module=options.module)
    check_assumptions(options.assume)
    device = find_device(options.gpu or DEFAULT_GPU)
    if options.memory is not None:
        device = custom_device(
            memory=parse_size(options.memory), like=find_device(options.gpu) if options.gpu else None
        )
    facts = probe(interpreter(command))
    context, error = _context(options, device, facts, ("cublas",))
    if context >= device.total_memory:
        raise PeakmemError(
            f"a card of {options.memory} has no room beside the CUDA context ({context:,} bytes)",
            hint="give more --memory, or a smaller --context",
        )
    question = Question(
        steps=_steps(options.steps),
        assume=options.assume,
        build_on_device=options.build_on_device,
        no_weights=options.no_weights,
    )
    plan = Run(
        command=command,
        facts=facts,
        device=device,
        context=context,
        alloc_conf=options.alloc_conf,
        cudnn=options.cudnn,
        question=question,
        timeout=options.timeout,
    )
    card = Card(
        name=device.name,
        total=device.total_memory,
        compute_capability=device.capability,
        context=context,
        context_error=error,
    )
    return plan, card


def _context(options: RunOptions, device: Device, facts: TorchFacts, libraries: tuple[str, ...]) -> tuple[int, int]:
    """What the context takes and how far that may be off, bytes."""
    if options.context is not None:
        return parse_size(options.context), 0
    lazy = os.environ.get("CUDA_MODULE_LOADING", "LAZY") != "EAGER"
    estimate = estimate_context(device, facts.cuda, lazy_loading=lazy, libraries_used=libraries)
    return estimate.size, estimate.error


def _steps(text: str) -> str:
    if text in ("auto", "all") or (text.isdigit() and int(text) > 0):
        return text
    raise PeakmemError(
        f"--steps {text} is neither a number of steps nor auto nor all", hint="--steps 5, or --steps all"
    )


def _recorded(ended: Ended, plan: Run) -> Recorded:
    recording = ended.outcome.main()
    if recording is not None:
        return Recorded(recording)
    raise _nothing_seen(ended, plan)


def _nothing_seen(ended: Ended, plan: Run) -> PeakmemError:
    """Why no process left a recording."""
    events = {line["event"]: line for line in ended.outcome.progress}
    shown = "\n".join(ended.last_lines[-15:])
    words = " ".join(plan.command)
    if ended.interrupted:
        return PeakmemError("interrupted before the script used the GPU", exit_code=ExitCode.SCRIPT_FAILED)
    if "unwritten" in events:
        reason = events["unwritten"]["reason"]
        return PeakmemError(
            f"what the run showed could not be written: {reason}", hint="make room in the temporary folder (TMPDIR)"
        )
    if "error" in events:
        error = events["error"]
        return PeakmemError(
            f"the script failed before it used the GPU: {error['type']}: {error['message']}",
            hint=shown,
            exit_code=ExitCode.SCRIPT_FAILED,
        )
    if ended.timed_out:
        return PeakmemError(
            f"{words} was stopped after {plan.timeout:g} s and had not used the GPU", exit_code=ExitCode.SCRIPT_FAILED
        )
    if ended.exit_code < 0:
        return PeakmemError(
            f"{words} was ended by signal {-ended.exit_code} before it could be measured",
            hint=shown or "signal 9 is often the kernel's, for want of host memory: --build-on-device saves some",
            exit_code=ExitCode.SCRIPT_FAILED,
        )
    if ended.exit_code > 0:
        return PeakmemError(
            f"{words} ended with exit code {ended.exit_code} before it used the GPU",
            hint=shown,
            exit_code=ExitCode.SCRIPT_FAILED,
        )
    if "no_cuda" in events:
        return PeakmemError(
            f"the script used torch {events['no_cuda']['torch']}, a CPU-only build", hint="pip install torch"
        )
    if "torch" in events:
        return PeakmemError(
            "the script ended without using the GPU",
            hint="it may train on the CPU: look for a device setting such as --device cuda",
        )
    return PeakmemError(f"{words} ended without importing PyTorch", hint="give the command that trains")


def _too_large(recorded: Recorded, card: Card) -> bool:
    return int(recorded.recording["devices"][0]["peak"]["reserved"]) > card.usable


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


def _exit_code(forecast: Forecast, ended: Ended) -> int:
    if ended.interrupted:
        return INTERRUPTED
    if forecast.error is not None:
        return ExitCode.SCRIPT_FAILED
    return ExitCode.DOES_NOT_FIT if forecast.verdict == "does_not_fit" else ExitCode.FITS
