"""What `peakmem check` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peakmem.advise.budgets import Tolerance, baseline_of, judge, read_baseline
from peakmem.cli.forecasting import Made, make_forecast
from peakmem.cli.plain import text_console
from peakmem.cli.planning import estimate, plan_run
from peakmem.cli.progress import RunProgress
from peakmem.cli.solving import asked, run_options
from peakmem.cli.subject import Subject
from peakmem.errors import ExitCode, PeakmemError
from peakmem.files import check_writable, write_json
from peakmem.report.checking import print_checked
from peakmem.units import parse_size

SCHEMA = "peakmem/check/1"


def check(options: dict[str, Any]) -> int:
    """Run, compare, print, and give the exit code.

    Raises:
        PeakmemError: bad input, or the script fails by itself.
    """
    update, target = options["update_baseline"], options["baseline"]
    if options["budget"] is None and target is None:
        raise PeakmemError("there is nothing to check against", hint="--budget 22GiB, --baseline FILE, or both")
    if update and target is None:
        raise PeakmemError("--update-baseline has no file to write", hint="--baseline memory.json --update-baseline")
    budget = parse_size(options["budget"]) if options["budget"] is not None else None
    tolerance = Tolerance.parse(options["tolerance"])
    if options["json_target"] is not None:
        check_writable(options["json_target"], force=options["force"])
    if update:
        check_writable(target, force=True)
    before = read_baseline(Path(target)) if target is not None and not update else None
    with asked(options) as subject:
        made = _made(options, subject)
        now = baseline_of(made.forecast, made.trace, command=_command(subject))
    if made.ended.interrupted:
        return ExitCode.INTERRUPTED
    screen = text_console(to_stderr=options["json_target"] == "-")
    if update:
        write_json(now, target, force=True)
        screen.print(f"the baseline is now in {target}", style="dim", highlight=False)
    if update and budget is None:
        return ExitCode.FITS
    forecast = made.forecast
    checked = judge(
        now,
        figure=options["figure"],
        budget=budget,
        before=before,
        tolerance=tolerance,
        too_large_for=forecast.gpu.name if forecast.verdict == "does_not_fit" else None,
    )
    if options["json_target"] is not None:
        write_json({"schema": SCHEMA, "results": [checked]}, options["json_target"], force=options["force"])
    print_checked(checked, screen)
    return ExitCode.FITS if checked.passed else ExitCode.DOES_NOT_FIT


def _made(options: dict[str, Any], subject: Subject) -> Made:
    prepared = subject.at({}, variables={})
    chosen = run_options(options, prepared)
    plan, card = plan_run(chosen)
    with RunProgress("hide", plan.command) as progress:
        made = make_forecast(
            plan,
            card,
            context_with=lambda libraries: estimate(chosen, plan.device, plan.facts, libraries),
            with_range=False,
            progress=progress,
        )
    error = made.forecast.error
    if error is not None:
        where = f" at {error.line}" if error.line else ""
        raise PeakmemError(
            f"the script failed{where}: {error.type}: {error.message}",
            hint="peakmem run on the same command shows what the script printed",
            exit_code=ExitCode.SCRIPT_FAILED,
        )
    return made


def _command(subject: Subject) -> tuple[str, ...]:
    return tuple(subject.title.split())
