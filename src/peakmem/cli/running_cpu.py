"""What `peakmem run --device cpu` does: plan, run with the computing left out, report."""

from __future__ import annotations

import resource
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from peakmem.cli.ending import exit_code, print_ending
from peakmem.cli.forecasting import Progress
from peakmem.cli.meanwhile import load_meanwhile
from peakmem.cli.plain import text_console
from peakmem.cli.planning import RunOptions, checked_steps
from peakmem.cli.progress import RunProgress
from peakmem.errors import PeakmemError
from peakmem.files import check_writable, write_json
from peakmem.host.library import CpuFacts, probe_cpu
from peakmem.host.limits import Limit, limits_of, own_peak
from peakmem.host.tensorflow import has_tensorflow, probe_tensorflow_cpu
from peakmem.session.command import interpreter, resolve
from peakmem.session.framework import framework_of_command
from peakmem.session.launching_cpu import CpuRun, launch_on_cpu
from peakmem.session.running import Ended, Question
from peakmem.session.spared import known_exit_sizes, known_late_sizes, remember_sizes
from peakmem.units import parse_size

if TYPE_CHECKING:
    from rich.console import Console

    from peakmem.forecast.cpu import CpuForecast
    from peakmem.forecast.model import ScriptError

_READERS = ("peakmem.forecast.cpu_build", "peakmem.report.cpu")
"""What reads a recording and reports: loaded while the command runs."""

_OF_CARDS = {
    "gpu": "--gpu",
    "alloc_conf": "--alloc-conf",
    "context": "--context",
    "no_range": "--no-range",
    "build_on_device": "--build-on-device",
    "ranks_per_node": "--ranks-per-node",
}
_OF_THE_VIRTUAL_GPU = {
    "assume": ("--assume", "no values are made up on the CPU: those that are computed are the script's own"),
    "changes": ("--set", "change the setting in the script, or in the options of peakmem predict --device cpu"),
    "save_target": ("--save", "no history of allocations is kept on the CPU; --json FILE keeps the forecast"),
}
_NO_GPU = "with --device cpu a script finds no GPU: let its own settings choose the CPU, or leave --device cpu out"


def run_on_cpu(options: RunOptions) -> int:
    """Run, report, and give the exit code.

    Raises:
        PeakmemError: bad input, or nothing to report on.
    """
    from peakmem.cli.requesting import check_scheduler, keeps_stdout, print_request

    started = time.monotonic()
    check_scheduler(options.scheduler, options.margin, options.json_target)
    if options.json_target is not None:
        check_writable(options.json_target, force=options.force)
    plan = plan_on_cpu(options)
    limit = limit_of(options.memory)
    with RunProgress(options.output, plan.command) as progress:
        forecast, ended = forecast_on_cpu(plan, limit=limit, progress=progress, started=started)
    from peakmem.report.cpu import print_cpu_forecast

    screen = text_console(to_stderr=keeps_stdout(options.scheduler, options.json_target))
    print_cpu_forecast(forecast, screen)
    print_ending(forecast, ended, screen, output=options.output)
    if options.explain:
        _explain(forecast, ended, screen)
    if options.scheduler is not None and forecast.error is None:
        print_request(forecast, options.scheduler, options.margin)
    if options.json_target is not None:
        write_json(forecast, options.json_target, force=options.force)
    return exit_code(forecast, ended)


def _explain(forecast: CpuForecast, ended: Ended, screen: Console) -> None:
    if forecast.framework:
        screen.print(f" --explain: layers are counted with PyTorch, and this is {forecast.framework}", style="dim")
        return
    from peakmem.forecast.explain_cpu import explain_cpu
    from peakmem.report.explain_cpu import print_cpu_explanation

    recording = ended.outcome.main()
    explained = explain_cpu(recording) if recording is not None else None
    if explained is None:
        screen.print(" --explain: no layer with weights was trained: there is nothing to count", style="dim")
    else:
        print_cpu_explanation(explained, forecast, screen)


