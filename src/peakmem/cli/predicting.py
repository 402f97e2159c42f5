"""What `peakmem predict` does: a training script is written, then run and reported on as `peakmem run` would."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from peakmem.cli.describing import Collecting, describe, print_workload
from peakmem.cli.forecasting import Made, Progress, make_forecast
from peakmem.cli.generated import Written, on_disk, write_training
from peakmem.cli.planning import RunOptions, estimate, plan_run
from peakmem.cli.requesting import check_scheduler, keeps_stdout, print_request
from peakmem.cli.untrainable import plainer, untrainable
from peakmem.errors import ExitCode, PeakmemError
from peakmem.files import check_writable, write_json
from peakmem.forecast.unwatched import with_unwatched_peaks
from peakmem.session.unwatched import unwatched_peaks
from peakmem.workload.resolving import is_checkpoint

if TYPE_CHECKING:
    from peakmem.cli.predict_options import PredictOptions
    from peakmem.forecast.model import Forecast

_ABOUT_SCRIPTS = "the script was ended after"
"""How the note begins that tells of what a script may do later; one of ours does nothing later."""


def predict(options: PredictOptions) -> int:
    """Write the script, run it, report, and give the exit code.

    Raises:
        PeakmemError: bad input, or the model can't be trained so.
    """
    for target in (options.json_target, options.save_target, options.save_script):
        if target is not None:
            check_writable(target, force=options.force)
    check_scheduler(options.scheduler, options.margin, options.json_target)
    if options.device == "cpu":
        from peakmem.cli.predicting_cpu import predict_on_cpu

        return predict_on_cpu(options)
    if options.what.startswith("jax:"):
        from peakmem.cli.predicting_jax import predict_jax

        return predict_jax(options)
    if is_checkpoint(options.what):
        from peakmem.cli.predicting_checkpoints import predict_checkpoint

        code: int = predict_checkpoint(options, options.training())
        return code
    written = write_training(options)
    if options.print_script:
        click.echo(written.script, nl=False)
        return ExitCode.FITS
    from peakmem.cli.ending import exit_code, print_ending
    from peakmem.cli.plain import text_console
    from peakmem.cli.progress import RunProgress

    with RunProgress("hide", (options.what,)) as progress:
        made, forecast = forecast_script(written, options.run(), progress, keep=options.save_script)
    if options.save_target is not None and made.trace is not None:
        from peakmem.trace.file import write_trace

        write_trace(made.trace, options.save_target, force=options.force)
    if options.json_target is not None:
        write_json(forecast, options.json_target, force=options.force)
    from peakmem.report.terminal import print_forecast

    screen = text_console(to_stderr=keeps_stdout(options.scheduler, options.json_target))
    print_workload(forecast.workload, screen)
    print_forecast(forecast, screen)
    print_ending(forecast, made.ended, screen)
    if options.scheduler is not None and forecast.error is None:
        print_request(forecast, options.scheduler, options.margin)
    return exit_code(forecast, made.ended)


def forecast_script(
    written: Written, options: RunOptions, progress: Progress, *, keep: str | None = None
) -> tuple[Made, Forecast]:
    """Run a training script, and make its forecast.

    Args:
        written: the script.
        options: how it is run.
        progress: who shows what is being done.
        keep: the file that the script is to be kept in.

    Raises:
        PeakmemError: the model can't be trained so.
    """
    started = time.monotonic()
    collected = Collecting(progress)
    with on_disk(written.script, keep=keep) as file:
        options = replace(options, command=file.command)
        plan, card = plan_run(options)
        try:
            made = make_forecast(
                plan,
                card,
                context_with=partial(estimate, options, plan.device, plan.facts),
                with_range=not options.no_range,
                progress=collected,
                started=started,
            )
        except PeakmemError as error:
            raise plainer(error, written.workload) from error
        forecast = made.forecast
        if written.training.collects_garbage and not (made.ended.interrupted or forecast.error):
            progress.say("running again without a recording, since tensors wait for Python's garbage collector")
            forecast = with_unwatched_peaks(forecast, unwatched_peaks(plan, limited=forecast.oom is None))
    if forecast.error is not None and not forecast.steps:
        raise untrainable(forecast.error, made.ended, written.workload, collected)
    forecast = replace(
        file.named(forecast),
        command=("peakmem", "predict", written.what),
        notes=tuple(note for note in forecast.notes if not note.startswith(_ABOUT_SCRIPTS)),
        workload=describe(written.workload, written.training, collected),
    )
    return made, forecast
