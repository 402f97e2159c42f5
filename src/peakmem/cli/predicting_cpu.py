"""What `peakmem predict --device cpu` does: the same script, trained on the CPU with the computing left out."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from peakmem.cli.forecasting import Progress
from peakmem.cli.generated import generated
from peakmem.cli.plain import text_console
from peakmem.cli.planning import RunOptions
from peakmem.cli.predicting import (
    Collecting,
    PredictOptions,
    describe,
    plainer,
    print_workload,
    steps_to_run,
    written,
)
from peakmem.cli.progress import RunProgress
from peakmem.cli.requesting import keeps_stdout, print_request
from peakmem.cli.running_cpu import exit_code_of, forecast_on_cpu, limit_of, plan_on_cpu
from peakmem.errors import ExitCode, PeakmemError
from peakmem.files import write_json
from peakmem.report.cpu import print_cpu_forecast
from peakmem.session.running import Ended
from peakmem.workload.keras.naming import is_keras
from peakmem.workload.model import Workload
from peakmem.workload.resolving import is_checkpoint

if TYPE_CHECKING:
    from peakmem.forecast.cpu import CpuForecast
    from peakmem.workload.keras.training import Compiled
    from peakmem.workload.training import Training


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
    script, workload, training = written(options, steps=steps_to_run(options.steps))
    if options.print_script:
        click.echo(script, nl=False)
        return ExitCode.FITS
    with RunProgress("hide", (options.what,)) as progress:
        forecast, ended = forecast_script_on_cpu(
            script, workload, training, options.run(), progress, what=options.what, keep=options.save_script
        )
    if options.json_target is not None:
        write_json(forecast, options.json_target, force=options.force)
    screen = text_console(to_stderr=keeps_stdout(options.scheduler, options.json_target))
    print_workload(forecast.workload or {}, screen)
    print_cpu_forecast(forecast, screen)
    if forecast.error is not None:
        screen.print("\n ".join(["", *ended.last_lines[-12:]]), markup=False, style="dim")
    elif options.scheduler is not None:
        print_request(forecast, options.scheduler, options.margin)
    return exit_code_of(forecast, ended)


def forecast_script_on_cpu(
    script: str,
    workload: Workload,
    training: Training | Compiled,
    options: RunOptions,
    progress: Progress,
    *,
    what: str,
    keep: str | None = None,
) -> tuple[CpuForecast, Ended]:
    """Run a script that `write_script` wrote for the CPU, and make its forecast.

    Raises:
        PeakmemError: the model can't be trained so.
    """
    started = time.monotonic()
    collected = Collecting(progress)
    with generated(script, keep=keep) as file:
        plan = plan_on_cpu(replace(options, command=file.command))
        try:
            forecast, ended = forecast_on_cpu(plan, limit=limit_of(options.memory), progress=collected, started=started)
        except PeakmemError as error:
            raise plainer(error, workload) from error
    described = describe(workload, training, collected)
    return replace(file.named(forecast), command=("peakmem", "predict", what), workload=described), ended
