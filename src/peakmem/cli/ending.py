"""How a run ended, for who reads and for who branches: the end of what its script printed, and the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from peakmem.errors import ExitCode
from peakmem.session.printed import last_words

if TYPE_CHECKING:
    from rich.console import Console

    from peakmem.forecast.cpu import CpuForecast
    from peakmem.forecast.model import Forecast
    from peakmem.session.running import Ended


def print_ending(forecast: Forecast | CpuForecast, ended: Ended, screen: Console, *, output: str = "hide") -> None:
    """Say where the script's output is, and show the end of it where the script failed.

    Args:
        forecast: of the run.
        ended: how it ended.
        screen: where it is shown.
        output: the value of `--output`: "hide", "show" or a file.
    """
    if output not in ("hide", "show"):
        screen.print(f" the script's output ({ended.lines} lines) is in {Path(output)}", style="dim")
    if forecast.error is not None:
        screen.print()
        for line in last_words(ended.last_lines):  # whole, as they were printed: places are clicked on and searched for
            screen.print(f" {line}", markup=False, style="dim", soft_wrap=True)


def exit_code(forecast: Forecast | CpuForecast, ended: Ended) -> ExitCode:
    """The exit code that tells how a run ended."""
    if ended.interrupted:
        return ExitCode.INTERRUPTED
    if forecast.error is not None:
        return ExitCode.SCRIPT_FAILED
    return ExitCode.DOES_NOT_FIT if forecast.verdict == "does_not_fit" else ExitCode.FITS