def plan_on_cpu(options: RunOptions) -> CpuRun:
    """The run.

    Raises:
        PeakmemError: the command or an option can't be.
    """
    command = resolve(options.command, module=options.module)
    if options.timeout is not None and not options.timeout > 0:
        raise PeakmemError(f"--timeout {options.timeout:g} is no time", hint="--timeout 600: seconds, more than 0")
    given = [name for field, name in _OF_CARDS.items() if getattr(options, field)]
    if options.cudnn != "likely":
        given.append("--cudnn")
    if given:
        raise PeakmemError(f"{given[0]} says nothing about training on the CPU", hint=f"leave out {' '.join(given)}")
    for field, (name, instead) in _OF_THE_VIRTUAL_GPU.items():
        if getattr(options, field):
            raise PeakmemError(f"{name} works on the virtual GPU only, not with --device cpu", hint=instead)
    return CpuRun(
        command=command,
        facts=cpu_facts_for(command),
        question=Question(
            steps=checked_steps(options.steps),
            no_weights=options.no_weights,
            late_libraries=True,
            late_sizes=known_late_sizes(),
            exit_sizes=known_exit_sizes(),
            count_layers=options.explain,
        ),
        timeout=options.timeout,
    )


def cpu_facts_for(command: tuple[str, ...]) -> CpuFacts:
    """The PyTorch or the TensorFlow that a command trains with, by the imports of its script.

    Raises:
        PeakmemError: there is none, or memory of training on the CPU can't be forecast there.
    """
    python = interpreter(command)
    wanted = framework_of_command(command)
    if wanted == "tensorflow":
        return probe_tensorflow_cpu(python)
    if wanted not in (None, "torch"):
        raise PeakmemError(
            f"--device cpu is for PyTorch and TensorFlow, and the script trains with {wanted}",
            hint="KERAS_BACKEND=tensorflow or KERAS_BACKEND=torch; for JAX: peakmem predict jax:module:function",
        )
    try:
        return probe_cpu(python)
    except PeakmemError:
        if wanted is None and has_tensorflow(python):
            return probe_tensorflow_cpu(python)
        raise


def limit_of(memory: str | None) -> Limit | None:
    """The memory that a run may take: what was asked for, else the tightest limit of this machine.

    Raises:
        PeakmemError: what was asked for is no size, or nothing.
    """
    if memory is not None:
        size = parse_size(memory)
        if not size:
            raise PeakmemError("a machine can't have 0 bytes of memory", hint="write --memory 16GiB")
        return Limit(kind="physical", name="--memory", bytes=size)
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
    # What the kernel tells of a child begins with what we had when it was made (exec does not forget it).
    before = max(own_peak(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
    loading = load_meanwhile(_READERS)
    ended = launch_on_cpu(plan, on_progress=progress.line, on_line=progress.printed, on_build=progress.say)
    highest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    recording = ended.outcome.main()
    if recording is None:
        from peakmem.session.failing import nothing_seen_on_cpu

        raise nothing_seen_on_cpu(ended, plan.command, timeout=plan.timeout)
    remember_sizes(recording)
    stopped_early = ended.interrupted or ended.timed_out
    loading.join()
    from peakmem.forecast.cpu_build import build_cpu_forecast

    forecast = build_cpu_forecast(
        recording,
        facts=plan.facts,
        command=plan.command,
        limit=limit,
        processes=ended.taped.processes if ended.taped is not None else (),
        # The tape looks now and then; the kernel knows what a process took in its last moment too.
        ended_peak=highest if highest > before else 0,
        exit_code=0 if stopped_early else ended.exit_code,
        seconds=round(time.monotonic() - started, 2),
    )
    if stopped_early:
        how = "interrupted" if ended.interrupted else f"stopped after {plan.timeout:g} s"
        forecast = replace(forecast, error=None, notes=(f"{how}: this is what was seen until then", *forecast.notes))
    if forecast.error is not None and _asks_for_a_gpu(forecast.error):
        forecast = replace(forecast, notes=(*forecast.notes, _NO_GPU))
    elif forecast.error is None and not recording["steps"]:
        note = "no optimizer stepped: this is what the command takes without a training step"
        forecast = replace(forecast, notes=(note, *forecast.notes))
    return forecast, ended


def _asks_for_a_gpu(error: ScriptError) -> bool:
    """Whether a script failed since PyTorch found no GPU, as with --device cpu it never does."""
    return "NVIDIA driver" in error.message or "No CUDA GPUs are available" in error.message
