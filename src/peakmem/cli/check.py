"""`peakmem check`: does it still fit? For continuous integration."""

from __future__ import annotations

from typing import Any

import click

from peakmem.cli.subject import SubjectCommand
from peakmem.cli.subject_options import subject_options


@click.command(
    cls=SubjectCommand,
    epilog="Exit codes: 0 within budget and baseline, 1 over one of them, 2 bad input, 3 the script itself failed.",
)
@click.option("--budget", metavar="SIZE", help="What the run may take at most, such as 22GiB.")
@click.option("--baseline", metavar="FILE", help="Figures of an accepted run: says what grew, and fails if it did.")
@click.option("--update-baseline", is_flag=True, help="Write the figures of this run to the baseline instead.")
@click.option(
    "--tolerance", default="1%", metavar="SIZE|N%", show_default=True, help="How much more than the baseline may pass."
)
@click.option(
    "--of",
    "figure",
    type=click.Choice(["used", "reserved", "allocated"]),
    default="used",
    show_default=True,
    help="Which figure of the peak is compared.",
)
@subject_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Check a run against a memory budget and against an accepted run.

    \b
    peakmem check --budget 22GiB -- python train.py
    peakmem check --baseline memory.json --update-baseline -- python train.py
    peakmem check --budget 22GiB --baseline memory.json -- python train.py
    peakmem check --budget 8GiB torchvision:resnet50 --batch 64

    No GPU is needed and the figures are the same each time. The first line that is printed says why it passed or not;
    below it stands what grew, by role and by module.
    """
    from peakmem.cli.checking import check

    ctx.exit(check(options))
