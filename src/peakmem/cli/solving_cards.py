"""What `peakmem solve --smallest-card` does."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from peakmem.advise.cards import CardSearch
from peakmem.advise.trials import Trial, Trials
from peakmem.cli.plain import text_console
from peakmem.cli.solving import SCHEMA, planned, showing
from peakmem.cli.subject import Subject
from peakmem.errors import ExitCode, PeakmemError
from peakmem.files import write_json
from peakmem.report.solving_cards import print_cards
from peakmem.vgpu.catalogue import devices, search_devices


def smallest_card(options: dict[str, Any], subject: Subject) -> int:
    """Search, print, and give the exit code.

    Raises:
        PeakmemError: bad input, or the script fails by itself.
    """
    if options["memory"] is not None:
        raise PeakmemError("--memory makes a card of its own", hint="leave it out with --smallest-card")
    cards = devices() if options["gpu"] is None else search_devices(options["gpu"])
    prepared = subject.at({}, variables={})
    plan, context_of = planned({**options, "gpu": None}, prepared)
    with showing("looking for the smallest card") as say:
        with Trials(plan, context_of) as trials:
            search = CardSearch(subject.title, Trial(command=prepared.command), trials, cards, say)
            with suppress(KeyboardInterrupt):
                search.run()
        found = search.result()
    if options["json_target"] is not None:
        write_json({"schema": SCHEMA, "results": [found]}, options["json_target"], force=options["force"])
    print_cards(found, text_console(to_stderr=options["json_target"] == "-"))
    if found.interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.DOES_NOT_FIT if found.smallest is None else ExitCode.FITS
