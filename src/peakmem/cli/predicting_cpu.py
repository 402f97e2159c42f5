"""What `peakmem predict --device cpu` does: the same script, trained on the CPU with the computing left out."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from peakmem.cli.describing import Collecting, describe, print_workload
from peakmem.cli.ending import exit_code, print_ending
from peakmem.cli.forecasting import Progress
from peakmem.cli.generated import Written, on_disk, write_training
from peakmem.cli.plain import text_console
from peakmem.cli.planning import RunOptions
from peakmem.cli.progress import RunProgress
from peakmem.cli.requesting import keeps_stdout, print_request
from peakmem.cli.running_cpu import forecast_on_cpu, limit_of, plan_on_cpu
from peakmem.cli.untrainable import plainer, untrainable
from peakmem.errors import ExitCode, PeakmemError
from peakmem.files import write_json
from peakmem.report.cpu import print_cpu_forecast
from peakmem.session.running import Ended
from peakmem.workload.keras.naming import is_keras
from peakmem.workload.resolving import is_checkpoint

if TYPE_CHECKING:
    from peakmem.cli.predict_options import PredictOptions
    from peakmem.forecast.cpu import CpuForecast


def predict_on_cpu(options: PredictOptions) -> int:
    """Write the script, run it on the CPU, report, and give the exit code.

    Raises:
        PeakmemError: bad input, or the model can't be trained so.
    """
    if is_keras(options.what) or options.what.startswith("jax:") or is_checkpoint(options.what):
        raise PeakmemError(
            f"--device cpu is for PyTorch models with an architecture, which {options.what} is not",
            hint="peakmem run --device cpu takes a script, of Keras on torch too",
        )
    written = write_training(options)
    if options.print_script:
        click.echo(written.script, nl=False)
        return ExitCode.FITS
    with RunProgress("hide", (options.what,)) as progress:
        forecast, ended = forecast_script_on_cpu(written, options.run(), progress, keep=options.save_script)
    if options.json_target is not None:
        write_json(forecast, options.json_target, force=options.force)
    screen = text_console(to_stderr=keeps_stdout(options.scheduler, options.json_target))
    print_workload(forecast.workload or {}, screen)
    print_cpu_forecast(forecast, screen)
    print_ending(forecast, ended, screen)
    if options.scheduler is not None and forecast.error is None:
        print_request(forecast, options.scheduler, options.margin)
    return exit_code(forecast, ended)


def forecast_script_on_cpu(
    written: Written, options: RunOptions, progress: Progress, *, keep: str | None = None
) -> tuple[CpuForecast, Ended]:
    """Run a training script on the CPU, and make its forecast; `predicting.forecast_script` does so for a GPU.

    Raises:
        PeakmemError: the model can't be trained so.
    """
    started = time.monotonic()
    collected = Collecting(progress)
    with on_disk(written.script, keep=keep) as file:
        plan = plan_on_cpu(replace(options, command=file.command))
        try:
            forecast, ended = forecast_on_cpu(plan, limit=limit_of(options.memory), progress=collected, started=started)
        except PeakmemError as error:
            raise plainer(error, written.workload) from error
    if forecast.error is not None and not forecast.host.steps:
        raise untrainable(forecast.error, ended, written.workload, collected)
    described = describe(written.workload, written.training, collected)
    return replace(file.named(forecast), command=("peakmem", "predict", written.what), workload=described), ended
