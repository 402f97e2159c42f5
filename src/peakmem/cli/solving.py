"""What `peakmem solve` does."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peakmem.advise.solving import Solving
from peakmem.advise.trials import ContextOf, Trial, Trials
from peakmem.advise.varying import Vary
from peakmem.cli.plain import text_console
from peakmem.cli.planning import RunOptions, estimate, plan_run
from peakmem.cli.subject import Prepared, Subject, subject_of
from peakmem.errors import ExitCode, PeakmemError
from peakmem.files import check_writable, write_json
from peakmem.report.solving import print_solved
from peakmem.session.launching import Run

SCHEMA = "peakmem/solve/1"


def solve(options: dict[str, Any]) -> int:
    """Search, print, and give the exit code.

    Raises:
        PeakmemError: bad input, or the script fails by itself.
    """
    if options["json_target"] is not None:
        check_writable(options["json_target"], force=options["force"])
    if options["smallest_card"] == (options["vary"] is not None):
        late = any(word.startswith(("--vary", "--smallest-card")) for word in options["words"])
        where = "in front of the command: " if late else ""
        raise PeakmemError(
            "give one of --vary and --smallest-card", hint=f"{where}peakmem solve --vary batch=1..512 -- COMMAND"
        )
    with asked(options) as subject:
        if options["smallest_card"]:
            from peakmem.cli.solving_cards import smallest_card

            return smallest_card(options, subject)
        return _largest(options, subject, Vary.parse(options["vary"]))


@contextmanager
def asked(options: dict[str, Any]) -> Iterator[Subject]:
    """What the command is asked about."""
    with tempfile.TemporaryDirectory(prefix="peakmem-scripts-") as folder:
        yield subject_of(
            options["words"],
            options["predicting"],
            module=options["module"],
            shared=options,
            folder=Path(folder),
        )


def planned(options: dict[str, Any], prepared: Prepared) -> tuple[Run, ContextOf]:
    """The run that all trials are variants of, and what contexts take.

    Raises:
        PeakmemError: the command, the card or an option can't be.
    """
    chosen = run_options(options, prepared)
    plan, _ = plan_run(chosen)
    return plan, lambda device, libraries: estimate(chosen, device, plan.facts, libraries)


def run_options(options: dict[str, Any], prepared: Prepared) -> RunOptions:
    """The options of `peakmem run` for one run."""
    names = ("gpu", "memory", "steps", "alloc_conf", "context", "cudnn", "assume", "build_on_device", "no_weights",
             "timeout")  # fmt: skip
    return RunOptions(
        command=prepared.command,
        no_initial_values=prepared.no_initial_values,
        **{name: options[name] for name in names},
    )


@contextmanager
def showing(first: str) -> Iterator[Any]:
    """A spinner on standard error with what is being done; nothing where that is no terminal."""
    from peakmem.cli.progress import Spinner

    with Spinner(first) as spinner:
        yield spinner.say


def _largest(options: dict[str, Any], subject: Subject, vary: Vary) -> int:
    subject.check(vary.name, in_environment=vary.in_environment)

    def prepared_at(value: int) -> Prepared:
        variables = {vary.name: str(value)} if vary.in_environment else {}
        return subject.at({} if vary.in_environment else {vary.name: value}, variables=variables)

    def trial_of(value: int) -> Trial:
        prepared = prepared_at(value)
        return Trial(command=prepared.command, variables=prepared.variables)

    first = prepared_at(vary.values[0])
    plan, context_of = planned(options, first)
    with showing(f"looking for the largest {vary.name}") as say:
        with Trials(plan, context_of) as trials:
            solving = Solving(subject.title, vary, trial_of, trials, plan.device, say)
            interrupted = False
            try:
                solving.run()
            except KeyboardInterrupt:
                interrupted = True
        solved = solving.result()
    if options["json_target"] is not None:
        write_json({"schema": SCHEMA, "results": [solved]}, options["json_target"], force=options["force"])
    print_solved(solved, text_console(to_stderr=options["json_target"] == "-"))
    if interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.DOES_NOT_FIT if solved.largest is None else ExitCode.FITS
