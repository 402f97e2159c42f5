"""What `peakmem run --device cpu` does: plan, run with the computing left out, report."""

from __future__ import annotations

import resource
import time
from dataclasses import replace
from pathlib import Path

from peakmem.cli.forecasting import Progress
from peakmem.cli.plain import text_console
from peakmem.cli.planning import RunOptions, checked_steps
from peakmem.cli.progress import RunProgress
from peakmem.cli.requesting import check_scheduler, keeps_stdout, print_request
from peakmem.errors import ExitCode, PeakmemError
from peakmem.files import check_writable, write_json
from peakmem.forecast.cpu import CpuForecast
from peakmem.forecast.cpu_build import build_cpu_forecast
from peakmem.host.library import probe_cpu
from peakmem.host.limits import Limit, limits_of
from peakmem.report.cpu import print_cpu_forecast
from peakmem.session.command import interpreter, resolve
from peakmem.session.failing import nothing_seen_on_cpu
from peakmem.session.launching_cpu import CpuRun, launch_on_cpu
from peakmem.session.running import Ended, Question
from peakmem.session.spared import known_compiler_sizes, known_exit_sizes, remember_sizes
from peakmem.units import parse_size

_OF_CARDS = {
    "gpu": "--gpu",
    "alloc_conf": "--alloc-conf",
    "context": "--context",
    "no_range": "--no-range",
    "build_on_device": "--build-on-device",
    "assume": "--assume",
    "changes": "--set",
    "explain": "--explain",
    "save_target": "--save",
    "ranks_per_node": "--ranks-per-node",
}


def run_on_cpu(options: RunOptions) -> int:
    """Run, report, and give the exit code.

    Raises:
        PeakmemError: bad input, or nothing to report on.
    """
    started = time.monotonic()
    check_scheduler(options.scheduler, options.margin, options.json_target)
    if options.json_target is not None:
        check_writable(options.json_target, force=options.force)
    plan = plan_on_cpu(options)
    limit = limit_of(options.memory)
    with RunProgress(options.output, plan.command) as progress:
        forecast, ended = forecast_on_cpu(plan, limit=limit, progress=progress, started=started)
    screen = text_console(to_stderr=keeps_stdout(options.scheduler, options.json_target))
    print_cpu_forecast(forecast, screen)
    if options.output not in ("hide", "show"):
        screen.print(f" the script's output ({ended.lines} lines) is in {Path(options.output)}", style="dim")
    if forecast.error is not None:
        screen.print("\n ".join(["", *ended.last_lines[-12:]]), markup=False, style="dim")
    if options.scheduler is not None and forecast.error is None:
        print_request(forecast, options.scheduler, options.margin)
    if options.json_target is not None:
        write_json(forecast, options.json_target, force=options.force)
    return exit_code_of(forecast, ended)


def exit_code_of(forecast: CpuForecast, ended: Ended) -> int:
    """The exit code that tells how a run on the CPU ended."""
    if ended.interrupted:
        return ExitCode.INTERRUPTED
    if forecast.error is not None:
        return ExitCode.SCRIPT_FAILED
    return ExitCode.DOES_NOT_FIT if forecast.verdict == "does_not_fit" else ExitCode.FITS


def plan_on_cpu(options: RunOptions) -> CpuRun:
    """The run.

    Raises:
        PeakmemError: the command or an option can't be.
    """
    command = resolve(options.command, module=options.module)
    if options.timeout is not None and not options.timeout > 0:
        raise PeakmemError(f"--timeout {options.timeout:g} is no time", hint="--timeout 600: seconds, more than 0")
    given = [name for field, name in _OF_CARDS.items() if getattr(options, field)]
    if given:
        raise PeakmemError(f"{given[0]} says nothing about training on the CPU", hint=f"leave out {' '.join(given)}")
    return CpuRun(
        command=command,
        facts=probe_cpu(interpreter(command)),
        question=Question(
            steps=checked_steps(options.steps),
            no_weights=options.no_weights,
            late_compiler=True,
            compiler_sizes=known_compiler_sizes(),
            exit_sizes=known_exit_sizes(),
        ),
        timeout=options.timeout,
    )


def limit_of(memory: str | None) -> Limit | None:
    """The memory that a run may take: what was asked for, else the tightest limit of this machine."""
    if memory is not None:
        return Limit(kind="physical", name="--memory", bytes=parse_size(memory))
    return next((limit for limit in limits_of() if limit.kind in ("cgroup", "physical")), None)


def forecast_on_cpu(
    plan: CpuRun, *, limit: Limit | None, progress: Progress, started: float | None = None
) -> tuple[CpuForecast, Ended]:
    """Run a command and say what it takes.

    Args:
        plan: the run.
        limit: the memory that it may take.
        progress: who shows what is being done.
        started: `time.monotonic()` when the command began; None: now.

    Raises:
        PeakmemError: nothing was seen that could be reported on.
    """
    started = time.monotonic() if started is None else started
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    ended = launch_on_cpu(plan, on_progress=progress.line, on_line=progress.printed, on_build=progress.say)
    highest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    recording = ended.outcome.main()
    if recording is None:
        raise nothing_seen_on_cpu(ended, plan.command, timeout=plan.timeout)
    remember_sizes(recording)
    stopped_early = ended.interrupted or ended.timed_out
    forecast = build_cpu_forecast(
        recording,
        facts=plan.facts,
        command=plan.command,
        limit=limit,
        processes=ended.taped.processes if ended.taped is not None else (),
        # The tape looks now and then; the kernel knows what a process took in its last moment too.
        ended_peak=highest * 1024 if highest > before else 0,
        exit_code=0 if stopped_early else ended.exit_code,
        seconds=round(time.monotonic() - started, 2),
    )
    if stopped_early:
        how = "interrupted" if ended.interrupted else f"stopped after {plan.timeout:g} s"
        forecast = replace(forecast, error=None, notes=(f"{how}: this is what was seen until then", *forecast.notes))
    if not recording["steps"]:
        note = "no optimizer stepped: this is what the command takes without a training step"
        forecast = replace(forecast, notes=(note, *forecast.notes))
    return forecast, ended
