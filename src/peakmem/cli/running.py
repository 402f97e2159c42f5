"""What `peakmem run` does: plan, forecast, report."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from peakmem.cli.ending import exit_code, print_ending
from peakmem.cli.forecasting import Made, make_forecast
from peakmem.cli.plain import text_console
from peakmem.cli.planning import RunOptions, estimate, plan_run
from peakmem.cli.progress import RunProgress
from peakmem.cli.requesting import check_scheduler, keeps_stdout, print_request
from peakmem.errors import PeakmemError
from peakmem.files import check_writable, write_json
from peakmem.forecast.explain import explain
from peakmem.report.explain import print_explanation
from peakmem.report.terminal import print_forecast
from peakmem.trace.file import write_trace

if TYPE_CHECKING:
    from rich.console import Console


def run(options: RunOptions) -> int:
    """Run, report, and give the exit code.

    Raises:
        PeakmemError: bad input, or nothing to report on.
    """
    started = time.monotonic()
    check_scheduler(options.scheduler, options.margin, options.json_target)
    log = None if options.output in ("hide", "show") else options.output
    for target in (options.json_target, options.save_target, log):
        if target is not None:
            check_writable(target, force=options.force)
    plan, card = plan_run(options)
    with RunProgress(options.output, plan.command) as progress:
        made = make_forecast(
            plan,
            card,
            context_with=partial(estimate, options, plan.device, plan.facts),
            with_range=not options.no_range,
            progress=progress,
            started=started,
        )
    screen = text_console(to_stderr=keeps_stdout(options.scheduler, options.json_target))
    print_forecast(made.forecast, screen)
    print_ending(made.forecast, made.ended, screen, output=options.output)
    if options.explain:
        _explain(made, screen)
    if options.scheduler is not None and made.forecast.error is None:
        print_request(made.forecast, options.scheduler, options.margin)
    _write(made, options)
    return exit_code(made.forecast, made.ended)


def _write(made: Made, options: RunOptions) -> None:
    """Write what was asked for, after the report: it is not lost if a disk is full, nor is one file for the other."""
    problem = None
    if options.json_target is not None:
        try:
            write_json(made.forecast, options.json_target, force=options.force)
        except PeakmemError as error:
            problem = error
    if options.save_target is not None:
        if made.trace is None:
            raise PeakmemError(f"{options.save_target} was not written: the run has no history of allocations")
        write_trace(made.trace, options.save_target, force=options.force)
    if problem is not None:
        raise problem


def _explain(made: Made, screen: Console) -> None:
    framework = made.forecast.framework
    explained = explain(made.recording, made.trace) if made.trace is not None and not framework else None
    if framework:
        screen.print(f" --explain counts layers of PyTorch by hand, and this is {framework}", style="dim")
    elif explained is None:
        screen.print(" --explain: no layer with weights ran on the GPU: there is nothing to count", style="dim")
    else:
        print_explanation(explained, made.forecast, screen)
