"""`--format slurm|kubernetes|docker|lsf`, which several commands have: what to request of a scheduler."""

from __future__ import annotations

import click

from peakmem.errors import PeakmemError
from peakmem.report.requesting import HostForecast, margin_of, needs_of, request_text


def check_scheduler(scheduler: str | None, margin: str | None, json_target: str | None) -> None:
    """Look at the options before a long run.

    Raises:
        PeakmemError: they don't go together, or can't be read.
    """
    if scheduler is None:
        if margin is not None:
            raise PeakmemError("--margin is for a request", hint="add --format slurm, kubernetes, docker or lsf")
        return
    if json_target == "-":
        raise PeakmemError("--format and --json - both write to standard output", hint="give --json the name of a file")
    margin_of(margin, memory=0, driver_error=0, ranks=1)


def keeps_stdout(scheduler: str | None, json_target: str | None) -> bool:
    """Whether standard output belongs to something else than the report."""
    return json_target == "-" or scheduler is not None


def print_request(forecast: HostForecast, scheduler: str, margin: str | None) -> None:
    """Print the lines on standard output."""
    click.echo(request_text(needs_of(forecast, margin=margin), scheduler), nl=False)
