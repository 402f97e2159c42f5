"""What `peakmem run --measure` does: run for real, with the tape beside it, and report."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from peakmem.cli.plain import text_console
from peakmem.cli.planning import RunOptions
from peakmem.errors import ExitCode, PeakmemError
from peakmem.files import check_writable, write_json
from peakmem.host.measurement import Measurement
from peakmem.host.running import measure
from peakmem.report.beside import load_forecast, put_beside
from peakmem.report.measuring import print_beside, print_measurement
from peakmem.session.command import resolve

VIRTUAL_ONLY = (
    "gpu", "memory", "alloc_conf", "context", "assume", "changes", "build_on_device", "no_weights", "explain",
    "save_target", "ranks_per_node", "scheduler", "margin",
)  # fmt: skip
"""Options that mean something on the virtual GPU alone."""


def run_measured(options: RunOptions) -> int:
    """Measure a real run, report, and give the exit code.

    Raises:
        PeakmemError: bad input.
    """
    given = [name for name in VIRTUAL_ONLY if getattr(options, name)]
    if given:
        name = {"changes": "set", "save_target": "save", "scheduler": "format"}.get(given[0], given[0]).replace(
            "_", "-"
        )
        raise PeakmemError(
            f"--measure runs the command for real, so --{name} has nothing to act on",
            hint=f"leave out --{name}, or --measure",
        )
    command = resolve(options.command, module=options.module)
    forecast = load_forecast(options.against) if options.against is not None else None
    log = None if options.output in ("hide", "show") else options.output
    for target in (options.json_target, log):
        if target is not None:
            check_writable(target, force=options.force)
    with ExitStack() as stack:
        output: IO[bytes] | int | None = None
        if options.output == "hide":
            output = subprocess.DEVNULL
        elif options.output != "show":
            try:
                output = stack.enter_context(Path(options.output).open("wb"))
            except OSError as error:
                raise PeakmemError(f"the output can't go to {options.output}: {error.strerror}") from error
        measured = measure(command, output=output, timeout=options.timeout)
    screen = text_console(to_stderr=options.json_target == "-")
    print_measurement(measured, screen)
    if forecast is not None:
        beside = put_beside(forecast, measured, name=str(options.against), measurement="this run")
        print_beside(beside, screen)
    if options.json_target is not None:
        write_json(measured, options.json_target, force=options.force)
    return exit_code(measured)


def exit_code(measured: Measurement) -> int:
    """The exit code that tells how the command ended."""
    if measured.ending == "interrupted":
        return ExitCode.INTERRUPTED
    return ExitCode.FITS if measured.ending == "ended" else ExitCode.SCRIPT_FAILED
